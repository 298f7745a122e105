"""How much memory a program needs at its peak, and the comparison with eager."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

MIN_RATIO, MIN_MORE_BYTES = 1.15, 64_000_000
"""A compiled program needs too much memory if both limits are exceeded."""
MIN_MORE_OF_REPRO_BYTES = 1_000_000
"""As ``MIN_MORE_BYTES``, for a reduced program. Its sizes are as small as this allows, so that it
runs on any machine, and the ratio is still that of large tensors, not of scalars.
"""
MIN_SHARE_OF_EXCESS = 0.8
"""A smaller program must have at least this share of what the ratio of the original has above 1."""
MAX_NAMES = 3
"""Limit of the buffers of one kind that are named."""
SAVED, OUTPUT, GRADIENT = "saved for backward", "output of a graph", "gradient"
COPY, CONCATENATION, NEEDED = "copy", "concatenation", "needed by a later step"
AT_PEAK = "used by the step at the peak"
RECOMPUTED = "recomputed for backward"
REASONS = (SAVED, OUTPUT, GRADIENT, RECOMPUTED, COPY, CONCATENATION, NEEDED, AT_PEAK)


@dataclass(frozen=True, kw_only=True)
class NeededTensor:
    """A tensor of a compiled graph that exists at the peak."""

    name: str
    size_bytes: int
    shape: str = ""
    dtype: str = ""
    operator: str = ""
    """The ATen operators that make it."""
    line: str = ""
    """``file:line in function`` of the user's line that makes it."""
    reason: str = ""
    """Why it exists: one of ``REASONS``."""
    until: str = ""
    """The last step that reads or writes it, where it is neither saved nor returned."""


@dataclass(frozen=True, kw_only=True)
class PhaseUse:
    """The peak of the forward or of the backward passes."""

    peak_bytes: int
    """With the parameters, buffers and inputs."""
    at: str = ""
    """The step of a compiled graph that runs at the peak; empty outside of compiled graphs."""
    tensors: tuple[NeededTensor, ...] = ()
    """The tensors of compiled graphs, the largest first."""

    @property
    def reason(self) -> str:
        """The reason of most of the bytes of these tensors; empty without one."""
        by_reason: dict[str, int] = {}
        for tensor in self.tensors:
            by_reason[tensor.reason] = by_reason.get(tensor.reason, 0) + tensor.size_bytes
        return max(by_reason, key=lambda reason: by_reason[reason], default="")

    @property
    def groups(self) -> tuple[str, ...]:
        """The tensors in words, those of the same kind together, the largest group first."""
        alike: dict[NeededTensor, list[NeededTensor]] = {}
        for tensor in self.tensors:
            alike.setdefault(replace(tensor, name=""), []).append(tensor)
        rows = sorted(alike.values(), key=lambda row: -sum(t.size_bytes for t in row))
        return tuple(map(_sentence, rows))


def _sentence(tensors: list[NeededTensor]) -> str:
    """Return tensors that differ only in their names in words."""
    one = tensors[0]
    names = ", ".join(t.name for t in tensors[:MAX_NAMES]) + ", ..." * (len(tensors) > MAX_NAMES)
    size = megabytes(one.size_bytes)
    if len(tensors) > 1:
        total = megabytes(len(tensors) * one.size_bytes)
        size = f"{total} in {len(tensors)} tensors of {size}"
    what = " ".join(filter(None, (one.shape, one.dtype)))
    made = f", made by {one.operator}" if one.operator else ""
    at = f" at {one.line}" if one.line else ""
    until = f", until {one.until}" if one.until else ""
    return f"{size}{', ' * bool(what)}{what} ({names}){made}{at}: {one.reason}{until}"


@dataclass(frozen=True, kw_only=True)
class MemoryUse:
    """The peaks of one run."""

    source: str
    """``allocator`` or ``lifetimes``."""
    held_bytes: int = 0
    """Of the parameters, buffers and inputs."""
    phases: Mapping[str, PhaseUse] = field(default_factory=dict)
    problem: str = ""
    """What is not counted; empty if everything is."""

    @property
    def peak(self) -> tuple[str, PhaseUse]:
        """The phase with the largest peak."""
        return max(self.phases.items(), key=lambda row: row[1].peak_bytes)


@dataclass(frozen=True, kw_only=True)
class MemoryComparison:
    """The peak of a compiled run beside that of eager."""

    compiled: MemoryUse
    eager: MemoryUse
    min_ratio: float = MIN_RATIO
    min_more_bytes: int = MIN_MORE_BYTES
    """What the compiled program needs at least more than eager, so that it is too much."""

    @property
    def ratio(self) -> float:
        """The compiled peak in multiples of that of eager."""
        return self.compiled.peak[1].peak_bytes / max(self.eager.peak[1].peak_bytes, 1)

    @property
    def is_larger(self) -> bool:
        """Whether the compiled program needs more than the limits allow."""
        compiled, eager = self.compiled.peak[1].peak_bytes, self.eager.peak[1].peak_bytes
        return self.ratio > self.min_ratio and compiled - eager > self.min_more_bytes

    @property
    def summary(self) -> str:
        """Both peaks as a clause, the forward and backward passes apart."""
        parts = [
            f"{name} {megabytes(use.peak_bytes)} compiled and"
            f" {megabytes(self.eager.phases[name].peak_bytes)} in eager"
            for name, use in self.compiled.phases.items()
            if name in self.eager.phases
        ]
        how = "measured by torch's allocator"
        if self.compiled.source == "lifetimes":
            how = "computed from the lifetimes of tensors, without running"
        return f"peak of the memory: {', '.join(parts)} ({how})"


def is_too_much(compiled_bytes: int, eager_bytes: int) -> bool:
    """Return whether a compiled peak exceeds both limits."""
    return (
        compiled_bytes > MIN_RATIO * eager_bytes and compiled_bytes - eager_bytes > MIN_MORE_BYTES
    )


def megabytes(size_bytes: int) -> str:
    """Return a size in MB, such as ``117.5 MB``."""
    return f"{size_bytes / 1e6:,.1f} MB"
