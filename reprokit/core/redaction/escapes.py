"""Text without colours and control characters, with escapes decoded, and a map back to the
original.

A rule matches a secret in plain text. Logs show the same secret behind a colour
(``\\x1b[32mghp_...``), after an escaped line break inside JSON, percent-encoded in a URL, or as the
repr of bytes. So all rules run on the result of :func:`plain_text`, and :class:`PlainText` maps
each position back to the original text.
"""

from __future__ import annotations

import bisect
import re
from dataclasses import dataclass

_ESC = r"(?:\x1b|(?<!\\)\\{1,200}(?:x1[bB]|u001[bB]|033|e(?=\[)))"
_ZERO_WIDTH = "\u00ad\u180e\u200b-\u200f\u202a-\u202e\u2060-\u2064\u2066-\u2069\ufe00-\ufe0f\ufeff"
_ESCAPES = re.compile(
    # a Windows path is not an escape: C:\Users\nick
    r"(?P<kept>(?<=[A-Za-z]:)\\{1,64}Users\\{1,64}[^\s\\\"'<>|:]{1,64})"
    # colours, cursor movements, links and titles of terminals
    rf"|(?P<gone>{_ESC}(?:\[[0-9;:?]{{0,40}}[ -/]?[@-~]|\][^\x07\x1b\\\n]{{0,400}}(?:\x07|\\+a|{_ESC}\\*)|[()][A-Z0-9]|[NOM78c])"
    # text in UTF-16 that was read in a different encoding: NUL after each character
    r"|(?<=[\t\n\r -~])(?:\x00|\\{1,8}x00)(?=[\t\n\r -~](?:\x00|\\{1,8}x00))"
    rf"|[\x01-\x08\x0e-\x1f\x7f-\x9f{_ZERO_WIDTH}])"
    r"|(?<!\\)\\{1,200}(?:(?P<letter>[nrt])|(?P<slash>/)|x(?P<x>[0-9a-fA-F]{2})|u(?P<u>[0-9a-fA-F]{4})|u\{(?P<braced>[0-9a-fA-F]{1,6})\}"
    r"|U(?P<long>[0-9a-fA-F]{8})|(?P<octal>[0-3][0-7]{2}))"
    r"|%(?:25){0,8}(?P<percent>[0-9a-fA-F]{2})"
    r"|&(?:amp;){0,8}(?:(?P<entity>quot|apos|lt|gt|amp|nbsp)|\#(?P<decimal>[0-9]{2,6})|\#[xX](?P<hex>[0-9a-fA-F]{2,5}));"
    r"|(?<=[=: \"'])(?P<glued>\x00)(?=[!-~])"  # between a name and its value
    r"|(?P<nul>\x00)"
)
_FIRST = re.compile(rf"[\x00-\x08\x0e-\x1f\x7f-\x9f\\%&{_ZERO_WIDTH}]")
"""The first character of every escape; a search for it takes a tenth of the time."""
_LETTERS = {"n": "\n", "r": "\r", "t": "\t"}
_ENTITIES = {"quot": '"', "apos": "'", "lt": "<", "gt": ">", "amp": "&", "nbsp": " "}
_SPACE = frozenset("\t\n\v\f\r")


@dataclass(frozen=True)
class PlainText:
    """A text without escapes, and the origin of its characters."""

    text: str
    _starts: tuple[int, ...] = ()
    """The start of each piece in ``text``. A piece is copied text or one decoded escape."""
    _sources: tuple[int, ...] = ()
    _ends: tuple[int, ...] = ()
    """The end of the escape that became the piece; 0 for copied text."""

    def original_span(self, start: int, end: int) -> tuple[int, int]:
        """Return the span of the original text that became ``text[start:end]``, which is not
        empty.
        """
        if not self._starts:
            return start, end
        first, last = (bisect.bisect_right(self._starts, at) - 1 for at in (start, end - 1))
        begin = self._sources[first] + (0 if self._ends[first] else start - self._starts[first])
        return begin, self._ends[last] or self._sources[last] + end - self._starts[last]


def plain_text(text: str) -> PlainText:
    """Decode every escape of ``text``; all other text stays unchanged."""
    match = _find_escape(text, 0)
    if match is None:
        return PlainText(text)
    pieces: list[str] = []
    starts: list[int] = []
    sources: list[int] = []
    ends: list[int] = []
    size = done = 0
    while match is not None:
        decoded = _decoded(match)
        if decoded is not None:
            begin, end = match.span()
            if begin > done:
                pieces.append(text[done:begin])
                starts.append(size)
                sources.append(done)
                ends.append(0)
                size += begin - done
            if decoded:
                pieces.append(decoded)
                starts.append(size)
                sources.append(begin)
                ends.append(end)
                size += 1
            done = end
        match = _find_escape(text, match.end())
    if done < len(text):
        pieces.append(text[done:])
        starts.append(size)
        sources.append(done)
        ends.append(0)
    return (
        PlainText("".join(pieces), tuple(starts), tuple(sources), tuple(ends))
        if starts
        else PlainText("")
    )


def _find_escape(text: str, start: int) -> re.Match[str] | None:
    """Return the first escape at or after ``start``."""
    while first := _FIRST.search(text, start):
        if match := _ESCAPES.match(text, first.start()):
            return match
        start = first.end()
    return None


def _decoded(match: re.Match[str]) -> str | None:
    """Return the decoded text of an escape: a character or nothing; None if it is not an escape."""
    group, text = match.lastgroup or "", match.group(match.lastgroup or 0)
    if group == "kept":
        return None
    if group in ("gone", "glued"):
        return ""
    if group == "letter":
        return _LETTERS[text]
    if group == "slash":
        return text
    if group == "entity":
        return _ENTITIES[text]
    if group == "nul":
        return "\n"
    code = int(text, 8 if group == "octal" else 10 if group == "decimal" else 16)
    if code > 0x10FFFF or 0xD800 <= code < 0xE000 or (group == "percent" and code > 0x7E):
        return None
    char = chr(code)
    if char in _SPACE:
        return char
    if code == 0:
        return "\n"
    return "" if code < 0x20 or 0x7F <= code < 0xA0 else char
