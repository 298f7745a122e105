"""Which law do a few costs at a few sizes follow, what does it predict, and is it worse than
linear?

Key insight: with four to six sizes, noise looks like a law. So the noise is assumed before it is
seen (``REL`` of each cost, never less than ``FLOOR_S``; ``PRIOR`` earlier measurements stand behind
that), every further parameter has a price, and a prediction covers all laws that the costs do not
rule out.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from statistics import NormalDist
from typing import Any

REL = 0.06
FLOOR_S = 0.03
FLOOR_BYTES = 8e6
PRIOR = 4.0
PRICES = {
    "constant": 0.0,
    "linear": 4.0,
    "levels off": 5.0,
    "n log n": 5.0,
    "power": 8.0,
    "exponential": 11.0,
}
STRANGE = {"power": 3.0, "exponential": 1.0}
"""What each unit of distance costs beside the price: of an exponent from 1, and of a ratio, in
doublings a step. Costs that say nothing, a tenth of a second at each size, would else allow a sixth
power as well as a line.
"""
MOST_EXPONENT, MOST_STEP = 6.0, 4.0
"""No steeper laws are tried: what rises at the last size only would allow any."""
TAME = ("constant", "levels off", "linear", "n log n")
"""``levels off`` is 1 - 1/n: a compiler that meets the same kernels again builds them once."""
LEAST_SHAPED = 3
"""Through so few sizes a law of three parameters goes whatever they cost: there it has no fixed
part.
"""
MARGIN = 4.0
"""By so much, beside their prices, must a law be better than every tame one before it is called
superlinear.
"""
KEPT = {**dict.fromkeys(PRICES, 7.0), "exponential": 3.0}
"""Laws that are worse than the best by no more than this still count in a prediction. An
exponential needs more for it: one that is barely possible would make every prediction endless.
"""
LEAST_EXPONENT = 1.15
MOST_RATIO = 4.0
"""An interval that is wider than this says nothing."""
LEAST_RISE_S = 0.25
LEAST_SHARE, LEAST_PREDICTED_S = 0.1, 1.0
"""Less than this of the whole cost at the size that is asked for is nobody's problem."""
MOST = 1e12
"""No prediction goes beyond: 30,000 years, or a terabyte."""

Point = tuple[int, float]


@dataclass(frozen=True)
class LawCurve:
    """One law with its parameters: ``fixed + scale * basis(size)``."""

    law: str
    shape: float
    """The exponent of a power; of an exponential the logarithm of the growth from one size to the
    next integer.
    """
    fixed: float
    scale: float
    pivot: int
    """The largest size that was measured: exponentials are counted from there."""
    score: float
    """Smaller is better."""
    unit: float
    """The spread of the costs around the curve, in units of the assumed noise."""
    spread: tuple[float, float, float]
    """What the parameters are uncertain by: variance of the value is ``x + y * basis + z *
    basis**2``.
    """
    freedom: float

    def at(self, size: int) -> float:
        """The cost at ``size``."""
        return min(
            max(self.fixed + self.scale * _basis(self.law, self.shape, size, self.pivot), 0.0), MOST
        )

    def words(self) -> str:
        """The law as a maintainer would say it; the class stands before the comma."""
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
    """How one cost grows."""

    law: str
    words: str
    predicted: float
    low: float
    high: float
    is_superlinear: bool
    """A law that grows faster than n log n is needed to explain the costs, and they rise by more
    than noise.
    """
    can_tell: bool
    """False where the interval is so wide that the prediction says nothing."""
    curve: LawCurve = field(repr=False)

    def to_json(self) -> dict[str, Any]:
        """The row for ``growth.json``."""
        names = ("law", "words", "is_superlinear", "can_tell")
        numbers = {n: round(getattr(self, n), 3) for n in ("predicted", "low", "high")}
        return {**{n: getattr(self, n) for n in names}, **numbers}


def fit_law(
    points: Sequence[Point], at: int, floor: float = FLOOR_S, least_rise: float = LEAST_RISE_S
) -> Growth:
    """Fit the laws to at least three sizes and predict the cost at ``at``, with an interval of 95
    %.
    """
    curves = _curves(points, floor)
    best = min(curves, key=lambda c: c.score)
    low = high = best.at(at)
    for curve in curves:
        slack = KEPT[curve.law] - (curve.score - best.score)
        if slack > 0:
            value, width = (
                curve.at(at),
                math.sqrt(slack / KEPT[curve.law]) * _half_width(curve, at, floor),
            )
            low, high = min(low, value - width), max(high, value + width)
    if at >= best.pivot:  # no law falls
        low = max(low, best.at(best.pivot) - _half_width(best, best.pivot, floor))
    low, high = max(low, 0.0), min(high, MOST)
    is_worse = min(c.score for c in curves if c.law in TAME) - best.score >= MARGIN
    if best.law == "power":
        exponents = [c.shape for c in curves if c.law == "power" and c.score - best.score <= 3.84]
        is_worse &= min(exponents) > LEAST_EXPONENT
    costs = [cost for _, cost in sorted(points)]
    is_worse &= best.law not in TAME and max(costs) - min(costs) >= least_rise
    can_tell = high <= MOST_RATIO * max(low, 4 * floor) and high < MOST
    return Growth(best.law, best.words(), best.at(at), low, high, is_worse, can_tell, best)


