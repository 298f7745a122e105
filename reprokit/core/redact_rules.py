"""What private text looks like: the rules, in the order in which they run, on text without escapes."""

from __future__ import annotations

import builtins
import keyword
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from . import command_secrets, lookalikes, secret_places, token_shapes, vendor_keys
from .secret_places import MARK, Span

Keep = Callable[[re.Match[str]], bool]


@dataclass(frozen=True)
class Private:
    """What is known to be private on the machine where a pack is made."""

    users: tuple[str, ...] = ()
    hosts: tuple[str, ...] = ()
    homes: tuple[str, ...] = ()
    secrets: tuple[str, ...] = ()
    """Values of environment variables with secret names, literally."""


@dataclass(frozen=True)
class Rule:
    """One rule of redaction."""

    hints: tuple[str, ...]
    """A text that holds none of these, in lower case, is not searched; every text is where there are none."""
    find: Callable[[str, str], Iterable[Span]]
    """Give what is private in a text, which comes as it is and in lower case; in order, without overlaps."""
    is_exact: bool = False
    """The hints are not in lower case, and are looked for in the text as it is."""


# Words of torch's own paths and logs: a user or host of this name is hidden in nothing but the home.
_PATH_WORDS = frozenset(
    "root user users admin ubuntu debian centos fedora runner build builder test tests dev work home main local localhost "
    "host node torch triton cuda cpu gpu python python3 nvidia amd intel arm linux kernel model models data train lib bin usr "
    "opt tmp var src inductor dynamo compile compiler graph tensor cache code core agent default none "
    "a100 h100 h200 b200 b300 v100 l40s rtx4090 rtx5090 mi300 mi300x".split()
)
# Words of code: such a name is hidden where it is a folder, not where it may be a call.
_CODE_WORDS = frozenset(n.lower() for n in (*dir(builtins), *keyword.kwlist))

PLACEHOLDER = re.compile(MARK)
_ASCII_LOWER = {upper: upper + 32 for upper in range(ord("A"), ord("Z") + 1)}

_PRIVATE_KEYS = (
    # whole, even where each line has a prefix of its own
    r"(?P<secret>-{4,5} ?BEGIN (?P<what>[A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?) ?-{4,5}(?:(?!-----BEGIN)[\s\S]){0,16384}?-{4,5} ?END (?P=what) ?-{4,5})",
    # cut short
    r"(?P<secret>-{4,5} ?BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?(?: ?-{1,5})?"
    r"(?:(?:Proc-Type|DEK-Info|Version|Comment|Charset|Subject):[^\n\\\"]{0,200}|[A-Za-z0-9+/=\s\\>|]){0,16384})",
    # without its beginning
    r"(?P<secret>(?:(?:^|(?<=\n)|(?<=[\s\"'=>])|(?<=\]: ))[A-Za-z0-9+/]{1,80}={0,2}[ \t\r]{0,8}\n[^\n]{0,24}?){0,300}"
    r"[A-Za-z0-9+/=]{0,80}\s{0,8}-{4,5} ?END [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)? ?-{4,5})",
    # PuTTY's
    r"Private-Lines: \d{1,3}\s{1,4}(?P<secret>(?:[A-Za-z0-9+/=]{16,}\s{0,4}){1,200})",
)
_CUT = r"<<cut \d+ (?:bytes|characters)>>"
_EDGES = (
    # lines of a key or a file in base64 or hexadecimal, with no beginning
    rf"{_CUT}\n(?P<secret>(?:[^\nA-Za-z0-9]{{0,16}}[A-Za-z0-9+/=_-]{{16,}}[ \t]*(?:\n|$)){{1,400}})",
    rf"(?:^|(?<=\n))(?P<secret>(?:[A-Za-z0-9+/=_-]{{32,}}[ \t]*\n){{1,400}}){_CUT}",
    # what may belong to a name, a quote or a token that is on the other side
    rf"{_CUT}[ \t]?\\*[\"']?(?P<secret>(?!{MARK})[^\s\"'<>][^\n\"'<>]{{0,300}}[\"']|(?!{MARK})[^\s<>]{{4,}})",
    rf"(?P<secret>(?:(?<=[\"'])[^\n\"'<>]{{0,300}}|(?<![^\s<>])[^\s<>]{{4,2000}})(?<!>))[ \t]?{_CUT}",
)


def lower(text: str) -> str:
    """``text`` in lower case, character by character: all places stay where they are."""
    lowered = text.lower()
    return lowered if len(lowered) == len(text) else text.translate(_ASCII_LOWER)


def is_secret_entry(name: str, value: str) -> bool:
    """Whether the value of a key that may hold a secret is one."""
    return bool([*secret_places.find(f'"{name}": "{value}"', lower(f'"{name}": "{value}"'))])


