"""A slower compile is a bug when noise does not explain it."""

from __future__ import annotations

import random

import pytest

from reprokit.core.triage import trend


def test_too_few_nights_say_nothing() -> None:
    """Four nights are no usual."""
    assert trend.usual_cost([10.0] * 4, "compile_s") is None


def test_noise_is_no_regression() -> None:
    """Nights that scatter by a tenth stay below the limit of the nights before them; one and a half
    times does not.
    """
    chance, alarms, nights = random.Random(3), 0, 2000
    values = [max(chance.gauss(20.0, 2.0), 0.1) for _ in range(nights)]
    for place in range(trend.NIGHTS, nights):
        usual = trend.usual_cost(values[:place], "compile_s")
        assert usual is not None
        alarms += values[place] > usual.limit
        assert usual.limit < 20 * 1.9
    assert alarms / nights < 0.01


@pytest.mark.parametrize(
    ("what", "usual", "small", "large"),
    [("compile_s", 1.0, 1.4, 1.6), ("peak_rss_bytes", 1e8, 1.5e8, 1.7e8)],
)
def test_a_change_that_nobody_minds_is_none(
    what: str, usual: float, small: float, large: float
) -> None:
    """However steady a cell is, half a second or 64 MB more are nobody's bug."""
    found = trend.usual_cost([usual] * 10, what)
    assert found is not None
    assert small <= found.limit < large


def test_one_night_of_chaos_does_not_move_the_limit() -> None:
    """Median and spread forget what was once."""
    calm = trend.usual_cost([10.0, 10.2, 9.9, 10.1, 10.0, 10.1], "compile_s")
    chaos = trend.usual_cost([10.0, 10.2, 9.9, 300.0, 10.0, 10.1], "compile_s")
    assert calm is not None and chaos is not None
    assert chaos.limit < calm.limit * 1.1


def test_the_phase_that_grew_is_named() -> None:
    """Also where it was not there before."""
    assert (
        trend.grown_most({"lowering": 5.0, "codegen": 1.0}, {"lowering": 5.5, "codegen": 4.0})
        == "codegen"
    )
    assert trend.grown_most({}, {"aot": 1.0}) == "aot"
    assert trend.grown_most({}, {}) == ""
