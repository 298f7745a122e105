"""What private text looks like: the patterns, in the order in which they run."""

from __future__ import annotations

import builtins
import keyword
import re
from collections.abc import Callable
from dataclasses import dataclass

from . import lookalikes

Keep = Callable[[re.Match[str]], bool]
Rule = tuple[tuple[str, ...], "re.Pattern[str]", str, "Keep | None"]


@dataclass(frozen=True)
class Private:
    """What is known to be private on the machine where a pack is made."""

    users: tuple[str, ...] = ()
    hosts: tuple[str, ...] = ()
    homes: tuple[str, ...] = ()
    secrets: tuple[str, ...] = ()
    """Values of environment variables with secret names, literally."""


# Words of torch's own paths and logs: a user or host of this name is hidden in nothing but the home.
_PATH_WORDS = frozenset(
    "root user users admin ubuntu debian centos fedora runner build builder test tests dev work home main local localhost "
    "host node torch triton cuda cpu gpu python python3 nvidia amd intel arm linux kernel model models data train lib bin usr "
    "opt tmp var src inductor dynamo compile compiler graph tensor cache code core agent default none "
    "a100 h100 h200 b200 b300 v100 l40s rtx4090 rtx5090 mi300 mi300x".split()
)
# Words of code: such a name is hidden where it is a folder, not where it may be a call.
_CODE_WORDS = frozenset(n.lower() for n in (*dir(builtins), *keyword.kwlist))

PLACEHOLDER = re.compile(r"<[a-z]+(?:-\d+)?>")
_PLACEHOLDER = PLACEHOLDER.pattern
_VALUE = rf"(?!{_PLACEHOLDER})[^\s\"'`,;&<>\\]"

_TOKEN_SHAPES: tuple[tuple[tuple[str, ...], str], ...] = (
    (("gh",), r"\b(?P<secret>gh[opusr]_[A-Za-z0-9]{16,})"),
    (("github_pat_",), r"\b(?P<secret>github_pat_[A-Za-z0-9_]{20,})"),
    (("glpat-",), r"\b(?P<secret>glpat-[\w-]{16,})"),
    (("hf_", "api_org_"), r"\b(?P<secret>(?:hf|api_org)_[A-Za-z0-9]{30,})"),
    (("akia", "asia", "aroa"), r"\b(?P<secret>(?:AKIA|ASIA|AROA)[A-Z0-9]{16})\b"),
    (("sk-",), r"(?<![\w-])(?P<secret>sk-(?:ant-|proj-|svcacct-|or-)?[A-Za-z0-9_-]{20,})"),
    (("sk_live", "rk_live", "sk_test"), r"\b(?P<secret>[sr]k_(?:live|test)_[A-Za-z0-9]{16,})"),
    (("xox",), r"\b(?P<secret>xox[abeprs]-[A-Za-z0-9-]{10,})"),
    (("aiza",), r"\b(?P<secret>AIza[\w-]{30,})"),
    (("ya29.",), r"\b(?P<secret>ya29\.[\w-]{20,})"),
    (("npm_",), r"\b(?P<secret>npm_[A-Za-z0-9]{30,})"),
    (("pypi-",), r"\b(?P<secret>pypi-[A-Za-z0-9_-]{40,})"),
    (("wandb", "api.wandb.ai"), r"(?i:wandb[^\n]{0,60}?)\b(?P<secret>(?:local-)?[0-9a-f]{40})\b"),
    (("wandb_v1_",), r"\b(?P<secret>wandb_v1_\w{20,})"),
    (("nvapi-",), r"\b(?P<secret>nvapi-[\w-]{20,})"),
    (("dop_v1_",), r"\b(?P<secret>dop_v1_[0-9a-f]{40,})"),
    (("eyj",), r"\b(?P<secret>eyJ[\w-]{10,}\.[\w-]{10,}(?:\.[\w-]*){0,3})"),
    (
        ("aws",),
        r"(?i:aws[^\n]{0,40}?)(?<![A-Za-z0-9/+=])(?P<secret>(?=[A-Za-z0-9/+]*[0-9])(?=[A-Za-z0-9/+]*[A-Z])(?=[A-Za-z0-9/+]*[a-z])[A-Za-z0-9/+]{40})(?![A-Za-z0-9/+=])",
    ),
    (
        ("hooks.slack.com", "discord"),
        r"(?P<secret>https://(?:hooks\.slack\.com/services|discord(?:app)?\.com/api/webhooks)/[\w/-]{16,})",
    ),
    (("xapp-",), r"\b(?P<secret>xapp-\d-[A-Za-z0-9-]{16,})"),
    (("gsk_", "dckr_pat_", "r8_"), r"\b(?P<secret>(?:gsk|dckr_pat|r8)_[A-Za-z0-9_-]{20,})"),
    (("sg.",), r"\b(?P<secret>SG\.[\w-]{16,}\.[\w-]{16,})"),
    (("hvs.",), r"\b(?P<secret>hvs\.[\w-]{20,})"),
    (("dapi",), r"\b(?P<secret>dapi[0-9a-f]{32})\b"),
    (("key",), r"\bkey\s*=\s*[\"'](?P<secret>[0-9a-f]{40})[\"']"),
    (("signature", "sig="), r"[?&;](?:sig|X-Amz-Signature|Signature)=(?P<secret>[^\s&\"'\\<]{8,})"),
    (("machine",), r"\bmachine\s+\S+\s+login\s+\S+\s+password\s+(?P<secret>(?!<)\S+)"),
)

