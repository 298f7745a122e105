"""The search against brute force: whatever is skipped and whatever is known, the range is the
narrowest there is.
"""

from __future__ import annotations

import math

from hypothesis import given
from hypothesis import strategies as st

from reprokit.core.experiments import bisection
from reprokit.core.experiments.bisection import BAD, CANNOT_TELL, FOUND, GOOD, SKIP, WRONG_ENDS


@st.composite
def histories(draw: st.DrawFn) -> list[str]:
    """What each version would answer: good ones, then bad ones, both ends certain, any of the
    others skipped.
    """
    count = draw(st.integers(2, 40))
    first_bad = draw(st.integers(1, count - 1))
    skipped = draw(st.sets(st.integers(1, count - 2))) if count > 2 else set()
    return [SKIP if n in skipped else GOOD if n < first_bad else BAD for n in range(count)]


ANYTHING = st.lists(st.sampled_from([GOOD, BAD, SKIP]), min_size=2, max_size=20)


@given(history=histories())
def test_the_range_is_the_narrowest_there_is(history: list[str]) -> None:
    """The last that passes and the first that fails of all that can be told, in about as many
    questions as halving takes.
    """
    asked: list[int] = []

    def ask(place: int) -> str:
        asked.append(place)
        return history[place]

    found = bisection.outcome_of(bisection.search_change(len(history), ask), len(history))
    good = max(n for n, answer in enumerate(history) if answer == GOOD)
    bad = min(n for n, answer in enumerate(history) if answer == BAD)
    assert (found.good, found.bad) == (good, bad)
    assert list(found.skipped) == list(range(good + 1, bad))
    narrowed = (good, bad) != (0, len(history) - 1)
    assert found.status == (FOUND if narrowed or not found.skipped else CANNOT_TELL)
    assert len(asked) == len(set(asked)) and asked[:2] == [len(history) - 1, 0]
    assert len(asked) <= 3 + math.log2(len(history)) + sum(history[n] == SKIP for n in asked)


@given(history=histories(), data=st.data())
def test_what_is_known_is_not_asked_again(history: list[str], data: st.DataObject) -> None:
    """An interrupted search that is taken up again comes to the same range."""
    known = {n: history[n] for n in data.draw(st.sets(st.integers(0, len(history) - 1)))}

    def ask(place: int) -> str:
        assert place not in known
        return history[place]

    again = bisection.outcome_of(bisection.search_change(len(history), ask, known), len(history))
    assert again == bisection.outcome_of(
        bisection.search_change(len(history), history.__getitem__), len(history)
    )


@given(history=ANYTHING)
def test_answers_to_and_fro_still_give_a_border(history: list[str]) -> None:
    """A failure that comes and goes: what is told is a good one, a bad one, and nothing but skipped
    ones between.
    """
    answers = bisection.search_change(len(history), history.__getitem__)
    found = bisection.outcome_of(answers, len(history))
    assert bisection.search_sentence([str(n) for n in range(len(history))], answers)
    if (history[0], history[-1]) == (GOOD, BAD):
        assert (history[found.good], history[found.bad]) == (GOOD, BAD)
        assert all(history[n] == SKIP for n in range(found.good + 1, found.bad))
    else:
        assert found.status != FOUND and len(answers) <= 2


def test_ends_that_are_not_as_told() -> None:
    """The bad end is asked first, and nothing after an end that is not what it was said to be."""
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
    """Both directions, skipped ones, and a search that was given up."""
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
        "; 2.10 and 2.11 between them could not be tried, so it cannot be narrowed."
        in bisection.search_sentence(names, wide)
    )
    assert "there is more to ask" in bisection.search_sentence(
        names, {0: GOOD, 3: BAD}, is_over=False
    )
    assert "interrupted before both ends" in bisection.search_sentence(
        names, {3: BAD}, is_over=False
    )
    assert "2.12 was told to be bad" in bisection.search_sentence(names, {3: GOOD})
    assert "2.9, the good end, could not be tried" in bisection.search_sentence(
        names, {3: BAD, 0: SKIP}
    )
