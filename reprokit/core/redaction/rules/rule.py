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


_BEFORE, _AFTER = 240, 8_000
"""Maximum distances from a hint to the start and the end of its match, if the ends of the line are
not nearer.
"""
_MAX_SMALL_CHARS = 4_000
"""A text of at most this length is searched for all hints of a group at once."""


def make_rule(
    kind: str,
    pattern: str,
    hints: tuple[str, ...] = (),
    keep: Keep | None = None,
    flags: int = 0,
    is_near: bool = False,
    is_exact: bool = False,
) -> Rule:
    """Make a rule from a regular expression: it hides the group ``secret``, unless ``keep`` returns
    True for the match.

    ``is_near``: a match is on the line of a hint, so only those lines are searched. ``is_exact``:
    hints are not in lower case.
    """

    @functools.cache
    def compiled() -> re.Pattern[str]:  # most rules never see a text with one of their hints
        return re.compile(pattern, flags)

    def find_spans(text: str, lowered: str) -> Iterator[Span]:
        windows = (
            _windows(text, text if is_exact else lowered, hints) if is_near else ((0, len(text)),)
        )
        for start, end in windows:
            for match in compiled().finditer(text, start, end):
                if keep is None or not keep(match):
                    yield (*match.span("secret"), kind)

    return Rule(hints, find_spans, is_exact)


def _windows(text: str, searched: str, hints: tuple[str, ...]) -> Iterator[tuple[int, int]]:
    """Yield the parts of a text around the occurrences of ``hints``, in order and without
    overlaps.
    """
    positions = {hint: searched.find(hint) for hint in hints}
    done = 0
    while positions := {hint: at for hint, at in positions.items() if at >= 0}:
        first = min(positions.values())
        start = max(done, first - _BEFORE, text.rfind("\n", max(0, first - _BEFORE), first) + 1)
        end = text.find("\n", first, first + _AFTER)
        done = end if end >= 0 else min(len(text), first + _AFTER)
        yield start, done
        positions = {
            hint: searched.find(hint, done) if at < done else at for hint, at in positions.items()
        }


def group_rules(rules: list[Rule]) -> Rule:
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
        is_small = len(text) <= _MAX_SMALL_CHARS
        if is_small and not gates[0].search(text) and not gates[1].search(lowered):
            return
        spans: list[Span] = []
        numbers = {n for hint, ns in by_exact_hint.items() if hint in text for n in ns}
        numbers.update(n for hint, ns in by_hint.items() if hint in lowered for n in ns)
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

    return Rule((), find_spans)