_PRIVATE_KEYS = (
    # whole, even where each line has a prefix of its own
    r"(?P<secret>-----BEGIN (?P<what>[A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?)-----[\s\S]{0,16384}?-----END (?P=what)-----)",
    # cut short
    r"(?P<secret>-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----"
    r"(?:(?:Proc-Type|DEK-Info|Version|Comment|Charset):[^\n\\\"]*|[A-Za-z0-9+/=\s\\])*)",
)
_UPPER_NAMES = (
    r"(?<![A-Za-z0-9_])(?=[A-Z0-9_]{3,64}(?![A-Za-z0-9_]))[A-Z0-9_]*?(?:TOKEN|SECRET|PASSWORD|PASSWD|PASSPHRASE|CREDENTIALS?"
    r"|APIKEY|KEY|_(?:AUTH|PAT|PWD|PASS))(?:_(?:ID|FILE|\d+))?(?![A-Za-z0-9_])"
)
_LOWER_NAMES = (
    r"(?:password|passwd|passphrase|(?<![a-z])pwd|(?<![a-z])pass|secret|(?:api|access|private|account|secret)[_-]?key"
    r"|(?:auth|access|refresh|session|id|api|hub|hf)[_-]?token|(?<![A-Za-z])token)"
)
_FLAG_NAMES = (
    r"--?(?:[a-z]+[-_])*(?:password|passwd|passphrase|secret|(?:api|access|private|account|secret|wandb)[-_]?key"
    r"|token|credentials?|auth)(?![\w-])"
)
FLAG = re.compile(_FLAG_NAMES)
"""A command-line flag whose next word is a secret."""


def make(private: Private) -> list[Rule]:
    """All rules in their order: literals, whole blocks and token shapes, assignments, addresses, then names."""
    rules: list[Rule] = []
    literals = {s for s in private.secrets if len(s) >= 6 and not lookalikes.is_setting_value(s)}
    for secret in sorted(literals, key=len, reverse=True):
        rules.append(rule("token", rf"(?P<secret>{re.escape(secret)})", (secret.lower(),)))
    rules += [rule("key", pattern, ("private key",)) for pattern in _PRIVATE_KEYS]
    rules.append(
        rule(
            "credentials",
            rf"\b[a-z][a-z0-9+.-]{{0,20}}://(?P<secret>(?!{_PLACEHOLDER}@)[^\s/@\"'<>]+)@",
            ("://",),
            flags=re.IGNORECASE,
        )
    )
    rules += [rule("token", shape, hint) for hint, shape in _TOKEN_SHAPES]
    return [*rules, *_secrets_by_place(), *_addresses(), *_people_and_machines(private)]


def rule(kind: str, pattern: str, hint: tuple[str, ...] = (), keep: Keep | None = None, flags: int = 0) -> Rule:
    """One rule: what stands in the group ``secret`` is hidden, unless ``keep`` says that it is none.

    A text that holds none of the ``hint`` words (lower case) is not searched.
    """
    return hint, re.compile(pattern, flags), kind, keep


