"""The rate of a failure that does not show in every run, with an interval."""

from __future__ import annotations

import math

GOOD_RATE = 0.9
"""A program that fails in this share of its runs needs no more repeats."""
_Z = 1.96


def interval_of_rate(hits: int, runs: int) -> tuple[float, float]:
    """Return the 95 % interval of a rate after ``hits`` of ``runs``, by Wilson (1927)."""
    if runs <= 0:
        return 0.0, 1.0
    share, z2 = hits / runs, _Z * _Z
    middle = (share + z2 / (2 * runs)) / (1 + z2 / runs)
    half = _Z * math.sqrt(share * (1 - share) / runs + z2 / (4 * runs * runs)) / (1 + z2 / runs)
    return max(middle - half, 0.0), min(middle + half, 1.0)
