"""A slower compile is a bug when noise does not explain it."""

from __future__ import annotations

import random

import pytest

from reprokit.core.triage import trend


def test_too_few_nightly_runs_give_no_usual_cost() -> None:
    """Four nightly runs do not give a usual cost."""
    assert trend.usual_cost([10.0] * 4, "compile_s") is None


def test_noise_is_no_regression() -> None:
    """Costs with a deviation of a tenth stay below the limit from the runs before them; one and a
    half times the cost does not.
    """
    chance, alarms, count = random.Random(3), 0, 2000
    values = [max(chance.gauss(20.0, 2.0), 0.1) for _ in range(count)]
    for index in range(trend.MAX_RUNS, count):
        usual = trend.usual_cost(values[:index], "compile_s")
        assert usual is not None
        alarms += values[index] > usual.limit
        assert usual.limit < 20 * 1.9
    assert alarms / count < 0.01


@pytest.mark.parametrize(
    ("what", "usual", "small", "large"),
    [("compile_s", 1.0, 1.4, 1.6), ("peak_rss_bytes", 1e8, 1.5e8, 1.7e8)],
)
def test_a_small_change_is_not_a_regression(
    what: str, usual: float, small: float, large: float
) -> None:
    """For a cell with a constant cost, half a second or 64 MB more is not a bug."""
    cost = trend.usual_cost([usual] * 10, what)
    assert cost is not None
    assert small <= cost.limit < large


def test_one_outlier_does_not_move_the_limit() -> None:
    """The median and the spread ignore a single outlier."""
    calm = trend.usual_cost([10.0, 10.2, 9.9, 10.1, 10.0, 10.1], "compile_s")
    chaos = trend.usual_cost([10.0, 10.2, 9.9, 300.0, 10.0, 10.1], "compile_s")
    assert calm is not None and chaos is not None
    assert chaos.limit < calm.limit * 1.1


def test_the_phase_that_grew_is_named() -> None:
    """A phase that did not exist before is also named."""
    assert (
        trend.grown_most({"lowering": 5.0, "codegen": 1.0}, {"lowering": 5.5, "codegen": 4.0})
        == "codegen"
    )
    assert trend.grown_most({}, {"aot": 1.0}) == "aot"
    assert trend.grown_most({}, {}) == ""
