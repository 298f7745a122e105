"""Decide whether a bug is new, open, flaky, fixed or regressed.

The absence of a bug is evidence only in runs that could have shown it. Each cell of the matrix that
ever showed the bug has a rate: its hits among the runs that could have shown it. A bug is fixed if
the probability that it was absent from all later runs by chance is below ``MAX_CHANCE``. A run with
a different failure may hide the bug, so it does not count. Runs are counted, and no clock is read.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

MAX_CHANCE = 0.05
"""The probability of an absence by chance below which a bug is fixed."""
MIN_RUNS = 3
"""The number of runs without the bug that are needed, however reliable the bug was."""

StatusName = Literal["new", "regressed", "open", "flaky", "fixed", "muted"]
"""A person sets ``muted``; the others follow from the runs."""
STATUSES: tuple[StatusName, ...] = ("new", "regressed", "open", "flaky", "fixed", "muted")


@dataclass(frozen=True)
class CellHistory:
    """One cell of the matrix in which a bug was seen: the numbers of runs that could have shown
    it.
    """

    hits: int
    """Runs that showed it."""
    runs: int
    """Runs from the first to the last that showed it, with both included."""
    since: int
    """Runs after the last one that showed it."""

    @property
    def rate(self) -> float:
        """The rate at which it occurs, by Laplace's rule of succession."""
        return (self.hits + 1) / (max(self.runs, self.hits) + 2)


@dataclass(frozen=True)
class Status:
    """One of :data:`STATUSES`, and the reason as one clause."""

    name: StatusName
    reason: str


def chance_of_absence(cells: Sequence[CellHistory]) -> float:
    """Return the probability that a bug that still exists was absent from all runs since it was
    last seen.
    """
    chance = 1.0
    for cell in cells:
        chance *= (1.0 - cell.rate) ** cell.since
    return chance


def decide_status(
    cells: Sequence[CellHistory], was: str, is_seen: bool, is_muted: bool = False
) -> Status:
    """Return the status after a nightly run; ``was`` is the status before it, empty for a bug that
    was not known.
    """
    hits, runs = sum(c.hits for c in cells), sum(max(c.runs, c.hits) for c in cells)
    since = sum(c.since for c in cells)
    shows = f"shows in {hits} of {runs} runs" if hits < runs else f"shows in every run ({hits})"
    if is_muted:
        return Status("muted", shows)
    if is_seen:
        if not was:
            return Status("new", shows)
        if was == "fixed":
            return Status("regressed", "it was fixed, and occurs again")
        return Status("flaky" if hits < runs else "open", shows)
    if was == "fixed":
        return Status("fixed", "not seen again")
    chance = chance_of_absence(cells)
    if since >= MIN_RUNS and chance < MAX_CHANCE:
        return Status(
            "fixed",
            f"not seen in {since} runs that could have shown it; it occurred in {hits} of {runs}"
            f" runs, so the chance of this is {_percent(chance)}",
        )
    kept: StatusName = "flaky" if hits < runs else "open"
    if not since:
        return Status(kept, "its cells did not run since, or only with other failures")
    return Status(
        kept,
        f"not seen in {since} run{'s' if since > 1 else ''}; the chance of this is"
        f" {_percent(chance)}, so it stays open",
    )


def _percent(chance: float) -> str:
    return "less than 0.1%" if chance < 0.001 else f"{chance:.1%}"
