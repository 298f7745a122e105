"""Secrets by position without a name: headers, short flags of programs, parameters of URLs, lines
of files.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from reprokit.core.redaction.rules.secret_places import MARK


@dataclass(frozen=True)
class SecretPlace:
    """A position at which any value is a secret."""

    name: str
    """Its name in docs/reference/redaction.md."""
    hints: tuple[str, ...]
    pattern: str
    """A regular expression; its group ``secret`` is the secret."""
    flags: int = 0
    is_near: bool = True
    """The secret is on the same line as a hint."""
    is_word: bool = False
    """The name and the secret have no white space."""
    part: str = ""
    """A regular expression for a part of every match that has no white space."""


_WORD = rf"(?!{MARK})[^\s\"'`<>\\]"
_NEXT = r"(?:\\*[\"']\s{0,4},\s{0,4}\\*[\"']|[ \t]+|=)"
"""The text between two words of a command line, in a shell or in a list."""
_SCHEME = r"(?:bearer|basic|token|digest)\s{0,4}(?:\\*[\"']|\{|%s)"
"""The first half of a header that a program composes."""
_QUOTE = r"\\*[\"']?"
_LINE = r"[^\n]{0,300}?"


_IN_QUOTES = rf"(?<=')(?!{MARK})[^'\n]{{3,200}}(?=')|(?<=\")(?!{MARK})[^\"\n]{{3,200}}(?=\")"
"""A value with spaces."""


def _flag(
    name: str, programs: str, flags: str, value: str = "", hints: tuple[str, ...] = ()
) -> SecretPlace:
    """Return the position after a flag of some programs, with or without white space between."""
    body = value or rf"(?P<secret>{_IN_QUOTES}|{_WORD}{{3,}})"
    pattern = rf"(?:(?<![\w-])|(?<=^[-+])|(?<=\n[-+]))(?:{programs})(?![\w-]){_LINE}(?:[\s\"',])(?:{flags}){_QUOTE}{body}"
    hints = hints or tuple(p.replace("\\", "") for p in programs.split("|"))
    return SecretPlace(name, hints, pattern, part=rf"(?:{programs})(?![\w-])")


_PARAMETERS = (
    r"sig|signature|hmac|auth|authorization|token|key|secret|password|passwd|pwd|pass|ticket|credential|credentials|session|sid"
    r"|sessionid|jwt|assertion|apikey|accesskey|access_token|code|otp|x-amz-signature|x-goog-signature|policy|mac|hash|psk"
)
_PAIR = rf"(?P<secret>{_WORD}+)"
_EQUALS = tuple(f"{name}=" for name in re.sub(r"x-[\w-]+\|", "", _PARAMETERS).split("|"))

# fmt: off
PLACES: tuple[SecretPlace, ...] = (
    SecretPlace("Authorization header", ("authorization",),
        rf"(?P<open>\\*[\"'])(?:-H\s*)?(?:proxy-|x-)?authorization\s{{0,2}}:\s{{0,4}}(?P<secret>(?!{MARK})(?:(?!(?P=open))[^\n]){{4,4000}})", re.IGNORECASE),
    SecretPlace("Authorization header", ("authorization",),
        rf"\b(?:proxy-|x-)?authorization\\*[\"']?\]?[ \t]*[:=,][ \t]*(?P<open>\\*[\"'])(?P<secret>(?!{MARK}|none\b)(?!{_SCHEME})(?:(?!(?P=open))[^\n]){{4,4000}})", re.IGNORECASE),
    SecretPlace("Authorization header", ("authorization",),
        rf"\b(?:proxy-|x-)?authorization[ \t]*[:=][ \t]*(?P<secret>(?!{MARK}|none\b|{_SCHEME})[^\s\"'<(\[][^\n]{{4,4000}})", re.IGNORECASE),
    SecretPlace("Cookie header", ("cookie",),
        rf"(?P<open>\\*[\"'])(?:set-)?cookie2?:[ \t]*(?P<secret>(?!{MARK})(?:(?!(?P=open))[^\n]){{4,4000}})", re.IGNORECASE),
    SecretPlace("Cookie header", ("cookie",),
        rf"\b(?:set-)?cookie[s2]?\\*[\"']?\]?[ \t]*[:=,][ \t]*(?P<open>\\*[\"'])(?P<secret>(?!{MARK}|none\b)(?!{_SCHEME})(?:(?!(?P=open))[^\n]){{4,4000}})", re.IGNORECASE),
    SecretPlace("Cookie header", ("cookie",),
        rf"\b(?:set-)?cookie2?[ \t]*:[ \t]*(?P<secret>(?!{MARK}|none\b|{_SCHEME})[^\s\"'<(\[][^\n]{{4,4000}})", re.IGNORECASE),
    SecretPlace("cookie", ("cookie ",), rf"<Cookie [\w.-]{{1,80}}=(?P<secret>(?!{MARK})[^\s]{{4,}}) for"),
    SecretPlace("cookie file", ("\ttrue\t", "\tfalse\t"), r"\t(?:TRUE|FALSE)\t[^\t\n]{1,200}\t(?:TRUE|FALSE)\t\d{1,12}\t[^\t\n]{1,100}\t(?P<secret>[^\s<][^\s]{3,})", part=r"(?:TRUE|FALSE)(?!\S)"),
    SecretPlace("bearer token", ("bearer", "basic ", "negotiate", "ntlm", "apikey", "token ", "token:"),
        rf"\b(?:bearer|basic|negotiate|ntlm|apikey|token)(?:\s+|:\s*|%20)(?P<secret>(?=\S*\d|\S*=$)(?![\w-]*\s*\(){_WORD.replace('<>', '<>,;()')}{{12,}})", re.IGNORECASE, part=r"[BbNnAaTt](?i:earer|asic|egotiate|tlm|pikey|oken)(?![^\s:%])"),
    SecretPlace("Digest authentication", ("digest",),
        rf"\bdigest\s+(?P<secret>(?!{MARK})\w{{2,20}}=[^\n]{{4,2000}})", re.IGNORECASE),
    SecretPlace("Digest authentication", ("nonce", "response="), r"\b(?:response|nonce|cnonce|opaque)=\\*\"?(?P<secret>[0-9a-zA-Z+/=]{16,})", re.IGNORECASE),
    SecretPlace("URL parameter", _EQUALS,
        rf"[?&;](?:[\w.-]{{0,40}}[_.-])?(?:{_PARAMETERS})=(?P<secret>(?!{MARK})[^\s&\"'`\\<>;,)]{{8,}})", re.IGNORECASE, is_word=True),
    SecretPlace("URL parameter", _EQUALS,
        rf"[?&][\w.-]{{0,30}}(?:Token|Key|Secret|Signature|Password|token|apikey|passwd|password)=(?P<secret>(?!{MARK})[^\s&\"'`\\<>;,)]{{4,}})", is_word=True),
    SecretPlace("default of an option", ("default",),
        rf"[\"']--?[\w-]*(?:password|passwd|passphrase|secret)[\"'][^\n)]{{0,160}}?\bdefault\s{{0,4}}=\s{{0,4}}[bru]?[\"'](?P<secret>(?!{MARK}|<)[^\"'\n]{{4,200}})[\"']", re.IGNORECASE, part=r"(?i:[\"']--?[\w-]*(?:password|passwd|passphrase|secret)[\"'])"),
    SecretPlace("default of an option", ("default",),
        rf"[\"']--?[\w-]*(?:token|api[_-]?key|access[_-]?key)[\"'][^\n)]{{0,160}}?\bdefault\s{{0,4}}=\s{{0,4}}[bru]?[\"'](?P<secret>(?!{MARK}|<)(?=[^\"'\n]{{0,80}}\d)[\w.+/=-]{{6,200}})[\"']", re.IGNORECASE, part=r"(?i:[\"']--?[\w-]*(?:token|api[_-]?key|access[_-]?key)[\"'])"),
    SecretPlace("Kubernetes Secret", ("kind: secret",),
        rf"kind:[ \t]*Secret\b(?:\n(?!---)[^\n]{{0,200}}){{0,12}}?\n(?:data|stringData):[ \t]*\n(?P<secret>(?:[ \t]+(?!{MARK})[^\n]{{1,4000}}(?:\n|$)){{1,40}})", re.IGNORECASE, is_near=False),
    SecretPlace("URL parameter", ("x-amz-",), rf"\bX-Amz-(?:Signature|Credential|Security-Token)[ \t]*[=:][ \t]*(?P<secret>{_WORD}{{8,}})", re.IGNORECASE),
    SecretPlace("netrc line", ("machine",), rf"\bmachine\s+\S+\s+login\s+\S+\s+password\s+(?P<secret>(?!{MARK})\S+)"),
    SecretPlace("netrc line", ("login",), rf"\blogin\s+\S+\s+password\s+(?P<secret>(?!{MARK})\S+)"),
    SecretPlace("pgpass line", (":5432:", ":*:"), rf"(?<![\w.*/-])[\w.*-]{{1,80}}:(?:\d{{4,5}}|\*):[\w*-]{{1,60}}:[\w*-]{{1,60}}:(?P<secret>(?!{MARK})\S{{4,}})"),
    SecretPlace("shell variable", ("env ", "setenv", "set -x", "setx"),
        rf"\b(?:ENV|setenv|set -g?x|setx)\s+[A-Z0-9_]*(?:TOKEN|SECRET|PASS|PASSWORD|PASSWD|PASSPHRASE|CREDENTIALS?|KEY|_AUTH|_PAT|_PWD)(?:_ID)?\s+{_QUOTE}(?P<secret>{_WORD}{{4,}})", part=r"(?:TOKEN|SECRET|PASS|PASSWORD|PASSWD|PASSPHRASE|CREDENTIALS?|KEY|_AUTH|_PAT|_PWD)(?:_ID)?(?!\S)"),
    SecretPlace("setting of a command", ("aws configure", "config set", "config --", "poetry config", "git config", "pip config", "npm config", "yarn config", "gcloud config"),
        rf"\b(?:configure|config)\s+(?:--?[\w-]+\s+){{0,4}}(?:set\s+)?(?:--?[\w-]+\s+)*[\w./:@-]*(?:token|secret|password|passwd|passphrase|_auth|_authToken|key|key_id|pypi-token\.\w+)[ \t=]+{_QUOTE}(?P<secret>{_WORD}{{4,}})", re.IGNORECASE),
    _flag("password of MySQL", r"mysql|mysqldump|mysqladmin|mysqlimport|mysqlsh|mariadb|mariadb-dump|mycli", r"-p"),
    _flag("password of sshpass", r"sshpass", rf"-p{_NEXT}?"),
    _flag("password of a registry", r"docker|podman|nerdctl|skopeo|oras|helm|crane|buildah", rf"-p{_NEXT}|--password{_NEXT}", hints=("login",)),
    _flag("user and password of curl", r"curl|wget|http|https|xh|lwp-request", rf"-u{_NEXT}?|--user{_NEXT}|--proxy-user{_NEXT}|-U{_NEXT}?|-a{_NEXT}", rf"[^\s:\"']{{1,80}}:(?!//){_PAIR}", ("curl", "wget", "http ", "https ", "xh ", "lwp-request")),
    _flag("cookie of curl", r"curl|wget|http", rf"-b{_NEXT}?|--cookie{_NEXT}", rf"(?P<secret>(?!{MARK})[\w.-]{{1,60}}=[^\n\"']{{4,}})", ("curl", "wget", "http ")),
    _flag("password of Redis", r"redis-cli|valkey-cli|keydb-cli|iredis", rf"-a{_NEXT}?|--pass{_NEXT}"),
    _flag("password of LDAP", r"ldapsearch|ldapadd|ldapmodify|ldapdelete|ldapwhoami|ldappasswd", rf"-w{_NEXT}?|-s{_NEXT}"),
    _flag("password of MongoDB", r"mongo|mongosh|mongodump|mongorestore|mongoimport|mongoexport", rf"-p{_NEXT}?"),
    _flag("password of SQL Server", r"sqlcmd|bcp|osql|snowsql|impala-shell|beeline|isql|tsql", rf"-[Pp]{_NEXT}?"),
    _flag("password of an archive", r"zip|unzip|7z|7za|7zz|rar|unrar|zipcloak", rf"-P{_NEXT}?|-[hp]p?", r"(?P<secret>(?!<)[^\s\"'`<>/.-][^\s\"'`<>]{3,})", ("zip ", "zip\"", "7z", "rar ", "zipcloak")),
    _flag("password of PuTTY", r"plink|pscp|psftp|pageant|putty", rf"-pw{_NEXT}"),
    _flag("user and password of Samba", r"smbclient|rpcclient|smbget|mount\.cifs|winexe|net|crackmapexec|impacket-\w+", rf"-U{_NEXT}?|--user{_NEXT}", rf"[^\s%:\"']{{1,80}}[%:]{_PAIR}", ("smb", "rpcclient", "mount.cifs", "winexe", "net ", "crackmapexec", "impacket-")),
    _flag("user and password of lftp", r"lftp|ncftpput|ncftp|ftp", rf"-u{_NEXT}?", rf"[^\s,\"']{{1,80}},{_PAIR}"),
    _flag("password of OpenSSL", r"openssl", rf"-(?:passin|passout|pass|password){_NEXT}{_QUOTE}(?:pass:)?|-[kK]{_NEXT}"),
    _flag("password of an upload", r"twine|az|heroku|cf|oc|kubectl|rclone|bw|lpass|keepassxc-cli|ansible|vault|argocd|gcloud|ibmcloud|snowflake|ncftpput|net|xfreerdp|rdesktop", rf"-p{_NEXT}|/p:|-pass{_NEXT}", hints=("twine", "az ", "heroku", "rclone", "ibmcloud", "argocd", "ncftpput", "freerdp", "rdesktop")),
    _flag("key of a login", r"wandb|vault|ngrok|op|ngc|comet|modal|sentry-cli|flyctl|huggingface-cli|hf|doctl|gh|netlify|railway|neptune|clearml-init|prefect|kaggle", r"login\s(?:--?\w[\w-]*\s+){0,3}|authtoken\s|auth init -t\s|auth add\s|-t\s", rf"(?P<secret>(?!-)(?=[^\s\"']*\d){_WORD}{{8,}})", ("login", "authtoken", "auth add", "auth init", " -t ")),
    SecretPlace("password of htpasswd", ("htpasswd",), rf"\bhtpasswd\s+(?:-[a-zA-Z]*b[a-zA-Z]*)\s+(?:-\w+\s+)*\S+\s+\S+\s+{_QUOTE}(?P<secret>{_WORD}{{4,}})"),
    SecretPlace("password on standard input", ("chpasswd", "sudo -s", "password-stdin", "with-token", "passwd --stdin", "passphrase-fd", "sudo -ks", "<<<"),
        rf"\becho\s+(?:-[neE]+\s+)?{_QUOTE}(?:[\w.-]{{1,40}}:)?(?P<secret>{_WORD}{{4,}}?){_QUOTE}\s*\|\s*(?:\S+=\S+\s+)?(?:sudo -k?S|\S*chpasswd|\S*passwd|docker|podman|gh|gpg|helm|skopeo|cryptsetup)"),
    SecretPlace("password on standard input", ("<<<",), rf"(?:chpasswd|--password-stdin|--with-token|--stdin|sudo -k?S\b[^\n<]{{0,80}})\s{{0,4}}<<<\s{{0,4}}{_QUOTE}(?:[\w.-]{{1,40}}:)?(?P<secret>{_WORD}{{4,}})"),
    SecretPlace("password in SQL", ("identified", "password"), r"\b(?:identified\s+(?:with\s+\S+\s+)?by|password)\s+(?:E)?'(?P<secret>[^'\n<]{3,200})'", re.IGNORECASE),
    SecretPlace("password of NetExec", ("net use",), rf"\bnet use\s+(?:\w:\s+|\*\s+)?\S+\s+(?:/user:\S+\s+)?(?P<secret>(?!/){_WORD}{{4,}})", re.IGNORECASE),
    SecretPlace("basic authentication of requests", ("auth", "login("), rf"(?:\bauth\s{{0,2}}=\s{{0,2}}(?:[\w.]{{0,40}}Auth)?|BasicAuth|DigestAuth|\blogin)\(\s{{0,4}}[bru]{{0,2}}[\"'][^\"'\n]{{1,80}}[\"']\s{{0,2}},\s{{0,4}}[bru]{{0,2}}[\"'](?P<secret>(?!{MARK})[^\"'\n]{{3,}})"),
    SecretPlace("key of a call", ("fernet(", "jwt.", "hmac.", "pbkdf2_hmac(", "bind_s("),
        rf"\b(?:(?:Multi)?Fernet\(|jwt\.(?:en|de)code\([^,\n]{{1,200}},|hmac\.(?:new|digest)\(|pbkdf2_hmac\([^,\n]{{1,40}},|\w{{0,12}}bind_s\(\s{{0,4}}[\"'][^\"'\n]{{1,200}}[\"'],)\s{{0,4}}(?:key=)?[bru]{{0,2}}[\"'](?P<secret>(?!{MARK})[^\"'\n]{{6,}})", re.IGNORECASE),
    SecretPlace("Secret value", ("secret",), rf"\bSecret(?:Str|Bytes|Value|Text)?\((?:\w{{1,12}}=)?[bru]{{0,2}}(?P<open>\\*[\"'])(?P<secret>(?!{MARK}|\*)(?:(?!(?P=open))[^\n]){{3,2000}})"),
    SecretPlace("password of a server's configuration", ("requirepass", "masterauth"), rf"\b(?:requirepass|masterauth)\s+{_QUOTE}(?P<secret>{_WORD}{{4,}})", re.IGNORECASE),
    SecretPlace("key in a sentence", ("api key", "access key", "secret key", "access token", "auth token", "license key"),
        r"\b(?:api|access|secret|auth|private|license) (?:key|token)s?\b[^\n]{0,40}?[\s:\"'(](?P<secret>(?=[^\s\"']{0,80}\d)(?=[^\s\"']{0,80}[A-Za-z])[A-Za-z0-9_+/=.*-]{12,})", re.IGNORECASE),
    SecretPlace("password in a table", ("password", "passwd", "passphrase"),
        rf"(?:password|passwd|passphrase)\*?[\"']?[ \t]{{0,2}}(?:[. ]{{2,}}|[ \t]?\|[ \t]{{0,40}}|[(\[]|[:=][ \t]{{0,2}}!{{1,2}}\w{{1,20}}[ \t])(?P<secret>(?=[^\s]{{0,80}}\d){_WORD}{{6,}})", re.IGNORECASE),
    SecretPlace("user and password before a host", ("ftp", "ssh", "scp", "rsync", "oracle:", "sqlplus", "sqlldr", "expdp", "impdp"),
        rf"(?:\b(?:s?ftp|ssh|scp|rsync)\b{_LINE}[\s\"'][\w.-]{{1,40}}:|\b(?:sqlplus|sqlldr|expdp|impdp)\b{_LINE}[\s\"'=][\w$#]{{1,40}}/|oracle:\w{{1,10}}:[\w$#]{{1,40}}/)(?P<secret>(?!{MARK}|/)[^\s@\"'<>]{{4,}})@[\w/(]"),
    SecretPlace("password of a network device", ("community", "secret ", "password "),
        rf"\b(?:snmp-server community|rocommunity|rwcommunity|enable secret|enable password|(?:secret|password) [0-9])[ \t]+(?:[0-9][ \t]+)?(?P<secret>{_WORD}{{5,}})"),
    SecretPlace("user and password of a command", (" -p", " -P", "\"-p", "'-p"),
        rf"(?:\s|[\"'])(?:-u|-U|-l|-n|--user|--username|--login)(?:{_NEXT})[A-Za-z_][\w.\\-]{{0,40}}(?<!\.py){_NEXT}(?:[^\s\"']{{1,60}}{_NEXT}){{0,3}}?-[pP]{_NEXT}?{_QUOTE}(?P<secret>(?![\d.:]+(?:/\w+)?(?:\s|$))(?!-|/)(?=[^\s\"']{{0,80}}[\dA-Z!#%^&*]){_WORD}{{4,}})"),
    SecretPlace("user and password of a command", (":",),
        rf"(?:\s|[\"'])(?:-u|-U|-A|-a|-id|--user|--auth|login=|user=|auth){_NEXT}?{_QUOTE}[A-Za-z_][\w.-]{{0,40}}:(?P<secret>(?!//)(?=[^\s\"'@/]{{0,80}}\d)(?=[^\s\"'@/]{{0,80}}[A-Za-z]){_WORD}{{6,}})", part=r"-(?<![^\s\"']-)(?:[uUAa]|id|-user|-auth)|auth(?<![^\s\"']auth)|login=|user="),
    SecretPlace("user and password before a host", ("@",),
        rf"(?:^|(?<=[\s\"'=(/:]))(?!sha256)[A-Za-z_][\w.-]{{0,40}}:(?P<secret>(?!{MARK})(?=[^\s@\"'<>/:]{{0,80}}\d)(?=[^\s@\"'<>/:]{{0,80}}[A-Za-z])[^\s@\"'<>/:]{{8,80}})@(?!sha256)[A-Za-z0-9<]"),
    SecretPlace("password on standard input", ("echo", "printf"),
        rf"\b(?:echo|printf)\s+(?:-[neE]+\s+|'%s'\s+)?[\"']?(?P<secret>(?=[^\s\"']{{0,80}}\d)(?=[^\s\"']{{0,80}}[A-Za-z]){_WORD}{{8,}}?)[\"']?\s*\|\s*(?:sudo\s+)?(?:kinit|huggingface-cli|hf|vercel|wrangler|flyctl|cryptsetup|smbclient|openssl|passwd|gpg|age|vault|npm|gh|glab|az|aws|gcloud|kubectl|tee /etc)\b"),
    SecretPlace("password on standard input", ("<<<",), rf"<<<\s{{0,4}}{_QUOTE}(?P<secret>(?=[^\s\"']{{0,80}}\d)(?=[^\s\"']{{0,80}}[A-Za-z]){_WORD}{{8,}})"),
    SecretPlace("password of a key", ("ssh-keygen", "keytool", "jarsigner", "htpasswd -n", "ipmitool", "snmp", "wpa_passphrase", "securestring", "rootpw", "requirepass"),
        rf"(?:\bssh-keygen\b{_LINE}\s-[NP]\s+|\b(?:keytool|jarsigner)\b{_LINE}\s-(?:store|key)pass(?:word)?\s+|\bhtpasswd\s+-n\w*\s+\S+\s+|\bipmitool\b{_LINE}\s-P\s*|\bsnmp\w+\b{_LINE}\s-[cAX]\s+|\bwpa_passphrase\s+\S+\s+|\bConvertTo-SecureString\s+|\brootpw\s+(?:--\w+\s+)?){_QUOTE}(?P<secret>{_WORD}{{4,}})", re.IGNORECASE),
    SecretPlace("key of a login", ("cargo login", "snyk auth", "bw unlock", "bw login", "redis-cli auth"),
        rf"(?:\bcargo login\s+|\bsnyk auth\s+|\bbw (?:unlock|login \S+)\s+|\bredis-cli{_LINE}\bAUTH\s+){_QUOTE}(?P<secret>{_WORD}{{6,}})", re.IGNORECASE),
    SecretPlace("setting of a command", ("/pass:", "/password:", "-dsonar", "secret.key=", "access.key=", "account.key."),
        rf"(?:\bfs\.azure\.account\.key\.[\w.]{{1,100}}[= ]|\s/pass(?:word)?:|-Dsonar\.(?:login|token|password)=|\bs3a?\.(?:secret|access)\.key=|\bsecret\.key=){_QUOTE}(?P<secret>{_WORD}{{4,}})", re.IGNORECASE),
    SecretPlace("key of a network device", ("key ",),
        rf"\b(?:tacacs-server|radius-server|crypto isakmp|tacacs|radius)\b[^\n]{{0,60}}?\bkey\s+(?:[0-9]\s+)?(?P<secret>{_WORD}{{5,}})", part=r"tacacs|radius|crypto"),
    SecretPlace("password in a message", ("argument --", "temporary password", "root password"),
        rf"(?:argument (?:-\w/)?--[\w-]*(?:key|token|secret|password|passwd|credential)[\w-]*: [^\n'\"]{{1,60}}['\"]|temporary password[^\n:]{{0,80}}:\s+|root password[^\n:]{{0,40}}:\s+)(?P<secret>{_WORD}{{4,}})"),
    SecretPlace("password in SQL", ("values",),
        rf"\b(?:password|passwd|pass|secret|token|api_key)\b\s{{0,4}}\)\s{{0,4}}values\s{{0,4}}\([^)\n]{{0,200}}?,\s{{0,4}}N?'(?P<secret>(?!{MARK})[^'\n]{{4,200}})'\s{{0,4}}\)", re.IGNORECASE, part=r"(?i:\b(?:password|passwd|pass|secret|token|api_key)\b)"),
    SecretPlace("recovery phrase", ("mnemonic", "seed phrase", "recovery phrase", "seed words"), r"(?i:mnemonic|seed phrase|recovery phrase|seed words)[\"'\s:=]{1,8}(?P<secret>[a-z]{3,8}(?:[ ,]+[a-z]{3,8}){11,23})"),
)
# fmt: on