def _secrets_by_place() -> list[Rule]:
    """Headers, command lines and assignments: what stands there is a secret, whatever it looks like."""
    return [
        rule(
            "token",
            r"\b(?:(?:proxy-)?authorization|(?:set-)?cookie)\\*[\"']?[ \t]*[:=][ \t]*\\*[\"']?"
            r"(?P<secret>(?!<)[^\s\"'\\][^\n\x1c\"'\\]{5,})",
            ("authorization", "cookie"),
            lookalikes.is_setting,
            re.IGNORECASE,
        ),
        rule(
            "token",
            rf"\b(?:bearer|basic)\s+(?P<secret>(?=\S*[\d=+/])(?![\w-]*\s*\(){_VALUE}{{12,}})",
            ("bearer", "basic"),
            flags=re.IGNORECASE,
        ),
        rule(
            "token",
            r"\b(?:docker login|sshpass|curl|mysql)\b[^\n\x1c]{0,200}?\s(?:-p\s*|-u\s+\S+?:|--user\s+\S+?:)(?P<secret>(?!<)\S{4,})",
            ("docker login", "sshpass", "curl", "mysql"),
        ),
        rule("token", rf"\b(?:ENV|setenv|set -x)\s+{_UPPER_NAMES}\s+(?P<secret>{_VALUE}{{4,}})", ("env", "set -x")),
        rule(
            "token",
            rf"\bname[\"']?:\s*[\"']?{_UPPER_NAMES}[\"']?,?\s*[\"']?value[\"']?:\s*[\"']?(?P<secret>{_VALUE}{{4,}})",
            ("value",),
        ),
        # FOO_TOKEN=value, export FOO_KEY="value", {"FOO_SECRET": "value"}, password: value
        *_assignment(_UPPER_NAMES, ("token", "secret", "pass", "credential", "key", "_auth", "_pat", "_pwd"), 0),
        *_assignment(_LOWER_NAMES, ("pass", "pwd", "secret", "key", "token"), re.IGNORECASE),
        rule(
            "token",
            rf"(?<![\w-]){_FLAG_NAMES}(?:\\*[\"']\s*,\s*\\*[\"']|\s+|=)[\"']?(?P<secret>(?!-){_VALUE}{{4,}})",
            ("--", "-p", "-t", "-s", "-a"),
            lookalikes.is_setting,
            re.IGNORECASE,
        ),
    ]


def _assignment(names: str, hint: tuple[str, ...], flags: int) -> list[Rule]:
    """``name = "a whole text"`` and ``name=value``; quotes may be escaped, as they are inside JSON.

    A quoted text may also follow an annotation, a subscript or a comma: ``os.getenv("HF_TOKEN", "...")``.
    """
    code = rf"{names}(?:\\*[\"'])?\]?[ \t]*(?::[ \t]*[A-Za-z_][\w\[\], |.]{{0,40}}=|[=:,])[ \t]*[\[(]?[ \t]*[bfruBFRU]{{0,2}}"
    quote = r"(?P<quote>\\*(?:\"{3}|'{3}|[\"']))"
    body = rf"(?!{_PLACEHOLDER})(?P<secret>(?:(?!(?P=quote))(?:\\.|[^\\\n])){{4,}}?)(?=(?P=quote))"
    sign = rf"{names}(?:\\*[\"'])?[ \t]*[=:][ \t]*"
    bare = rf"{sign}(?P<secret>(?!{_PLACEHOLDER})(?:[^\s\"'`,;&<>\\]|[;&](?=[^\s\"'\\])){{4,}})"
    return [
        rule("token", code + quote + body, hint, lookalikes.is_setting, flags),
        rule("token", bare, hint, lookalikes.is_setting, flags),
    ]


def _addresses() -> list[Rule]:
    return [
        rule(
            "email",
            r"(?<![\w.+/@\\-])(?P<secret>[A-Za-z0-9][\w.+-]*@(?:[A-Za-z0-9-]+\.)+[A-Za-z]{2,24})\b(?![(\[=])",
            ("@",),
            lookalikes.is_code,
        ),
        rule("ip", r"(?<![\w.])(?P<secret>(?:\d{1,3}\.){3}\d{1,3})(?![\w]|\.\d)", (), lookalikes.is_version_or_local),
        rule(
            "mac", r"(?<![0-9A-Fa-f])(?<![0-9A-Fa-f]:)(?P<secret>(?:[0-9A-Fa-f]{2}:){5}[0-9A-Fa-f]{2})(?![\w:])", (":",)
        ),
        rule(
            "ip",
            r"(?:(?<![\w:.])|(?<=addr:)|(?<=[a-z]\d:))(?P<secret>(?:[0-9A-Fa-f]{0,4}:){2,7}[0-9A-Fa-f]{0,4})(?![\w:])",
            (":",),
            lookalikes.is_not_ipv6,
        ),
    ]


