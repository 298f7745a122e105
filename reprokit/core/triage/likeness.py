"""Could two bugs be one? A proposal for a person, never a decision.

Key insight: an exact signature is the only silent merge. What two failures share beyond it (frames,
words of the message, phase, the ablation step where both begin) is weighed, each with what is known
on both sides only.
"""

from __future__ import annotations

import difflib
import math
from collections.abc import Sequence
from dataclasses import dataclass

from reprokit.core.records.kinds import kind_named

PROPOSE = 0.6
"""From here on two bugs are shown to a person as perhaps one."""
_WEIGHTS = {"frames": 4.0, "message": 4.0, "phase": 1.0, "ablation": 1.5, "operator": 1.5}


@dataclass(frozen=True)
class Traits:
    """What is compared of a failure; empty where it is not known."""

    kind: str
    phase: str = ""
    cause: str = ""
    message: str = ""
    """Normalised, without frames."""
    frames: tuple[str, ...] = ()
    """``file:function`` of the compiler's frames, innermost first."""
    rung: str = ""
    """The first ablation step at which it fails."""
    operator: str = ""
    """The operator whose result is the first that differs."""


@dataclass(frozen=True)
class Likeness:
    """How alike two failures are."""

    score: float
    """From 0 to 1."""
    shared: tuple[str, ...]
    """What they have in common, in words."""

    @property
    def is_proposed(self) -> bool:
        """Alike enough to ask a person."""
        return self.score >= PROPOSE


def compare_traits(a: Traits, b: Traits) -> Likeness:
    """Weigh what two failures have in common."""
    if a.kind != b.kind and not all(kind_named(kind).is_slow for kind in (a.kind, b.kind)):
        return Likeness(0.0, ())
    parts: dict[str, float] = {}
    if a.frames and b.frames:
        parts["frames"] = overlap(a.frames, b.frames)
    if a.message and b.message:
        one, other = sorted(
            (a.message.split(), b.message.split())
        )  # the ratio depends on who comes first
        parts["message"] = difflib.SequenceMatcher(None, one, other, autojunk=False).ratio()
    for name, of_a, of_b in (
        ("phase", a.phase, b.phase),
        ("ablation", a.rung, b.rung),
        ("operator", a.operator, b.operator),
    ):
        if of_a and of_b:
            parts[name] = float(of_a == of_b)
    evidence = max((parts[n] for n in ("frames", "message", "operator") if n in parts), default=0.0)
    if evidence < 0.5:  # that both fail in the same phase is no reason
        return Likeness(0.0, ())
    total = sum(_WEIGHTS[name] for name in parts)
    score = sum(_WEIGHTS[name] * part for name, part in parts.items()) / total
    return Likeness(
        round(score, 3), tuple(_say(name, part, a, b) for name, part in parts.items() if part > 0)
    )


def overlap(a: Sequence[str], b: Sequence[str]) -> float:
    """The share of frames in common; the innermost count most."""

    def weights(frames: Sequence[str]) -> dict[str, float]:
        found: dict[str, float] = {}
        for depth, frame in enumerate(frames):
            found.setdefault(frame, 1.0 / (1.0 + depth))
        return found

    one, other = weights(a), weights(b)
    common = math.fsum(max(one[f], other[f]) for f in one.keys() & other.keys())
    everything = math.fsum(
        max(one.get(f, 0.0), other.get(f, 0.0)) for f in one.keys() | other.keys()
    )
    return common / everything if everything else 0.0


def _say(name: str, part: float, a: Traits, b: Traits) -> str:
    if name == "frames":
        common = [f for f in a.frames if f in b.frames]
        return f"{len(common)} frames in common, the innermost {common[0]}" if common else ""
    if name == "message":
        return f"{part:.0%} of the message's words"
    value = {"phase": a.phase, "ablation": a.rung, "operator": a.operator}[name]
    return {"phase": "both in ", "ablation": "both begin with ", "operator": "both of "}[
        name
    ] + value
