"""One rule of redaction: its pattern, and a search in linear time."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from reprokit.core.redaction.rules.secret_places import Span

Keep = Callable[[re.Match[str]], bool]


@dataclass(frozen=True)
class Rule:
    """One rule of redaction."""

    hints: tuple[str, ...]
    """A text that contains none of these, in lower case, is not searched. Without hints, every text
    is searched.
    """
    find_spans: Callable[[str, str], Iterable[Span]]
    """Returns the spans of private text in order, without overlaps. The arguments are a text and
    the same text in lower case.
    """
    is_exact: bool = False
    """The hints are not in lower case, and are searched in the original text."""
    is_guess: bool = False
    """The rule needs no known format or name, so it may also match the data of a program."""
    is_by_form: bool = False
    """The text itself looks private, not its place. A name that the run recorded only looks so."""


_BEFORE, _AFTER = 240, 8_000
"""Maximum distances from a hint to the start and the end of its match, if the ends of the line are
not nearer.
"""
_MAX_SMALL_CHARS = 4_000
"""A text of at most this length is searched for all hints of a group at once."""
_SPACE = re.compile(r"\s")
_DIGITS = {ord(digit): "0" for digit in "123456789"}


def make_rule(
    kind: str,
    pattern: str,
    hints: tuple[str, ...] = (),
    keep: Keep | None = None,
    flags: int = 0,
    is_near: bool = False,
    is_exact: bool = False,
    part: str = "",
    is_by_form: bool = False,
) -> Rule:
    """Make a rule from a regular expression: it hides the group ``secret``, unless ``keep`` returns
    True for the match.

    ``is_near``: a match is on the line of a hint, so only those lines are searched. ``is_exact``:
    hints are not in lower case. ``part``: a regular expression for a part of every match that can
    be found quickly; only the lines with such a part are searched.
    """

    @functools.cache
    def compiled() -> re.Pattern[str]:  # most rules never see a text with one of their hints
        return re.compile(pattern, flags)

    def windows(text: str, lowered: str) -> Iterable[tuple[int, int]]:
        if part:
            search = re.compile(part).search
            return _windows(text, lambda at: m.start() if (m := search(text, at)) else -1)
        if is_near:
            return _windows(text, _hint_finder(text if is_exact else lowered, hints))
        return ((0, len(text)),)

    def find_spans(text: str, lowered: str) -> Iterator[Span]:
        for start, end in windows(text, lowered):
            for match in compiled().finditer(text, start, end):
                if keep is None or not keep(match):
                    yield (*match.span("secret"), kind)

    return Rule(hints, find_spans, is_exact, is_by_form=is_by_form)


def _windows(text: str, find: Callable[[int], int]) -> Iterator[tuple[int, int]]:
    """Yield the parts of a text around what ``find`` finds, in order and without overlaps.

    ``find`` returns the first position at or after the given one; -1 if there is none.
    """
    done = 0
    while (first := find(done)) >= 0:
        start = max(done, first - _BEFORE, text.rfind("\n", max(0, first - _BEFORE), first) + 1)
        end = text.find("\n", first, first + _AFTER)
        if end < 0:  # a long line: no word is cut
            space = _SPACE.search(text, first + _AFTER)
            end = space.start() if space else len(text)
        done = end
        yield start, done


def _hint_finder(searched: str, hints: tuple[str, ...]) -> Callable[[int], int]:
    """Return a function that finds the next occurrence of any hint."""
    positions = {hint: searched.find(hint) for hint in hints}

    def find(start: int) -> int:
        for hint, at in positions.items():
            if 0 <= at < start:
                positions[hint] = searched.find(hint, start)
        return min((at for at in positions.values() if at >= 0), default=-1)

    return find


@functools.lru_cache(maxsize=1)
def _distinct_words(text: str) -> str:
    """Return the distinct words of a text, one per line, with 0 for each digit.

    A trace of 9 MB has 0.1 MB of them, because the names in graphs differ in their numbers only.
    """
    return "\n".join(sorted(set(text.translate(_DIGITS).split())))


def _possible_hints(words: str, hints: Iterable[str]) -> list[str]:
    """Return the hints that a text with these distinct words may contain."""
    return [
        hint for hint in hints if all(part in words for part in hint.translate(_DIGITS).split())
    ]


def group_rules(rules: list[Rule], is_by_form: bool = False) -> Rule:
    """Combine rules into one, whose spans do not overlap. It searches a short text for all hints
    at once.
    """
    gates = [
        re.compile(
            "|".join(re.escape(h) for r in rules if r.is_exact == is_exact for h in r.hints)
            or r"(?!)"
        )
        for is_exact in (True, False)
    ]

    by_exact_hint: dict[str, list[int]] = {}
    by_hint: dict[str, list[int]] = {}
    for number, rule in enumerate(rules):
        for hint in rule.hints:
            (by_exact_hint if rule.is_exact else by_hint).setdefault(hint, []).append(number)

    def find_spans(text: str, lowered: str) -> Iterator[Span]:
        exact_hints: Iterable[str] = by_exact_hint
        hints: Iterable[str] = by_hint
        if len(text) <= _MAX_SMALL_CHARS:
            if not gates[0].search(text) and not gates[1].search(lowered):
                return
        else:
            words = _distinct_words(text)
            exact_hints = _possible_hints(words, exact_hints)
            hints = _possible_hints(words.lower(), hints)
        spans: list[Span] = []
        numbers = {n for hint in exact_hints if hint in text for n in by_exact_hint[hint]}
        numbers.update(n for hint in hints if hint in lowered for n in by_hint[hint])
        for number in sorted(numbers):
            spans += rules[number].find_spans(text, lowered)
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

    return Rule((), find_spans, is_by_form=is_by_form)