def _people_and_machines(private: Private) -> list[Rule]:
    rules: list[Rule] = []
    for home in sorted({h.rstrip("/") for h in private.homes if len(h.rstrip("/")) > 1}, key=len, reverse=True):
        pattern = rf"(?:(?<![\w./>-])|(?<=-[ILB]))(?P<secret>{re.escape(home)})(?![\w.-])"
        rules.append(rule("home", pattern, (home.lower(),)))
    rules += [
        rule(
            "home",
            r"(?:(?<![\w.>/-])|(?<=-[ILB]))(?P<secret>(?:/[\w.-]{1,40}){0,3}?/(?:home|Users|users)/(?!<)"
            r"(?:[^\s/:;,'\"<>()\[\]\\]|\\u[0-9a-fA-F]{4})+)",
            ("/home/", "/users/"),
        ),
        rule("home", r"(?P<secret>\b[A-Za-z]:\\+Users\\+[^\s\\\"'<>|:]+)", (":\\",)),
    ]
    for user in _names(private.users, _PATH_WORDS):
        rules.append(rule("user", rf"(?:(?<=/)|(?<=torchinductor_))(?P<secret>{user})(?=/|$|[\s'\":,])", ("/",)))
    for user in _names(private.users, _PATH_WORDS | _CODE_WORDS):
        is_long = len(user) >= 5
        before, after = (r"[A-Za-z0-9]", r"[A-Za-z0-9]") if is_long else (r"[\w.%]", r"[\w(=\[]|\.\w")
        rules.append(rule("user", rf"(?<!{before})(?P<secret>{user})(?!{after})", flags=re.IGNORECASE))
    for host in _names(private.hosts, _PATH_WORDS | _CODE_WORDS):
        rules.append(rule("host", rf"(?<![A-Za-z0-9])(?P<secret>{host})(?![A-Za-z0-9])", flags=re.IGNORECASE))
    for host in sorted(private.hosts):
        # a short or common name, only where nothing else can stand
        rules.append(rule("host", rf"(?:\w@|\bLinux )(?P<secret>{re.escape(host)})(?![\w.-])", (host.lower(),)))
    inner = "internal intranet corp lan localdomain".split()
    rules.append(
        rule(
            "host",
            # a label with a dash, or at least three labels: obj.internal is an attribute
            r"(?<![\w./-])(?!(?:self|cls|torch|this)\.)(?P<secret>(?:[a-z0-9]+-[a-z0-9-]*|[a-z0-9]+(?=\.[a-z0-9-]+\.))(?:\.[a-z0-9-]+)*"
            rf"\.(?:{'|'.join(inner)}))\b(?![(\w])",
            tuple(f".{name}" for name in inner),
            flags=re.IGNORECASE,
        )
    )
    address = r"\d+\.\d+\.\d+\.\d+"
    name = rf"(?P<secret>(?!{_PLACEHOLDER}|localhost\b|{address})[A-Za-z0-9][\w.-]*)"
    # other machines of a cluster, where only a host can stand
    rules += [
        rule("host", rf"(?m:^|(?<=\x1c))[ \t]*{name}:\d+:\d+ \[\d+\] NCCL", ("nccl",)),
        rule("host", rf"\bMASTER_ADDR[\"']?\s*[=:]\s*[\"']?{name}", ("master_addr",)),
        rule("host", rf"rdzv[-_]endpoint[\"']?[=:\s]\s*[\"']?{name}(?=:\d)", ("rdzv",)),
        rule("host", rf"(?:connect(?:ing)? to|remote|peer|client socket)[^\n\x1c]{{0,40}}?\[{name}\]:\d", ("]:",)),
        rule("host", r"\bSLURM\w*(?:NODELIST|NODENAME|HOST|_USER)=(?P<secret>(?!<)[^\s\"',;]+)", ("slurm",)),
        rule("host", rf"\bsrun: error: {name}(?=:)", ("srun",)),
        rule("host", rf"\w@{name}(?=:[~/])", ("@",)),
        rule("host", rf"\bLinux {name}(?= \d+\.\d+\.)", ("linux ",)),
    ]
    return rules


def _names(names: tuple[str, ...], common: frozenset[str]) -> list[str]:
    """Escaped names that are not ``common`` words, longest first."""
    usable = {n for n in names if len(n) >= 3 and n.lower() not in common}
    return [re.escape(n) for n in sorted(usable, key=lambda n: (-len(n), n))]
