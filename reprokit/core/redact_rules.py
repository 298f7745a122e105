"""What private text looks like, and what only looks like it: the patterns and their exceptions."""

from __future__ import annotations

import builtins
import ipaddress
import keyword
import re
from collections.abc import Callable

from .records import Private

Keep = Callable[[re.Match[str]], bool]
Rule = tuple[tuple[str, ...], "re.Pattern[str]", str, "Keep | None"]

# Words of torch's own paths and logs: a user or host of this name is hidden in nothing but the home.
_PATH_WORDS = frozenset(
    "root user users admin ubuntu debian centos fedora runner build builder test tests dev work home main local localhost "
    "host node torch triton cuda cpu gpu python python3 nvidia amd intel arm linux kernel model models data train lib bin usr "
    "opt tmp var src inductor dynamo compile compiler graph tensor cache code core agent default none".split()
)
# Words of code: such a name is hidden where it is a folder, not where it may be a call.
_CODE_WORDS = frozenset(n.lower() for n in (*dir(builtins), *keyword.kwlist))

_PLACEHOLDER = r"<[a-z]+(?:-\d+)?>"
_VALUE = rf"(?!{_PLACEHOLDER})[^\s\"'`,;&<>\\]"

_TOKEN_SHAPES: tuple[tuple[tuple[str, ...], str], ...] = (
    (("gh",), r"\b(?P<secret>gh[opusr]_[A-Za-z0-9]{16,})"),
    (("github_pat_",), r"\b(?P<secret>github_pat_[A-Za-z0-9_]{20,})"),
    (("glpat-",), r"\b(?P<secret>glpat-[\w-]{16,})"),
    (("hf_", "api_org_"), r"\b(?P<secret>(?:hf|api_org)_[A-Za-z0-9]{16,})"),
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
    (("eyj",), r"\b(?P<secret>eyJ[\w-]{10,}\.eyJ[\w-]{10,}(?:\.[\w-]*)?)"),
    (
        ("aws",),
        r"(?i:aws[^\n]{0,40}?)(?<![A-Za-z0-9/+=])(?P<secret>(?=[A-Za-z0-9/+]*[0-9])(?=[A-Za-z0-9/+]*[A-Z])(?=[A-Za-z0-9/+]*[a-z])[A-Za-z0-9/+]{40})(?![A-Za-z0-9/+=])",
    ),
)

_PRIVATE_KEY = (
    r"(?P<secret>-----BEGIN [A-Z0-9 ]*PRIVATE KEY(?: BLOCK)?-----"
    r"(?:(?:Proc-Type|DEK-Info|Version|Comment):[^\n\\\"]*|[A-Za-z0-9+/=\s\\])*"
    r"(?:-----END [A-Z0-9 ]*PRIVATE KEY(?: BLOCK)?-----)?)"
)
_UPPER_NAMES = r"\b(?:KEY|[A-Z][A-Z0-9_]*(?:TOKEN|SECRET|PASSWORD|PASSWD|PASSPHRASE|CREDENTIALS?|APIKEY|_KEY|_AUTH|_PAT|_PWD)[A-Z0-9_]*)"
_LOWER_NAMES = (
    r"(?:password|passwd|passphrase|secret|api[_-]?key|access[_-]?key|private[_-]?key|auth[_-]?token"
    r"|access[_-]?token|refresh[_-]?token|(?<![A-Za-z])token)"
)
_FLAGS = r"(?<![\w-])--?(?:[a-z]+-)*(?:password|passwd|secret|api-key|apikey|access-key|token|auth-token)"


