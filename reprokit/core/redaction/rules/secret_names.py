"""The names that hold secrets: one definition for variables, keys of JSON and YAML, headers, XML
elements and flags.

A name is split into words (``dbPassword``, ``DB_PASSWORD``, ``X-Db-Password``), and its last words
decide. ``token`` and ``key`` are also words of machine learning, so names such as ``pad_token``,
``cache_key`` or ``max_tokens`` do not hold secrets.
"""

from __future__ import annotations

import functools
import re
from typing import Final, Literal

Sureness = Literal["password", "token", "key", ""]
"""The values of a name that are secret: any value (``password``), any value that is not code
(``token``), a value that looks random (``key``), or none.
"""
PASSWORD: Final = "password"  # noqa: S105 - a level, not a secret
TOKEN: Final = "token"  # noqa: S105
KEY: Final = "key"

WORD = re.compile(
    r"pass|masterauth|pwd|pws?\b|psk|secret|token|cred|key|auth|cookie|sess(?:ion|id)|bearer|jwt|csrf|xsrf|webhook|dsn|pat\b|connection_?string|(?:database|redis|mongo\w{0,2}|amqp|broker)_ur[il]"
)
"""Each of these names contains one of these parts in lower case. A search for names looks for them
first.
"""
PARTS = tuple(
    "pass pw psk secret token cred key auth cookie sess bearer jwt csrf xsrf webhook dsn pat connection _ur".split()
)
"""Each match of ``WORD`` contains one of these."""

_WORDS = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+")
_SURE = tuple(
    "password passwd passphrase passcode passwort sshpass secret credential pwd apikey apitoken accesstoken authtoken "
    "accesskey secretkey privatekey authkey requirepass masterauth psk cred".split()
)
_LAST = frozenset(
    "value val str string text raw plain plaintext b64 base64 hex encoded prod production dev staging live old new current "
    "main primary secondary default env var data header param arg base".split()
)
_OPENS = frozenset(
    "api access private account secret signing signature encryption decryption auth license licence ssh gpg pgp service "
    "subscription master shared wandb consumer client admin app application hmac crypto deploy webhook openai "
    "anthropic azure aws gcp google stripe mailgun sendgrid twilio datadog comet neptune sentry pager maps gemini cohere "
    "mistral groq replicate pinecone huggingface hf account user root host rsa ecdsa ed25519 aes jwt cookie session "
    "recovery backup unlock provisioning write read ingest ca tls ssl".split()
)
"""Words before ``key`` if the key is a secret."""
_GRANTS = frozenset(
    "auth access refresh session id api hub hf oauth personal deploy bot bearer csrf xsrf github gh git gitlab huggingface "
    "wandb slack discord telegram npm pypi vault service client app user admin device push webhook identity security sas "
    "job ci jwt login aws azure gcp google databricks docker registry sentry kube kubernetes k8s hook secret my private "
    "read write upload publish cloud server jenkins circle travis codecov sonar snyk jira notion consul nomad influx "
    "grafana mapbox figma doppler linear airtable runner agent join cluster dashboard jupyter notebook neptune".split()
)
"""Words before ``token`` if the token is a secret."""
_LEARNS = frozenset(
    "bos eos pad unk cls sep mask class image images img next special audio video start end begin num max min new last first "
    "prev per n sub word text input output target source query key value register dist distill time position pos memory mem "
    "sink cur current bpe byte stop patch vision decoder encoder tgt src draft padding prompt completion generated total "
    "expert moe subword dtype latent state media frame speech separator fim infix prefix suffix middle rare end unknown "
    "classification attention attn valid drop drops".split()
)
"""Words before ``token`` in machine learning."""
_FINDS = frozenset(
    "cache sort primary foreign dict dispatch group guard graph config hash lookup index attn attention query cross hidden num "
    "partition idempotency kernel fx code module param state metric routing store map col column field event meta op node "
    "past dynamo inductor triton aot compile autotune tuning heuristic backend device dtype shape size layer block head "
    "registry keyword positional memo lru tensor buffer size public arg kwarg rng prng random key_padding plot color "
    "counter feature label target data json yaml row object bucket file path name id ordering env binding hot short".split()
)
"""Words before ``key`` if the key is not a secret."""
_PASSES = frozenset(
    "db user usr smtp ftp sftp mysql pg postgres root admin login ssh my proxy redis rabbit rabbitmq mail imap email git net app "
    "store key trust become remote smb bind storage sys sa "
    "ldap http https web svc service mongo sql vpn wifi sudo default bind keystore truststore ca cert pem zip gpg jenkins".split()
)
"""Words before ``pass`` if it is a password; any other pass may be a pass of a compiler."""
_ASKS = frozenset(
    "get read load fetch check is has prompt ask input find no require skip show verify hash reset forgot".split()
)
_OF_SESSION = frozenset(
    "cookie cookies session sessionid sid csrf xsrf csrftoken xsrftoken bearer jwt authorization auth".split()
)
_URLS = frozenset(("webhook", "dsn", "connectionstring"))


