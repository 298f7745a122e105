"""The time of a search does not count the seconds in which probes wait for a CPU."""

from __future__ import annotations

import time

import pytest

from reprokit.host.minimize.answers.budget import Budget


@pytest.mark.parametrize(
    ("waited_s", "left_s"), [(0.0, 70.0), (40.0, 110.0), (200.0, 270.0), (9_000.0, 270.0)]
)
def test_a_busy_machine_has_more_time(
    waited_s: float, left_s: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At most three times the budget; what waited before the search does not count."""
    now, waited = [1_000.0], [5.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    budget = Budget(100.0, lambda: waited[0])
    now[0], waited[0] = 1_030.0, 5.0 + waited_s
    assert budget.left_s == left_s and budget.limit_s == left_s + 30.0
    now[0] += left_s + 1.0
    assert budget.left_s < 0


def test_a_search_may_have_no_budget() -> None:
    """It never ends, and no limit is shown."""
    budget = Budget()
    assert budget.left_s == float("inf") and budget.limit_s == 0