def make(private: Private) -> list[Rule]:
    """All rules in their order: whole blocks and token shapes, assignments, addresses, then names."""
    rules: list[Rule] = []
    for secret in sorted({s for s in private.secrets if len(s) >= 6}, key=len, reverse=True):
        rules.append(rule("token", rf"(?P<secret>{re.escape(secret)})", (secret.lower(),)))
    rules += [
        rule("key", _PRIVATE_KEY, ("private key",)),
        rule(
            "credentials",
            rf"\b[a-z][a-z0-9+.-]{{0,20}}://(?P<secret>(?!{_PLACEHOLDER}@)[^\s/@\"'<>]+)@",
            ("://",),
            flags=re.IGNORECASE,
        ),
        *(rule("token", shape, hint) for hint, shape in _TOKEN_SHAPES),
        rule("token", rf"\b(?:bearer|basic)\s+(?P<secret>{_VALUE}{{12,}})", ("bearer", "basic"), flags=re.IGNORECASE),
        # FOO_TOKEN=value, export FOO_KEY="value", {"FOO_SECRET": "value"}, password: value
        *_assignment(_UPPER_NAMES, ("token", "secret", "pass", "credential", "key", "_auth", "_pat", "_pwd"), 0),
        *_assignment(_LOWER_NAMES, ("passw", "passphrase", "secret", "key", "token"), re.IGNORECASE),
        rule(
            "token",
            rf"{_FLAGS}(?:\\*[\"']\s*,\s*\\*[\"']|\s+|=)[\"']?(?P<secret>(?!-){_VALUE}{{4,}})",
            ("--", " -"),
            _is_setting,
            re.IGNORECASE,
        ),
        rule(
            "email",
            r"(?<![\w.+/@-])(?P<secret>[A-Za-z0-9][\w.+-]*@(?:[A-Za-z0-9-]+\.)+[A-Za-z]{2,24})\b(?![(\[=])",
            ("@",),
            _is_code,
        ),
        rule("ip", r"(?<![\w.])(?P<secret>(?:\d{1,3}\.){3}\d{1,3})(?![\w]|\.\d)", (), _is_version_or_local),
        rule("ip", r"(?<![\w:.])(?P<secret>(?:[0-9A-Fa-f]{0,4}:){2,7}[0-9A-Fa-f]{0,4})(?![\w:])", (":",), _is_not_ipv6),
        rule("mac", r"(?<![\w:])(?P<secret>(?:[0-9A-Fa-f]{2}:){5}[0-9A-Fa-f]{2})(?![\w:])", (":",)),
    ]
    for home in sorted({h.rstrip("/") for h in private.homes if len(h.rstrip("/")) > 1}, key=len, reverse=True):
        rules.append(rule("home", rf"(?<![\w./-])(?P<secret>{re.escape(home)})(?![\w.-])", (home.lower(),)))
    rules.append(
        rule(
            "home",
            r"(?<![\w.-])(?P<secret>/(?:home|Users)/(?!<)(?:[^\s/:;,'\"<>()\[\]\\]|\\u[0-9a-fA-F]{4})+)",
            ("/home/", "/users/"),
        )
    )
    for user in _names(private.users, _PATH_WORDS):
        rules.append(rule("user", rf"(?<=/)(?P<secret>{user})(?=/|$|[\s'\":,])", ("/",)))
    for user in _names(private.users, _PATH_WORDS | _CODE_WORDS):
        rules.append(rule("user", rf"(?<![\w.%])(?P<secret>{user})(?![\w(=\[]|\.\w)", flags=re.IGNORECASE))
    for host in _names(private.hosts, _PATH_WORDS | _CODE_WORDS):
        rules.append(rule("host", rf"(?<![\w.%-])(?P<secret>{host})(?![\w(=\[-])", flags=re.IGNORECASE))
    for host in sorted(private.hosts):
        # a short or common name, only where nothing else can stand
        rules.append(rule("host", rf"(?:\w@|\bLinux )(?P<secret>{re.escape(host)})(?![\w.-])", (host.lower(),)))
    inner = "internal intranet corp lan localdomain".split()
    rules.append(
        rule(
            "host",
            r"(?<![\w./-])(?P<secret>(?=[a-z0-9.]*[-\d])[a-z0-9][a-z0-9-]*(?:\.[a-z0-9-]+)*"
            rf"\.(?:{'|'.join(inner)}))\b(?![(\w])",
            tuple(f".{name}" for name in inner),
            flags=re.IGNORECASE,
        )
    )
    return rules


def rule(kind: str, pattern: str, hint: tuple[str, ...] = (), keep: Keep | None = None, flags: int = 0) -> Rule:
    """One rule: what stands in the group ``secret`` is hidden, unless ``keep`` says that it is none.

    A text that holds none of the ``hint`` words (lower case) is not searched.
    """
    return hint, re.compile(pattern, flags), kind, keep


