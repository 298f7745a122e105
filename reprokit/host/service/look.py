"""Look at a process tree once: is it idle, or where is it, and has it moved since the last look?"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from pathlib import Path

from reprokit.core.judge.hangs import waiting
from reprokit.core.judge.stacks import evidence, location, main_process, phases
from reprokit.core.judge.stacks import frames as fr
from reprokit.core.records.dumps import Dump
from reprokit.core.records.observation import Observation
from reprokit.host.system import host_log, process_tree
from reprokit.host.watch import blocked_on, waiting_calls
from reprokit.host.watch.lock_uses import LockFinder
from reprokit.host.watch.proc_snapshot import ProcSampler
from reprokit.host.watch.stacks import StackDumper

LOOKS_PER_RETRY = 20
"""A process whose stack could not be read in time is tried again after this many looks."""
COMPILER_FILES = ("torch/_", "torch/fx/", "triton/")


@dataclass(frozen=True)
class Position:
    """Where a process tree is that is not idle. At equal positions nothing has moved."""

    pid: int
    tid: int
    phase: str
    stack: tuple[str, ...]


@dataclass(frozen=True)
class Look:
    """One look at a process tree."""

    position: Position | None
    """None if every process is idle, or if no stack could be read."""
    is_readable: bool
    switches: int = 0
    """How often the working thread has waited for something since it started (proc(5), status)."""


class TreeReader:
    """Looks at a process tree from outside. A look costs about 50 ms of CPU for each process that
    ran since the last one.
    """

    def __init__(self, root_pid: int, folder: Path) -> None:
        self._root = root_pid
        self._stacks = folder / "stacks"
        self._stacks.mkdir(parents=True, exist_ok=True)
        self._dumper = StackDumper(folder)
        self._locks = LockFinder()
        self._looks = 0
        self._dumps: dict[int, tuple[float, Dump]] = {}
        """The last dump of each process, and the seconds that its threads had run before it."""

    def look(self) -> Look:
        """Read the stacks and the states of all processes once."""
        with host_log.suppress(OSError):  # somebody may delete the folder while a watch goes on
            self._stacks.mkdir(parents=True, exist_ok=True)
        family = [process.pid for process in process_tree.family_of(self._root)]
        sampler = ProcSampler()
        sampler.take_sample(family)
        self._looks += 1
        if self._looks % LOOKS_PER_RETRY == 0:
            self._dumper.retry_failed_tools()
        dumps = self._read_stacks([pid for pid in family if process_tree.is_python(pid)])
        main = main_process.find_by_stacks(dumps, self._root)
        calls = waiting_calls.find_waiting_calls(dumps)
        evidence_of_kernel = sampler.make_evidence({}, {})
        seen = waiting.choose_stuck_thread(
            Observation(
                dumps=tuple(dumps),
                evidence=dataclasses.replace(
                    evidence_of_kernel,
                    waiting_calls=calls,
                    lock_uses=self._locks.find_lock_uses(dumps),
                ),
                main_pid=main.pid,
                working_tid=main.tid,
                is_attached=True,
            )
        )
        phase = location.phase_at_work(seen)[0]
        is_inside = phase in phases.COMPILE_PHASES or phase in ("kernel-run", "collective")
        is_readable = any(dump.threads for dump in dumps)
        if not is_readable or (not is_inside and waiting.waits_of_tree(seen)):
            return Look(None, is_readable)
        pid, tid = seen.main_pid or self._root, seen.working_tid
        position = Position(pid, tid, phase or "", _stack(seen, phase))
        return Look(position, True, blocked_on.waits_so_far(pid, tid or pid))

    def _read_stacks(self, pids: list[int]) -> list[Dump]:
        """Return a dump of each process. A process whose threads did not run has its last one."""
        ran = {pid: process_tree.cpu_seconds(pid)[0] for pid in pids}
        kept = {
            pid: dump
            for pid, (seconds, dump) in self._dumps.items()
            if ran.get(pid) == seconds and dump.threads
        }
        taken = self._dumper.dump_round([pid for pid in pids if pid not in kept])
        number = self._dumper.number
        dumps = [*taken, *(dataclasses.replace(dump, number=number) for dump in kept.values())]
        self._dumps = {dump.pid: (ran[dump.pid], dump) for dump in dumps}
        return sorted(dumps, key=lambda dump: dump.pid)

    def close(self) -> None:
        """Release the threads."""
        self._dumper.close()


def _stack(seen: Observation, phase: str | None) -> tuple[str, ...]:
    """Return what must not move: the frames of the compiler, or outside of it all lines."""
    stack = next(iter(evidence.main_stacks(seen)[-1:]), ())
    if phase in phases.COMPILE_PHASES:
        return tuple(fr.show_frame(f) for f in stack if f.file.startswith(COMPILER_FILES))
    return tuple(f"{f.file}:{f.line} in {f.function}" for f in stack)
