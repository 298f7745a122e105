"""Cut long texts in the target's own process, where they cannot be redacted first.

A cut may leave half of a secret, or a value without the name that identifies it. So a text is cut
at the end of a line if one is near, and otherwise at white space. A mark shows where text is
missing. Redaction hides text next to the mark that may be part of a secret.
"""

from __future__ import annotations

import re

MARK = re.compile(r" ?<<cut (\d+) (?:bytes|characters)>>")
"""The mark of missing text. On its own line, it means that whole lines are missing."""
_SEARCH_DIVISOR = 4
"""A cut drops at most a quarter of the allowed length to end at a line or at white space."""


def cut_head(text: str, max_chars: int) -> str:
    """Return the beginning of ``text``, with a mark if something was cut."""
    if len(text) <= max_chars:
        return text
    end, is_line = _end(text, max_chars)
    # a text that was cut before loses its whole mark, and the new mark counts what that one did
    marks = [m for m in MARK.finditer(text) if m.end() > end]
    end, is_line = next(((m.start(), False) for m in marks if m.start() < end), (end, is_line))
    count = len(MARK.sub("", text[end:])) + sum(int(m[1]) for m in marks)
    return f"{text[:end]}{'' if is_line else ' '}{cut_mark(count)}"


def cut_tail(text: str, max_chars: int) -> str:
    """Return the end of ``text``, with a mark if something was cut."""
    if len(text) <= max_chars:
        return text
    start, is_line = _start(text, len(text) - max_chars)
    return f"{cut_mark(start)}{chr(10) if is_line else ' '}{text[start:]}"


def cut_middle(text: str, max_head_chars: int, max_tail_chars: int) -> str:
    """Return the beginning and the end of ``text``, with a mark between them if something was
    cut.
    """
    if len(text) <= max_head_chars + max_tail_chars:
        return text
    end, is_line = _end(text, max_head_chars)
    start, starts_line = _start(text, len(text) - max_tail_chars)
    before = "" if is_line else " "
    after = "\n" if starts_line else " "
    return f"{text[:end]}{before}{cut_mark(start - end)}{after}{text[start:]}"


def cut_mark(count: int, unit: str = "characters") -> str:
    """Return the mark for ``count`` missing characters or bytes."""
    return f"<<cut {count} {unit}>>"


def _end(text: str, max_chars: int) -> tuple[int, bool]:
    """Return the index at which to end a beginning of at most ``max_chars`` characters, and whether
    a line ends there.
    """
    first = max(0, max_chars - max_chars // _SEARCH_DIVISOR)
    line = text.rfind("\n", first, max_chars)
    if line >= 0:
        return line + 1, True
    space = max(text.rfind(sign, first, max_chars) for sign in " \t")
    return (space, False) if space >= 0 else (max_chars, False)


def _start(text: str, first: int) -> tuple[int, bool]:
    """Return the index, ``first`` or later, at which to begin the end of ``text``, and whether a
    line begins there.
    """
    last = first + (len(text) - first) // _SEARCH_DIVISOR
    line = text.find("\n", first, last)
    if line >= 0:
        return line + 1, True
    spaces = [index for sign in " \t" if (index := text.find(sign, first, last)) >= 0]
    return (min(spaces) + 1, False) if spaces else (first, False)
