"""The event of a journal about caches of compiled graphs."""

from __future__ import annotations

from dataclasses import dataclass, field

from .event_base import Event


@dataclass(frozen=True, kw_only=True)
class CacheUsed(Event):
    """An entry of a cache of compiled graphs was looked up or written."""

    ev = "cache"
    cache: str = ""
    """``fx-graph`` or ``aot-autograd``."""
    outcome: str = ""
    """``hit``, ``miss``, ``bypass`` or ``stored``."""
    key: str = ""
    parts: dict[str, str] = field(default_factory=dict)
    """A digest of each part of the key, by its name."""
    detail: str = ""
