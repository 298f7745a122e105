"""The event of a journal about what a process holds while a model is called again and again."""

from __future__ import annotations

from dataclasses import dataclass, field

from .event_base import Event

TENSORS, GPU = "bytes of tensors", "bytes of tensors on GPUs"
ENTRIES, GUARDS = "entries in Dynamo's cache", "guards in Dynamo's cache"
NODES = "nodes of autograd graphs"
OBJECTS = "Python objects"
DESCRIPTORS = "open file descriptors"
NONE = "references to None"
CONSTANTS = "references to True, False and small integers"
BLOCKS = "memory blocks of Python"
HEAP = "bytes on the C heap"
RESIDENT = "resident bytes"


@dataclass(frozen=True, kw_only=True)
class GrowingHolder:
    """An object that held more after some calls than before them."""

    what: str = ""
    """The type of the object, or what else it is."""
    path: list[str] = field(default_factory=list)
    """Where it is found: a module, a function or an object first, and then the parts of it."""
    place: str = ""
    """``FILE:LINE`` of the first of these; empty if it is not known."""
    grew: float = 0.0
    """How much it grew with each call."""
    holds: str = ""
    """The type of its newest element; empty if it is not known."""
    made: list[tuple[str, str, int]] = field(default_factory=list)
    """Where that element was made: file, function and line, innermost first."""


@dataclass(frozen=True, kw_only=True)
class AllocatingLine:
    """Memory that calls allocated through Python and did not free."""

    blocks: float = 0.0
    """The number of blocks for each call."""
    size: float = 0.0
    """Their bytes for each call."""
    frames: list[tuple[str, str, int]] = field(default_factory=list)
    """File, function and line, innermost first. Python does not record the functions."""


@dataclass(frozen=True, kw_only=True)
class CallsSampled(Event):
    """What this process held after some of many calls of a model."""

    ev = "calls"
    calls: int = 0
    at: list[int] = field(default_factory=list)
    """The number of calls before each sample."""
    series: dict[str, list[int]] = field(default_factory=dict)
    """The value at each sample, by the name of what was counted."""
    types: dict[str, list[int]] = field(default_factory=dict)
    """The number of objects at each sample, by their type, for types that may grow."""
    holders: list[GrowingHolder] = field(default_factory=list)
    lines: list[AllocatingLine] = field(default_factory=list)
    not_measured: dict[str, str] = field(default_factory=dict)
    """Why a series is missing."""
