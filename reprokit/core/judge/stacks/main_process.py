"""Whose story a run tells: of several processes and threads, the one inside the compiler."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from reprokit.core.judge.stacks import phases
from reprokit.core.records.journal_reader import open_events
from reprokit.core.shared.contract.events import (
    Begin,
    End,
    Event,
    Graph,
    GraphDone,
    Process,
    Progress,
    Recompile,
)

PROGRESS = (Begin, End, Progress, Graph, GraphDone, Recompile)


@dataclass(frozen=True)
class MainProcess:
    """The process whose story is told, and what it has open."""

    pid: int
    open_events: tuple[str, ...] = ()
    """Names of the events begun and not ended, outermost first."""
    tid: int = 0
    """The thread that opened them; 0 when it is the main one, or when none is open."""


def find_main_process(by_pid: Mapping[int, list[Event]], root_pid: int) -> MainProcess:
    """One inside the compiler, else the busiest, else the root."""

    def weight(pid: int) -> tuple[bool, int, bool]:
        events = by_pid[pid]
        found = phases.phase_of_events([e.name for e in open_events(events)])
        is_inside = found is not None and found[0] in phases.COMPILE_PHASES
        return is_inside, sum(isinstance(e, PROGRESS) for e in events), pid == root_pid

    return describe_process(by_pid, max(by_pid, key=weight, default=root_pid))


def describe_process(by_pid: Mapping[int, list[Event]], pid: int) -> MainProcess:
    """What the process ``pid`` has open."""
    opened = open_events(by_pid.get(pid, []))
    names = tuple(e.name for e in opened)
    tid = opened[-1].tid if opened and phases.phase_of_events(names[-1:]) else 0
    return MainProcess(pid, names, tid if tid != pid else 0)


def ranks_of_processes(by_pid: Mapping[int, list[Event]]) -> dict[str, int]:
    """Rank -> pid of its own process; what that starts inherits the variable and is not meant."""
    of_pid = {
        pid: e.rank for pid, events in by_pid.items() for e in events if isinstance(e, Process)
    }
    found: dict[str, tuple[float, int]] = {}
    for pid, events in by_pid.items():
        for event in events:
            if (
                isinstance(event, Process)
                and (rank := event.rank)
                and of_pid.get(event.ppid) != rank
            ):
                found[rank] = max(
                    found.get(rank, (event.t, pid)), (event.t, pid)
                )  # a restarted rank has a newer process
    return {rank: pid for rank, (_, pid) in sorted(found.items(), key=lambda row: int(row[0]))}
