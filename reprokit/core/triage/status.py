"""Is a bug new, open, flaky, fixed or back?

Key insight: *not seen* says something only where it would have been seen. Each cell of the matrix
that ever showed the bug has a rate, its hits among the runs that could have shown it; a bug is
fixed when its absence from all later runs of these cells would be a coincidence of less than
``COINCIDENCE``. A run that failed of something else might hide it, so it counts for neither side.
No clock is asked: nights are counted.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

COINCIDENCE = 0.05
"""A bug whose absence is less likely than this, were it still there, is fixed."""
LEAST_RUNS = 3
"""So many runs must have passed without it, however reliable it was."""

STATUSES = ("new", "regressed", "open", "flaky", "fixed", "muted")
"""Muted is said by a person; the others follow from what was seen."""


@dataclass(frozen=True)
class CellHistory:
    """One cell of the matrix in which a bug was seen, counted in runs that could have shown it."""

    hits: int
    """Runs that showed it."""
    runs: int
    """Runs from the first to the last that showed it, those included."""
    since: int
    """Runs after the last one that showed it."""

    @property
    def rate(self) -> float:
        """How often it shows, by Laplace's rule of succession: one sighting is no certainty."""
        return (self.hits + 1) / (max(self.runs, self.hits) + 2)


@dataclass(frozen=True)
class Status:
    """One of :data:`STATUSES`, and why, as one clause."""

    name: str
    reason: str


def coincidence(places: Sequence[CellHistory]) -> float:
    """The probability that a bug that is still there would hide from all runs since it was last
    seen.
    """
    chance = 1.0
    for place in places:
        chance *= (1.0 - place.rate) ** place.since
    return chance


def decide_status(
    places: Sequence[CellHistory], was: str, is_seen: bool, is_muted: bool = False
) -> Status:
    """Give the status after a night; ``was`` is the one before it, empty for a bug that was not
    known.
    """
    hits, runs = sum(p.hits for p in places), sum(max(p.runs, p.hits) for p in places)
    since = sum(p.since for p in places)
    shows = f"shows in {hits} of {runs} runs" if hits < runs else f"shows in every run ({hits})"
    if is_muted:
        return Status("muted", shows)
    if is_seen:
        if not was:
            return Status("new", shows)
        if was == "fixed":
            return Status("regressed", "it was fixed, and is back")
        return Status("flaky" if hits < runs else "open", shows)
    if was == "fixed":
        return Status("fixed", "not seen again")
    chance = coincidence(places)
    if since >= LEAST_RUNS and chance < COINCIDENCE:
        return Status(
            "fixed",
            f"not seen in {since} runs where it would have been; by chance {_percent(chance)}, as"
            f" it had shown in {hits} of {runs}",
        )
    kept = "flaky" if hits < runs else "open"
    if not since:
        return Status(kept, "not run since where it was seen, or only with other failures")
    return Status(
        kept,
        f"not seen in {since} run{'s' if since > 1 else ''}; by chance {_percent(chance)}, so it"
        " stays open",
    )


def _percent(chance: float) -> str:
    return "less than 0.1%" if chance < 0.001 else f"{chance:.1%}"
