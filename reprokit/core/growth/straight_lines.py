"""Decide whether a count grows with each call, as a straight line and until the last call.

A line through the counts alone would also fit a single step, and a cache that fills once. So the
growth between two samples must be there all the time: its mean over all samples, and over the
second half of them, must be different from zero, and the last quarter must grow as fast.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean

from reprokit.core.growth.laws import student_point

MIN_STEPS = 8
"""With fewer steps between samples, the second half says nothing."""
MIN_LAST_SHARE = 0.5
"""The share of the slope of all samples that the last quarter must have."""


@dataclass(frozen=True)
class Line:
    """A count as a line over the number of calls."""

    slope: float
    """By least squares, for each call."""
    low: float
    high: float
    """The 95 % interval of the slope: the wider one of that of least squares, for noise of each
    sample, and that of the mean growth from one sample to the next, for noise that stays.
    """
    is_straight: bool
    """The count grows, or shrinks, from the first sample to the last."""


def fit_line(at: Sequence[int], values: Sequence[float]) -> Line:
    """Fit a line to at least two values after ``at`` calls, which increase in equal steps."""
    count = len(at)
    mean_at, mean = fmean(at), fmean(values)
    spread = sum((x - mean_at) ** 2 for x in at)
    slope = sum((x - mean_at) * (y - mean) for x, y in zip(at, values, strict=True)) / spread
    rest = sum((y - mean - slope * (x - mean_at)) ** 2 for x, y in zip(at, values, strict=True))
    freedom = count - 2
    half = student_point(freedom) * math.sqrt(rest / freedom / spread) if freedom > 2 else math.inf
    rates = [
        (y - before) / (x - x_before)
        for x_before, x, before, y in zip(at, at[1:], values, values[1:], strict=False)
    ]
    low, high = _interval_of_mean(rates)
    line = Line(slope, min(low, slope - half), max(high, slope + half), False)
    sign = 1 if slope > 0 else -1
    later = [sign * rate for rate in rates[len(rates) // 2 :]]
    last = [sign * rate for rate in rates[-max(len(rates) // 4, 1) :]]
    is_straight = (
        len(rates) >= MIN_STEPS
        and (line.low > 0 or line.high < 0)
        and _interval_of_mean(later)[0] > 0
        and fmean(last) >= MIN_LAST_SHARE * abs(slope)
    )
    return Line(line.slope, line.low, line.high, is_straight)


def _interval_of_mean(rates: Sequence[float]) -> tuple[float, float]:
    """Return the 95 % interval of the mean of rates."""
    if len(rates) < 4:
        return -math.inf, math.inf
    mean = fmean(rates)
    variance = sum((rate - mean) ** 2 for rate in rates) / (len(rates) - 1)
    half = student_point(len(rates) - 1) * math.sqrt(variance / len(rates))
    return mean - half, mean + half
