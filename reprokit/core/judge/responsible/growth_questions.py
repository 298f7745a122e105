"""Who is responsible for memory that grows with each call."""

from __future__ import annotations

from reprokit.core.judge import growing_memory
from reprokit.core.judge.responsible.parties import Responsible
from reprokit.core.records.finding import Verdict
from reprokit.core.records.observation import Observation
from reprokit.core.shared.contract.measured_kinds import MEMORY_GROWTH


def held_by_program(verdict: Verdict, seen: Observation) -> Responsible | None:
    """Check for what grows without torch.compile too, or is held by the program's own code."""
    growth = seen.call_growth
    if verdict.kind != MEMORY_GROWTH or growth is None:
        return None
    line = verdict.work.get("line", "")
    if growth.growing[0].is_in_eager:
        return Responsible("user", ("It grows in eager as fast, without torch.compile.",), line)
    holder = growing_memory.holder_of(growth)
    if holder is None or not growing_memory.is_of_program(holder):
        return None
    return Responsible("user", ("The program's own code keeps it.",), line)


def kept_by_dynamo(verdict: Verdict, seen: Observation) -> Responsible | None:
    """Check for compiled code that each call adds, as a program with changing guards asks for."""
    growth = seen.call_growth
    if verdict.kind != MEMORY_GROWTH or growth is None:
        return None
    holder = growing_memory.holder_of(growth)
    if holder is None or holder.what != growing_memory.DYNAMO_CACHE:
        return None
    why = "Each call compiles the function anew, and nothing shows whether its guards must fail."
    return Responsible("unknown", (why,))


def not_compared(verdict: Verdict, seen: Observation) -> Responsible | None:
    """Check for a growth that was not compared with eager."""
    if verdict.kind != MEMORY_GROWTH or seen.call_growth is None or seen.call_growth.has_eager:
        return None
    return Responsible("unknown", ("There is no run in eager to compare with.",))
