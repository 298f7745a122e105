"""The programs of a hunt: their form, what they have run so far, and which of their choices led to
something rare.

The host keeps this, and the generators in the target's process read it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypedDict

RARE = 3
"""A lowering or handler that fewer programs have run is rare."""


class Steering(TypedDict):
    """What the programs of a source have run so far."""

    ran: dict[str, int]
    """How many programs have run a lowering or handler."""
    tried: dict[str, int]
    """How many programs have a choice."""
    gained: dict[str, int]
    """How many programs with a choice ran something rare."""


def no_steering() -> Steering:
    """Return the state before the first program."""
    return {"ran": {}, "tried": {}, "gained": {}}


def note_program(steering: Steering, chosen: Sequence[str], ran: Sequence[str]) -> None:
    """Add a program: its choices, and what it has run."""
    counts, tried, gained = steering["ran"], steering["tried"], steering["gained"]
    is_rare = any(counts.get(name, 0) < RARE for name in ran)
    for name in ran:
        counts[name] = counts.get(name, 0) + 1
    for name in chosen:
        tried[name] = tried.get(name, 0) + 1
        gained[name] = gained.get(name, 0) + is_rare


def is_script(text: str) -> bool:
    """Return whether a program has no factory, and so calls ``torch.compile`` itself."""
    return "\ndef make(" not in text and "\nmake = " not in text
