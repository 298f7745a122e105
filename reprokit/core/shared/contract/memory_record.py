"""What a run measured of its memory: ``record.json`` and its graphs in the folder ``memory``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

FOLDER = "memory"
RECORD_FILE = "record.json"
EAGER_FOLDER = "memory-eager"
"""The run directory of the eager run, or the folder of its record if both sides are in one run."""
ALLOCATOR, LIFETIMES = "allocator", "lifetimes"
"""The sources of a measurement: what torch reports, or the lifetimes of fake tensors."""


def module_file(number: int) -> str:
    """Return the name of the file of a generated module."""
    return f"module-{number}.py"


def buffers_file(number: int) -> str:
    """Return the name of the file with the :class:`BufferFact` of each buffer of that module."""
    return f"buffers-{number}.json"


@dataclass(frozen=True, kw_only=True)
class BufferFact:
    """What Inductor knows about a buffer of a graph."""

    dtype: str = ""
    """Such as ``torch.float32``."""
    numel: str = ""
    """The number of elements of its storage, as an expression of the sizes."""
    shape: str = ""
    operators: tuple[str, ...] = ()
    """The ATen operators that make it."""
    line: str = ""
    """The user's line of the last of them."""
    is_recomputed: bool = False
    """It is a part of the forward pass that a backward graph computes again."""


@dataclass(frozen=True, kw_only=True)
class GraphArgument:
    """One argument of a call of a compiled graph."""

    storage: int = 0
    """The number of its storage in this record; 0 for an argument that is not a tensor."""
    size_bytes: int = 0
    """Of the storage."""
    value: int | None = None
    """A size; None for a tensor."""
    is_freed: bool = False
    """Nothing but the call held it, so that it is freed after its last use."""


@dataclass(frozen=True, kw_only=True)
class CompiledCall:
    """One call of a compiled graph."""

    module: int
    """The number of the generated module."""
    is_backward: bool = False
    live_bytes: int = 0
    """What was allocated when it began, above ``held_bytes``."""
    peak_bytes: int = 0
    """The peak within it, above ``held_bytes``; 0 if only the lifetimes are known."""
    arguments: tuple[GraphArgument, ...] = ()
    outputs: tuple[int, ...] = ()
    """The number of the storage of each output; 0 for one that is no tensor."""


@dataclass(frozen=True, kw_only=True)
class PhasePeak:
    """The peak of the forward or the backward passes."""

    peak_bytes: int = 0
    """Above ``held_bytes``. By lifetimes, without what compiled graphs allocate inside."""
    after_call: int = 0
    """How many calls of compiled graphs had begun."""
    is_inside: bool = False
    """The last of them had not ended."""


@dataclass(frozen=True, kw_only=True)
class MemoryRecord:
    """The memory of one pass over the calls of a target, after the first pass."""

    source: str
    """``ALLOCATOR`` or ``LIFETIMES``."""
    held_bytes: int = 0
    """The parameters, buffers and inputs, which exist before the pass."""
    peaks: Mapping[str, PhasePeak] = field(default_factory=dict)
    """``forward`` and ``backward``."""
    calls: tuple[CompiledCall, ...] = ()
    problem: str = ""
    """Why something is not measured; empty if everything is."""