def make(private: Private) -> list[Rule]:
    """All rules in their order: literals, whole blocks and tokens, what a place shows, addresses, names, edges of cuts."""
    rules: list[Rule] = []
    literals = {s for s in private.secrets if len(s) >= 6 and not lookalikes.is_setting_value(s)}
    for secret in sorted(literals, key=len, reverse=True):
        rules.append(rule("token", rf"(?P<secret>{re.escape(secret)})", (secret.lower(),)))
    rules += [rule("key", pattern, ("private key", "private-lines")) for pattern in _PRIVATE_KEYS]
    rules += [rule("credentials", pattern, ("://",), flags=re.IGNORECASE, is_near=True) for pattern in _CREDENTIALS]
    rules.append(_tokens())
    rules += [_places()] * 2  # a command line may hold several, and one match may end behind the next
    rules.append(Rule((), secret_places.find))
    rules += [*_addresses(), *_people_and_machines(private)]
    return [*rules, *(rule("cut", pattern, ("<<cut ",)) for pattern in _EDGES)]


def _places() -> Rule:
    return group([rule("token", p.pattern, p.hints, flags=p.flags, is_near=p.is_near) for p in command_secrets.PLACES])


def _tokens() -> Rule:
    return group(
        [
            rule(
                "token",
                f"{s.before}(?P<secret>{s.pattern})",
                s.hints,
                is_near=len(min(s.hints, key=len)) > 1,
                is_exact=s.is_exact,
            )
            for s in (*token_shapes.SHAPES, *vendor_keys.SHAPES)
        ]
    )


_CREDENTIALS = (
    # up to the last @ of what stands before the path
    rf"(?<![a-z0-9+.-])[a-z][a-z0-9+.-]{{0,20}}://(?P<secret>(?!{MARK}@)[^\s/?#\"'<>]{{1,400}})@",
    # a password with a slash or a question mark
    rf"(?<![a-z0-9+.-])[a-z][a-z0-9+.-]{{0,20}}://(?P<secret>(?!{MARK})[^\s/@:?#\"'<>]{{0,80}}:(?!\d{{1,5}}/)[^\s@\"'<>]{{1,200}})"
    r"@(?=[\w.-]{1,100}(?::\d+)?(?:[/?#\s\"',;)\]]|$))",
)


_BEFORE, _AFTER = 240, 8_000
"""How far from a hint what it belongs to may begin and end; a line's ends are nearer."""
_SMALL = 4_000
"""Texts of so many characters are asked for all hints at once."""


def rule(
    kind: str,
    pattern: str,
    hints: tuple[str, ...] = (),
    keep: Keep | None = None,
    flags: int = 0,
    is_near: bool = False,
    is_exact: bool = False,
) -> Rule:
    """A rule from a regular expression: its group ``secret`` is hidden, unless ``keep`` says that it is none.

    ``is_near``: a match is on the line of a hint, so no other line is searched. ``is_exact``: hints are not in lower case.
    """
    compiled = re.compile(pattern, flags)

    def find(text: str, lowered: str) -> Iterator[Span]:
        windows = _windows(text, text if is_exact else lowered, hints) if is_near else ((0, len(text)),)
        for start, end in windows:
            for found in compiled.finditer(text, start, end):
                if keep is None or not keep(found):
                    yield (*found.span("secret"), kind)

    return Rule(hints, find, is_exact)


def _windows(text: str, searched: str, hints: tuple[str, ...]) -> Iterator[tuple[int, int]]:
    """The parts of a text, in order and without overlaps, in which something that belongs to one of ``hints`` can be."""
    places = {hint: searched.find(hint) for hint in hints}
    done = 0
    while places := {hint: place for hint, place in places.items() if place >= 0}:
        place = min(places.values())
        start = max(done, place - _BEFORE, text.rfind("\n", max(0, place - _BEFORE), place) + 1)
        end = text.find("\n", place, place + _AFTER)
        done = end if end >= 0 else min(len(text), place + _AFTER)
        yield start, done
        places = {hint: searched.find(hint, done) if found < done else found for hint, found in places.items()}


def group(rules: list[Rule]) -> Rule:
    """Many rules as one, whose spans do not overlap; a short text is asked for all their hints at once."""
    gates = [
        re.compile("|".join(re.escape(h) for r in rules if r.is_exact == is_exact for h in r.hints) or r"(?!)")
        for is_exact in (True, False)
    ]

    def find(text: str, lowered: str) -> Iterator[Span]:
        if len(text) <= _SMALL and not gates[0].search(text) and not gates[1].search(lowered):
            return
        spans: list[Span] = []
        for one in rules:
            if any(hint in (text if one.is_exact else lowered) for hint in one.hints):
                spans += one.find(text, lowered)
        begin = stop = -1
        named = ""
        for start, end, kind in sorted(spans):
            if start < stop:
                stop = max(stop, end)
                continue
            if stop >= 0:
                yield begin, stop, named
            begin, stop, named = start, end, kind
        if stop >= 0:
            yield begin, stop, named

    return Rule((), find)


