"""The rules that find private text, in the order in which they run, on text without escapes."""

from __future__ import annotations

import re

from reprokit.core.redaction.rules import (
    command_secrets,
    machine_names,
    not_private,
    random_words,
    secret_places,
    service_keys,
    token_formats,
)
from reprokit.core.redaction.rules.machine_names import PrivateNames
from reprokit.core.redaction.rules.rule import Rule, group_rules, make_rule
from reprokit.core.redaction.rules.searched_text import SearchedText, lower_text
from reprokit.core.redaction.rules.secret_places import MARK
from reprokit.core.redaction.rules.torch_words import is_code

PLACEHOLDER = re.compile(MARK)

_PRIVATE_KEYS = (
    # whole, even if each line has a prefix
    r"(?P<secret>-{4,5} ?BEGIN (?P<what>[A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?) ?-{4,5}(?:(?!-----BEGIN)[\s\S]){0,16384}?-{4,5} ?END (?P=what) ?-{4,5})",
    # cut short, with a prefix before each line
    r"(?P<secret>-{4,5} ?BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)? ?-{4,5}[^\n]{0,8}\n"
    r"(?:[^\n]{0,80}?[A-Za-z0-9+/]{20,}={0,2}[^\nA-Za-z0-9]{0,8}(?:\n|$)){1,400})",
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
    # lines of a key or a file in base64 or hexadecimal, without their beginning
    rf"{_CUT}\n(?P<secret>(?:[^\nA-Za-z0-9]{{0,16}}[A-Za-z0-9+/=_-]{{16,}}[ \t]*(?:\n|$)){{1,400}})",
    rf"(?:^|(?<=\n))(?P<secret>(?:[A-Za-z0-9+/=_-]{{32,}}[ \t]*\n){{1,400}}){_CUT}",
    # text that may belong to a name, a quote or a token on the other side of the cut
    rf"{_CUT}[ \t]?\\*[\"']?(?P<secret>(?!{MARK})[^\s\"'<>][^\n\"'<>]{{0,300}}[\"']|(?!{MARK})[^\s<>]{{4,}})",
    rf"(?P<secret>(?:(?<=[\"'])[^\n\"'<>]{{0,300}}|(?<![^\s<>])[^\s<>]{{4,2000}})(?<!>))[ \t]?{_CUT}",
)


def is_secret_entry(name: str, value: str) -> bool:
    """Return whether the value of a key that may hold a secret is a secret."""
    entry = SearchedText(f'"{name}": "{value}"')
    return any(True for _ in secret_places.find_named_secrets(entry))


def make_rules(private: PrivateNames) -> list[Rule]:
    """Make all rules, in order: literals, whole blocks and tokens, secrets by position, addresses,
    names, edges of cuts.
    """
    rules: list[Rule] = []
    literals = {s for s in private.secrets if len(s) >= 6 and not not_private.is_setting_value(s)}
    for secret in sorted(literals, key=lambda s: (-len(s), s)):
        # a word of code is hidden only if its position shows that it is private
        if not is_code(secret):
            edge = r"\b" if secret.isalpha() else ""
            rules.append(
                make_rule(
                    "token", rf"{edge}(?P<secret>{re.escape(secret)}){edge}", (lower_text(secret),)
                )
            )
    rules += [
        make_rule("key", pattern, ("private key", "private-lines")) for pattern in _PRIVATE_KEYS
    ]
    rules += [
        make_rule("credentials", pattern, ("://",), flags=re.IGNORECASE, is_near=True, is_word=True)
        for pattern in _CREDENTIALS
    ]
    rules.append(_tokens())
    # twice: a command line may have several secrets, and a match may end after the next secret;
    # the redactor skips the second search if the first one finds nothing
    rules += [_places()] * 2
    rules.append(Rule((), secret_places.find_named_secrets))
    # the value of a secret variable begins with a token of a known format, and is longer
    rules.append(
        make_rule(
            "token",
            r"(?:TOKEN|KEY|SECRET|PASSWORD|PASSWD|PASS)\w{0,20}[\"']?[ \t]*[=:][ \t]*[\"']?"
            r"<(?:token|key)-\d+>(?P<secret>[^\s\"'`,;<>(){}\[\]]{2,})",
            ("<token-", "<key-"),
            flags=re.IGNORECASE,
            is_near=True,
        )
    )
    rules += [*_addresses(), *machine_names.machine_rules(private)]
    rules.append(Rule((), random_words.find_random_words, is_guess=True, is_by_form=True))
    return [*rules, *(make_rule("cut", pattern, ("<<cut ",)) for pattern in _EDGES)]


