"""CUDA graphs that Inductor did not make: why, and the user's line, from what it says when it skips
one.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from reprokit.core.shared.contract.events import CudagraphSkipped
from reprokit.core.shared.tracebacks import user_line

PREFIX = "skipping cudagraphs due to"


@dataclass(frozen=True)
class CudagraphSkip:
    """One reason for which graphs were skipped."""

    reason: str
    """``mutated inputs (2 instances)``."""
    where: str = ""
    """``file:line in function`` of the user's line that Inductor names; empty where it names
    none.
    """
    count: int = 1


def read_skip(message: str) -> CudagraphSkip | None:
    """What one message says; torch 2.13 begins some with the prefix twice."""
    text = message.strip()
    if PREFIX not in text:
        return None
    text = text.rpartition(PREFIX)[2].strip()
    reason, _, trace = text.partition(". Found from")
    said = " ".join(reason.splitlines()[0].split()).rstrip(".") if reason else "no reason"
    return CudagraphSkip(said, user_line(trace))


def group_skips(events: Sequence[CudagraphSkipped]) -> tuple[CudagraphSkip, ...]:
    """Group ``cudagraph_skip`` events by reason and line, in the order in which they came."""
    found: dict[tuple[str, str], CudagraphSkip] = {}
    for event in events:
        if one := read_skip(event.message):
            known = found.get((one.reason, one.where))
            found[one.reason, one.where] = CudagraphSkip(
                one.reason, one.where, known.count + 1 if known else 1
            )
    return tuple(found.values())


def reason_family(reason: str) -> str:
    """The reason without what belongs to one model: names of nodes and counts stand in
    parentheses.
    """
    return re.sub(r"\s*\([^)]*\)", "", reason).strip()