def _addresses() -> list[Rule]:
    return [
        rule(
            "email",
            r"(?<![\w.+/@\\-])(?P<secret>[A-Za-z0-9][\w.+-]*@(?:[A-Za-z0-9-]+\.)+[A-Za-z]{2,24})\b(?![(\[=])",
            ("@",),
            lookalikes.is_code,
            is_near=True,
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


_BEFORE_PATH = r"(?:(?<![\w./-])(?<!<home>)|(?<=://)|(?<=[\s\"',=\[(])-{1,2}[A-Za-z][\w-]{0,20}?|^-{1,2}[A-Za-z][\w-]{0,20}?|://[\w.@+-]{1,80}?)"
"""A path begins here: it may follow a flag (``-isystem/home``) or the host of a URL."""
_REMOTE = r"\b(?:ssh|scp|sftp|rsync|mosh|sshfs|ssh-copy-id|autossh|pdsh|clush)\b[^\n|;&]{0,160}?[\s\"',]"
_REMOTE_HINTS = ("ssh", "scp", "sftp", "rsync", "mosh", "pdsh", "clush")


def _people_and_machines(private: Private) -> list[Rule]:
    rules: list[Rule] = []
    for home in sorted({h.rstrip("/") for h in private.homes if len(h.rstrip("/")) > 1}, key=len, reverse=True):
        rules.append(rule("home", rf"{_BEFORE_PATH}(?P<secret>{re.escape(home)})(?![\w.-])", (home.lower(),)))
    folder = r"(?:/[\w.-]{1,40}){0,3}?/(?:home|homes|home\d|Users|users)"
    rules += [
        rule(
            "home",
            rf"{_BEFORE_PATH}(?P<secret>{folder}/(?!<)(?:[^\s/:;,'\"`<>()\[\]\\])+)",
            ("/home", "/users/"),
        ),
        rule("home", r"(?P<secret>(?<![A-Za-z])[A-Za-z]:[\\/]+Users[\\/]+(?!<)[^\s\\/\"'<>|:]+)", (":\\", ":/")),
        rule("user", r"(?:(?<=[\s\"'=:(])|^)~(?P<secret>[a-z_][\w-]{2,31})(?=/[A-Za-z.])", ("~",)),
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
            is_near=True,
        )
    )
    address = r"\d+\.\d+\.\d+\.\d+"
    name = rf"(?P<secret>(?!{MARK}|localhost\b|{address})[A-Za-z0-9][\w.-]*)"
    # other machines of a cluster, where only a host can stand
    rules += [
        rule("host", rf"(?m:^)[ \t]*{name}:\d+:\d+ \[\d+\] NCCL", ("nccl",)),
        rule("host", rf"\bMASTER_ADDR[\"']?\s*[=:]\s*[\"']?{name}", ("master_addr",)),
        rule("host", rf"rdzv[-_]endpoint[\"']?[=:\s]\s*[\"']?{name}(?=:\d)", ("rdzv",)),
        rule("host", rf"(?:connect(?:ing)? to|remote|peer|client socket)[^\n]{{0,40}}?\[{name}\]:\d", ("]:",)),
        rule("host", r"\bSLURM\w*(?:NODELIST|NODENAME|HOST|_USER)=(?P<secret>(?!<)[^\s\"',;]+)", ("slurm",)),
        rule("host", rf"\bsrun: error: {name}(?=:)", ("srun",)),
        rule("host", rf"\w@{name}(?=:[~/])", ("@",)),
        # ssh alice@node17, rsync -a x bob@login:/y
        rule("user", rf"{_REMOTE}(?P<secret>(?!<|git@)[A-Za-z_][\w.-]{{0,40}})(?=@[A-Za-z0-9<])", _REMOTE_HINTS),
        rule("host", rf"{_REMOTE}(?:[A-Za-z_][\w.-]{{0,40}}|{MARK})@{name}", _REMOTE_HINTS),
        rule("host", r"(?<![\w.-])(?P<secret>ip-\d{1,3}(?:-\d{1,3}){3}(?:\.[\w.-]{1,80})?)(?![\w-])", ("ip-",)),
        rule("host", rf"\bLinux {name}(?= \d+\.\d+\.)", ("linux ",)),
    ]
    return rules


def _names(names: tuple[str, ...], common: frozenset[str]) -> list[str]:
    """Escaped names that are not ``common`` words, longest first."""
    usable = {n for n in names if len(n) >= 3 and n.lower() not in common}
    return [re.escape(n) for n in sorted(usable, key=lambda n: (-len(n), n))]
