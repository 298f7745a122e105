"""What each rank of a distributed program recorded."""

from __future__ import annotations

from dataclasses import dataclass, field

from reprokit.core.records.rank_graphs import GraphRecord

MAX_GRAPHS = 256
"""Graphs of one rank that are kept for a comparison with other ranks."""


@dataclass(frozen=True)
class RecordedCall:
    """One call of a collective, as a flight recorder has it."""

    group: str
    """The name of its process group, equal on all ranks."""
    number: int
    """Its number in the group, from 1; the calls of all ranks with one number belong together."""
    operation: str
    """Such as ``all_reduce``."""
    sizes: str = ""
    """The sizes of its inputs and outputs, such as ``[[4]] -> [[4]]``."""
    dtypes: str = ""
    is_done: bool = False
    created_ns: int = 0
    """The time of the call, in nanoseconds since the epoch."""
    place: str = ""
    """The user's own line, as ``file:line in function``."""

    @property
    def title(self) -> str:
        """The operation and its number."""
        return f"{self.operation} #{self.number}"


@dataclass(frozen=True)
class RankRecord:
    """The calls of one rank, in their order."""

    rank: int
    calls: tuple[RecordedCall, ...] = ()
    members: dict[str, tuple[int, ...]] = field(default_factory=dict)
    """The global ranks of each process group, where the recorder reports them."""


@dataclass(frozen=True)
class RankState:
    """Where one rank is, as ``attach`` or ``capture`` saw it."""

    rank: int
    phase: str = ""
    operation: str = ""
    """The collective in which it waits; empty if it does not wait in one."""
    summary: str = ""
    """One line about it."""
    stack: tuple[str, ...] = ()
    """Its stack, innermost frame first."""
    has_ended: bool = False
    quiet_s: float = 0.0
    """For this long it had not moved when it was seen."""
    world_size: int = 0
    graphs: tuple[GraphRecord, ...] = ()
    """The first graphs that it compiled."""
