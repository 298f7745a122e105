"""Events of runs whose results are compared with those of eager."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from .event_base import PRIVATE, Event


@dataclass(frozen=True, kw_only=True)
class Compared(Event):
    """Compiled results were compared with those of eager."""

    ev = "compared"
    differences: list[dict[str, Any]] = field(default_factory=list)
    """The fields of ``result_comparison.Difference``."""
    count: int = 0
    leaves: int = 0
    tensors: int = 0
    is_random: bool = False
    unsteady: list[str] = field(default_factory=list)
    changing: list[str] = field(default_factory=list)
    """Leaves that differ between two compiled runs."""
    has_again: bool = False
    has_reference: bool = False
    ranks: list[int] = field(default_factory=list)
    skipped_calls: int = 0
    skipped_tensors: int = 0


@dataclass(frozen=True, kw_only=True)
class Departs(Event):
    """The first graph whose results differ from eager by itself."""

    ev = "departs"
    cid: str | None = None
    nodes: int = 0
    difference: dict[str, Any] = field(default_factory=dict, metadata=PRIVATE)
    op: str = ""
    where: str = ""
    """The line of ``op``, without the folder of its file."""
    place: str = ""
    """``FILE:LINE`` of ``op``."""
    custom: str = ""
    """A clause about a custom operator that breaks its contract; empty if there is none."""


@dataclass(frozen=True, kw_only=True)
class ContractBroken(Event):
    """A custom operator of the program did something that its registration does not say."""

    ev = "contract"
    operator: str = ""
    """``NAMESPACE::NAME``."""
    problem: str = field(default="", metadata=PRIVATE)
    """One clause."""


@dataclass(frozen=True, kw_only=True)
class UndefinedConversion(Event):
    """A float does not fit into the integer type to which the program converts it."""

    ev = "undefined-conversion"
    types: str = ""
    """The types, as ``float32 to int64``."""
    where: str = field(default="", metadata=PRIVATE)
    """``FILE:LINE`` of the user's code; empty if it is not known."""


@dataclass(frozen=True, kw_only=True)
class Bisected(Event):
    """A step of a subsystem of the compiler was applied."""

    ev = "bisected"
    n: int = 0
    info: str = field(default="", metadata=PRIVATE)
