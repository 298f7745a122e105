"""When did it start? A search over an ordered list in which some of the answers cannot be had.

Key insight: all that the search knows is which versions answered what, so the next question and the
result are functions of those answers alone: an interrupted search goes on from them, and answers
that are known already are never asked for. The list runs from the end that was told to be good to
the one that was told to be bad, whichever of them is the newer.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

GOOD, BAD, SKIP = "good", "bad", "skip"
"""It passes; it shows the failure; nobody can tell."""

ANSWERS = (GOOD, BAD, SKIP)
FOUND, WRONG_ENDS, CANNOT_TELL = "found", "wrong ends", "cannot tell"


@dataclass(frozen=True)
class SearchOutcome:
    """What the answers come to."""

    status: str
    """One of FOUND, WRONG_ENDS and CANNOT_TELL."""
    good: int = 0
    """Place of the last good one; meant only where a range was found."""
    bad: int = 0
    """Place of the first bad one behind it."""
    skipped: tuple[int, ...] = ()
    """Places between the two, none of which could be told."""


def known_ends(answers: Mapping[int, str], count: int) -> tuple[int, int]:
    """The narrowest pair of a good one and a bad one that the answers show, both ends being as
    told.

    Where the answers go to and fro, it is the first bad one that counts.
    """
    bad = min(place for place in range(count) if answers.get(place) == BAD)
    return max(place for place in range(bad) if answers.get(place) == GOOD), bad


def next_place(answers: Mapping[int, str], count: int) -> int | None:
    """The place to ask next: the ends, then the untried one nearest to the middle; None when
    nothing is left to ask.

    The bad end comes first: where the failure does not show at all, nothing else is worth building.
    """
    for place, told in ((count - 1, BAD), (0, GOOD)):
        if place not in answers:
            return place
        if answers[place] != told:
            return None
    good, bad = known_ends(answers, count)
    untried = [place for place in range(good + 1, bad) if place not in answers]
    return min(untried, key=lambda place: abs(2 * place - good - bad), default=None)


def outcome_of(answers: Mapping[int, str], count: int) -> SearchOutcome:
    """What the answers that there are come to; a search that was interrupted has narrowed the range
    so far.
    """
    told = (answers.get(0), answers.get(count - 1))
    if told != (GOOD, BAD):
        return SearchOutcome(
            WRONG_ENDS if told[0] == BAD or told[1] == GOOD else CANNOT_TELL, 0, count - 1
        )
    good, bad = known_ends(answers, count)
    skipped = tuple(place for place in range(good + 1, bad) if answers.get(place) == SKIP)
    is_narrowed = (good, bad) != (0, count - 1) or not skipped
    return SearchOutcome(FOUND if is_narrowed else CANNOT_TELL, good, bad, skipped)


def search_change(
    count: int, ask: Callable[[int], str], known: Mapping[int, str] | None = None
) -> dict[int, str]:
    """Ask until nothing is left to ask; gives all answers, those that were ``known`` among them."""
    answers = dict(known or {})
    while (place := next_place(answers, count)) is not None:
        answers[place] = ask(place)
    return answers


def search_sentence(
    names: Sequence[str],
    answers: Mapping[int, str],
    is_backwards: bool = False,
    is_over: bool = True,
) -> str:
    """The result in one sentence; ``names`` in the order of the search, which is ``is_backwards``
    for the newest first.
    """
    found, last = outcome_of(answers, len(names)), len(names) - 1
    if answers.get(last) == GOOD:
        return (
            f"{names[last]} was told to be bad and does not show the failure; name a version that"
            " does."
        )
    if answers.get(0) == BAD:
        return (
            f"{names[0]} was told to be good and shows the failure; name a version that does not."
        )
    for place, word in ((last, "bad"), (0, "good")):
        if answers.get(place) == SKIP:
            return f"{names[place]}, the {word} end, could not be tried; name another one."
        if place not in answers:
            return "It was interrupted before both ends were tried."
    good, bad = (
        f"{names[found.good]}, the {{}} that passes",
        f"{names[found.bad]}, the {{}} that fails",
    )
    first, then = (bad, good) if is_backwards else (good, bad)
    verb = "was fixed" if is_backwards else "started"
    text = f"It {verb} between {first.format('last')}, and {then.format('first')}"
    if found.skipped:
        names_between = [names[place] for place in found.skipped]
        text += f"; {_listed(names_between)} between them could not be tried"
    if found.status == CANNOT_TELL:
        text += ", so it cannot be narrowed"
    return text + ("." if is_over else "; it was interrupted, and there is more to ask.")


def _listed(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
