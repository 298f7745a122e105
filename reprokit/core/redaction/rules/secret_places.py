"""Secrets by position: a value after a name that holds secrets is hidden, whatever it looks like.

One scan finds every name of :mod:`.secret_names` in a text, and reads the text after it: an
assignment, an entry of JSON or YAML, a list, an element of XML, the word after a flag, the answer
to a prompt, the argument of a call. Each pattern is bounded and is matched at one position, so any
text takes linear time.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from reprokit.core.redaction.rules import not_private, secret_names, secret_values
from reprokit.core.redaction.rules.searched_text import SearchedText, lower_text
from reprokit.core.redaction.rules.secret_names import KEY, PASSWORD

Span = tuple[int, int, str]
"""Start, end and kind of a hidden text."""

MARK = r"<[a-z]+(?:-\d+)?>"
"""The pattern of a placeholder."""
_PREFIX = r"(?:\[[^\n]{1,100}\]:?)?"
"""The prefix of a launcher or a logger before each line."""
_NUMBERED = re.compile(r"<[a-z]+-\d+>")
_NAME_CHARS = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-"
_REST = re.compile(r"[A-Za-z0-9_]{0,48}(?:-[A-Za-z0-9_]{1,24}){0,4}")
_NEXT = frozenset("\"'`\\=: \t\n]>(,}[{|<*?+")
_QUOTE = r"(?P<quote>\\*(?:\"{3}|'{3}|[\"'`]))"
_BODY = rf"(?!{MARK})(?P<secret>(?:(?!(?P=quote))(?:\\.|[^\\\n])){{3,4000}}?)(?:(?=(?P=quote))(?!(?P=quote)[ \t]*:[^:])|(?=\n|$|<<cut ))"
_CALL = r"(?:[\w.]{0,40}(?:Secret|Password|Token|Key|Credential|Sensitive|Field|str|bytes|repr|Some|Just|quote)\w{0,12}\((?:(?:default|value)=)?[ \t]*)?"
_OPEN = rf"[\[({{]{{0,2}}(?:(?<=\()\s{{0,40}}|[ \t]*){_CALL}(?:[bfruBFRUNL@$]{{0,2}}|r#)"
_SIGN = r"(?:\[\d{0,6}\])?[ \t]*(?::[ \t]*&?[A-Za-z_][\w\[\], |.]{0,40}:?=(?!=)|[Aa]s[ \t]+\w{1,12}[ \t]*=|[?+]=|<-|==|:?=>?|:|->|\{(?=[\"']))[ \t]*"
_CLOSE = r"(?:\\*[\"'`])?[ \t]?\]?"

_QUOTED = re.compile(rf"{_CLOSE}(?:(?P<sign>{_SIGN})|[ \t]*,[ \t]*){_OPEN}{_QUOTE}{_BODY}")
_BARE = re.compile(
    rf"(?:{_CLOSE}|\*\*)(?P<sign>[ \t]*(?:[?+]=|<-|==|:?=>?|:|->)(?:[ \t]*!\w{{1,10}}[ \t])?[ \t]*)(?P<secret>(?!{MARK})"
    r"(?:[^\s\"'`,;&<>\\]|[;&](?=[^\s\"'\\])|,(?=[^\s\"'\\,=:]{1,64}(?:[\s\"',;]|$))|\\(?=[^\s\"'\\])){4,1000})"
)
_BLOCK = re.compile(
    rf"{_CLOSE}[ \t]*[:=][ \t]*(?:[|>][-+]?)?[ \t]*\n{_PREFIX}(?P<indent>[ \t]+)(?P<secret>(?!{MARK})[^\s:=#\-][^\s:=]{{5,}})[ \t]*(?=\n|$)"
)
_LIST = re.compile(
    r"(?:\\*[\"'])?[ \t]*(?::[^=\n]{0,40}=|=|:)[ \t]*(?:\w{0,12}\()?(?P<open>[\[({])(?P<body>[^\[\](){}]{4,4000})"
)
_ROWS = re.compile(
    r"(?:\\*[\"'])?[ \t]*[:=][ \t]*(?P<body>(?:\n"
    + _PREFIX
    + r"[ \t]*-[ \t]+[^\n:]{4,200}){1,200})"
)
_ITEM = re.compile(
    rf"\\*[\"'](?P<secret>(?!{MARK})[^\"'\\\n]{{4,}})\\*[\"'](?![ \t]*:)|(?:^|(?<=[\s,]))(?P<word>(?!{MARK})[^\s\"'\\,:{{}}]{{4,}})(?=[,\s]|$)"
)
_ROW = re.compile(rf"\n{_PREFIX}[ \t]*-[ \t]+[\"']?(?P<secret>(?!{MARK})[^\n\"']{{4,}})")
_ELEMENT = re.compile(
    r"[^<>\n]{0,100}>\s{0,40}(?:<!\[CDATA\[)?(?P<secret>(?!"
    + MARK
    + r")[^<>]{3,4000}?)\s{0,40}(?:\]\]>)?(?:</|<<cut )"
)
_PAIR = re.compile(
    rf"\\*[\"']?(?:[^<>\n]{{0,60}}?[\s,]\s{{0,40}}|\s{{1,40}}|,|\n{_PREFIX}[ \t]{{1,40}})\\*[\"']?(?:[Vv]alue|val|content|default|secret|ParameterValue|stringValue)\\*[\"']?\s{{0,8}}[:=]\s{{0,8}}"
    rf"(?P<quote>\\*[\"'])?(?(quote){_BODY}|(?P<bare>(?!{MARK})[^\s\"',<>]{{4,}}))"
)
_INSIDE = re.compile(
    rf"\\*[\"'][ \t]*:\s{{0,8}}\{{\s{{0,8}}\\*[\"'](?:value|val|content|default|data|secret|\$string)\\*[\"'][ \t]*:[ \t]*{_QUOTE}{_BODY}"
)
"""``"password": {"value": "..."}``."""
_AFTER_TAG = re.compile(
    rf"[\"']?[^<>\n]{{0,80}}>\s{{0,8}}(?P<secret>(?!{MARK})[^<>\s][^<>]{{3,400}}?)\s{{0,8}}</|</name>\s{{0,20}}<value>\s{{0,8}}(?:<string>)?(?P<bare>(?!{MARK})[^<>]{{4,400}}?)\s{{0,8}}</"
)
"""``<entry key="password">...</entry>``, and ``<name>password</name><value>...</value>``."""
_CELL = re.compile(
    rf"[ \t]*[|\u2502\u2506][ \t]*(?P<secret>(?!{MARK})[^\s|\u2502\u2506]{{8,400}})[ \t]*[|\u2502\u2506]"
)
"""The next cell of a table."""
_PLIST = re.compile(
    rf"</key>\s{{0,40}}<(?:string|data)>\s{{0,40}}(?P<secret>(?!{MARK})[^<>]{{4,4000}}?)\s{{0,40}}</"
)
_BETWEEN = r"(?:\\*[\"'][ \t]*,?\s{0,8}\\*[\"']|(?:[ \t]+|=)(?:\\\n[ \t]*)?)"
_FLAGGED = re.compile(
    rf"{_BETWEEN}(?:(?P<quote>[\"'])(?P<whole>(?!{MARK})[^\"'\n]{{4,}})|(?P<secret>(?!{MARK}|--)[^\s\"'`<>\\]{{4,}}))"
)
_ASKED = re.compile(
    r"(?:\\*[\"'])?[ \t]+(?:for|of|on|to|from)[ \t][^\n=]{1,160}?[ \t]*[:=][ \t]+"
    rf"\\*[\"']?(?P<secret>(?!{MARK})[^\s\"']{{4,}})"
)
_SAID = re.compile(
    rf"(?:\\*[\"'])?[ \t]+(?:is|was|set to|=|->)[ \t:]+\\*[\"'`]?(?P<secret>(?!{MARK})[^\s\"'`]{{6,}})"
)
_SPACED = re.compile(
    rf"[ \t]+(?:(?P<quote>\\*[\"']){_BODY}|(?P<bare>(?!{MARK})[^\s\"'`,;&<>\\(){{}}\[\]]{{4,}}))"
)
_CALLED = re.compile(rf"\([ \t]*(?:\w{{1,20}}=)?[bfruBFRU]{{0,2}}{_QUOTE}{_BODY}")
_COMPARED = re.compile(
    rf"(?P<quote>[\"'])(?P<secret>(?!{MARK})[^\"'\n]{{4,150}})(?P=quote)[ \t]*[!=]=[ \t]*(?:[A-Za-z_]\w{{0,40}}\.){{0,4}}$"
)
"""The value that a name is compared with, before the name."""
_SETS = re.compile(
    r"(?:\b(?:ENV|setenv|set|setx|SET|put|add|config|configure|requirepass|masterauth|AUTH|BY|WITH|USER|login|machine|default|account)\b)[^\n=]{0,160}$"
)
_SENTENCE = re.compile(r"(?:[ \t]+[a-z]{2,12}){1,12}[ \t]*(?=\n|$)")


_KEY_CHARS, _VALUE_CHARS = 420, 4_400
"""The maximum distance between a name and the end of its value."""


def find_named_secrets(searched: SearchedText) -> Iterator[Span]:
    """Yield the spans of all values of names that hold secrets, in the order of the text."""
    text = searched.text
    done = 0
    windows = searched.windows_of_words(_find_names)
    for first, last in searched.whole if windows is None else windows:
        lowered = searched.lowered if windows is None else lower_text(text[first:last])
        for hit in secret_names.WORD.finditer(lowered):
            position = first + hit.start()
            if position < done or (found := _name_around(text, position)) is None:
                continue
            start, end = found
            name = text[start:end].strip("-")
            if sure := secret_names.name_sureness(name):
                for span in _values(text, start, end, name, sure):
                    if span[0] >= done:
                        yield span
                        done = span[1]


def _find_names(words: SearchedText) -> Iterator[str]:
    """Yield the names that hold secrets."""
    for first, last in words.windows(secret_names.PARTS, is_exact=False):
        for hit in secret_names.WORD.finditer(words.lowered, first, last):
            if found := _name_around(words.text, hit.start()):
                name = words.text[slice(*found)].strip("-")
                if secret_names.name_sureness(name):
                    yield name


def _name_around(text: str, position: int) -> tuple[int, int] | None:
    """Return start and end of the name with a word of secrets at ``position``; None if no value may
    follow it.
    """
    rest = _REST.match(text, position)
    end = rest.end() if rest else position
    if end < len(text) and text[end] not in _NEXT:
        return None
    before = text[max(0, position - 64) : position]
    start = position - (len(before) - len(before.rstrip(_NAME_CHARS)))
    if text.startswith("<", start - 1) and start and _NUMBERED.match(text, start - 1):
        return None
    return start, end


@dataclass(frozen=True)
class _Name:
    """A name that holds secrets, at its place in a text."""

    text: str
    start: int
    end: int
    name: str
    sure: str
    head: str
    """The text before the name."""

    def match(self, pattern: re.Pattern[str]) -> re.Match[str] | None:
        """Match the text after the name."""
        return pattern.match(self.text, self.end)

    def match_near(self, pattern: re.Pattern[str]) -> re.Match[str] | None:
        """Match the text after the name, up to the maximum distance of its value."""
        most = _KEY_CHARS if self.sure == KEY else _VALUE_CHARS
        return pattern.match(self.text, self.end, min(len(self.text), self.end + most))


Form = Callable[[_Name], list[Span] | None]
"""A form in which a value belongs to a name. It returns the spans of the secrets; none if the value
is no secret; None if the text around the name does not have this form.
"""


def _values(text: str, start: int, end: int, name: str, sure: str) -> Iterator[Span]:
    """Yield the spans of the values that belong to a name."""
    named = _Name(text, start, end, name, sure, text[max(0, start - 200) : start])
    if named.head.endswith(("= ", "=", ".", "]")) and (match := _COMPARED.search(named.head)):
        before = start - len(named.head)
        yield before + match.start("secret"), before + match.end("secret"), "token"
    for form in _FORMS if sure == KEY else (*_FORMS, *_SURE_FORMS):
        if (spans := form(named)) is not None:
            yield from spans
            return


def _in_element(named: _Name) -> list[Span] | None:
    """``<password>...</password>``."""
    head = named.head
    if not (head.rstrip("/:").endswith(("<", "&lt;")) or re.search(r"<[\w.-]{1,30}:$", head)):
        return None
    match = named.match(_ELEMENT)
    if match and (named.sure != KEY or secret_names.looks_secret(match.group("secret"))):
        return [_span(match)]
    match = named.match(_AFTER_TAG)
    return [_span(match)] if match and match.group("bare") else []


def _in_entry(named: _Name) -> list[Span] | None:
    """An entry of a structure that has the name and the value as two parts."""
    head = named.head
    if named.sure == KEY and not named.name.isupper():
        return None
    match = named.match(_PLIST) or named.match(_INSIDE)
    if not match and re.search(
        r"<[\w:.-]{1,40}\s[^<>]{0,80}(?:name|key|id)\s?=\s?[\"']$|<name>$", head
    ):
        match = named.match(_AFTER_TAG)
    if not match and head.endswith(("'", '"', " ", ":")):
        match = named.match(_PAIR)
        if match and not re.search(
            r"(?:[Nn]ame|[Kk]ey|[Ii]d)\\*[\"']?\s{0,8}[:=]\s{0,8}\\*[\"']?$", head, re.IGNORECASE
        ):
            match = None
    return [_span(match)] if match else None


def _in_list(named: _Name) -> list[Span] | None:
    """A list or a mapping under a plural name."""
    if not named.name.endswith(("s", "S")):
        return None
    return list(_listed(named.text, named.end, named.sure)) or None


def _after_flag(named: _Name) -> list[Span] | None:
    """``--password ...``."""
    if not named.text.startswith("-", named.start) or secret_names.asks_for_secret(named.name):
        return None
    if (match := named.match(_FLAGGED)) is None:
        return None
    value = match.group("secret") or match.group("whole")
    if secret_values.is_plain_setting(named.name, value, named.sure):
        return None
    return [_span(match)] if named.sure != KEY or secret_names.looks_secret(value) else []


def _in_cell(named: _Name) -> list[Span] | None:
    """The next cell of a table."""
    if (match := named.match_near(_CELL)) is None:
        return None
    value = match.group("secret")
    is_random = named.sure != KEY or secret_names.looks_random(value)
    return [_span(match)] if is_random and secret_names.looks_secret(value) else []


def _in_quotes(named: _Name) -> list[Span] | None:
    if (match := named.match_near(_QUOTED)) is None:
        return None
    if secret_values.is_secret_text(match, named.name, named.sure):
        return [_span(match)]
    return [] if match.group("sign") else None


def _without_quotes(named: _Name) -> list[Span] | None:
    text, start = named.text, named.start
    if (match := named.match_near(_BARE)) is None:
        return None
    if not secret_values.is_secret_word(text, start, match, named.name, named.sure):
        return []
    begin, stop, kind = _span(match)
    line = text[max(0, start - 12) : start].strip(" \t-").rpartition("\n")[2]
    if named.sure == PASSWORD and line in ("", "export") and (more := _SENTENCE.match(text, stop)):
        stop = more.end()
    return [(begin, stop, kind)]


def _in_call(named: _Name) -> list[Span] | None:
    """``set_password("...")``."""
    if (
        named.sure != PASSWORD
        or named.text[named.end : named.end + 1] != "("
        or secret_names.asks_for_secret(named.name)
    ):
        return None
    match = named.match(_CALLED)
    return [_span(match)] if match else []


def _in_block(named: _Name) -> list[Span] | None:
    """A value in the next line, which is indented."""
    match = named.match(_BLOCK)
    if match is None or not_private.is_setting_value(match.group("secret")):
        return None
    is_secret = named.sure == PASSWORD or secret_names.looks_secret(match.group("secret"))
    return [_span(match)] if is_secret else []


def _in_prompt(named: _Name) -> list[Span] | None:
    """``password for bob: ...``."""
    match = named.match(_ASKED) if named.sure == PASSWORD else None
    return [_span(match)] if match else None


def _in_sentence(named: _Name) -> list[Span] | None:
    """``the password is ...``."""
    match = named.match(_SAID)
    is_secret = match and re.search(r"[\d!#$%^&*+=/]", match.group("secret"))
    return [_span(match)] if match and is_secret else None


def _after_space(named: _Name) -> list[Span] | None:
    match = named.match(_SPACED)
    is_set = match and _is_set(named.head, match, named.name, named.sure)
    return [_span(match)] if match and is_set else None


_FORMS: tuple[Form, ...] = (
    _in_element,
    _in_entry,
    _in_list,
    _after_flag,
    _in_cell,
    _in_quotes,
    _without_quotes,
    _in_call,
)
"""The forms of all names, in the order in which they are tried."""
_SURE_FORMS: tuple[Form, ...] = (_in_block, _in_prompt, _in_sentence, _after_space)
"""The forms, after the others, of names whose values are secrets whatever they look like."""


def _is_set(head: str, match: re.Match[str], name: str, sure: str) -> bool:
    """Return whether a value after white space belongs to the name: a command sets the name, or the
    value is quoted, or it looks random.
    """
    value = match.group("secret") or match.group("bare")
    if not_private.is_setting_value(value) or secret_names.name_sureness(value):
        return False
    if secret_values.is_name_of_pass(name, value):
        return False
    if match.group("quote"):
        return (sure == PASSWORD or secret_names.looks_secret(value)) and " " not in value
    if _SETS.search(head.rpartition("\n")[2]):
        return (
            name.isupper()
            or secret_names.looks_secret(value)
            or (
                sure == PASSWORD
                and re.search(
                    r"\b(?:machine|login|requirepass|masterauth|configure|config)\b", head
                )
                is not None
            )
        )
    return (sure == PASSWORD and secret_names.looks_secret(value)) or secret_names.looks_random(
        value
    )


def _listed(text: str, end: int, sure: str) -> Iterator[Span]:
    """Yield the spans of the values of a list or a mapping under a plural name, or of YAML rows."""
    match, pattern = _LIST.match(text, end), _ITEM
    if match is None:
        match, pattern = _ROWS.match(text, end), _ROW
    if match is None:
        return
    for item in pattern.finditer(text, *match.span("body")):
        span = _span(item)
        value = text[span[0] : span[1]]
        is_quoted = item.lastgroup == "secret"
        if sure == KEY and not (
            is_quoted and secret_names.looks_secret(value) and not value.startswith("<")
        ):
            continue
        if not not_private.is_setting_value(value) and (
            is_quoted or secret_names.looks_secret(value)
        ):
            yield span


def _span(match: re.Match[str]) -> Span:
    groups = match.groupdict()
    for group in ("secret", "whole", "word", "bare"):
        if groups.get(group) is not None:
            return (*match.span(group), "token")
    raise AssertionError("a pattern of this module has a group for the secret")
