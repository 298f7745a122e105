"""Sample the target's processes: memory, processor time, state; one CSV row a process and
sample.
"""

from __future__ import annotations

import contextlib
import csv
import time
from collections import deque
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

import psutil

from reprokit.core.records.process_state import BUSY_SHARE
from reprokit.core.shared.contract import run_names
from reprokit.host.system import process_tree
from reprokit.host.watch import blocked_on
from reprokit.host.watch.nvml import GpuFeed

EVERY_S = 1.0
COLUMNS = (
    "t",
    "pid",
    "ppid",
    "name",
    "state",
    "rss_bytes",
    "cpu_s",
    "want_s",
    "threads",
    "gpu_share",
)
"""One row a process and sample; a GPU has a row with pid 0, its name and ``gpu_share``."""
KEPT = 300
ROWS = 600
LEAST_IO_BYTES = 256 << 10
COMPILERS = frozenset(
    "cc1plus cc1 cicc ptxas nvcc clang clang++ ld as lld collect2 icpx hipcc cudafe++"
    " fatbinary".split()
)
"""Programs that may be silent for minutes and are at work all the same."""
LEAST_FAULTS = 8


@dataclass
class ProcessSamples:
    """What the samples of one run add up to; ``samples.csv`` has the rows."""

    peak_rss_bytes: int = 0
    """Largest sum of resident memory over the tree at one time."""
    last_rss_bytes: int = 0
    least_available_bytes: int = field(default_factory=lambda: psutil.virtual_memory().available)
    processes: int = 0


@dataclass(frozen=True)
class _Row:
    at: float
    name: str
    rss_bytes: int
    cpu_s: float
    ran_s: float
    waited_s: float
    faults: int


