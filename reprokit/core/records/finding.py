"""What was found: the verdict and its signature."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True)
class Verdict:
    """What happened: kind x phase x cause, with the evidence for each."""

    kind: str
    phase: str | None
    cause: str | None
    reason: str
    """One sentence."""
    evidence: tuple[str, ...] = ()
    detail: str = ""
    """What the cause means here: which lock, child, file, rank."""
    also: tuple[str, ...] = ()
    """Further causes that hold at the same time."""
    path: tuple[str, ...] = ()
    """Who waits for whom, outermost first."""
    work: dict[str, str] = field(default_factory=dict)
    """What was at work: ``pass``, ``line``, ``node``, ``graph``, ``kernel``, ``direction``; only
    what is known.
    """
    simulated: tuple[str, ...] = ()
    """In what the device differs from a real one; empty where it is real. The signature does not
    know.
    """
    responsible: str = ""
    """Who is responsible: one of ``responsibility.PARTIES``; empty where nothing failed."""
    responsible_because: tuple[str, ...] = ()
    """The evidence for that, a sentence each."""
    responsible_place: str = ""
    """``FILE:LINE`` of the user's own code, or the symbol, that is responsible; empty where it is
    not known.
    """


@dataclass(frozen=True)
class Signature:
    """The identity of a verdict: same bug, same signature, on any machine, at any size."""

    id: str
    """Twelve hexadecimal digits of the SHA-256 of ``algorithm`` and ``title``."""
    title: str
    """``kind: phase | frames or normalised message``."""
    algorithm: int
    explain: tuple[str, ...] = ()
    """One line for each step that led from the evidence to the title."""