def _places() -> Rule:
    return group_rules(
        [
            make_rule(
                "token",
                p.pattern,
                p.hints,
                flags=p.flags,
                is_near=p.is_near,
                is_word=p.is_word,
                part=p.part,
            )
            for p in command_secrets.PLACES
        ]
    )


def _tokens() -> Rule:
    return group_rules(
        [
            make_rule(
                "token",
                f"{s.before}(?P<secret>{s.pattern})",
                s.hints,
                is_near=len(min(s.hints, key=len)) > 1,
                is_exact=s.is_exact,
                is_word=s.is_word,
            )
            for s in (*token_formats.FORMATS, *service_keys.FORMATS)
        ],
        is_by_form=True,
    )


_BEGINS = r"(?:(?<![a-z0-9+.-])|(?<=^[-+])|(?<=\n[-+]))"
"""The sign of a diff line may be before a word."""
_CREDENTIALS = (
    # a password with an at sign and a slash after it
    rf"{_BEGINS}[a-z][a-z0-9+.-]{{0,20}}://(?P<secret>(?!{MARK})[^\s/@:?#\"'<>]{{0,80}}:[^\s/@\"'<>]{{1,100}}@[^\s./@:\"'<>]{{1,60}}/[^\s@\"'<>]{{1,100}})"
    r"@(?=[\w.-]{1,100}(?::\d+)?(?:[/?#\s\"',;)\]]|$))",
    # up to the last @ before the path
    rf"{_BEGINS}[a-z][a-z0-9+.-]{{0,20}}://(?P<secret>(?!{MARK}@)[^\s/?#\"'<>]{{1,400}})@",
    # a password with a slash or a question mark
    rf"{_BEGINS}[a-z][a-z0-9+.-]{{0,20}}://(?P<secret>(?!{MARK})[^\s/@:?#\"'<>]{{0,80}}:(?!\d{{1,5}}/)[^\s@\"'<>]{{1,200}})"
    r"@(?=[\w.-]{1,100}(?::\d+)?(?:[/?#\s\"',;)\]]|$))",
)


_HEX = "[0-9A-Fa-f]{1,4}"
_IPV6 = rf"{_HEX}(?::{_HEX}){{0,5}}::|(?:{_HEX}:){{7}}{_HEX}"
"""The start of an IPv6 address that tells it from ``std::`` and from a clock time."""


def _addresses() -> list[Rule]:
    return [
        make_rule(
            "email",
            r"(?:(?<![\w.+/@\\-])|(?<=(?<![\w-])-))(?P<secret>[A-Za-z0-9][\w.+-]*@(?:[A-Za-z0-9-]+\.)+[A-Za-z]{2,24})\b(?![(\[=])",
            ("@",),
            not_private.is_code,
            is_near=True,
            is_word=True,
            is_by_form=True,
        ),
        make_rule(
            "ip",
            r"(?<![\w.])(?P<secret>(?:\d{1,3}\.){3}\d{1,3})(?![\w]|\.\d)",
            (".",),
            not_private.is_version_or_local,
            is_word=True,
            part=r"\.\d{1,3}\.",
            is_by_form=True,
        ),
        make_rule(
            "mac",
            r"(?<![0-9A-Fa-f])(?<![0-9A-Fa-f]:)(?P<secret>(?:[0-9A-Fa-f]{2}:){5}[0-9A-Fa-f]{2})(?![\w:])",
            (":",),
            not_private.is_no_mac,
            is_word=True,
            part=":[0-9A-Fa-f]{2}:",
            is_by_form=True,
        ),
        make_rule(
            "mac",
            r"(?<![\w-])(?P<secret>(?:[0-9A-Fa-f]{2}-){5}[0-9A-Fa-f]{2})(?![\w-])",
            ("-",),
            is_word=True,
            part="-[0-9A-Fa-f]{2}-",
            is_by_form=True,
        ),
        make_rule(
            "ip",
            rf"(?:(?<![\w:.])|(?<=addr:)|(?<=[a-z]\d:))(?={_IPV6})(?P<secret>(?:[0-9A-Fa-f]{{0,4}}:){{2,7}}[0-9A-Fa-f]{{0,4}})(?![\w:])",
            (":",),
            not_private.is_not_ipv6,
            is_word=True,
            part=r"::|(?::[0-9A-Fa-f]{1,4}){7}",
            is_by_form=True,
        ),
    ]
