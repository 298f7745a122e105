"""Find the first bad version in an ordered list in which some versions cannot be tried.

The next version to try and the result depend only on the answers so far. So an interrupted search
continues from them, and no version is tried twice. The list is ordered from the end that the user
called good to the end that the user called bad; either may be the newer.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal

GOOD, BAD, SKIP = "good", "bad", "skip"
"""The version passes; it has the failure; it could not be tried."""

ANSWERS = (GOOD, BAD, SKIP)
FOUND: Final = "found"
WRONG_ENDS: Final = "wrong ends"
CANNOT_TELL: Final = "cannot tell"


@dataclass(frozen=True)
class SearchOutcome:
    """The result of a search; good, bad and skipped are indices of versions."""

    status: Literal["found", "wrong ends", "cannot tell"]
    good: int = 0
    """The last good version; valid only if a range was found."""
    bad: int = 0
    """The first bad version after it."""
    skipped: tuple[int, ...] = ()
    """The versions between the two, none of which could be tried."""


def known_ends(answers: Mapping[int, str], count: int) -> tuple[int, int]:
    """Return the first bad version and the last good version before it, good first; the ends of the
    list have the expected answers.
    """
    bad = min(i for i in range(count) if answers.get(i) == BAD)
    return max(i for i in range(bad) if answers.get(i) == GOOD), bad


def next_version(answers: Mapping[int, str], count: int) -> int | None:
    """Return the index of the version to try next: the ends, and then the untried version nearest
    to the middle; None if the search is complete.

    The bad end comes first: without a failure there, no other version is worth building.
    """
    for index, expected in ((count - 1, BAD), (0, GOOD)):
        if index not in answers:
            return index
        if answers[index] != expected:
            return None
    good, bad = known_ends(answers, count)
    untried = [i for i in range(good + 1, bad) if i not in answers]
    return min(untried, key=lambda i: abs(2 * i - good - bad), default=None)


def outcome_of(answers: Mapping[int, str], count: int) -> SearchOutcome:
    """Return the result of the answers so far; that of an interrupted search is a wider range."""
    ends = (answers.get(0), answers.get(count - 1))
    if ends != (GOOD, BAD):
        return SearchOutcome(
            WRONG_ENDS if ends[0] == BAD or ends[1] == GOOD else CANNOT_TELL, 0, count - 1
        )
    good, bad = known_ends(answers, count)
    skipped = tuple(i for i in range(good + 1, bad) if answers.get(i) == SKIP)
    is_narrowed = (good, bad) != (0, count - 1) or not skipped
    return SearchOutcome(FOUND if is_narrowed else CANNOT_TELL, good, bad, skipped)


def search_change(
    count: int, try_version: Callable[[int], str], known: Mapping[int, str] | None = None
) -> dict[int, str]:
    """Try versions until the search is complete, and return all answers, with those in
    ``known``.
    """
    answers = dict(known or {})
    while (index := next_version(answers, count)) is not None:
        answers[index] = try_version(index)
    return answers


def search_sentence(
    names: Sequence[str],
    answers: Mapping[int, str],
    is_backwards: bool = False,
    is_over: bool = True,
) -> str:
    """Return the result in one sentence; ``names`` are in the order of the search, which
    ``is_backwards`` if the newest version is first.
    """
    outcome, last = outcome_of(answers, len(names)), len(names) - 1
    if answers.get(last) == GOOD:
        return (
            f"{names[last]} is the bad end and does not have the failure; name a version that has"
            " it."
        )
    if answers.get(0) == BAD:
        return f"{names[0]} is the good end and has the failure; name a version without it."
    for index, word in ((last, "bad"), (0, "good")):
        if answers.get(index) == SKIP:
            return f"{names[index]}, the {word} end, could not be tried; name a different version."
        if index not in answers:
            return "It was interrupted before both ends were tried."
    good, bad = (
        f"{names[outcome.good]}, the {{}} that passes",
        f"{names[outcome.bad]}, the {{}} that fails",
    )
    first, then = (bad, good) if is_backwards else (good, bad)
    verb = "was fixed" if is_backwards else "started"
    text = f"It {verb} between {first.format('last')}, and {then.format('first')}"
    if outcome.skipped:
        names_between = [names[index] for index in outcome.skipped]
        text += f"; {_listed(names_between)} between them could not be tried"
    if outcome.status == CANNOT_TELL:
        text += ", so the range cannot be narrowed"
    return text + ("." if is_over else "; it was interrupted, and versions are left to try.")


def _listed(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
