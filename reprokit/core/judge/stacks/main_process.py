"""Choose the main process of a run: the one of several that is inside the compiler."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from reprokit.core.judge.stacks import frames as fr
from reprokit.core.judge.stacks import phases
from reprokit.core.records.dumps import Dump
from reprokit.core.records.journal_reader import open_events
from reprokit.core.records.process_state import Evidence
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

COMPILE_WORKER = "torch/_inductor/compile_worker/__main__"
"""The program of the processes in which Inductor compiles kernels."""
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
        is_inside = phases.is_compiling([e.name for e in open_events(events)])
        return is_inside, sum(isinstance(e, PROGRESS) for e in events), pid == root_pid

    return describe_process(by_pid, max(by_pid, key=weight, default=root_pid))


def describe_process(by_pid: Mapping[int, list[Event]], pid: int) -> MainProcess:
    """Return the process ``pid`` with its open events."""
    opened = open_events(by_pid.get(pid, []))
    names = tuple(e.name for e in opened)
    tid = opened[-1].tid if opened and phases.phase_of_events(names[-1:]) else 0
    return MainProcess(pid, names, tid if tid != pid else 0)


def find_observed(
    dumps: Iterable[Dump], by_pid: Mapping[int, list[Event]], root_pid: int
) -> MainProcess:
    """Return the main process of a program that was not started with reprokit: the one whose
    journal has an open compile phase, or else that of :func:`find_by_stacks`.
    """
    by_events = find_main_process(by_pid, root_pid)
    if phases.is_compiling(by_events.open_events):
        return by_events
    return find_by_stacks(dumps, root_pid)


def find_by_stacks(dumps: Iterable[Dump], root_pid: int) -> MainProcess:
    """Return the process and thread inside the compiler, or else in compiled code or a collective,
    or else the root process.

    This is for a program without journals. A compile worker is not the main process: a process
    waits for it.
    """
    best = (0, False, False, -root_pid), MainProcess(root_pid)
    for dump in {d.pid: d for d in dumps if d.threads}.values():
        for thread in dump.threads:
            frames = fr.normalise_frames(thread.frames)
            if any(f.file.startswith(COMPILE_WORKER) for f in frames):
                break
            found = phases.phase_of_frames(frames)
            phase = found[0] if found else ""
            level = 2 if phase in phases.COMPILE_PHASES else phase in ("kernel-run", "collective")
            weight = int(level), thread.is_main, dump.pid == root_pid, -dump.pid
            tid = 0 if thread.is_main else thread.tid
            best = max(best, (weight, MainProcess(dump.pid, tid=tid)), key=lambda row: row[0])
    return best[1]


def ranks_of_evidence(evidence: Evidence) -> dict[str, int]:
    """Return the pid of the process of each rank, from the environments of the processes. A child
    inherits them, so the process whose parent has a different rank counts.
    """
    of_pid = {p.pid: p.rank for p in evidence.processes}
    found = {p.rank: p.pid for p in evidence.processes if p.rank and of_pid.get(p.ppid) != p.rank}
    return dict(sorted(found.items(), key=lambda row: int(row[0])))


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
