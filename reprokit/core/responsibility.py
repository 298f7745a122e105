"""Who is responsible for a failure, and whether it can be filed upstream.

One function decides, from the evidence alone. Every text that mentions filing (the terminal, the issue, labels,
``reprokit issue``, nightly runs) asks this module and nothing else.
"""

from __future__ import annotations

from dataclasses import dataclass

from . import simulation
from .records import Observation, Verdict

PARTIES = ("user", "torch", "triton", "driver", "machine", "reprokit", "unknown")
"""Who can be responsible. ``machine`` is the operating system and its limits: disk, memory, a stopped process."""
UPSTREAM = {"torch": "pytorch/pytorch", "triton": "triton-lang/triton"}
"""Responsible party -> the repository that takes its issues."""
_NO_FAILURE = ("ok", "idle")
_NOT_UPSTREAM = {
    "ok": "nothing failed",
    "idle": "the program waits; nothing failed",
    "error-in-eager": "the failure does not need the compiler",
    "unknown": "no failure of the compiler could be shown",
}


@dataclass(frozen=True)
class Responsible:
    """Who is responsible, and what says so."""

    party: str
    """One of ``PARTIES``; empty where nothing failed."""
    because: tuple[str, ...] = ()
    """One sentence for each piece of evidence."""
    place: str = ""
    """The ``FILE:LINE`` in the user's own code, or the symbol, that is responsible; empty where it is not known."""


def decide(verdict: Verdict, seen: Observation) -> Responsible:
    """Name the party that is responsible for ``verdict``; pure, so the same evidence always gets the same answer."""
    if verdict.kind in _NO_FAILURE:
        return Responsible("")
    if verdict.cause == simulation.CAUSE:
        return Responsible("reprokit", (verdict.reason,), verdict.detail)
    if verdict.kind == "unknown":
        return Responsible("unknown", (verdict.reason,))
    if verdict.kind == "error-in-eager":
        return Responsible("user", (verdict.reason,))
    if seen.kernel:
        return Responsible("triton", ("Triton alone fails to compile the kernel.",))
    return Responsible("torch", (verdict.reason,))


def repository(verdict: Verdict) -> str:
    """The repository where ``verdict`` can be filed; empty where it should not be filed."""
    return "" if why_not_filed(verdict) else UPSTREAM[verdict.responsible]


def why_not_filed(verdict: Verdict) -> str:
    """Why ``verdict`` should not be filed upstream, as a clause; empty where it can be filed."""
    if verdict.kind in _NOT_UPSTREAM and verdict.responsible != "reprokit":
        return _NOT_UPSTREAM[verdict.kind]
    if verdict.responsible in UPSTREAM:
        return ""
    at = f" at {verdict.responsible_place}" if verdict.responsible_place else ""
    return {
        "user": f"the failure is in your own code{at}",
        "driver": f"the GPU driver is responsible{at}",
        "machine": "the machine is responsible, not the compiler",
        "reprokit": f"reprokit itself is responsible{at}",
    }.get(verdict.responsible, "nothing shows who is responsible")
