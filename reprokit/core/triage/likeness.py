"""Propose that two bugs may be the same. A person decides.

Only failures with the same signature are merged without a person. Other failures are compared by
their frames, the words of the message, the phase and the ablation step. Only traits that are known
for both failures count.
"""

from __future__ import annotations

import difflib
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass

from reprokit.core.judge.stacks.location import plural
from reprokit.core.records.verdict_kinds import kind_named

MIN_PROPOSED_SCORE = 0.6
"""The score from which two bugs are proposed as the same bug."""
_WEIGHTS = {
    "frames": 4.0,
    "message": 4.0,
    "phase": 1.0,
    "ablation": 1.5,
    "operator": 1.5,
    "kernel": 4.0,
}


MIN_KERNEL_OVERLAP = 0.5
"""The share of common words, of the shorter name of two kernels, from which they may be of one
bug.
"""
_OF_ALL_KERNELS = frozenset(
    (
        *("", "cpp", "fused", "triton", "poi", "red", "per", "tem", "for", "copy", "to", "run"),
        *("torch", "ops", "aten", "extern", "kernels", "default", "out"),
    )
)
"""Words of the names of kernels that say nothing about their operators."""


@dataclass(frozen=True)
class Traits:
    """The traits of a failure that are compared; empty if they are not known."""

    kind: str
    phase: str = ""
    cause: str = ""
    message: str = ""
    """Normalised, without frames."""
    frames: tuple[str, ...] = ()
    """``file:function`` of the compiler's frames, innermost first."""
    part: str = ""
    """The first ablation step that fails."""
    operator: str = ""
    """The first operator whose result differs."""
    kernel: str = ""
    """The generated kernel that ran. Inductor names it after the operators that it computes."""
    subsystem: str = ""
    """The part of the compiler that has ``operator``, in the words of PyTorch's CompilerBisector:
    ``lowerings``, ``post_grad_passes`` and others.
    """
    responsible: str = ""
    """Who is responsible, one of ``parties.PARTIES``."""
    users_operator: str = ""
    """The first operator of the program itself, as Dynamo names it, whose result differs:
    ``setitem``.
    """


@dataclass(frozen=True)
class Likeness:
    """The similarity of two failures."""

    score: float
    """From 0 to 1."""
    shared: tuple[str, ...]
    """What they have in common, in words."""

    @property
    def is_proposed(self) -> bool:
        """Whether the failures are similar enough to propose that they are one bug."""
        return self.score >= MIN_PROPOSED_SCORE


def compare_traits(a: Traits, b: Traits) -> Likeness:
    """Compare the traits of two failures."""
    if a.kind != b.kind and not all(kind_named(kind).is_slow for kind in (a.kind, b.kind)):
        return Likeness(0.0, ())
    if is_of_other_kernel(a, b):  # the stacks and signals of all kernels are alike
        return Likeness(0.0, ())
    parts: dict[str, float] = {}
    # the frames of a wrong result are those of the assertion that found it
    if a.frames and b.frames and not kind_named(a.kind).compares_results:
        parts["frames"] = frame_overlap(a.frames, b.frames)
    if a.message and b.message:
        # the ratio depends on the order
        first, second = sorted((a.message.split(), b.message.split()))
        parts["message"] = difflib.SequenceMatcher(None, first, second, autojunk=False).ratio()
    if words_of_kernel(a.kernel) and words_of_kernel(b.kernel):
        parts["kernel"] = kernel_overlap(a.kernel, b.kernel)
    for name, of_a, of_b in (
        ("phase", a.phase, b.phase),
        ("ablation", a.part, b.part),
        ("operator", a.operator, b.operator),
    ):
        if of_a and of_b:
            parts[name] = float(of_a == of_b)
    named = ("frames", "message", "operator", "kernel")
    evidence = max((parts[n] for n in named if n in parts), default=0.0)
    if evidence < 0.5:  # the same phase alone is not a reason
        return Likeness(0.0, ())
    total = sum(_WEIGHTS[name] for name in parts)
    score = sum(_WEIGHTS[name] * part for name, part in parts.items()) / total
    return Likeness(
        round(score, 3), tuple(_in_words(name, part, a, b) for name, part in parts.items() if part)
    )


def frame_overlap(a: Sequence[str], b: Sequence[str]) -> float:
    """Return the share of common frames, from 0 to 1; inner frames have larger weights."""
    of_a, of_b = _frame_weights(a), _frame_weights(b)
    common = math.fsum(max(of_a[f], of_b[f]) for f in of_a.keys() & of_b.keys())
    everything = math.fsum(
        max(of_a.get(f, 0.0), of_b.get(f, 0.0)) for f in of_a.keys() | of_b.keys()
    )
    return common / everything if everything else 0.0


def is_of_other_kernel(a: Traits, b: Traits) -> bool:
    """Return whether both failures are in generated kernels of different operators.

    A kernel has the operators of the bug, and more of the model around it. So kernels of one bug
    have most words of the shorter name in common.
    """
    is_named = bool(words_of_kernel(a.kernel) and words_of_kernel(b.kernel))
    return is_named and kernel_overlap(a.kernel, b.kernel) < MIN_KERNEL_OVERLAP


def kernel_overlap(a: str, b: str) -> float:
    """Return the share of common words in the names of two kernels, of the shorter name, from 0 to
    1. A different model fuses more operators into the kernel.
    """
    words_a, words_b = words_of_kernel(a), words_of_kernel(b)
    shorter = min(len(words_a), len(words_b))
    return len(words_a & words_b) / shorter if shorter else float(a == b)


def words_of_kernel(name: str) -> frozenset[str]:
    """Return the words of the operators in the name of a kernel; empty if it names none."""
    words = re.split(r"[._]", name)
    return frozenset(word for word in words if not word.isdecimal() and word not in _OF_ALL_KERNELS)


def _frame_weights(frames: Sequence[str]) -> dict[str, float]:
    weights: dict[str, float] = {}
    for depth, frame in enumerate(frames):
        weights.setdefault(frame, 1.0 / (1.0 + depth))
    return weights


def _in_words(name: str, part: float, a: Traits, b: Traits) -> str:
    if name == "frames":
        common = [f for f in a.frames if f in b.frames]
        return (
            f"{plural(len(common), 'frame')} in common, the innermost {common[0]}" if common else ""
        )
    if name == "message":
        return f"{part:.0%} of the message's words"
    if name == "kernel":
        return f"kernels with common operators: {a.kernel} and {b.kernel}"
    value = {"phase": a.phase, "ablation": a.part, "operator": a.operator}[name]
    return {"phase": "both in ", "ablation": "both begin with ", "operator": "both of "}[
        name
    ] + value
