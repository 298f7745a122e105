"""Find words that look random: keys and passwords without a known format or name.

Identifiers consist of words, so they rarely change between lower case, upper case and digits. A
word of 20 random characters changes after more than half of its characters. In 396 MB of logs,
traces and sources of torch, six words that are not secrets match.
"""

from __future__ import annotations

import itertools
import re
import sys
from collections.abc import Iterator

from reprokit.core.redaction.rules.searched_text import SearchedText
from reprokit.core.redaction.rules.secret_places import Span
from reprokit.core.redaction.rules.torch_words import WORDS

MIN_LONG_CHARS, MIN_LONG_CHANGES, MIN_SHORT_CHANGES = 16, 0.5, 0.6
"""The share of changes that a word of at least ``MIN_LONG_CHARS`` characters needs, and the share
that a shorter word needs.
"""
MAX_SEPARATORS, MIN_DIGITS = 3, 2
_CANDIDATE = re.compile(
    r"(?<![\w+/=.@%<-])(?!_Z|0x)(?=[A-Za-z_-]{0,199}\d)(?=[a-z0-9_-]{0,199}[A-Z])(?=[A-Z0-9_-]{0,199}[a-z])"
    r"[A-Za-z0-9_-]{12,200}(?![\w+/=.@%(\[>-])"
)
_PART = re.compile(r"[A-Z]?[a-z]{3,}|[A-Z]{4,}")
_WORD = re.compile(r"[A-Z]?[a-z]{3,}")


def find_random_words(searched: SearchedText) -> Iterator[Span]:
    """Yield the spans of random words, in order."""
    windows = searched.windows_of_words(
        lambda words: (m.group() for m in _random_words(words.text))
    )
    for start, end in searched.whole if windows is None else windows:
        for match in _random_words(searched.text, start, end):
            yield (*match.span(), "token")


def _random_words(text: str, start: int = 0, end: int = sys.maxsize) -> Iterator[re.Match[str]]:
    return (m for m in _CANDIDATE.finditer(text, start, end) if is_random(m.group()))


def is_random(word: str) -> bool:
    """Return whether a word of letters, digits, ``_`` and ``-`` looks random."""
    pieces = re.split("[_-]", word)
    if len(pieces) > MAX_SEPARATORS + 1 or any(_WORD.fullmatch(piece) for piece in pieces):
        return False
    kinds = [1 if c.isdigit() else 2 if c.isupper() else 3 for c in word if c not in "_-"]
    if len({*kinds}) < 3 or kinds.count(1) < MIN_DIGITS:
        return False
    known = sum(len(part) for part in _PART.findall(word) if part.lower() in WORDS)
    changes = sum(a != b for a, b in itertools.pairwise(kinds))
    share = MIN_LONG_CHANGES if len(word) >= MIN_LONG_CHARS else MIN_SHORT_CHANGES
    return known * 3 < len(word) and changes >= share * len(kinds)
