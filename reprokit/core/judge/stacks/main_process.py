"""Choose the main process of a run: the one of several that is inside the compiler."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from reprokit.core.judge.stacks import phases
from reprokit.core.records.journal_reader import open_events
from reprokit.core.shared.contract.event_base import Event
from reprokit.core.shared.contract.events import (
    Begin,
    End,
    Graph,
    GraphDone,
    Process,
    Progress,
    Recompile,
)

PROGRESS = (Begin, End, Progress, Graph, GraphDone, Recompile)


@dataclass(frozen=True)
class MainProcess:
    """The process that a verdict is about, and its open events."""

    pid: int
    open_events: tuple[str, ...] = ()
    """Names of the events that began and did not end, outermost first."""
    tid: int = 0
    """The thread of the open events; 0 if it is the main thread, or if there are none."""


def find_main_process(by_pid: Mapping[int, list[Event]], root_pid: int) -> MainProcess:
    """Return a process inside the compiler, or else the one with the most progress, or else the
    root process.
    """

    def weight(pid: int) -> tuple[bool, int, bool]:
        events = by_pid[pid]
        phase = phases.phase_of_events([e.name for e in open_events(events)])
        is_inside = phase is not None and phase[0] in phases.COMPILE_PHASES
        return is_inside, sum(isinstance(e, PROGRESS) for e in events), pid == root_pid

    return describe_process(by_pid, max(by_pid, key=weight, default=root_pid))


def describe_process(by_pid: Mapping[int, list[Event]], pid: int) -> MainProcess:
    """Return the process ``pid`` with its open events."""
    opened = open_events(by_pid.get(pid, []))
    names = tuple(e.name for e in opened)
    tid = opened[-1].tid if opened and phases.phase_of_events(names[-1:]) else 0
    return MainProcess(pid, names, tid if tid != pid else 0)


def ranks_of_processes(by_pid: Mapping[int, list[Event]]) -> dict[str, int]:
    """Return the pid of the process of each rank, without the children, which inherit the
    variable.
    """
    of_pid = {
        pid: e.rank for pid, events in by_pid.items() for e in events if isinstance(e, Process)
    }
    newest: dict[str, tuple[float, int]] = {}
    for pid, events in by_pid.items():
        for event in events:
            if (
                isinstance(event, Process)
                and (rank := event.rank)
                and of_pid.get(event.ppid) != rank
            ):
                # a restarted rank has a newer process
                newest[rank] = max(newest.get(rank, (event.t, pid)), (event.t, pid))
    return {rank: pid for rank, (_, pid) in sorted(newest.items(), key=lambda row: int(row[0]))}
