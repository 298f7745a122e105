"""Is tonight's compile time or memory beyond the noise of the nights before?

Key insight: noise has a median and a spread that both can be had from the last nights; a change
must be larger than the spread explains *and* large enough that somebody would mind. Nights of an
open regression do not count as before, or a slow compile would become the usual one by waiting.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass

NIGHTS = 14
"""The last so many healthy runs of a cell are what is usual."""
LEAST = 5
"""Fewer say nothing."""
SPREADS = 4.0
"""Of a normal distribution, 1 in 30,000 lies beyond; of real ones a few more."""
SHARE = 0.15
"""A smaller change is nobody's bug."""
FLOORS = {"compile_s": 0.5, "peak_rss_bytes": 64e6}
"""Nor is one below this: seconds of processor time, bytes."""
KINDS = {"compile_s": "compile-time-regression", "peak_rss_bytes": "memory-regression"}
"""What is tracked, and the kind of bug that a change of it is."""


@dataclass(frozen=True)
class UsualCost:
    """What the nights before came to."""

    median: float
    spread: float
    """The median distance from the median, scaled to a standard deviation of normal noise."""
    runs: int
    limit: float
    """Above this it is no noise."""


def usual_cost(values: Sequence[float], what: str) -> UsualCost | None:
    """What ``values``, newest last, say is usual of ``what``, a key of :data:`KINDS`; None when
    they are too few.
    """
    last = [*values][-NIGHTS:]
    if len(last) < LEAST:
        return None
    median = statistics.median(last)
    spread = 1.4826 * statistics.median(abs(v - median) for v in last)
    return UsualCost(
        median, spread, len(last), median + max(SPREADS * spread, SHARE * median, FLOORS[what])
    )


def grown_most(before: dict[str, float], now: dict[str, float]) -> str:
    """The phase whose cost rose most; empty when none is known."""
    rises = {name: now[name] - before.get(name, 0.0) for name in now}
    return max(rises, key=lambda name: rises[name], default="")
