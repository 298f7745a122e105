"""One rule of redaction: its pattern, and a search in linear time."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from reprokit.core.redaction.rules.searched_text import SearchedText
from reprokit.core.redaction.rules.secret_places import Span

Keep = Callable[[re.Match[str]], bool]


@dataclass(frozen=True)
class Rule:
    """One rule of redaction."""

    hints: tuple[str, ...]
    """A text that contains none of these, in lower case, is not searched. Without hints, every text
    is searched.
    """
    find_spans: Callable[[SearchedText], Iterable[Span]]
    """Returns the spans of private text in order, without overlaps."""
    is_exact: bool = False
    """The hints are not in lower case, and are searched in the original text."""
    is_guess: bool = False
    """The rule needs no known format or name, so it may also match the data of a program."""
    is_by_form: bool = False
    """The text itself looks private, not its place. A name that the run recorded only looks so."""


def make_rule(
    kind: str,
    pattern: str,
    hints: tuple[str, ...] = (),
    keep: Keep | None = None,
    flags: int = 0,
    is_near: bool = False,
    is_exact: bool = False,
    is_word: bool = False,
    part: str = "",
    is_by_form: bool = False,
) -> Rule:
    """Make a rule from a regular expression: it hides the group ``secret``, unless ``keep`` returns
    True for the match.

    ``is_near``: a match is on the line of a hint, so only those lines are searched. ``is_exact``:
    hints are not in lower case. ``is_word``: a match has no white space, and does not depend on a
    character after the white space around it. ``part``: a regular expression for a part of every
    match that has no white space; without it in a word, the text is not searched, and a rule that
    is not near searches only the lines with such a part.
    """

    @functools.cache
    def compiled(pattern: str, flags: int) -> re.Pattern[str]:
        # most rules never see a text with one of their hints
        return re.compile(pattern, flags)

    def windows(searched: SearchedText) -> Iterable[tuple[int, int]]:
        if is_word:
            found = searched.windows_of_words(lambda words: (m.group() for m in matches(words)))
            if found is not None:
                return found
        elif part and searched.words and not compiled(part, 0).search(searched.words.text):
            return ()
        if is_near:
            return searched.windows(searched.possible_hints(hints, is_exact), is_exact)
        if part:
            return searched.windows_of_part(compiled(part, 0))
        has_hint = not hints or is_exact or searched.present_hints(hints)
        return searched.whole if has_hint else ()

    def matches(searched: SearchedText) -> Iterator[re.Match[str]]:
        for start, end in windows(searched):
            yield from compiled(pattern, flags).finditer(searched.text, start, end)

    def find_spans(searched: SearchedText) -> Iterator[Span]:
        for match in matches(searched):
            if keep is None or not keep(match):
                yield (*match.span("secret"), kind)

    return Rule(hints, find_spans, is_exact, is_by_form=is_by_form)


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

    def find_spans(searched: SearchedText) -> Iterator[Span]:
        if searched.is_short and not (
            gates[0].search(searched.text) or gates[1].search(searched.lowered)
        ):
            return
        spans: list[Span] = []
        numbers = {
            n
            for hints, is_exact in ((by_exact_hint, True), (by_hint, False))
            for hint in searched.possible_hints(hints, is_exact)
            for n in hints[hint]
        }
        for number in sorted(numbers):
            spans += rules[number].find_spans(searched)
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
