"""What all events of a journal have in common."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

PRIVATE = {"is_private": True}
"""Metadata of a field with text of the target or of its exceptions. The host redacts it when it
reads the event.
"""


@dataclass(frozen=True, kw_only=True)
class Event:
    """The fields of every event."""

    ev: ClassVar[str] = ""
    t: float = 0.0
    """Seconds since the epoch."""
    pid: int = 0
    tid: int = 0
    """The kernel's id of the thread that wrote it."""
    dropped: int = 0
    """The number of events before it that could not be written."""
    cut_bytes: int = 0
    """The size of an event that was too long to be written; its own fields are missing."""


@dataclass(frozen=True, kw_only=True)
class ChainLink:
    """One exception of a chain."""

    type: str = ""
    message: str = ""
    frames: tuple[tuple[str, str, int | None], ...] = ()
    """File, function and line, innermost first."""
