"""Fit a growth law to a few costs at a few sizes, predict a cost, and decide whether the growth is
superlinear.

With four to six sizes, noise looks like a law. So the noise is assumed (``RELATIVE_NOISE`` of each
cost and at least ``FLOOR_S``, with the weight of ``PRIOR_POINTS`` measurements), every further
parameter has a price, and a prediction covers all laws that the costs do not rule out.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from statistics import NormalDist

RELATIVE_NOISE = 0.06
FLOOR_S = 0.03
FLOOR_BYTES = 8e6
PRIOR_POINTS = 4.0
PRICES = {
    "constant": 0.0,
    "linear": 4.0,
    "levels off": 5.0,
    "n log n": 5.0,
    "power": 8.0,
    "exponential": 11.0,
}
"""The score that a law costs for its parameters. A smaller score is better."""
SHAPE_PRICES = {"power": 3.0, "exponential": 1.0}
"""An additional price for each unit of distance: of the exponent from 1, or of the ratio, in
doublings per step. Without it, costs that are all noise would fit a sixth power as well as a line.
"""
MAX_EXPONENT, MAX_STEP_RATIO = 6.0, 4.0
"""No steeper laws are tried: costs that rise only at the last size would fit any of them."""
TAME = ("constant", "levels off", "linear", "n log n")
"""Laws that are not superlinear. ``levels off`` is 1 - 1/n: a compiler that meets the same kernels
again builds them once.
"""
MAX_SIZES_WITHOUT_FIXED = 3
"""With up to this many sizes a law of three parameters fits any costs, so it has no fixed part."""
MIN_MARGIN = 4.0
"""A law must be better than every tame one by this, in addition to the prices, to be
superlinear.
"""
MAX_WORSE = {**dict.fromkeys(PRICES, 7.0), "exponential": 3.0}
"""A law that is worse than the best by at most this still counts in a prediction. The value for an
exponential is smaller, because one that is barely possible would make every prediction infinite.
"""
MIN_EXPONENT = 1.15
MAX_INTERVAL_RATIO = 4.0
"""A prediction with a wider interval is not useful."""
MIN_RISE_S = 0.25
MIN_SHARE, MIN_PREDICTED_S = 0.1, 1.0
"""The share of the whole cost at the predicted size, and the seconds, that a part must have to
matter.
"""
MAX_COST = 1e12
"""The largest prediction: 30,000 years, or a terabyte."""

Point = tuple[int, float]


@dataclass(frozen=True)
class LawCurve:
    """One law with its parameters: ``fixed + scale * basis(size)``."""

    law: str
    shape: float
    """The exponent of a power; for an exponential, the logarithm of the growth from one integer to
    the next.
    """
    fixed: float
    scale: float
    pivot: int
    """The largest measured size, which is the origin of exponentials."""
    score: float
    """Smaller is better."""
    unit: float
    """The spread of the costs around the curve, in units of the assumed noise."""
    spread: tuple[float, float, float]
    """The uncertainty of the parameters: the variance of a value is ``x + y * basis + z *
    basis**2``.
    """
    freedom: float

    def cost_at(self, size: int) -> float:
        """Return the cost at ``size``."""
        cost = self.fixed + self.scale * _basis(self.law, self.shape, size, self.pivot)
        return min(max(cost, 0.0), MAX_COST)

    def in_words(self) -> str:
        """Return the law in words; its class is the text before the comma."""
        if self.law == "power":
            return f"power, n^{self.shape:.1f}"
        if self.law != "exponential":
            return self.law
        ratio = math.exp(min(self.shape, 50.0))
        return (
            f"exponential, x{ratio:.1f} a step"
            if ratio >= 1.1
            else f"exponential, doubles every {math.log(2) / self.shape:.0f}"
        )


@dataclass(frozen=True)
class Growth:
    """The growth of one cost."""

    law: str
    words: str
    predicted: float
    low: float
    high: float
    is_superlinear: bool
    """Only a law that grows faster than n log n explains the costs, and they rise by more than
    noise.
    """
    can_tell: bool
    """False if the interval is too wide for a useful prediction."""
    curve: LawCurve = field(repr=False)

    def to_json(self) -> dict[str, str | bool | float]:
        """Return the row for ``growth.json``."""
        names = ("law", "words", "is_superlinear", "can_tell")
        numbers = {n: round(getattr(self, n), 3) for n in ("predicted", "low", "high")}
        return {**{n: getattr(self, n) for n in names}, **numbers}


def fit_law(
    points: Sequence[Point], at: int, floor: float = FLOOR_S, min_rise: float = MIN_RISE_S
) -> Growth:
    """Fit the laws to at least three sizes, and predict the cost at ``at`` with a 95 % interval."""
    curves = _curves(points, floor)
    best = min(curves, key=lambda c: c.score)
    low = high = best.cost_at(at)
    for curve in curves:
        slack = MAX_WORSE[curve.law] - (curve.score - best.score)
        if slack > 0:
            value = curve.cost_at(at)
            width = math.sqrt(slack / MAX_WORSE[curve.law]) * _half_width(curve, at, floor)
            low, high = min(low, value - width), max(high, value + width)
    if at >= best.pivot:  # no law decreases
        low = max(low, best.cost_at(best.pivot) - _half_width(best, best.pivot, floor))
    low, high = max(low, 0.0), min(high, MAX_COST)
    is_worse = min(c.score for c in curves if c.law in TAME) - best.score >= MIN_MARGIN
    if best.law == "power":
        exponents = [c.shape for c in curves if c.law == "power" and c.score - best.score <= 3.84]
        is_worse &= min(exponents) > MIN_EXPONENT
    costs = [cost for _, cost in sorted(points)]
    is_worse &= best.law not in TAME and max(costs) - min(costs) >= min_rise
    can_tell = high <= MAX_INTERVAL_RATIO * max(low, 4 * floor) and high < MAX_COST
    return Growth(best.law, best.in_words(), best.cost_at(at), low, high, is_worse, can_tell, best)


def add_growths(parts: Sequence[Growth]) -> tuple[float, float, float, bool]:
    """Return the sum of predictions: value, low, high, and whether the interval is useful.

    The ends of the intervals are added too: a disturbance affects all phases of a run, so errors do
    not cancel.
    """
    value, low, high = (
        min(sum(getattr(p, n) for p in parts), MAX_COST) for n in ("predicted", "low", "high")
    )
    return value, low, high, high <= MAX_INTERVAL_RATIO * max(low, FLOOR_S) and high < MAX_COST


def is_material(growth: Growth, whole: float) -> bool:
    """Return whether the lower end of a part matters compared with the lower end of the whole."""
    return growth.low >= max(MIN_SHARE * whole, MIN_PREDICTED_S)


def _curves(points: Sequence[Point], floor: float) -> list[LawCurve]:
    sizes = [n for n, _ in points]
    span = max(sizes) - min(sizes)
    shapes = [(law, 1.0) for law in TAME]
    shapes += [("power", k / 20) for k in range(4, round(20 * MAX_EXPONENT) + 1) if k != 20]
    steps = [0.2 * 1.05**k / span for k in range(110)]
    shapes += [("exponential", step) for step in steps if step <= math.log(MAX_STEP_RATIO)]
    return [c for law, shape in shapes if (c := _fit(law, shape, points, floor)) is not None]


def _fit(law: str, shape: float, points: Sequence[Point], floor: float) -> LawCurve | None:
    """Fit ``a + b * basis`` by weighted least squares; None if b or the cost at the smallest size
    would be negative.
    """
    pivot, smallest = max(n for n, _ in points), min(n for n, _ in points)
    rows = [
        (_basis(law, shape, n, pivot), cost, 1 / _noise(cost, floor) ** 2) for n, cost in points
    ]
    s, sf, sff = (sum(w * f**k for f, _, w in rows) for k in (0, 1, 2))
    sy, sfy = sum(w * y for _, y, w in rows), sum(w * f * y for f, y, w in rows)
    determinant = s * sff - sf * sf
    parameters = 1 if law == "constant" else 2 if law in TAME else 3
    if law == "constant":
        a, b, spread = sy / s, 0.0, (1 / s, 0.0, 0.0)
    elif determinant <= 1e-9 * s * sff:
        return None
    else:
        a, b = (sff * sy - sf * sfy) / determinant, (s * sfy - sf * sy) / determinant
        spread = (sff / determinant, -2 * sf / determinant, s / determinant)
        # a line may be negative below the smallest size, for example if the first of a few blocks
        # is cheap; other laws may not
        zero = _basis(law, shape, smallest, pivot) if law == "linear" else 0.0
        if a + b * zero < 0 or (law not in TAME and len(points) <= MAX_SIZES_WITHOUT_FIXED):
            moved = sff - 2 * zero * sf + zero * zero * s
            b = (sfy - zero * sy) / moved
            a, spread = -b * zero, (zero * zero / moved, -2 * zero / moved, 1 / moved)
        if b <= 0 or (law not in TAME and not _shows_twice(rows, b)):
            return None
    chi2 = sum(w * (y - a - b * f) ** 2 for f, y, w in rows)
    weight = len(points) + PRIOR_POINTS
    score = weight * math.log((chi2 + PRIOR_POINTS) / PRIOR_POINTS) + PRICES[law]
    distance = abs(shape - 1.0) if law == "power" else shape / math.log(2)
    score += SHAPE_PRICES.get(law, 0.0) * distance
    freedom = weight - parameters
    unit = math.sqrt((chi2 + PRIOR_POINTS) / freedom)
    return LawCurve(law, shape, a, b, pivot, score, unit, spread, freedom)


def _shows_twice(rows: Sequence[tuple[float, float, float]], scale: float) -> bool:
    """Return whether the growth is more than noise at the second largest size too: a single outlier
    is not a law.
    """
    (smallest, *_), *_, (second, _, weight), _ = sorted(rows)
    return scale * (second - smallest) >= 2 / math.sqrt(weight)


def _basis(law: str, shape: float, size: int, pivot: int) -> float:
    if law == "power":
        return float((size / pivot) ** shape)
    if law == "exponential":
        return math.exp(min(shape * (size - pivot), 300.0))
    if law == "levels off":
        return 1 - 1 / size
    return size * math.log2(size + 1) if law == "n log n" else float(size)


def _noise(cost: float, floor: float) -> float:
    return math.hypot(RELATIVE_NOISE * cost, floor)


def _half_width(curve: LawCurve, size: int, floor: float) -> float:
    x, y, z = curve.spread
    f = _basis(curve.law, curve.shape, size, curve.pivot)
    variance = max(x + y * f + z * f * f, 0.0) + _noise(curve.cost_at(size), floor) ** 2
    return min(student_point(curve.freedom) * curve.unit * math.sqrt(variance), MAX_COST)


def student_point(freedom: float) -> float:
    """Return the 97.5 % point of Student's distribution for more than two degrees of freedom
    (Cornish-Fisher expansion).
    """
    z = NormalDist().inv_cdf(0.975)
    first, second = (z**3 + z) / (4 * freedom), (5 * z**5 + 16 * z**3 + 3 * z) / (96 * freedom**2)
    return z + first + second
