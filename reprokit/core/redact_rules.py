"""What private text looks like, and what only looks like it: the patterns and their exceptions."""

from __future__ import annotations

import builtins
import ipaddress
import keyword
import re
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .redact import Private

_COMMON_WORDS = frozenset(
    [
        "root",
        "user",
        "users",
        "admin",
        "ubuntu",
        "debian",
        "centos",
        "fedora",
        "runner",
        "build",
        "builder",
        "test",
        "tests",
        "dev",
        "work",
        "home",
        "main",
        "local",
        "localhost",
        "host",
        "node",
        "torch",
        "triton",
        "cuda",
        "cpu",
        "gpu",
        "python",
        "python3",
        "nvidia",
        "amd",
        "intel",
        "arm",
        "linux",
        "kernel",
        "model",
        "models",
        "data",
        "train",
        "lib",
        "bin",
        "usr",
        "opt",
        "tmp",
        "var",
        "src",
        "inductor",
        "dynamo",
        "compile",
        "compiler",
        "graph",
        "tensor",
        "cache",
        "code",
        "core",
        "agent",
        "default",
        "none",
        "true",
        "false",
    ]
) | frozenset(n.lower() for n in (*dir(builtins), *keyword.kwlist))

_PLACEHOLDER = r"<[a-z]+(?:-\d+)?>"
_VALUE = rf"(?!{_PLACEHOLDER})[^\s\"'`,;&<>\\]"


Rule = tuple[tuple[str, ...], "re.Pattern[str]", str, "Callable[[re.Match[str]], bool] | None"]


def make(private: Private) -> list[Rule]:
    def rule(
        kind: str,
        pattern: str,
        hint: tuple[str, ...] = (),
        keep: Callable[[re.Match[str]], bool] | None = None,
        flags: int = 0,
    ) -> Rule:
        return hint, re.compile(pattern, flags), kind, keep

    rules: list[Rule] = []
    for secret in sorted({s for s in private.secrets if len(s) >= 6}, key=len, reverse=True):
        rules.append(rule("token", rf"(?P<secret>{re.escape(secret)})", (secret.lower(),)))
    rules += [
        rule(
            "key",
            r"(?P<secret>-----BEGIN [A-Z0-9 ]*PRIVATE KEY(?: BLOCK)?-----(?:[A-Za-z0-9+/=\s\\]|(?:Proc-Type|DEK-Info|Version|Comment):[^\n\\\"]*)*(?:-----END [A-Z0-9 ]*PRIVATE KEY(?: BLOCK)?-----)?)",
            ("private key",),
        ),
        rule(
            "credentials",
            rf"\b[a-z][a-z0-9+.-]*://(?P<secret>(?!{_PLACEHOLDER}@)[^\s/@\"'<>]+)@",
            ("://",),
            flags=re.IGNORECASE,
        ),
    ]
    for hint, shape in _TOKEN_SHAPES:
        rules.append(rule("token", shape, hint))
    rules += [
        rule("token", rf"\b(?:bearer|basic)\s+(?P<secret>{_VALUE}{{12,}})", ("bearer", "basic"), flags=re.IGNORECASE),
        # FOO_TOKEN=value, export FOO_KEY="value", {"FOO_SECRET": "value"}
        rule(
            "token",
            rf"\b[A-Z][A-Z0-9_]*(?:TOKEN|SECRET|PASSWORD|PASSWD|PASSPHRASE|CREDENTIALS?|APIKEY|_KEY|_AUTH|_PAT|_PWD)[A-Z0-9_]*[\"']?\s*[=:]\s*[\"']?(?P<secret>{_VALUE}{{4,}})",
            ("token", "secret", "passw", "passphrase", "credential", "key", "_auth", "_pat", "_pwd"),
            _is_plain_value,
        ),
        rule("token", rf"\bKEY=[\"']?(?P<secret>{_VALUE}{{8,}})", ("key=",), _is_plain_value),
        # password=value, "api_key": "value", token: value
        rule(
            "token",
            rf"\b[\w.-]*(?:password|passwd|passphrase|secret|api[_-]?key|access[_-]?key|private[_-]?key|auth[_-]?token|access[_-]?token|refresh[_-]?token|(?<![a-z])token)[\"']?\s*[=:]\s*[\"']?(?P<secret>{_VALUE}{{4,}})",
            ("passw", "passphrase", "secret", "key", "token"),
            _is_plain_value,
            re.IGNORECASE,
        ),
        # --token value, --api-key value
        rule(
            "token",
            rf"(?<!\S)--?(?:[a-z]+-)*(?:password|passwd|secret|api-key|apikey|access-key|token|auth-token)(?:\s+|=)[\"']?(?P<secret>(?!-){_VALUE}{{4,}})",
            ("--", " -"),
            _is_plain_value,
            re.IGNORECASE,
        ),
        rule(
            "email",
            r"(?<![\w.+/@-])(?P<secret>[A-Za-z0-9][\w.+-]*@(?:[A-Za-z0-9-]+\.)+[A-Za-z]{2,24})\b(?![(\[=])",
            ("@",),
            _is_code,
        ),
        rule("ip", r"(?<![\w.])(?P<secret>(?:\d{1,3}\.){3}\d{1,3})(?![\w]|\.\d)", (), _is_version_or_local),
        rule(
            "ip",
            r"(?<![\w:.])(?P<secret>(?:[0-9A-Fa-f]{0,4}:){2,7}[0-9A-Fa-f]{0,4})(?![\w:])",
            ("::", ":"),
            _is_not_ipv6,
        ),
        rule("mac", r"(?<![\w:])(?P<secret>(?:[0-9A-Fa-f]{2}:){5}[0-9A-Fa-f]{2})(?![\w:])", (":",)),
    ]
    for home in sorted({h.rstrip("/") for h in private.homes if len(h.rstrip("/")) > 1}, key=len, reverse=True):
        rules.append(rule("home", rf"(?<![\w./-])(?P<secret>{re.escape(home)})(?![\w.-])", (home.lower(),)))
    rules.append(
        rule("home", r"(?<![\w.-])(?P<secret>/(?:home|Users)/(?!<)[^\s/:;,'\"<>()\[\]\\]+)", ("/home/", "/users/"))
    )
    for user in _names(private.users):
        rules.append(rule("user", rf"(?<=/)(?P<secret>{user})(?=/|$|[\s'\":,])", ("/",)))
        rules.append(rule("user", rf"(?<![\w.%])(?P<secret>{user})(?![\w(=\[]|\.\w)", (), flags=re.IGNORECASE))
    for host in _names(private.hosts):
        rules.append(rule("host", rf"(?<![\w.%-])(?P<secret>{host})(?![\w(=\[-])", (), flags=re.IGNORECASE))
    for host in private.hosts:
        # short or common names only where nothing else can stand
        rules.append(rule("host", rf"(?:\w@|\bLinux )(?P<secret>{re.escape(host)})(?![\w.-])", (host.lower(),)))
    rules.append(
        rule(
            "host",
            r"(?<![\w./-])(?P<secret>(?=[a-z0-9.]*[-\d])[a-z0-9][a-z0-9-]*(?:\.[a-z0-9-]+)*\.(?:internal|intranet|corp|lan|localdomain))\b(?![(\w])",
            (".internal", ".intranet", ".corp", ".lan", ".localdomain"),
            flags=re.IGNORECASE,
        )
    )
    return rules


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


