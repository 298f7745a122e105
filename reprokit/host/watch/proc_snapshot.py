"""Sample the state of every process and thread of the target (proc(5)).

CPU use is measured as *want*: the time that a thread runs plus the time that it waits for a CPU,
from ``schedstat``. On an overloaded machine, a busy loop has 20 % of CPU time, but 99 % of want.
"""

from __future__ import annotations

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
from reprokit.host.system import host_log, process_tree
from reprokit.host.watch import blocked_on

MAX_PROCESSES = 256
MAX_THREADS = 200
"""Threads of one process that are sampled, the main thread first."""
MEMORY_POINTS = 33
RANK_VARIABLES = (
    ("RANK", "WORLD_SIZE"),
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
    ("PMI_RANK", "PMI_SIZE"),
    ("SLURM_PROCID", "SLURM_NTASKS"),
)
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
    """Collects samples of the same processes; :meth:`make_evidence` combines them."""

    _taken: list[tuple[float, dict[int, _Process]]] = field(default_factory=list)

    def take_sample(self, pids: Iterable[int]) -> None:
        """Take one sample."""
        found = {}
        for pid in list(pids)[:MAX_PROCESSES]:
            process = _process(pid)
            if process is not None:
                found[pid] = process
        self._taken.append((time.monotonic(), found))

    def make_evidence(
        self,
        memory: Mapping[int, Sequence[tuple[float, int, float]]],
        gil_ages: Mapping[int, float],
        gpus: tuple[GpuUse, ...] = (),
    ) -> Evidence:
        """Return the evidence about each process of the last sample, with its current system
        calls.
        """
        if not self._taken:
            return Evidence()
        states = []
        links = blocked_on.DescriptorLinks()
        ranks = _ranks(self._taken[-1][1])
        for pid in self._taken[-1][1]:
            rank = ranks.get(pid, ("", ""))
            states.append(self._state(pid, memory.get(pid, ()), gil_ages.get(pid), links, *rank))
        return Evidence(tuple(states), gpus=gpus)

    def _state(
        self,
        pid: int,
        memory: Sequence[tuple[float, int, float]],
        gil_age: float | None,
        links: blocked_on.DescriptorLinks,
        rank: str,
        world_size: str,
    ) -> ProcessState:
        seen = [(t, found[pid]) for t, found in self._taken if pid in found]
        (began, first), (ended, last) = seen[0], seen[-1]
        span = ended - began
        threads = []
        for tid, thread in last.threads.items():
            letters = "".join(p.threads[tid].state for _, p in seen if tid in p.threads)
            before = first.threads.get(tid)
            want = (thread.wanted_s - before.wanted_s) / span if before and span > 0.2 else None
            name, args = blocked_on.current_system_call(pid, tid)
            target, child = (
                links.describe_wait(pid, name, args)
                if tid == pid or len(last.threads) < 32
                else ("", 0)
            )
            wchan = blocked_on.read_proc_file(f"/proc/{pid}/task/{tid}/wchan")
            threads.append(
                ThreadState(
                    tid=tid,
                    name=blocked_on.read_proc_file(f"/proc/{pid}/task/{tid}/comm").strip(),
                    states=letters,
                    want=None if want is None else round(max(want, 0.0), 3),
                    syscall=name,
                    has_limit=blocked_on.has_limit(name, args),
                    wchan="" if wchan == "0" else wchan,
                    waits_for=target,
                    waits_for_pid=child,
                )
            )
        wants = [t.want for t in threads if t.want is not None]
        return ProcessState(
            pid=pid,
            ppid=last.ppid,
            command=cut_words(blocked_on.redacted_command_line(pid), 2000) or f"[{last.name}]",
            states="".join(p.state for _, p in seen),
            want=round(sum(wants), 3) if wants else None,
            rss_bytes=last.rss_bytes,
            threads=tuple(threads),
            gil_age_s=gil_age,
            memory=tuple(_thinned(memory)),
            handles_signals=blocked_on.handles_signals(pid),
            rank=rank,
            world_size=world_size,
        )


def _ranks(pids: Iterable[int]) -> dict[int, tuple[str, str]]:
    """Return the rank and the world size of each process that has them in its environment.

    A process below torchrun has RANK. Only if no process of the tree has it, the variables of
    mpirun and srun count: below srun, torchrun itself has those of its node.
    """
    variables = {}
    for pid in pids:
        rows = blocked_on.read_proc_file(f"/proc/{pid}/environ").split("\0")
        found = dict(row.partition("=")[::2] for row in rows)
        variables[pid] = {n: v for n, v in found.items() if v.isascii() and v.isdigit()}
    for rank, world_size in RANK_VARIABLES:
        ranks = {
            pid: (found[rank], found.get(world_size, ""))
            for pid, found in variables.items()
            if rank in found
        }
        if ranks:
            return ranks
    return {}


def _process(pid: int) -> _Process | None:
    words = _stat(f"/proc/{pid}/stat")
    if words is None:
        return None
    name, rest = words
    process = _Process(int(rest[1]), name, rest[0], int(rest[21]) * _PAGE)
    tasks: list[str] = []
    with host_log.suppress(OSError):
        tasks = os.listdir(f"/proc/{pid}/task")
    for task in sorted(tasks, key=lambda t: (int(t) != pid, int(t)))[:MAX_THREADS]:
        stat = _stat(f"/proc/{pid}/task/{task}/stat")
        if stat is not None:
            process.threads[int(task)] = _Thread(
                stat[1][0], sum(process_tree.thread_cpu_seconds(pid, task))
            )
    return process


def _stat(path: str) -> tuple[str, list[str]] | None:
    """Return the name, which may contain any character, and the fields after it, from the state
    on.
    """
    text = blocked_on.read_proc_file(path)
    if ")" not in text:
        return None
    rest = text[text.rindex(")") + 2 :].split()
    return (text[text.index("(") + 1 : text.rindex(")")], rest) if len(rest) > 21 else None


def _thinned(points: Sequence[tuple[float, int, float]]) -> list[tuple[float, int, float]]:
    if len(points) <= MEMORY_POINTS:
        return list(points)
    return [points[i * (len(points) - 1) // (MEMORY_POINTS - 1)] for i in range(MEMORY_POINTS)]
