"""Laws are fitted to few sizes: known laws are recovered despite noise, and linear costs are never
called superlinear.
"""

from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reprokit.core.growth.laws import Point, fit_law
from tests.support.examples import examples

SIZES = st.sampled_from(
    [(1, 2, 4), (1, 2, 4, 8), (1, 2, 3, 4, 6, 8), (4, 6, 8, 10, 12), (32, 64, 128, 256)]
)
NOISE = st.lists(st.floats(-0.05, 0.05), min_size=6, max_size=6)


def measured(law: list[float], noise: list[float]) -> list[float]:
    return [max(cost * (1 + part), 0.0) for cost, part in zip(law, noise, strict=False)]


@settings(max_examples=examples(120))
@given(sizes=SIZES, noise=NOISE, fixed=st.floats(0, 20), slope=st.floats(0, 10))
def test_a_line_is_never_superlinear(
    sizes: tuple[int, ...], noise: list[float], fixed: float, slope: float
) -> None:
    """Noise of 5 % never makes a linear or constant cost superlinear, and the interval contains the
    prediction for the full size.
    """
    costs = measured([fixed + slope * n for n in sizes], noise)
    fit = fit_law(list(zip(sizes, costs, strict=True)), 4 * sizes[-1])
    assert not fit.is_superlinear
    assert fit.low <= fit.predicted <= fit.high


@settings(max_examples=examples(40))
@given(sizes=SIZES, noise=NOISE, scale=st.floats(0.05, 5))
def test_n_log_n_is_not_superlinear(
    sizes: tuple[int, ...], noise: list[float], scale: float
) -> None:
    """The cost of sorting is not a defect."""
    costs = measured([scale * n * math.log2(n + 1) for n in sizes], noise)
    assert not fit_law(list(zip(sizes, costs, strict=True)), 4 * sizes[-1]).is_superlinear


@settings(max_examples=examples(40))
@given(noise=NOISE, exponent=st.floats(2.2, 4), scale=st.floats(0.2, 2))
def test_a_power_law_is_recovered(noise: list[float], exponent: float, scale: float) -> None:
    """The class and the exponent are recovered from four sizes."""
    sizes = (1, 2, 4, 8)
    costs = measured([scale * n**exponent for n in sizes], [part / 2 for part in noise])
    fit = fit_law(list(zip(sizes, costs, strict=True)), 32)
    assert fit.law == "power" and fit.is_superlinear
    assert abs(fit.curve.shape - exponent) < 0.35
    assert fit.low <= scale * 32**exponent <= fit.high


@settings(max_examples=examples(40))
@given(noise=NOISE, ratio=st.floats(1.6, 3), fixed=st.floats(0.1, 1))
def test_an_exponential_law_is_recovered(noise: list[float], ratio: float, fixed: float) -> None:
    """The class and the ratio are recovered, also above a fixed cost."""
    sizes = (4, 6, 8, 10, 11)
    law = [fixed + 0.01 * ratio**n for n in sizes]
    fit = fit_law(list(zip(sizes, measured(law, [part / 2 for part in noise]), strict=True)), 12)
    assert fit.law == "exponential" and fit.is_superlinear
    assert abs(math.exp(fit.curve.shape) - ratio) < 0.4
    assert fit.low <= fixed + 0.01 * ratio**12 <= fit.high


def test_clean_linear_costs_predict_the_full_size() -> None:
    """The prediction is within a few percent, and its interval is narrow."""
    fit = fit_law([(n, 2 + 1.7 * n) for n in (1, 2, 4, 8)], 48)
    assert fit.words == "linear" and fit.can_tell
    assert fit.predicted == pytest.approx(2 + 1.7 * 48, rel=0.02)
    assert fit.low < fit.predicted < fit.high < 2 * fit.predicted


def test_noise_of_a_tenth_of_a_second_is_no_growth() -> None:
    """A small phase may double from one size to the next without a meaning."""
    rows: list[list[Point]] = [
        [(1, 0.02), (2, 0.03), (4, 0.05), (8, 0.16)],
        [(1, 0.01), (2, 0.02), (4, 0.04), (8, 0.2)],
        [(1, 0.0), (2, 0.0), (4, 0.0), (8, 0.1)],
        [(1, 0.0), (2, 0.0), (4, 0.0)],
    ]
    assert [fit_law(row, 32).is_superlinear for row in rows] == [False] * 4


def test_an_unreliable_prediction_is_marked() -> None:
    """An exponential is not extrapolated to four times its largest size, and costs without a law
    are not extrapolated at all.
    """
    assert not fit_law([(n, 0.4 + 0.02 * 1.9**n) for n in (4, 6, 8, 10)], 40).can_tell
    assert not fit_law([(1, 5.0), (2, 1.0), (4, 9.0)], 400).can_tell
    assert fit_law([(n, 3.0) for n in (1, 2, 4)], 16).can_tell
