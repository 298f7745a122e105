"""One rule of redaction: its pattern, and a search in linear time."""

from __future__ import annotations

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
    find: Callable[[str, str], Iterable[Span]]
    """Give the spans of private text in order, without overlaps. The arguments are a text and its
    lower case.
    """
    is_exact: bool = False
    """The hints are not in lower case, and are searched in the original text."""
    is_guess: bool = False
    """It matches without a known format or name; the data of a program may look the same."""


_BEFORE, _AFTER = 240, 8_000
"""Maximum distances from a hint to the start and the end of its match, if the ends of the line are
not nearer.
"""
_SMALL = 4_000
"""Texts of so many characters are asked for all hints at once."""


def make_rule(
    kind: str,
    pattern: str,
    hints: tuple[str, ...] = (),
    keep: Keep | None = None,
    flags: int = 0,
    is_near: bool = False,
    is_exact: bool = False,
) -> Rule:
    """A rule from a regular expression: its group ``secret`` is hidden, unless ``keep`` says that
    it is not a secret.

    ``is_near``: a match is on the line of a hint, so no other line is searched. ``is_exact``: hints
    are not in lower case.
    """
    compiled = re.compile(pattern, flags)

    def find(text: str, lowered: str) -> Iterator[Span]:
        windows = (
            _windows(text, text if is_exact else lowered, hints) if is_near else ((0, len(text)),)
        )
        for start, end in windows:
            for found in compiled.finditer(text, start, end):
                if keep is None or not keep(found):
                    yield (*found.span("secret"), kind)

    return Rule(hints, find, is_exact)


def _windows(text: str, searched: str, hints: tuple[str, ...]) -> Iterator[tuple[int, int]]:
    """The parts of a text, in order and without overlaps, in which something that belongs to one of
    ``hints`` can be.
    """
    places = {hint: searched.find(hint) for hint in hints}
    done = 0
    while places := {hint: place for hint, place in places.items() if place >= 0}:
        place = min(places.values())
        start = max(done, place - _BEFORE, text.rfind("\n", max(0, place - _BEFORE), place) + 1)
        end = text.find("\n", place, place + _AFTER)
        done = end if end >= 0 else min(len(text), place + _AFTER)
        yield start, done
        places = {
            hint: searched.find(hint, done) if found < done else found
            for hint, found in places.items()
        }


def group_rules(rules: list[Rule]) -> Rule:
    """Many rules as one, whose spans do not overlap; a short text is asked for all their hints at
    once.
    """
    gates = [
        re.compile(
            "|".join(re.escape(h) for r in rules if r.is_exact == is_exact for h in r.hints)
            or r"(?!)"
        )
        for is_exact in (True, False)
    ]

    def find(text: str, lowered: str) -> Iterator[Span]:
        if len(text) <= _SMALL and not gates[0].search(text) and not gates[1].search(lowered):
            return
        spans: list[Span] = []
        for one in rules:
            if any(hint in (text if one.is_exact else lowered) for hint in one.hints):
                spans += one.find(text, lowered)
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

    return Rule((), find)
