"""Laws from few sizes: known ones are found again through noise, and what is tame is never called
superlinear.
"""

from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reprokit.core.growth.laws import Point, fit_law

SIZES = st.sampled_from(
    [(1, 2, 4), (1, 2, 4, 8), (1, 2, 3, 4, 6, 8), (4, 6, 8, 10, 12), (32, 64, 128, 256)]
)
NOISE = st.lists(st.floats(-0.05, 0.05), min_size=6, max_size=6)


def measured(law: list[float], noise: list[float]) -> list[float]:
    return [max(cost * (1 + part), 0.0) for cost, part in zip(law, noise, strict=False)]


@settings(max_examples=120, deadline=None)
@given(sizes=SIZES, noise=NOISE, fixed=st.floats(0, 20), slope=st.floats(0, 10))
def test_a_line_is_never_superlinear(
    sizes: tuple[int, ...], noise: list[float], fixed: float, slope: float
) -> None:
    """Whatever noise of 5 % does to a linear or constant cost; and the interval holds what the full
    size costs.
    """
    costs = measured([fixed + slope * n for n in sizes], noise)
    found = fit_law(list(zip(sizes, costs, strict=True)), 4 * sizes[-1])
    assert not found.is_superlinear
    assert found.low <= found.predicted <= found.high


@settings(max_examples=40, deadline=None)
@given(sizes=SIZES, noise=NOISE, scale=st.floats(0.05, 5))
def test_n_log_n_is_not_superlinear(
    sizes: tuple[int, ...], noise: list[float], scale: float
) -> None:
    """Sorting is no defect."""
    costs = measured([scale * n * math.log2(n + 1) for n in sizes], noise)
    assert not fit_law(list(zip(sizes, costs, strict=True)), 4 * sizes[-1]).is_superlinear


@settings(max_examples=40, deadline=None)
@given(noise=NOISE, exponent=st.floats(2.2, 4), scale=st.floats(0.2, 2))
def test_a_power_is_found_again(noise: list[float], exponent: float, scale: float) -> None:
    """Class and exponent, from four sizes."""
    sizes = (1, 2, 4, 8)
    costs = measured([scale * n**exponent for n in sizes], [part / 2 for part in noise])
    found = fit_law(list(zip(sizes, costs, strict=True)), 32)
    assert found.law == "power" and found.is_superlinear
    assert abs(found.curve.shape - exponent) < 0.35
    assert found.low <= scale * 32**exponent <= found.high


@settings(max_examples=40, deadline=None)
@given(noise=NOISE, ratio=st.floats(1.6, 3), fixed=st.floats(0.1, 1))
def test_an_exponential_is_found_again(noise: list[float], ratio: float, fixed: float) -> None:
    """Class and ratio, also above a fixed cost."""
    sizes = (4, 6, 8, 10, 11)
    law = [fixed + 0.01 * ratio**n for n in sizes]
    found = fit_law(list(zip(sizes, measured(law, [part / 2 for part in noise]), strict=True)), 12)
    assert found.law == "exponential" and found.is_superlinear
    assert abs(math.exp(found.curve.shape) - ratio) < 0.4
    assert found.low <= fixed + 0.01 * ratio**12 <= found.high


def test_clean_linear_costs_predict_the_full_size() -> None:
    """The common case: within a few percent, with an interval that says so."""
    found = fit_law([(n, 2 + 1.7 * n) for n in (1, 2, 4, 8)], 48)
    assert found.words == "linear" and found.can_tell
    assert found.predicted == pytest.approx(2 + 1.7 * 48, rel=0.02)
    assert found.low < found.predicted < found.high < 2 * found.predicted


def test_noise_of_a_tenth_of_a_second_is_no_growth() -> None:
    """A small phase may double from one size to the next and mean nothing."""
    rows: list[list[Point]] = [
        [(1, 0.02), (2, 0.03), (4, 0.05), (8, 0.16)],
        [(1, 0.01), (2, 0.02), (4, 0.04), (8, 0.2)],
        [(1, 0.0), (2, 0.0), (4, 0.0), (8, 0.1)],
        [(1, 0.0), (2, 0.0), (4, 0.0)],
    ]
    assert [fit_law(row, 32).is_superlinear for row in rows] == [False] * 4


def test_what_cannot_be_told_is_said() -> None:
    """An exponential four times beyond its last size, and costs that follow no law at all."""
    assert not fit_law([(n, 0.4 + 0.02 * 1.9**n) for n in (4, 6, 8, 10)], 40).can_tell
    assert not fit_law([(1, 5.0), (2, 1.0), (4, 9.0)], 400).can_tell
    assert fit_law([(n, 3.0) for n in (1, 2, 4)], 16).can_tell
