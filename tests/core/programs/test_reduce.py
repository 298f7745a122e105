"""The list reducers: what they promise, how few questions they ask, and that they end on odd
predicates.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reprokit.core.reduce import subsets


class Asked:
    """A predicate that counts its questions; the same question twice counts once, as in the
    oracle.
    """

    def __init__(self, holds: Callable[[list[int]], bool]) -> None:
        self._holds, self.seen = holds, set[tuple[int, ...]]()

    def __call__(self, some: list[int]) -> bool:
        assert some == sorted(some), "sublists keep the list's order"
        self.seen.add(tuple(some))
        return self._holds(some)


@pytest.mark.parametrize("size", [76, 600, 5000])
@pytest.mark.parametrize("wanted", [[0.5], [0.3, 0.31], [0.02, 0.97], [0.1, 0.5, 0.9]])
def test_scattered_things_are_found_in_few_questions(size: int, wanted: list[float]) -> None:
    """Three scattered things among 600 take at most 60 questions, and the growth is logarithmic."""
    needed = {int(size * share) for share in wanted}
    asked = Asked(lambda some: needed <= set(some))
    assert subsets.smallest_subset(list(range(size)), asked) == sorted(needed)
    assert len(asked.seen) <= 60 if size <= 600 else len(asked.seen) <= 90


def test_a_hint_is_asked_first() -> None:
    """What the error names costs one or two questions when it is all that is needed."""
    asked = Asked(lambda some: 300 in some)
    assert subsets.smallest_subset(list(range(600)), asked, hints=[300]) == [300]
    assert len(asked.seen) == 1


def test_a_wrong_hint_costs_little() -> None:
    """A hint that has nothing to do with it leads to the same result."""
    asked = Asked(lambda some: {17, 480} <= set(some))
    assert subsets.smallest_subset(list(range(600)), asked, hints=[300]) == [17, 480]
    assert len(asked.seen) < 80


def test_neighbours_are_found_in_small_questions() -> None:
    """What lies together is found without asking about nearly everything again and again, wherever
    it lies.
    """
    for first in (3, 310, 594):
        asked = Asked(lambda some, first=first: {first, first + 2} <= set(some))
        assert subsets.smallest_subset(list(range(600)), asked) == [first, first + 2]
        assert sum(map(len, asked.seen)) < 3 * 600


def test_one_thing_of_each_kind_is_asked_first() -> None:
    """What needs one kind of thing is found among a few; where that does not do, nothing is lost
    but the question.
    """
    asked = Asked(lambda some: any(n % 10 == 3 for n in some))
    assert len(subsets.smallest_subset(list(range(600)), asked, kind=lambda n: n % 10)) == 1
    assert max(map(len, asked.seen)) == 10
    asked = Asked(lambda some: {13, 403} <= set(some))
    assert subsets.smallest_subset(list(range(600)), asked, kind=lambda n: n % 10) == [13, 403]


@settings(max_examples=200, deadline=None)
@given(st.sets(st.integers(0, 59), min_size=1, max_size=8), st.integers(0, 2**16))
def test_the_result_holds_and_is_1_minimal(needed: set[int], salt: int) -> None:
    """Also for predicates that are not monotone: some supersets of what is needed fail."""
    whole = list(range(60))

    def holds(some: list[int]) -> bool:
        if some == whole:
            return True
        masked = any((n * 7919 + salt) % 23 == 0 for n in some) and (len(some) + salt) % 3 == 0
        return needed <= set(some) and not masked

    found = subsets.smallest_subset(whole, holds)
    assert holds(found)
    for thing in found:
        rest = [other for other in found if other != thing]
        assert not rest or not holds(rest)


def test_everything_may_be_left_out() -> None:
    """leave_out tries the empty list; ddmin keeps neighbours that belong together."""
    assert subsets.leave_out([1, 2, 3], lambda some: True) == []
    assert subsets.leave_out(list(range(64)), lambda some: {20, 21} <= set(some)) == [20, 21]
    assert subsets.leave_out([], lambda some: True) == []
