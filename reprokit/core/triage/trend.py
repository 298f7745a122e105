"""Decide whether the compile time or memory of a nightly run is beyond the noise of earlier runs.

The earlier runs give the median and the spread of the noise. A change must be larger than the
spread explains, and large enough to matter. Runs with an open regression do not count as earlier
runs, so that a slow compile does not become normal over time.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass

MAX_RUNS = 14
"""The number of the last healthy runs of a cell that define the usual cost."""
MIN_RUNS = 5
"""The number of runs that are needed."""
MIN_SPREADS = 4.0
"""A change must be larger than this many spreads. Of a normal distribution, 1 in 30,000 values is
beyond.
"""
MIN_RISE_SHARE = 0.15
"""A change must be larger than this share of the median."""
MIN_RISES = {"compile_s": 0.5, "peak_rss_bytes": 64e6}
"""A change must be larger than this: seconds of CPU time, bytes."""
KINDS = {"compile_s": "compile-time-regression", "peak_rss_bytes": "memory-regression"}
"""Tracked cost -> the kind of bug that a rise of it is."""


@dataclass(frozen=True)
class UsualCost:
    """The usual cost in earlier runs."""

    median: float
    spread: float
    """The median distance from the median, scaled to a standard deviation of normal noise."""
    runs: int
    limit: float
    """A cost above this is not noise."""


def usual_cost(values: Sequence[float], what: str) -> UsualCost | None:
    """Return the usual cost from ``values``, newest last, of ``what``, a key of :data:`KINDS`; None
    if they are too few.
    """
    last = [*values][-MAX_RUNS:]
    if len(last) < MIN_RUNS:
        return None
    median = statistics.median(last)
    spread = 1.4826 * statistics.median(abs(v - median) for v in last)
    rise = max(MIN_SPREADS * spread, MIN_RISE_SHARE * median, MIN_RISES[what])
    return UsualCost(median, spread, len(last), median + rise)


def grown_most(before: dict[str, float], now: dict[str, float]) -> str:
    """Return the phase whose cost rose most; empty if none is known."""
    rises = {name: now[name] - before.get(name, 0.0) for name in now}
    return max(rises, key=lambda name: rises[name], default="")