def _assignment(names: str, hint: tuple[str, ...], flags: int) -> list[Rule]:
    """``name = "a whole text"`` and ``name=value``; quotes may be escaped, as they are inside JSON."""
    sign = rf"{names}(?:\\*[\"'])?\s*[=:]\s*"
    quoted = rf"{sign}(?P<quote>\\*[\"'])(?!{_PLACEHOLDER})(?P<secret>(?:(?!(?P=quote))[^\n]){{4,}})"
    bare = rf"{sign}(?P<secret>(?!{_PLACEHOLDER})(?:[^\s\"'`,;&<>\\]|[;&](?=[^\s\"'\\])){{4,}})"
    return [rule("token", quoted, hint, _is_setting, flags), rule("token", bare, hint, _is_setting, flags)]


def _names(names: tuple[str, ...], common: frozenset[str]) -> list[str]:
    """Escaped names that are not ``common`` words, longest first."""
    usable = {n for n in names if len(n) >= 3 and n.lower() not in common}
    return [re.escape(n) for n in sorted(usable, key=lambda n: (-len(n), n))]


def _is_setting(found: re.Match[str]) -> bool:
    """True where an assignment is code or a setting, not a secret: calls, attributes, numbers, None."""
    value = found.group("secret")
    name = found.group(0)[: found.start("secret") - found.start()]
    if re.fullmatch(r"None|null|True|False|true|false|str|int|bool|float|bytes|Optional\[.*|\*+|\.\.\.", value):
        return True
    if re.search(r"passw|secret|passphrase", name, re.IGNORECASE):
        return False
    if re.fullmatch(r"-?[\d.,]+", value):
        return True  # max_tokens=512
    if name[:1].isupper() or name.rstrip().endswith(('"', "'")):
        return False
    after = found.string[found.end() : found.end() + 1]
    is_attribute = re.fullmatch(r"[a-z_]\w*(?:\.[A-Za-z_]\w*)+", value) is not None
    return "(" in value or after == "(" or "[" in value or is_attribute  # token = tokenizer.encode(text)


_DOMAINS = frozenset(
    "com org net edu gov mil int io ai dev app info biz cloud tech xyz example invalid test local internal corp lan".split()
)


def _is_code(found: re.Match[str]) -> bool:
    """True for ``q@k.transpose``: a matrix product reads like an address."""
    last = found.group("secret").rsplit(".", 1)[-1].lower()
    return not (last in _DOMAINS or len(last) == 2)


_VERSION_BEFORE = re.compile(
    r"(?:[=~<>!]=\s*|\.so\.|(?i:version|ver|release|build|driver|cudnn|cublas|rev)[\"']?\s*[:=]?\s*[\"']?v?"
    r"|(?i:nvidia|cuda|triton|torch|lib\w*|cu\d)[\w.-]*[\"']?\s*[:=@ ]\s*[\"']?|\bv)$"
)
_LOOSE_VERSION_BEFORE = re.compile(r"[-_+]$")


def _is_version_or_local(found: re.Match[str]) -> bool:
    """True where four numbers with dots are a version (``9.1.0.70``) or name no machine."""
    try:
        address = ipaddress.IPv4Address(found.group("secret"))
    except ValueError:
        return True
    if address.is_loopback or address.is_unspecified or address.is_multicast or int(address) == 0xFFFFFFFF:
        return True
    before = found.string[max(0, found.start() - 48) : found.start()]
    if _VERSION_BEFORE.search(before):
        return True
    return not address.is_private and _LOOSE_VERSION_BEFORE.search(before) is not None


def _is_not_ipv6(found: re.Match[str]) -> bool:
    """True for ``c10d::``, ``a[::2]`` and clock times."""
    text = found.group("secret")
    try:
        address = ipaddress.IPv6Address(text)
    except ValueError:
        return True
    groups = [g for g in text.split(":") if g]
    if address.is_loopback or address.is_unspecified:
        return True
    return not (
        len(groups) == 8 or (len(groups) >= 3 and re.match(r"(?:f[cd]|fe[89ab]|[23])[0-9a-f]", text, re.IGNORECASE))
    )
