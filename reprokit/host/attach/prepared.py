"""Read what processes that called ``reprokit.watch()`` keep in memory for ``reprokit attach``."""

from __future__ import annotations

import time
from collections.abc import Collection
from pathlib import Path

from reprokit.core.records.journal_reader import decode_events, decode_now, split_slots
from reprokit.core.shared.contract import run_names
from reprokit.core.shared.contract.journal_format import (
    MEMORY_BYTES,
    MEMORY_JOURNAL,
    MEMORY_STACKS,
    NOW_BYTES,
)
from reprokit.host.system import files, host_log, process_tree


class PreparedProcesses:
    """Copies the journals of processes into a run directory, where they are read as those of a
    capture.
    """

    def __init__(self, run_path: Path) -> None:
        self._folder = run_path / run_names.JOURNAL_FOLDER
        self._read: dict[int, int] = {}
        """The number of the last slot that was copied, by process."""
        self._changed: dict[int, float] = {}
        self.stack_files: dict[int, Path] = {}
        """The file of each process that writes its stacks on a signal."""

    def copy_news(self, pids: Collection[int]) -> None:
        """Append the new events of these processes to their journals."""
        for pid in pids:
            found = _memory_files(pid)
            if MEMORY_STACKS in found:
                self.stack_files[pid] = found[MEMORY_STACKS]
            if MEMORY_JOURNAL in found:
                with host_log.suppress(OSError, ValueError):
                    self._copy(pid, found[MEMORY_JOURNAL])

    def quiet_s(self, pid: int) -> float:
        """Return the seconds since the last event of this process; 0 if none is known."""
        return max(time.time() - self._changed[pid], 0.0) if pid in self._changed else 0.0

    def _copy(self, pid: int, path: Path) -> None:
        with files.open_memory_file(path) as file:
            data = files.read_at_most(file, MEMORY_BYTES)
        rows = [row for row in split_slots(data) if row[0] > self._read.get(pid, -1)]
        now = decode_now(data[:NOW_BYTES])
        if now.t:
            age_s = max(time.monotonic() - now.t, 0.0)
            self._changed[pid] = max(self._changed.get(pid, 0.0), time.time() - age_s)
        self._folder.mkdir(exist_ok=True)
        files.write_atomically(self._folder / f"{pid}.now", data[:NOW_BYTES])
        if rows:
            with (self._folder / f"{pid}.jsonl").open("ab") as journal:
                journal.write(b"".join(line for _, line in rows))
            self._read[pid] = rows[-1][0]
            for event in decode_events(rows[-1][1])[0]:
                self._changed[pid] = max(self._changed.get(pid, 0.0), event.t)


def writes_stacks(pid: int) -> bool:
    """Return whether this process writes its stacks on a signal."""
    return MEMORY_STACKS in _memory_files(pid)


def _memory_files(pid: int) -> dict[str, Path]:
    """Return the memory files of a process by the beginnings of their names.

    A process that was forked without the knowledge of Python has those of its parent.
    """
    found = {}
    for number, link in process_tree.descriptor_links(pid).items():
        for name in (MEMORY_JOURNAL, MEMORY_STACKS):
            if link.startswith(f"/memfd:{name}{pid} "):
                found[name] = Path(f"/proc/{pid}/fd/{number}")
    return found
