"""Sample the target's processes: memory, processor time, state; one CSV row a process and sample."""

from __future__ import annotations

import contextlib
import csv
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

import psutil

from . import tree

EVERY_S = 1.0
COLUMNS = ("t", "pid", "ppid", "name", "state", "rss_bytes", "cpu_s", "want_s", "threads")


@dataclass
class Samples:
    """What the samples of one run add up to; ``samples.csv`` has the rows."""

    peak_rss_bytes: int = 0
    """Largest sum of resident memory over the tree at one time."""
    last_rss_bytes: int = 0
    least_available_bytes: int = field(default_factory=lambda: psutil.virtual_memory().available)
    processes: int = 0


class Watch:
    """Takes samples when asked and keeps them in a file that is readable when cut short."""

    def __init__(self, path: Path, root_pid: int) -> None:
        self.root_pid = root_pid
        self.samples = Samples()
        self._next = 0.0
        self._file: IO[str] | None = None
        with contextlib.suppress(OSError):
            self._file = path.open("a", newline="", buffering=1)
            csv.writer(self._file).writerow(COLUMNS)

    def tick(self) -> None:
        """Take a sample when the last one is old enough."""
        if time.monotonic() < self._next:
            return
        self._next = time.monotonic() + EVERY_S
        now, rows, total = round(time.time(), 3), [], 0
        for process in tree.family(self.root_pid):
            with contextlib.suppress(psutil.Error), process.oneshot():
                cpu = process.cpu_times()
                rss = process.memory_info().rss
                total += rss
                rows.append(
                    (
                        now,
                        process.pid,
                        process.ppid(),
                        process.name(),
                        process.status(),
                        rss,
                        round(cpu.user + cpu.system, 2),
                        round(tree.want_s(process.pid), 2),
                        process.num_threads(),
                    )
                )
        seen = self.samples
        seen.last_rss_bytes, seen.processes = total, len(rows)
        seen.peak_rss_bytes = max(seen.peak_rss_bytes, total)
        seen.least_available_bytes = min(seen.least_available_bytes, psutil.virtual_memory().available)
        if self._file is not None:
            with contextlib.suppress(OSError):
                csv.writer(self._file).writerows(rows)

    def close(self) -> None:
        """Close the file; a full disk is told by the missing rows, not by an error here."""
        if self._file is not None:
            with contextlib.suppress(OSError):
                self._file.close()
