"""A text that rules search, and its distinct words, which tell quickly what it does not contain.

The names in graphs and generated code repeat, so a trace of 9 MB has 1 MB of distinct words. A rule
whose matches have no white space looks for them in the words first, and then in the text only
around what it found.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Collection, Iterable, Iterator
from typing import AnyStr

MAX_SHORT_CHARS = 4_000
"""A text of at most this length is searched directly."""
MAX_SOUGHT = 24
"""Maximum number of different matches that are sought in the text one by one. A search for each
takes a fiftieth of the time of a regular expression.
"""
_BEFORE, _AFTER = 240, 8_000
"""Maximum distances from a hint to the start and the end of its match, if the ends of the line are
not nearer.
"""
_PART_CHARS = 1 << 20
_MIN_REPETITION = 1.3
"""The ratio of a text to its distinct words below which the words are no help."""
_SPACE = re.compile(r"\s")
_BYTE_SPACE = re.compile(rb"[ \t\n\r\f\v]")
_LETTERS = {"\u0130": "i", "\u0131": "i", "\u017f": "s"}
"""The characters that a regular expression takes for an ASCII letter if it ignores the case, but
``str.lower`` does not; the first one would become two characters.
"""
_DIGITS = bytes.maketrans(b"123456789", b"000000000")


def lower_text(text: str) -> str:
    """Return ``text`` in lower case with the same length, so that all positions stay the same."""
    for char, letter in _LETTERS.items():
        text = text.replace(char, letter)
    return text.lower()


class SearchedText:
    """A text that rules search."""

    def __init__(self, text: str, word_set: frozenset[str] | None = None) -> None:
        self.text = text
        self._known_words = word_set
        """The distinct words, if they are known already."""

    @functools.cached_property
    def lowered(self) -> str:
        """The text in lower case, with the same positions."""
        return lower_text(self.text)

    @property
    def is_short(self) -> bool:
        """Whether the text is searched directly."""
        return len(self.text) <= MAX_SHORT_CHARS

    @property
    def whole(self) -> Iterable[tuple[int, int]]:
        """All of the text as one part."""
        return ((0, len(self.text)),)

    @functools.cached_property
    def _word_set(self) -> frozenset[str]:
        if self.is_short:
            return frozenset()
        return _distinct_words(self.text) if self._known_words is None else self._known_words

    @functools.cached_property
    def words(self) -> SearchedText | None:
        """The distinct words, one per line, and perhaps some that were in the text earlier; None if
        the text is short or its words hardly repeat.
        """
        words = self._word_set
        return SearchedText("\n".join(("", *words, "")), frozenset()) if words else None

    @functools.cached_property
    def _words_without_digits(self) -> bytes:
        """The distinct words in lower case, with 0 for each digit: a quarter of the words."""
        text = (self.words or self).lowered
        data = text.encode("utf-8", "surrogatepass").translate(_DIGITS)
        words = {word for part in _parts_of(data, _BYTE_SPACE) for word in part.split()}
        return b"\n".join((b"", *words, b""))

    @functools.cached_property
    def _quads(self) -> set[int] | None:
        """All four bytes in a row of these words, as numbers. They exclude a hint in a tenth of the
        time of a search for it. None for a large text whose words hardly repeat, because it may
        have millions of them.
        """
        data = self._words_without_digits
        return _quads(data) if self.words or len(data) <= _PART_CHARS else None

    def replaced(self, text: str, places: Iterable[tuple[int, int]]) -> SearchedText:
        """Return the text after a replacement. ``places`` are the new parts of ``text``, in
        order.
        """
        if "_word_set" not in self.__dict__ or not self._word_set:
            return SearchedText(text)
        words = set(self._word_set)
        end = 0
        for start, stop in places:
            if stop <= end:
                continue
            begin = max(text.rfind(" ", end, start), text.rfind("\n", end, start), end - 1) + 1
            space = _SPACE.search(text, stop)
            end = space.start() if space else len(text)
            words.update(text[begin:end].split())
        return SearchedText(text, frozenset(words))

    def possible_hints(self, hints: Iterable[str], is_exact: bool = False) -> list[str]:
        """Return the hints that the text may contain. Hints that are not exact are in lower case,
        and the text may have them in any case.
        """
        words = self.words or self
        searched = words.text if is_exact else words.lowered
        if self.is_short:
            return [hint for hint in hints if hint in searched]
        plain, quads = self._words_without_digits, self._quads
        return [
            hint
            for hint in hints
            if (quads is None or quads.issuperset(_quads_of_hint(hint)))
            and all(part in plain for part in _parts_without_digits(hint))
            and all(part in searched for part in (_parts(hint) if self.words else (hint,)))
        ]

    def present_hints(self, hints: Iterable[str]) -> set[str]:
        """Return the hints, which are in lower case, that the text contains in any case; some of
        them may be in an earlier text only.
        """
        return {
            hint
            for hint in self.possible_hints(hints)
            if not (self.words and _SPACE.search(hint)) or hint in self.lowered
        }

    def windows(self, hints: Collection[str], is_exact: bool) -> Iterator[tuple[int, int]]:
        """Yield the parts of the text around its hints, in order and without overlaps; hints that
        are not exact are in lower case.
        """
        searched = self.text if is_exact else self.lowered
        positions = {hint: searched.find(hint) for hint in hints}

        def find(start: int) -> int:
            for hint, at in positions.items():
                if 0 <= at < start:
                    positions[hint] = searched.find(hint, start)
            return min((at for at in positions.values() if at >= 0), default=-1)

        return self._windows(find)

    def windows_of_part(self, part: re.Pattern[str]) -> Iterator[tuple[int, int]]:
        """Yield the parts of the text around the matches of a pattern."""
        return self._windows(lambda at: m.start() if (m := part.search(self.text, at)) else -1)

    def windows_of_words(
        self, find_all: Callable[[SearchedText], Iterable[str]]
    ) -> Iterable[tuple[int, int]] | None:
        """Return the parts of the text in which all matches are; None for all of it.

        ``find_all`` finds the text of each match, which has no white space, in the distinct words.
        """
        if self.words is None:
            return None
        sought: set[str] = set()
        for found in find_all(self.words):
            sought.add(found)
            if len(sought) > MAX_SOUGHT:
                return None
        least = {found for found in sought if not any(s in found for s in sought - {found})}
        return self.windows(least, is_exact=True) if least else ()

    def _windows(self, find: Callable[[int], int]) -> Iterator[tuple[int, int]]:
        """``find`` returns the first position at or after the given one; -1 if there is none."""
        text = self.text
        done = 0
        while (first := find(done)) >= 0:
            start = max(done, first - _BEFORE, text.rfind("\n", max(0, first - _BEFORE), first) + 1)
            end = text.find("\n", first, first + _AFTER)
            if end < 0:  # a long line: no word is cut
                space = _SPACE.search(text, first + _AFTER)
                end = space.start() if space else len(text)
            done = end
            yield start, done


def _distinct_words(text: str) -> frozenset[str]:
    """Return the distinct words of a text; none if they hardly repeat."""
    words: set[str] = set()
    most = len(text) / _MIN_REPETITION
    for part in _parts_of(text, _SPACE):
        words.update(part.split())
        if sum(map(len, words)) > most:
            return frozenset()
    return frozenset(words)


def _parts_of(text: AnyStr, space: re.Pattern[AnyStr]) -> Iterator[AnyStr]:
    """Yield a text in parts of about a million characters that cut no word, because a list of all
    words would need ten times the memory of the text.
    """
    start = 0
    while start < len(text):
        found = space.search(text, start + _PART_CHARS)
        end = found.start() if found else len(text)
        yield text[start:end]
        start = end


@functools.lru_cache(maxsize=4_000)
def _parts(hint: str) -> tuple[str, ...]:
    """Return the parts of a hint that are in the distinct words, if a text contains the hint."""
    return tuple(re.findall(r"\n?[^\n]+\n?", re.sub(r"\s+", "\n\n", hint)))


@functools.lru_cache(maxsize=4_000)
def _parts_without_digits(hint: str) -> tuple[bytes, ...]:
    return tuple(
        part.lower().encode("utf-8", "surrogatepass").translate(_DIGITS) for part in _parts(hint)
    )


@functools.lru_cache(maxsize=4_000)
def _quads_of_hint(hint: str) -> frozenset[int]:
    return frozenset().union(*map(_quads, _parts_without_digits(hint)))


def _quads(data: bytes) -> set[int]:
    view = memoryview(data)
    return set().union(
        *(view[at : at + (len(data) - at) // 4 * 4].cast("I") for at in range(min(4, len(data))))
    )
