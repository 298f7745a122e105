"""Ask the kernel what every process and thread of the target is doing, over several samples
(proc(5)).

Processor use is told as *want*, running plus waiting for a processor, from ``schedstat``: on an
overloaded machine a loop that spins shows 20 % of processor time and 99 % of want.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from reprokit.core.records.process_state import (
    Evidence,
    GpuUse,
    ProcessState,
    ThreadState,
    cut_words,
)
from reprokit.host.system import process_tree
from reprokit.host.watch import blocked_on

MOST_PROCESSES = 256
MOST_THREADS = 200
"""Of one process; the main thread first. A program may have thousands, all alike."""
MEMORY_POINTS = 33
_PAGE = os.sysconf("SC_PAGE_SIZE")


@dataclass
class _Thread:
    state: str
    wanted_s: float


@dataclass
class _Process:
    ppid: int
    name: str
    state: str
    rss_bytes: int
    threads: dict[int, _Thread] = field(default_factory=dict)


@dataclass
class ProcSampler:
    """Collects samples of the same processes; :meth:`evidence` says what they add up to."""

    _taken: list[tuple[float, dict[int, _Process]]] = field(default_factory=list)

    def sample(self, pids: Iterable[int]) -> None:
        """Take one sample."""
        found = {}
        for pid in list(pids)[:MOST_PROCESSES]:
            process = _process(pid)
            if process is not None:
                found[pid] = process
        self._taken.append((time.monotonic(), found))

    def evidence(
        self,
        memory: Mapping[int, Sequence[tuple[float, int, float]]],
        gil_ages: Mapping[int, float],
        gpus: tuple[GpuUse, ...] = (),
    ) -> Evidence:
        """What is known of each process that the last sample saw; asks for system calls now."""
        if not self._taken:
            return Evidence()
        states = []
        links = blocked_on.DescriptorLinks()
        for pid in self._taken[-1][1]:
            states.append(self._state(pid, memory.get(pid, ()), gil_ages.get(pid), links))
        return Evidence(tuple(states), gpus=gpus)

    def _state(
        self,
        pid: int,
        memory: Sequence[tuple[float, int, float]],
        gil_age: float | None,
        links: blocked_on.DescriptorLinks,
    ) -> ProcessState:
        seen = [(t, found[pid]) for t, found in self._taken if pid in found]
        (began, first), (ended, last) = seen[0], seen[-1]
        span = ended - began
        threads = []
        for tid, thread in last.threads.items():
            letters = "".join(p.threads[tid].state for _, p in seen if tid in p.threads)
            before = first.threads.get(tid)
            want = (thread.wanted_s - before.wanted_s) / span if before and span > 0.2 else None
            name, args = blocked_on.system_call(pid, tid)
            target, child = (
                links.target(pid, name, args) if tid == pid or len(last.threads) < 32 else ("", 0)
            )
            place = blocked_on.read_proc_file(f"/proc/{pid}/task/{tid}/wchan")
            threads.append(
                ThreadState(
                    tid=tid,
                    name=blocked_on.read_proc_file(f"/proc/{pid}/task/{tid}/comm").strip(),
                    states=letters,
                    want=None if want is None else round(max(want, 0.0), 3),
                    syscall=name,
                    wchan="" if place == "0" else place,
                    waits_for=target,
                    waits_for_pid=child,
                )
            )
        wants = [t.want for t in threads if t.want is not None]
        return ProcessState(
            pid=pid,
            ppid=last.ppid,
            command=cut_words(blocked_on.command_of(pid), 2000) or f"[{last.name}]",
            states="".join(p.state for _, p in seen),
            want=round(sum(wants), 3) if wants else None,
            rss_bytes=last.rss_bytes,
            threads=tuple(threads),
            gil_age_s=gil_age,
            memory=tuple(_thinned(memory)),
        )


def _process(pid: int) -> _Process | None:
    words = _stat(f"/proc/{pid}/stat")
    if words is None:
        return None
    name, rest = words
    process = _Process(int(rest[1]), name, rest[0], int(rest[21]) * _PAGE)
    tasks: list[str] = []
    with contextlib.suppress(OSError):
        tasks = os.listdir(f"/proc/{pid}/task")
    for task in sorted(tasks, key=lambda t: (int(t) != pid, int(t)))[:MOST_THREADS]:
        stat = _stat(f"/proc/{pid}/task/{task}/stat")
        if stat is not None:
            process.threads[int(task)] = _Thread(stat[1][0], sum(process_tree.thread_s(pid, task)))
    return process


def _stat(path: str) -> tuple[str, list[str]] | None:
    """The name, which may hold anything, and the fields after it, the state first."""
    text = blocked_on.read_proc_file(path)
    if ")" not in text:
        return None
    rest = text[text.rindex(")") + 2 :].split()
    return (text[text.index("(") + 1 : text.rindex(")")], rest) if len(rest) > 21 else None


def _thinned(points: Sequence[tuple[float, int, float]]) -> list[tuple[float, int, float]]:
    if len(points) <= MEMORY_POINTS:
        return list(points)
    return [points[i * (len(points) - 1) // (MEMORY_POINTS - 1)] for i in range(MEMORY_POINTS)]
