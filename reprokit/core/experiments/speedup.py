"""Decide whether compiling is worth it, from repeated timings of eager and compiled calls."""

from __future__ import annotations

import random
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

MIN_GAIN = 1.05
"""The smallest speedup for which compiling is worth it."""
RESAMPLES = 2_000
SIZES = (
    (1e9, "below 1 B parameters: compile the whole model"),
    (1e10, "1 to 10 B: compile the whole model, and watch how compile time grows with depth"),
    (4e10, "10 to 40 B: compile layer by layer"),
    (float("inf"), "above 40 B: compile layer by layer, the first layers only, or not at all"),
)
"""Advice by the number of parameters, before anything is measured."""


@dataclass(frozen=True)
class Gain:
    """The speedup of compiled calls: a ratio of medians, with a 95 % bootstrap interval."""

    ratio: float
    low: float
    high: float
    eager_s: float
    """Median seconds of one pass over the calls."""
    compiled_s: float

    @property
    def advice(self) -> str:
        """``compile``, ``eager`` or ``unsure``: eager unless the gain is at least 5 %."""
        if self.low >= MIN_GAIN:
            return "compile"
        return "eager" if self.high < MIN_GAIN or self.ratio < MIN_GAIN else "unsure"

    def calls_to_pay(self, compile_s: float) -> int | None:
        """Return the number of passes that save the time of the compile; None if none do."""
        saved = self.eager_s - self.compiled_s
        return round(compile_s / saved) + 1 if saved > 0 else None

    def __str__(self) -> str:
        return (
            f"{self.ratio:.2f} times as fast as eager (95 % interval {self.low:.2f} to"
            f" {self.high:.2f})"
        )


def measure_gain(eager: Sequence[float], compiled: Sequence[float]) -> Gain | None:
    """Compare timings that were taken in turns; None with fewer than three pairs.

    Pairs are resampled together, because a disturbance of the machine affects both timings of a
    pair.
    """
    pairs = [(a, b) for a, b in zip(eager, compiled, strict=False) if a > 0 and b > 0]
    if len(pairs) < 3:
        return None
    draw = random.Random(0)  # noqa: S311 - for resampling, not for a secret
    ratios = sorted(_ratio(draw.choices(pairs, k=len(pairs))) for _ in range(RESAMPLES))
    low, high = ratios[int(RESAMPLES * 0.025)], ratios[int(RESAMPLES * 0.975)]
    eager_s, compiled_s = (statistics.median(side) for side in zip(*pairs, strict=True))
    return Gain(_ratio(pairs), low, high, eager_s, compiled_s)


def guess_gain(parameters: int) -> str:
    """Return the advice for a number of parameters."""
    return next(text for limit, text in SIZES if parameters < limit)


def _ratio(pairs: Sequence[tuple[float, float]]) -> float:
    return statistics.median(a for a, _ in pairs) / statistics.median(b for _, b in pairs)