def add_growths(parts: Sequence[Growth]) -> tuple[float, float, float, bool]:
    """The sum of predictions: value, low, high, and whether it can be told.

    The ends are added too: what disturbs one phase of a run disturbs all of them, so errors do not
    cancel.
    """
    value, low, high = (
        min(sum(getattr(p, n) for p in parts), MOST) for n in ("predicted", "low", "high")
    )
    return value, low, high, high <= MOST_RATIO * max(low, FLOOR_S) and high < MOST


def is_material(growth: Growth, whole: float) -> bool:
    """What is certain of the part matters beside what is certain of the whole."""
    return growth.low >= max(LEAST_SHARE * whole, LEAST_PREDICTED_S)


def _curves(points: Sequence[Point], floor: float) -> list[LawCurve]:
    sizes = [n for n, _ in points]
    span = max(sizes) - min(sizes)
    shapes = [(law, 1.0) for law in TAME]
    shapes += [("power", k / 20) for k in range(4, round(20 * MOST_EXPONENT) + 1) if k != 20]
    steps = [0.2 * 1.05**k / span for k in range(110)]
    shapes += [("exponential", step) for step in steps if step <= math.log(MOST_STEP)]
    return [c for law, shape in shapes if (c := _fit(law, shape, points, floor)) is not None]


def _fit(law: str, shape: float, points: Sequence[Point], floor: float) -> LawCurve | None:
    """Weighted least squares of ``a + b * basis``: b is never negative, and no cost is at the
    smallest size.
    """
    pivot, least = max(n for n, _ in points), min(n for n, _ in points)
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
        # a line may begin below zero, as where the first of a few blocks is cheap; what bends
        # explains that itself
        zero = _basis(law, shape, least, pivot) if law == "linear" else 0.0
        if a + b * zero < 0 or (law not in TAME and len(points) <= LEAST_SHAPED):
            moved = sff - 2 * zero * sf + zero * zero * s
            b = (sfy - zero * sy) / moved
            a, spread = -b * zero, (zero * zero / moved, -2 * zero / moved, 1 / moved)
        if b <= 0 or (law not in TAME and not _shows_twice(rows, b)):
            return None
    chi2 = sum(w * (y - a - b * f) ** 2 for f, y, w in rows)
    score = (len(points) + PRIOR) * math.log((chi2 + PRIOR) / PRIOR) + PRICES[law]
    score += STRANGE.get(law, 0.0) * (abs(shape - 1.0) if law == "power" else shape / math.log(2))
    freedom = len(points) + PRIOR - parameters
    return LawCurve(
        law, shape, a, b, pivot, score, math.sqrt((chi2 + PRIOR) / freedom), spread, freedom
    )


def _shows_twice(rows: Sequence[tuple[float, float, float]], scale: float) -> bool:
    """The growth is more than noise at the second largest size too: one cost that sticks out is no
    law.
    """
    (least, *_), *_, (second, _, weight), _ = sorted(rows)
    return scale * (second - least) >= 2 / math.sqrt(weight)


def _basis(law: str, shape: float, size: int, pivot: int) -> float:
    if law == "power":
        return float((size / pivot) ** shape)
    if law == "exponential":
        return math.exp(min(shape * (size - pivot), 300.0))
    if law == "levels off":
        return 1 - 1 / size
    return size * math.log2(size + 1) if law == "n log n" else float(size)


def _noise(cost: float, floor: float) -> float:
    return math.hypot(REL * cost, floor)


def _half_width(curve: LawCurve, size: int, floor: float) -> float:
    x, y, z = curve.spread
    f = _basis(curve.law, curve.shape, size, curve.pivot)
    variance = max(x + y * f + z * f * f, 0.0) + _noise(curve.at(size), floor) ** 2
    return min(_student(curve.freedom) * curve.unit * math.sqrt(variance), MOST)


def _student(freedom: float) -> float:
    """The 97.5 % point of Student's distribution (Cornish and Fisher's expansion)."""
    z = NormalDist().inv_cdf(0.975)
    first, second = (z**3 + z) / (4 * freedom), (5 * z**5 + 16 * z**3 + 3 * z) / (96 * freedom**2)
    return z + first + second
