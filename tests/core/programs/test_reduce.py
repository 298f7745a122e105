"""The list reducers keep their guarantees, need few tests, and end with inconsistent predicates."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reprokit.core.reduce import subsets
from reprokit.core.reduce.edit_memory import EditMemory
from tests.support.examples import examples


class CountingPredicate:
    """A predicate that counts its tests; a repeated test counts once, as in the oracle."""

    def __init__(self, holds: Callable[[list[int]], bool]) -> None:
        self._holds, self.seen = holds, set[tuple[int, ...]]()

    def __call__(self, some: list[int]) -> bool:
        assert some == sorted(some), "sublists keep the list's order"
        self.seen.add(tuple(some))
        return self._holds(some)


@pytest.mark.parametrize("size", [76, 600, 5000])
@pytest.mark.parametrize("wanted", [[0.5], [0.3, 0.31], [0.02, 0.97], [0.1, 0.5, 0.9]])
def test_scattered_elements_are_found_in_few_tests(size: int, wanted: list[float]) -> None:
    """Three scattered elements among 600 take at most 60 tests, and the number grows
    logarithmically.
    """
    needed = {int(size * share) for share in wanted}
    predicate = CountingPredicate(lambda some: needed <= set(some))
    assert subsets.smallest_subset(list(range(size)), predicate) == sorted(needed)
    assert len(predicate.seen) <= 60 if size <= 600 else len(predicate.seen) <= 90


def test_a_hint_is_tested_first() -> None:
    """An element that the error names costs one or two tests when it is all that is needed."""
    predicate = CountingPredicate(lambda some: 300 in some)
    assert subsets.smallest_subset(list(range(600)), predicate, hints=[300]) == [300]
    assert len(predicate.seen) == 1


def test_a_wrong_hint_costs_little() -> None:
    """A hint that does not contribute leads to the same result."""
    predicate = CountingPredicate(lambda some: {17, 480} <= set(some))
    assert subsets.smallest_subset(list(range(600)), predicate, hints=[300]) == [17, 480]
    assert len(predicate.seen) < 80


def test_neighbours_are_found_in_small_tests() -> None:
    """Neighbouring elements are found without repeated tests of nearly the whole list, at any
    position.
    """
    for first in (3, 310, 594):
        predicate = CountingPredicate(lambda some, first=first: {first, first + 2} <= set(some))
        assert subsets.smallest_subset(list(range(600)), predicate) == [first, first + 2]
        assert sum(map(len, predicate.seen)) < 3 * 600


def test_one_element_of_each_kind_is_tested_first() -> None:
    """A predicate that needs one kind of element is tested on one element of each kind first; if
    that is not enough, only the test is lost.
    """
    predicate = CountingPredicate(lambda some: any(n % 10 == 3 for n in some))
    assert len(subsets.smallest_subset(list(range(600)), predicate, kind=lambda n: n % 10)) == 1
    assert max(map(len, predicate.seen)) == 10
    predicate = CountingPredicate(lambda some: {13, 403} <= set(some))
    assert subsets.smallest_subset(list(range(600)), predicate, kind=lambda n: n % 10) == [13, 403]


@settings(max_examples=examples(200))
@given(st.sets(st.integers(0, 59), min_size=1, max_size=8), st.integers(0, 2**16))
def test_the_result_holds_and_is_1_minimal(needed: set[int], salt: int) -> None:
    """This also holds for predicates that are not monotone: some supersets of the needed elements
    fail.
    """
    whole = list(range(60))

    def holds(some: list[int]) -> bool:
        if some == whole:
            return True
        masked = any((n * 7919 + salt) % 23 == 0 for n in some) and (len(some) + salt) % 3 == 0
        return needed <= set(some) and not masked

    smallest = subsets.smallest_subset(whole, holds)
    assert holds(smallest)
    for element in smallest:
        rest = [kept for kept in smallest if kept != element]
        assert not rest or not holds(rest)


def test_everything_may_be_left_out() -> None:
    """leave_out tries the empty list; ddmin keeps neighbours that belong together."""
    assert subsets.leave_out([1, 2, 3], lambda some: True) == []
    assert subsets.leave_out(list(range(64)), lambda some: {20, 21} <= set(some)) == [20, 21]
    assert subsets.leave_out([], lambda some: True) == []


def test_a_part_of_a_refused_list_is_not_tested() -> None:
    """A list that says nothing about its parts does not count as refused."""
    asked: list[list[int]] = []

    def answer(some: list[int]) -> bool | None:
        asked.append(some)
        return None if some == [7, 8] else 9 in some

    implied = subsets.Implied(answer)
    assert not implied.holds([1, 2, 3]) and not implied.holds([1, 3]) and not implied.holds([])
    assert implied.holds([3, 9]) and not implied.holds([7, 8]) and not implied.holds([7])
    assert asked == [[1, 2, 3], [3, 9], [7, 8], [7]]


def test_a_rejected_edit_is_not_tested_again() -> None:
    """The edit is known by its lines, also after other lines have changed."""
    asked: list[str] = []

    def shows(edits: EditMemory, text: str) -> bool:
        def ask() -> bool | None:
            asked.append(text)
            return "needed" in text if "invalid" not in text else None

        return edits.shows_failure(text, ask)

    edits = EditMemory()
    edits.begin_pass("a\nneeded\nb\n")
    assert not shows(edits, "a\nb\n")
    assert shows(edits, "needed\nb\n")
    assert not shows(edits, "b\n")
    assert not shows(edits, "needed\ninvalid\n") and not edits.forget_unclear()
    assert not shows(edits, "needed\ninvalid\n")
    assert not shows(edits, "needed\ninvalid\n") and edits.forget_unclear()
    assert asked == ["a\nb\n", "needed\nb\n", "needed\ninvalid\n", "needed\ninvalid\n"]
    edits.begin_pass("needed\n")
    assert not shows(edits, "") and len(asked) == 4 and not edits.forget_unclear()


def test_of_equal_lines_each_one_is_a_different_edit() -> None:
    """The removal of one of them says nothing about the other, nor about an insertion."""
    before = "x = relu(x)\ny = 1\nx = relu(x)\n"
    first, second = "y = 1\nx = relu(x)\n", "x = relu(x)\ny = 1\n"
    edits = EditMemory()
    edits.begin_pass(before)
    assert not edits.shows_failure(first, lambda: False)
    assert not edits.shows_failure("x = relu(x)\nz = 2\ny = 1\nx = relu(x)\n", lambda: False)
    assert edits.shows_failure(second, lambda: True)
