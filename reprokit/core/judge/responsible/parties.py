"""The parties that can be responsible for a failure."""

from __future__ import annotations

from dataclasses import dataclass

PARTIES = ("user", "torch", "triton", "driver", "machine", "reprokit", "unknown")
"""Who can be responsible. ``user`` is any code of the program that is not torch's: its own code, or
a third-party package. ``machine`` is the operating system and its limits: disk, memory, a stopped
process.
"""
UPSTREAM = {"torch": "pytorch/pytorch", "triton": "triton-lang/triton"}
"""Responsible party -> the repository that takes its issues."""


@dataclass(frozen=True)
class Responsible:
    """Who is responsible, with the evidence."""

    party: str
    """One of ``PARTIES``; empty if nothing failed."""
    because: tuple[str, ...] = ()
    """One sentence for each piece of evidence."""
    place: str = ""
    """The ``FILE:LINE`` in the user's code, or the symbol, that is responsible; empty if it is not
    known.
    """
