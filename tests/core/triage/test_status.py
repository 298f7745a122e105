"""The status of a bug follows from its sightings only."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reprokit.core.triage import status
from reprokit.core.triage.status import CellHistory, chance_of_absence, decide_status


@pytest.mark.parametrize(
    ("histories", "was", "is_seen", "expected"),
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
    histories: list[CellHistory], was: str, is_seen: bool, expected: str
) -> None:
    """Each status is the result of the histories that define it."""
    assert decide_status(histories, was, is_seen).name == expected


def test_fixed_is_argued_by_chance() -> None:
    """A bug that shows in every run is fixed after three runs without it; one that shows in a
    quarter of its runs needs ten. With a rate of (hits + 1) / (runs + 2), the probability that m
    runs do not show it is (1 - rate) ** m, and a probability below one in twenty is not a
    coincidence.
    """
    assert decide_status([CellHistory(1, 1, 2)], "new", False).name == "open"
    # (1 / 3) ** 3 is 3.7 %
    assert decide_status([CellHistory(1, 1, 3)], "new", False).name == "fixed"
    rate = (5 + 1) / (20 + 2)
    needed = next(m for m in range(1, 100) if (1 - rate) ** m < 0.05)
    assert needed == 10
    assert decide_status([CellHistory(5, 20, needed - 1)], "flaky", False).name == "flaky"
    fixed = decide_status([CellHistory(5, 20, needed)], "flaky", False)
    assert fixed.name == "fixed"
    assert fixed.reason.startswith("not seen in 10 runs that could have shown it; ")
    assert "5 of 20 runs, so the chance of this is 4." in fixed.reason


def test_runs_of_all_its_cells_count_together() -> None:
    """Three cells in one nightly run are equal to one cell in three nightly runs."""
    assert decide_status([CellHistory(4, 4, 1)] * 3, "open", False).name == "fixed"
    assert decide_status([CellHistory(4, 4, 1)], "open", False).name == "open"


def test_a_bug_that_is_not_run_is_not_fixed() -> None:
    """A cell that left the suite, or that has a different failure, is not evidence."""
    decision = decide_status([CellHistory(4, 4, 0)] * 10, "open", False)
    assert decision.name == "open"
    assert "not run since" in decision.reason


def test_a_muted_bug_stays_muted() -> None:
    """A person has muted it."""
    assert decide_status([CellHistory(1, 1, 0)], "muted", True, is_muted=True).name == "muted"


@given(st.floats(0.05, 1.0), st.integers(0, 2**32))
def test_a_bug_that_still_exists_is_rarely_called_fixed(rate: float, seed: int) -> None:
    """The probability of a coincidence falls with each run."""
    chance = random.Random(seed)
    hits = sum(chance.random() < rate for _ in range(40)) or 1
    history = CellHistory(hits, 40, 5)
    assert 0 < chance_of_absence([history]) < 1
    assert chance_of_absence([CellHistory(hits, 40, 6)]) < chance_of_absence([history])


def test_false_alarms_of_fixed_are_as_rare_as_promised() -> None:
    """Of 4,000 flaky bugs that still exist, each examined once after its last sighting, few are
    called fixed.
    """
    chance, wrong, trials = random.Random(7), 0, 4000
    for _ in range(trials):
        rate = chance.uniform(0.2, 0.9)
        seen = [chance.random() < rate for _ in range(30)]
        if not any(seen):
            continue
        first, last = seen.index(True), len(seen) - 1 - seen[::-1].index(True)
        history = CellHistory(sum(seen), last - first + 1, len(seen) - 1 - last)
        wrong += decide_status([history], "flaky", seen[-1]).name == "fixed"
    assert wrong / trials < 2 * status.MAX_CHANCE
