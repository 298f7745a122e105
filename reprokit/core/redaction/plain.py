"""Text without characters that control a terminal or are invisible."""

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
"""Characters that Python calls printable and a terminal does not draw: fillers and variation
selectors.
"""


def clean_text(text: str) -> str:
    """Give ``text`` without characters that control a terminal or are invisible.

    Escape sequences are removed. Control, format (bidirectional, zero width), private and
    unassigned characters and lone surrogates become ``?``; every white space except newline and tab
    becomes a plain space.
    """
    text = _ESCAPE_SEQUENCE.sub("", text)
    bad = [char for char in set(text) if not char.isprintable() or ord(char) in _INVISIBLE]
    return text.translate({ord(char): _INSTEAD.get(char, "?") for char in bad})


def one_line(text: str, most: int) -> str:
    """Clean ``text``, join its lines, and cut it in the middle."""
    text = text if len(text) <= 4 * most else f"{text[: 2 * most]} {text[-2 * most :]}"
    line = " ".join(clean_text(text).split())
    return line if len(line) <= most else f"{line[: most * 2 // 3]} ... {line[-(most // 4) :]}"