def _names(names: tuple[str, ...]) -> list[str]:
    """Escaped names that cannot be taken for an ordinary word of code, longest first."""
    usable = {n for n in names if len(n) >= 3 and n.lower() not in _COMMON_WORDS}
    return [re.escape(n) for n in sorted(usable, key=lambda n: (-len(n), n))]


def _is_plain_value(found: re.Match[str]) -> bool:
    """True where an assignment is code or a setting, not a secret: calls, attributes, numbers, None."""
    value = found.group("secret")
    if re.fullmatch(
        r"-?[\d.,]+|None|null|True|False|true|false|str|int|bool|float|bytes|Optional\[.*|\*+|\.\.\.", value
    ):
        return True
    after = found.string[found.end() : found.end() + 1]
    name = found.group(0)[: found.start("secret") - found.start()]
    is_quoted = name.rstrip().endswith(('"', "'"))
    if not is_quoted and ("(" in value or after == "(" or "[" in value):
        return True  # token = tokenizer.encode(text)
    is_code = not is_quoted and re.fullmatch(r"[a-z_]\w*(?:\.[A-Za-z_]\w*)+", value) is not None
    return is_code and not re.search(r"passw|secret", name, re.IGNORECASE)  # token=self.token


_DOMAINS = frozenset(
    [
        "com",
        "org",
        "net",
        "edu",
        "gov",
        "mil",
        "int",
        "io",
        "ai",
        "dev",
        "app",
        "info",
        "biz",
        "cloud",
        "tech",
        "xyz",
        "example",
        "invalid",
        "test",
        "local",
        "internal",
        "corp",
        "lan",
    ]
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
