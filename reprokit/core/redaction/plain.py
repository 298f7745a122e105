"""Remove characters that control a terminal or are invisible."""

from __future__ import annotations

import re

_ESCAPE_SEQUENCE = re.compile(
    r"(?:\x1b\[|\x9b)[0-?]*[ -/]*[@-~]"  # CSI: colours, the cursor
    # OSC, DCS and the like: titles, links
    r"|(?:\x1b[\]PX^_]|[\x90\x98\x9d-\x9f])[^\x07\x1b\x90\x98\x9c-\x9f]*(?:\x07|\x1b\\|\x9c)"
)
_SPACES = "\xa0\u1680\u202f\u205f\u3000" + "".join(map(chr, range(0x2000, 0x200B)))
_INSTEAD = {"\n": "\n", "\t": "\t"} | dict.fromkeys(_SPACES, " ")
_INVISIBLE = frozenset(
    code
    for codes in (
        (0x034F, 0x115F, 0x1160, 0x17B4, 0x17B5, 0x2800, 0x3164, 0xFFA0),
        range(0x180B, 0x1810),
        range(0xFE00, 0xFE10),
        range(0xE0100, 0xE01F0),
    )
    for code in codes
)
"""Characters that are printable for Python but invisible on a terminal: fillers and variation
selectors.
"""


def clean_text(text: str) -> str:
    """Return ``text`` without characters that control a terminal or are invisible.

    Escape sequences are removed. Control, format (bidirectional, zero width), private and
    unassigned characters and lone surrogates become ``?``; every white space except newline and tab
    becomes a plain space.
    """
    text = _ESCAPE_SEQUENCE.sub("", text)
    bad = [char for char in set(text) if not char.isprintable() or ord(char) in _INVISIBLE]
    return text.translate({ord(char): _INSTEAD.get(char, "?") for char in bad})


def one_line(text: str, max_chars: int) -> str:
    """Clean ``text``, join its lines, and cut it in the middle to ``max_chars``."""
    if len(text) > 4 * max_chars:
        text = f"{text[: 2 * max_chars]} {text[-2 * max_chars :]}"
    line = " ".join(clean_text(text).split())
    if len(line) <= max_chars:
        return line
    return f"{line[: max_chars * 2 // 3]} ... {line[-(max_chars // 4) :]}"
