"""The bisection gives the same range as brute force: the narrowest one, whatever is skipped or
already known.
"""

from __future__ import annotations

import math

from hypothesis import given
from hypothesis import strategies as st

from reprokit.core.experiments import bisection
from reprokit.core.experiments.bisection import BAD, CANNOT_TELL, FOUND, GOOD, SKIP, WRONG_ENDS


@st.composite
def histories(draw: st.DrawFn) -> list[str]:
    """Return the answer of each version: good ones, then bad ones. The first and the last are
    certain; any of the others may be skipped.
    """
    count = draw(st.integers(2, 40))
    first_bad = draw(st.integers(1, count - 1))
    skipped = draw(st.sets(st.integers(1, count - 2))) if count > 2 else set()
    return [SKIP if n in skipped else GOOD if n < first_bad else BAD for n in range(count)]


ANYTHING = st.lists(st.sampled_from([GOOD, BAD, SKIP]), min_size=2, max_size=20)


@given(history=histories())
def test_the_range_is_the_narrowest_there_is(history: list[str]) -> None:
    """The range is the last version that passes and the first that fails, among those that can be
    judged, and the search takes about as many steps as halving.
    """
    positions: list[int] = []

    def try_position(position: int) -> str:
        positions.append(position)
        return history[position]

    outcome = bisection.outcome_of(
        bisection.search_change(len(history), try_position), len(history)
    )
    good = max(n for n, answer in enumerate(history) if answer == GOOD)
    bad = min(n for n, answer in enumerate(history) if answer == BAD)
    assert (outcome.good, outcome.bad) == (good, bad)
    assert list(outcome.skipped) == list(range(good + 1, bad))
    narrowed = (good, bad) != (0, len(history) - 1)
    assert outcome.status == (FOUND if narrowed or not outcome.skipped else CANNOT_TELL)
    assert len(positions) == len(set(positions)) and positions[:2] == [len(history) - 1, 0]
    assert len(positions) <= 3 + math.log2(len(history)) + sum(
        history[n] == SKIP for n in positions
    )


@given(history=histories(), data=st.data())
def test_known_answers_are_not_tried_again(history: list[str], data: st.DataObject) -> None:
    """An interrupted search that is resumed gives the same range."""
    known = {n: history[n] for n in data.draw(st.sets(st.integers(0, len(history) - 1)))}

    def try_position(position: int) -> str:
        assert position not in known
        return history[position]

    again = bisection.outcome_of(
        bisection.search_change(len(history), try_position, known), len(history)
    )
    assert again == bisection.outcome_of(
        bisection.search_change(len(history), history.__getitem__), len(history)
    )


@given(history=ANYTHING)
def test_inconsistent_answers_still_give_a_border(history: list[str]) -> None:
    """For a failure that comes and goes, the range is a good version, a bad version, and only
    skipped versions between them.
    """
    answers = bisection.search_change(len(history), history.__getitem__)
    outcome = bisection.outcome_of(answers, len(history))
    assert bisection.search_sentence([str(n) for n in range(len(history))], answers)
    if (history[0], history[-1]) == (GOOD, BAD):
        assert (history[outcome.good], history[outcome.bad]) == (GOOD, BAD)
        assert all(history[n] == SKIP for n in range(outcome.good + 1, outcome.bad))
    else:
        assert outcome.status != FOUND and len(answers) <= 2


def test_ends_with_unexpected_answers() -> None:
    """The bad end is tried first, and the search stops at an end with an unexpected answer."""
    wrong = {(GOOD, GOOD): [2], (BAD, BAD): [2, 0], (BAD, GOOD): [2]}
    for (first, last), places in wrong.items():
        answers = bisection.search_change(3, [first, GOOD, last].__getitem__)
        assert sorted(answers) == sorted(places)
        assert bisection.outcome_of(answers, 3).status == WRONG_ENDS
    assert (
        bisection.outcome_of(bisection.search_change(3, [SKIP, GOOD, BAD].__getitem__), 3).status
        == CANNOT_TELL
    )


def test_the_sentence() -> None:
    """The sentence covers both directions, skipped versions, and an interrupted search."""
    names = ["2.9", "2.10", "2.11", "2.12"]
    exact, wide = {0: GOOD, 3: BAD, 1: GOOD, 2: BAD}, {0: GOOD, 3: BAD, 1: SKIP, 2: SKIP}
    assert (
        bisection.search_sentence(names, exact)
        == "It started between 2.10, the last that passes, and 2.11, the first that fails."
    )
    back = bisection.search_sentence(names[::-1], exact, is_backwards=True)
    assert (
        back == "It was fixed between 2.10, the last that fails, and 2.11, the first that passes."
    )
    assert (
        "; 2.10 and 2.11 between them could not be tried, so the range cannot be narrowed."
        in bisection.search_sentence(names, wide)
    )
    assert "versions are left to try" in bisection.search_sentence(
        names, {0: GOOD, 3: BAD}, is_over=False
    )
    assert "interrupted before both ends" in bisection.search_sentence(
        names, {3: BAD}, is_over=False
    )
    assert "2.12 is the bad end" in bisection.search_sentence(names, {3: GOOD})
    assert "2.9, the good end, could not be tried" in bisection.search_sentence(
        names, {3: BAD, 0: SKIP}
    )
