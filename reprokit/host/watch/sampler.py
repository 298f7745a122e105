"""Sample the memory, CPU time and state of the target's processes, and write them as CSV."""

from __future__ import annotations

import csv
import time
from collections import deque
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

import psutil

from reprokit.core.records.process_state import BUSY_SHARE
from reprokit.core.shared.contract import run_names
from reprokit.host.system import host_log, process_tree
from reprokit.host.watch import blocked_on
from reprokit.host.watch.gpu_vendors import GpuFeed

SAMPLE_EVERY_S = 1.0
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
"""Each sample has a row for each process. A GPU has a row with pid 0, its name and
``gpu_share``.
"""
MAX_SAMPLES_KEPT = 300
ROWS_AT_FULL_RATE = 600
MIN_IO_BYTES = 256 << 10
COMPILERS = frozenset(
    "cc1plus cc1 cicc ptxas nvcc clang clang++ ld as lld collect2 icpx hipcc cudafe++"
    " fatbinary".split()
)
"""Programs that may work for minutes without output."""
MIN_FAULTS = 8


@dataclass
class ProcessSamples:
    """A summary of the samples of one run; ``samples.csv`` has the rows."""

    peak_rss_bytes: int = 0
    """The largest sum of resident memory over the process tree."""
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
    """Takes samples and writes them to a file that is readable even if reprokit is killed."""

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
        with host_log.suppress(OSError):  # a process name may be cut in the middle of a character
            self._file = path.open(
                "a", newline="", buffering=1, encoding="utf-8", errors="backslashreplace"
            )
            csv.writer(self._file).writerow(COLUMNS)

    def sample_if_due(self) -> bool:
        """Take a sample if the last one is old enough. Return whether it did."""
        if time.monotonic() < self._next:
            return False
        self.take_sample()
        return True

    def take_sample(self) -> None:
        """Take a sample now."""
        self._next = time.monotonic() + SAMPLE_EVERY_S
        now, total = round(time.time(), 3), 0
        rows: list[tuple[object, ...]] = []
        self._before, self._last, self._io_before, self._io = self._last, {}, self._io, 0
        for process in process_tree.family_of(self.root_pid):
            with host_log.suppress(psutil.Error, OSError), process.oneshot():
                cpu, rss = process.cpu_times(), process.memory_info().rss
                name = blocked_on.read_proc_file(f"/proc/{process.pid}/comm").strip()
                ran, waited = process_tree.cpu_seconds(process.pid)
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
                self._kept.setdefault(process.pid, deque(maxlen=MAX_SAMPLES_KEPT)).append(row)
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
            if self._has_journal(pid):  # there may be thousands of other processes
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
            # a row a second at first, later fewer, so that a long run does not fill the disk
            self._next_row = (
                time.monotonic()
                + max(SAMPLE_EVERY_S, (time.monotonic() - self._began) / ROWS_AT_FULL_RATE)
                - SAMPLE_EVERY_S / 2
            )
            with host_log.suppress(OSError, ValueError):
                csv.writer(self._file).writerows(rows)

    @property
    def pids(self) -> list[int]:
        """The processes of the last sample."""
        return list(self._last)

    @property
    def cpu_s(self) -> float:
        """CPU seconds of all processes that were sampled. Unlike the usage of the root, they
        include children that no process waited for.
        """
        return self._gone_cpu_s + sum(rows[-1].cpu_s for rows in self._kept.values())

    @property
    def cpu_by_pid(self) -> dict[str, float]:
        """CPU seconds of each process that writes a journal, at its last sample."""
        here = {pid: rows[-1].cpu_s for pid, rows in self._kept.items() if self._has_journal(pid)}
        return {str(pid): cpu_s for pid, cpu_s in {**self._gone, **here}.items()}

    def _has_journal(self, pid: int) -> bool:
        return (self._journals / f"{pid}.jsonl").exists()

    def received_cpu_share(self) -> float:
        """Return the share of the requested CPU time that the process tree received between the
        last two samples; 1.0 if it requested none.
        """
        ran = waited = span = 0.0
        for _, before, after in self._pairs():
            ran += after.ran_s - before.ran_s
            waited += after.waited_s - before.waited_s
            span = max(span, after.at - before.at)
        return process_tree.cpu_share(ran, waited, span)

    def requested_cpu_share(self, pid: int) -> float:
        """Return the share of one CPU that ``pid`` requested between the last two samples."""
        return self._shares.get(pid, 0.0)

    def is_transferring(self) -> bool:
        """Return whether the process tree read or wrote more since the last sample than polling and
        journals account for.
        """
        return self._io - self._io_before > MIN_IO_BYTES

    def working_children(self, parent_pid: int) -> list[str]:
        """Return descendants of the target that made progress since the last sample: compilers that
        started, and compilers or busy programs that used new memory.
        """
        found = []
        for pid, row in self._last.items():
            before, is_compiler = self._before.get(pid), row.name in COMPILERS
            if pid in (parent_pid, self.root_pid) or not (
                is_compiler or self.requested_cpu_share(pid) > BUSY_SHARE
            ):
                continue
            if row.faults - before.faults > MIN_FAULTS if before else is_compiler:
                found.append(f"{row.name} ({pid})")
        return found

    def memory_since(self, since: float) -> dict[int, list[tuple[float, int, float]]]:
        """Return the samples after ``since`` (monotonic) by pid, each as seconds, resident bytes
        and CPU seconds.
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
        """Close the file without an error if the disk is full."""
        self.gpus.close()
        if self._file is not None:
            with host_log.suppress(OSError):
                self._file.close()

    def _pairs(self) -> list[tuple[int, _Row, _Row]]:
        return [
            (pid, self._before[pid], row) for pid, row in self._last.items() if pid in self._before
        ]


def _io_bytes(pid: int) -> int:
    """Return the bytes that a process has read and written, in files and pipes (proc(5), io)."""
    with host_log.suppress(OSError, ValueError, IndexError), open(f"/proc/{pid}/io") as file:
        return sum(int(line.split()[1]) for line in file.read().splitlines()[:2])
    return 0


def _faults(pid: int) -> int:
    """Return the number of minor page faults. A compiler that works uses new memory; a busy loop
    does not.
    """
    with (
        host_log.suppress(OSError, ValueError, IndexError),
        open(f"/proc/{pid}/stat", "rb") as file,
    ):
        text = file.read()
        return int(text[text.rindex(b")") + 2 :].split()[7])
    return 0
