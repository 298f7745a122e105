"""CUDA graphs that Inductor skipped: the reason and the user's line, read from its messages."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from reprokit.core.shared.contract.events import CudagraphSkipped
from reprokit.core.shared.tracebacks import user_line

SKIP_PREFIX = "skipping cudagraphs due to"


@dataclass(frozen=True)
class CudagraphSkip:
    """One reason for skipped CUDA graphs."""

    reason: str
    """``mutated inputs (2 instances)``."""
    where: str = ""
    """``file:line in function`` of the user's line that Inductor names; empty if it names none."""
    count: int = 1


def read_skip(message: str) -> CudagraphSkip | None:
    """Read the reason and the line from one message; None if it is not about a skip.

    In torch 2.13 some messages begin with the prefix twice.
    """
    text = message.strip()
    if SKIP_PREFIX not in text:
        return None
    text = text.rpartition(SKIP_PREFIX)[2].strip()
    first, _, trace = text.partition(". Found from")
    reason = " ".join(first.splitlines()[0].split()).rstrip(".") if first else "no reason"
    return CudagraphSkip(reason, user_line(trace))


def group_skips(events: Sequence[CudagraphSkipped]) -> tuple[CudagraphSkip, ...]:
    """Group ``cudagraph_skip`` events by reason and line, in the order of their first event."""
    groups: dict[tuple[str, str], CudagraphSkip] = {}
    for event in events:
        if skip := read_skip(event.message):
            key = (skip.reason, skip.where)
            groups[key] = CudagraphSkip(*key, groups[key].count + 1 if key in groups else 1)
    return tuple(groups.values())


def reason_family(reason: str) -> str:
    """Return the reason without its parentheses, which hold names of nodes and counts of one
    model.
    """
    return re.sub(r"\s*\([^)]*\)", "", reason).strip()
