"""A bug's status follows from what was seen, and from nothing else."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reprokit.core.triage import status
from reprokit.core.triage.status import CellHistory, coincidence, decide_status


@pytest.mark.parametrize(
    ("places", "was", "is_seen", "expected"),
    [
        ([CellHistory(1, 1, 0)], "", True, "new"),
        ([CellHistory(2, 2, 0)], "new", True, "open"),
        ([CellHistory(2, 4, 0)], "new", True, "flaky"),
        ([CellHistory(1, 1, 0)], "fixed", True, "regressed"),
        ([CellHistory(2, 2, 0)], "regressed", True, "open"),
        ([CellHistory(5, 5, 1)], "open", False, "open"),
        ([CellHistory(5, 5, 3)], "open", False, "fixed"),
        ([CellHistory(5, 5, 0)], "open", False, "open"),
        ([], "open", False, "open"),
        ([CellHistory(5, 5, 3)], "fixed", False, "fixed"),
    ],
)
def test_status_after_a_night(
    places: list[CellHistory], was: str, is_seen: bool, expected: str
) -> None:
    """New, open, flaky, fixed and regressed are what they are called for."""
    assert decide_status(places, was, is_seen).name == expected


def test_fixed_is_argued_by_chance() -> None:
    """A bug that shows every time is fixed after three runs without it; one that shows in a quarter
    of them needs ten.

    With a rate of (hits + 1) / (runs + 2), the absence from m runs has the probability (1 - rate)
    ** m, and what is less likely than one in twenty is no coincidence.
    """
    assert decide_status([CellHistory(1, 1, 2)], "new", False).name == "open"
    assert (
        decide_status([CellHistory(1, 1, 3)], "new", False).name == "fixed"
    )  # (1 / 3) ** 3 is 3.7 %
    rate = (5 + 1) / (20 + 2)
    needed = next(m for m in range(1, 100) if (1 - rate) ** m < 0.05)
    assert needed == 10
    assert decide_status([CellHistory(5, 20, needed - 1)], "flaky", False).name == "flaky"
    found = decide_status([CellHistory(5, 20, needed)], "flaky", False)
    assert found.name == "fixed"
    assert found.reason.startswith("not seen in 10 runs where it would have been; by chance 4.")


def test_runs_of_all_its_cells_count_together() -> None:
    """Three cells that would each have shown it say in one night what one cell says in three."""
    assert decide_status([CellHistory(4, 4, 1)] * 3, "open", False).name == "fixed"
    assert decide_status([CellHistory(4, 4, 1)], "open", False).name == "open"


def test_a_bug_that_is_not_run_is_not_fixed() -> None:
    """A cell that left the suite, or that fails of something else, says nothing about it."""
    found = decide_status([CellHistory(4, 4, 0)] * 10, "open", False)
    assert found.name == "open"
    assert "not run since" in found.reason


def test_a_muted_bug_stays_muted() -> None:
    """A person has said so."""
    assert decide_status([CellHistory(1, 1, 0)], "muted", True, is_muted=True).name == "muted"


@given(st.floats(0.05, 1.0), st.integers(0, 2**32))
def test_a_bug_that_is_still_there_is_rarely_called_fixed(rate: float, seed: int) -> None:
    """The coincidence of its absence falls with each run, and is never below what its true rate
    would give by much.
    """
    chance = random.Random(seed)
    hits = sum(chance.random() < rate for _ in range(40)) or 1
    place = CellHistory(hits, 40, 5)
    assert 0 < coincidence([place]) < 1
    assert coincidence([CellHistory(hits, 40, 6)]) < coincidence([place])


def test_false_alarms_of_fixed_are_as_rare_as_promised() -> None:
    """Over 4,000 flaky bugs that are still there, looked at once each after their last sighting,
    few are called fixed.
    """
    chance, wrong, trials = random.Random(7), 0, 4000
    for _ in range(trials):
        rate = chance.uniform(0.2, 0.9)
        seen = [chance.random() < rate for _ in range(30)]
        if not any(seen):
            continue
        first, last = seen.index(True), len(seen) - 1 - seen[::-1].index(True)
        place = CellHistory(sum(seen), last - first + 1, len(seen) - 1 - last)
        wrong += decide_status([place], "flaky", seen[-1]).name == "fixed"
    assert wrong / trials < 2 * status.COINCIDENCE