class Sampler:
    """Takes samples when asked and keeps them in a file that is readable when cut short."""

    def __init__(self, path: Path, root_pid: int) -> None:
        self.root_pid = root_pid
        self.samples = ProcessSamples()
        self.gpus = GpuFeed()
        self._next = 0.0
        self._kept: dict[int, deque[_Row]] = {}
        self._last: dict[int, _Row] = {}
        self._before: dict[int, _Row] = {}
        self._began, self._next_row, self._gone_cpu_s = time.monotonic(), 0.0, 0.0
        self._gone: dict[int, float] = {}
        self._journals = path.parent / run_names.JOURNAL_FOLDER
        self._shares: dict[int, float] = {}
        self._io = self._io_before = 0
        self._file: IO[str] | None = None
        with contextlib.suppress(OSError):  # a process name may be cut in the middle of a character
            self._file = path.open(
                "a", newline="", buffering=1, encoding="utf-8", errors="backslashreplace"
            )
            csv.writer(self._file).writerow(COLUMNS)

    def tick(self) -> bool:
        """Take a sample when the last one is old enough; True when one was taken."""
        if time.monotonic() < self._next:
            return False
        self._next = time.monotonic() + EVERY_S
        now, total = round(time.time(), 3), 0
        rows: list[tuple[object, ...]] = []
        self._before, self._last, self._io_before, self._io = self._last, {}, self._io, 0
        for process in process_tree.family_of(self.root_pid):
            with contextlib.suppress(psutil.Error, OSError), process.oneshot():
                cpu, rss = process.cpu_times(), process.memory_info().rss
                name = blocked_on.read_proc_file(f"/proc/{process.pid}/comm").strip()
                ran, waited = process_tree.processor_s(process.pid)
                total += rss
                self._io += _io_bytes(process.pid)
                row = _Row(
                    time.monotonic(),
                    name,
                    rss,
                    cpu.user + cpu.system,
                    ran,
                    waited,
                    _faults(process.pid),
                )
                self._last[process.pid] = row
                self._kept.setdefault(process.pid, deque(maxlen=KEPT)).append(row)
                want = round(ran + waited, 2)
                rows.append(
                    (
                        now,
                        process.pid,
                        process.ppid(),
                        name,
                        process.status(),
                        rss,
                        round(row.cpu_s, 2),
                        want,
                        process.num_threads(),
                        "",
                    )
                )
        for pid in [p for p in self._kept if p not in self._last]:
            cpu_s = self._kept.pop(pid)[-1].cpu_s
            self._gone_cpu_s += cpu_s
            if self._has_journal(pid):  # others come by the thousand
                self._gone[pid] = cpu_s
        self._shares = {
            pid: (
                (after.ran_s + after.waited_s - before.ran_s - before.waited_s)
                / max(after.at - before.at, 1e-3)
            )
            for pid, before, after in self._pairs()
        }
        for gpu in self.gpus.last:
            rows.append(
                (now, 0, 0, f"gpu{gpu.index}", "", gpu.memory_bytes, "", "", "", gpu.busy_share)
            )
        seen = self.samples
        seen.last_rss_bytes, seen.processes = total, len(self._last)
        seen.peak_rss_bytes = max(seen.peak_rss_bytes, total)
        seen.least_available_bytes = min(
            seen.least_available_bytes, psutil.virtual_memory().available
        )
        if self._file is not None and time.monotonic() >= self._next_row:
            # a row a second at first, and fewer the longer it runs: days must not fill the disk
            self._next_row = (
                time.monotonic()
                + max(EVERY_S, (time.monotonic() - self._began) / ROWS)
                - EVERY_S / 2
            )
            with contextlib.suppress(OSError, ValueError):
                csv.writer(self._file).writerows(rows)
        return True

    @property
    def pids(self) -> list[int]:
        """The processes that the last sample saw."""
        return list(self._last)

    @property
    def cpu_s(self) -> float:
        """Processor seconds of every process that was ever sampled: what the kernel tells of a root
        leaves out children that nobody waited for.
        """
        return self._gone_cpu_s + sum(rows[-1].cpu_s for rows in self._kept.values())

    @property
    def cpu_by_pid(self) -> dict[str, float]:
        """Processor seconds of each process that keeps a journal, when it was sampled last."""
        here = {pid: rows[-1].cpu_s for pid, rows in self._kept.items() if self._has_journal(pid)}
        return {str(pid): cpu_s for pid, cpu_s in {**self._gone, **here}.items()}

    def _has_journal(self, pid: int) -> bool:
        return (self._journals / f"{pid}.jsonl").exists()

    def served(self) -> float:
        """Share of the wanted processor time that the tree got between the last two samples; 1.0
        when it wanted none.
        """
        ran = waited = span = 0.0
        for _, before, after in self._pairs():
            ran += after.ran_s - before.ran_s
            waited += after.waited_s - before.waited_s
            span = max(span, after.at - before.at)
        return process_tree.processor_share(ran, waited, span)

    def want(self, pid: int) -> float:
        """Share of one processor that ``pid`` wanted between the last two samples."""
        return self._shares.get(pid, 0.0)

    def is_transferring(self) -> bool:
        """The tree read or wrote more since the last sample than a poll or our own journals do."""
        return self._io - self._io_before > LEAST_IO_BYTES

    def working_children(self, parent_pid: int) -> list[str]:
        """Compilers below the target that were started, and compilers or busy programs that touched
        new memory, since the last sample.
        """
        found = []
        for pid, row in self._last.items():
            before, is_compiler = self._before.get(pid), row.name in COMPILERS
            if pid in (parent_pid, self.root_pid) or not (
                is_compiler or self.want(pid) > BUSY_SHARE
            ):
                continue
            if row.faults - before.faults > LEAST_FAULTS if before else is_compiler:
                found.append(f"{row.name} ({pid})")
        return found

    def memory(self, since: float) -> dict[int, list[tuple[float, int, float]]]:
        """pid -> (seconds, resident bytes, processor seconds) of each sample taken after ``since``
        (monotonic).
        """
        return {
            pid: [
                (round(r.at - since, 2), r.rss_bytes, round(r.cpu_s, 2))
                for r in rows
                if r.at >= since
            ]
            for pid, rows in self._kept.items()
        }

    def close(self) -> None:
        """Close the file; a full disk is told by the missing rows, not by an error here."""
        self.gpus.close()
        if self._file is not None:
            with contextlib.suppress(OSError):
                self._file.close()

    def _pairs(self) -> list[tuple[int, _Row, _Row]]:
        return [
            (pid, self._before[pid], row) for pid, row in self._last.items() if pid in self._before
        ]


def _io_bytes(pid: int) -> int:
    """Bytes that a process has read and written so far, files and pipes alike (proc(5), io)."""
    with contextlib.suppress(OSError, ValueError, IndexError), open(f"/proc/{pid}/io") as file:
        return sum(int(line.split()[1]) for line in file.read().splitlines()[:2])
    return 0


def _faults(pid: int) -> int:
    """Minor page faults so far: a compiler that works touches new memory, a loop that spins does
    not.
    """
    with (
        contextlib.suppress(OSError, ValueError, IndexError),
        open(f"/proc/{pid}/stat", "rb") as file,
    ):
        text = file.read()
        return int(text[text.rindex(b")") + 2 :].split()[7])
    return 0