@functools.lru_cache(maxsize=20_000)
def split_name(name: str) -> tuple[str, ...]:
    """Return the words of a name, in lower case."""
    return tuple(word.lower() for word in _WORDS.findall(name))


@functools.lru_cache(maxsize=20_000)
def name_sureness(name: str) -> Sureness:
    """Return how sure it is that ``name`` holds a secret: PASSWORD, TOKEN or KEY; empty if it does
    not.
    """
    if name[-1:] == "s" and name[:-1].isupper():
        name = name[:-1]
    words = list(split_name(name.replace("w0rd", "word").replace("W0RD", "WORD")))
    is_constant = name.isupper()
    while len(words) > 1 and (words[-1] in _LAST or words[-1].isdigit()):
        words.pop()
    if (
        len(words) > 1
        and words[-1] in ("id", "file")
        and (words[-2] in ("key", "secret") or is_constant)
    ):
        words.pop()
    if not words:
        return ""
    last, before = words[-1], words[-2] if len(words) > 1 else ""
    plural, last = last, last if last.endswith("ss") else last.removesuffix("s")
    if last.endswith(_SURE) and last not in ("incred", "sacred"):
        return PASSWORD
    if last == "pw":
        return PASSWORD if before in _PASSES else "" if before else TOKEN
    if (before, last) in (("pass", "phrase"), ("auth", "config")):
        return PASSWORD if last == "phrase" else TOKEN
    if last in (
        "storepass",
        "keypass",
        "bindpw",
        "rootpw",
        "dbpw",
        "userpw",
        "adminpw",
        "dbpass",
        "smbpass",
        "userpass",
        "rootpass",
        "remotepass",
    ):
        return PASSWORD
    if last == "pass":
        return PASSWORD if before in _PASSES else TOKEN if not before or is_constant else ""
    if last == "token":
        return _of_token(before, is_constant, plural != last)
    if last == "key":
        if before in _OPENS:
            return (
                PASSWORD
                if before
                in ("api", "private", "secret", "access", "account", "signing", "encryption")
                else TOKEN
            )
        return "" if before in _FINDS or plural != last else KEY
    if last == "pat":
        return TOKEN if before and is_constant else ""
    if last.endswith(("sessionid", "sessid")):  # JSESSIONID, PHPSESSID
        return TOKEN
    if plural in _OF_SESSION or (last == "id" and before in ("session", "sess")):
        return KEY if plural in ("session", "sid") else TOKEN
    if last.endswith("token"):  # hftoken, csrftoken; but detoken
        return TOKEN if last.removesuffix("token") in _GRANTS else ""
    if last in _URLS or (
        last in ("url", "uri")
        and before in ("database", "redis", "mongo", "mongodb", "amqp", "broker", "webhook", "db")
    ):
        return TOKEN
    return PASSWORD if (before, last) == ("connection", "string") else ""


def _of_token(before: str, is_constant: bool, is_plural: bool) -> Sureness:
    if before in _LEARNS:
        return ""
    if is_plural:
        return KEY if before in _GRANTS else ""
    return TOKEN if not before or before in _GRANTS or is_constant else KEY


def is_secret(name: str) -> bool:
    """Return whether any value of a variable or key of this name is a secret."""
    return name_sureness(name) in (PASSWORD, TOKEN) or (
        name.isupper() and name_sureness(name) == KEY
    )


def asks_for_secret(name: str) -> bool:
    """Return whether a function of this name reads a secret, instead of taking one as its
    argument.
    """
    return split_name(name)[:1] != () and split_name(name)[0] in _ASKS


_RANDOM = re.compile(r"(?=[^\d]{0,400}\d)(?=[^A-Za-z]{0,400}[A-Za-z])[\w+/=.~:-]{16,}")


def looks_random(value: str) -> bool:
    """Return whether a value looks random: long, one word, with letters and digits that rarely
    repeat.
    """
    return (
        _RANDOM.fullmatch(value) is not None
        and len(set(value)) >= min(10, len(value) // 2)
        and "__" not in value
    )


def is_number(value: str) -> bool:
    """Return whether a value is a number: only digits, or at least four digits and no letter."""
    digits = sum(map(str.isdigit, value))
    return value.isdigit() or (digits >= 4 and not any(map(str.isalpha, value)))


def is_unmistakable(value: str) -> bool:
    """Return whether a value looks so much like a password or a key that the same text elsewhere is
    the same secret.
    """
    kinds = sum(any(test(c) for c in value) for test in (str.isdigit, str.islower, str.isupper))
    is_word = (
        value.isascii()
        and value.isprintable()
        and " " not in value
        and "/" not in value
        and "." not in value
    )
    return (
        is_word
        and kinds == 3
        and len(value) >= 10
        and len(set(value)) >= 7
        and "__" not in value
        and value[0] != "<"
    )


def looks_secret(value: str) -> bool:
    """Return whether a value is more likely a secret than a word or a number."""
    has_digit = any(c.isdigit() for c in value)
    has_letter = any(c.isalpha() for c in value)
    return len(value) >= 8 and has_digit and has_letter
