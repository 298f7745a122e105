"""Cut long texts in the target's own process, where they cannot be redacted first.

A cut may leave half a secret, or a value without the name that shows it. So a text is cut at the
end of a line if one is near, else at white space. A mark says that text is missing, and redaction
hides text next to the mark that may be part of a secret.
"""

from __future__ import annotations

import re

MARK = re.compile(r"<<cut \d+ (?:bytes|characters)>>")
"""The mark of missing text. On its own line, it means that whole lines are missing."""
_NEAR = 4
"""To cut at the end of a line, at most a quarter of the allowed length is dropped."""


def cut_head(text: str, most: int) -> str:
    """The beginning of ``text``, with a mark where it was cut."""
    if len(text) <= most:
        return text
    end, is_line = _end(text, most)
    return f"{text[:end]}{'' if is_line else ' '}{cut_mark(len(text) - end)}"


def cut_tail(text: str, most: int) -> str:
    """The end of ``text``, with a mark where it was cut."""
    if len(text) <= most:
        return text
    start, is_line = _start(text, len(text) - most)
    return f"{cut_mark(start)}{chr(10) if is_line else ' '}{text[start:]}"


def cut_middle(text: str, most_head: int, most_tail: int) -> str:
    """The beginning and the end of ``text``, with a mark between them where it was cut."""
    if len(text) <= most_head + most_tail:
        return text
    end, is_line = _end(text, most_head)
    start, starts_line = _start(text, len(text) - most_tail)
    before = "" if is_line else " "
    after = "\n" if starts_line else " "
    return f"{text[:end]}{before}{cut_mark(start - end)}{after}{text[start:]}"


def cut_mark(count: int, unit: str = "characters") -> str:
    """The mark for ``count`` missing characters or bytes."""
    return f"<<cut {count} {unit}>>"


def _end(text: str, most: int) -> tuple[int, bool]:
    """Where a beginning of at most ``most`` characters ends, and whether that is the end of a
    line.
    """
    line = text.rfind("\n", max(0, most - most // _NEAR), most)
    if line >= 0:
        return line + 1, True
    space = max(text.rfind(sign, max(0, most - most // _NEAR), most) for sign in " \t")
    return (space, False) if space >= 0 else (most, False)


def _start(text: str, least: int) -> tuple[int, bool]:
    """Where an end that begins at ``least`` or later begins, and whether that is the beginning of a
    line.
    """
    most = least + (len(text) - least) // _NEAR
    line = text.find("\n", least, most)
    if line >= 0:
        return line + 1, True
    spaces = [place for sign in " \t" if (place := text.find(sign, least, most)) >= 0]
    return (min(spaces) + 1, False) if spaces else (least, False)
