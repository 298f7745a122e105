"""Read what processes that called ``reprokit.watch()`` keep in memory for ``reprokit attach``.

Such a process may be hostile. Only events of the compiler's phases are taken from it, with its pid.
"""

from __future__ import annotations

import dataclasses
import os
import time
from collections.abc import Collection, Iterable
from pathlib import Path

import psutil

from reprokit.core.records.journal_reader import (
    decode_events,
    decode_now,
    open_events,
    split_slots,
)
from reprokit.core.shared.contract import run_names
from reprokit.core.shared.contract.event_base import Event
from reprokit.core.shared.contract.events import Begin, End, Progress
from reprokit.core.shared.contract.journal_format import (
    MEMORY_BYTES,
    MEMORY_JOURNAL,
    MEMORY_PROGRAM,
    MEMORY_STACKS,
    NOW_BYTES,
    PROGRAM_BYTES,
    PROGRAM_SIGNAL,
    SLOTS,
    encode_event,
)
from reprokit.host.system import files, host_log, process_tree
from reprokit.host.watch import blocked_on

MAX_COPIED_BYTES = 16 << 20
"""Of one process; an observation is short."""


class _Journal:
    """What was read of the memory of one process."""

    def __init__(self, inode: int) -> None:
        self.inode = inode
        self.next = 0
        """The number of the next slot."""
        self.missing = -1
        """A number that had not been written when the memory was read last."""
        self.begun: list[Begin] = []
        """The events of open phases, of all threads."""
        self.changed = 0.0
        """When its last event was written, in seconds since the epoch."""
        self.copied_bytes = 0

    def take(self, data: bytes) -> list[Event]:
        """Return the new events, up to the first one that is being written."""
        rows = [row for row in split_slots(data) if row[0] >= self.next]
        news: list[Event] = []
        for number, line in rows:
            if number > self.next:
                is_lost = rows[-1][0] - self.next >= SLOTS or self.next == self.missing
                if not is_lost:
                    self.missing = self.next
                    break
                news += self._end_all(news)
            self.next = number + 1
            news += [e for e in decode_events(line)[0] if isinstance(e, (Begin, End, Progress))]
        self.begun = _open_in_all_threads([*self.begun, *news])
        self.changed = max([self.changed, *(e.t for e in news)])
        return news

    def _end_all(self, news: list[Event]) -> list[Event]:
        """Return the ends of all open phases: events were lost, and perhaps their ends."""
        opened = _open_in_all_threads([*self.begun, *news])
        return [End(t=e.t, tid=e.tid, name=e.name) for e in reversed(opened)]


def _open_in_all_threads(events: Iterable[Event]) -> list[Begin]:
    by_thread: dict[int, list[Event]] = {}
    for event in events:
        by_thread.setdefault(event.tid, []).append(event)
    return [begun for of_thread in by_thread.values() for begun in open_events(of_thread)]


class PreparedProcesses:
    """Copies the journals of processes into a run directory, where they are read as those of a
    capture.
    """

    def __init__(self, run_path: Path) -> None:
        self._folder = run_path / run_names.JOURNAL_FOLDER
        self._journals: dict[int, _Journal] = {}
        self.stack_files: dict[int, Path] = {}
        """The file of each process that writes its stacks on a signal."""

    def copy_news(self, pids: Collection[int]) -> None:
        """Append the new events of these processes to their journals."""
        for pid in pids:
            found = _memory_files(pid)
            if MEMORY_STACKS in found:
                self.stack_files[pid] = found[MEMORY_STACKS]
            if MEMORY_JOURNAL in found:
                with host_log.suppress(OSError, ValueError, psutil.Error):
                    self._copy(pid, found[MEMORY_JOURNAL])

    def quiet_s(self, pid: int) -> float:
        """Return the seconds since the last event of this process; 0 if none is known."""
        journal = self._journals.get(pid)
        return max(time.time() - journal.changed, 0.0) if journal and journal.changed else 0.0

    def _copy(self, pid: int, path: Path) -> None:
        with files.open_memory_file(path, psutil.Process(pid).uids().effective) as file:
            inode = os.fstat(file.fileno()).st_ino
            data = files.read_at_most(file, MEMORY_BYTES)
        journal = self._journals.get(pid)
        if journal is None or journal.inode != inode:
            journal = self._journals[pid] = _Journal(inode)
        lines = [encode_event(dataclasses.replace(e, pid=pid)) for e in journal.take(data)]
        now = decode_now(data[:NOW_BYTES])
        if now.t:
            age_s = max(time.monotonic() - now.t, 0.0)
            journal.changed = max(journal.changed, time.time() - age_s)
        self._folder.mkdir(exist_ok=True)
        files.write_atomically(self._folder / f"{pid}.now", data[:NOW_BYTES])
        text = b"".join(lines)
        journal.copied_bytes += len(text)
        if text and journal.copied_bytes <= MAX_COPIED_BYTES:
            with (self._folder / f"{pid}.jsonl").open("ab") as written:
                written.write(text)


def writes_stacks(pid: int) -> bool:
    """Return whether this process writes its stacks on a signal."""
    return MEMORY_STACKS in _memory_files(pid)


def takes_programs(pid: int) -> bool:
    """Return whether this process runs a program on a signal."""
    is_prepared = MEMORY_PROGRAM in _memory_files(pid)
    return is_prepared and blocked_on.catches_signal(pid, PROGRAM_SIGNAL)


class ProgramRequest:
    """Asks a process that called ``reprokit.watch()`` to run a program; see ``Injection``.

    A signal wakes its main thread from a sleep, a lock or an event loop, and it runs the program
    before its next bytecode.
    """

    def __init__(self, pid: int) -> None:
        self._pid = pid

    def start(self, program: Path) -> None:
        """Ask for the program. Raises OSError if that is not possible."""
        self._write(os.fsencode(program))
        os.kill(self._pid, PROGRAM_SIGNAL)

    def remove(self) -> None:
        """Remove the name of the program."""
        self.cancel()

    def cancel(self) -> None:
        """Let the process run nothing, if it has not run the program yet."""
        with host_log.suppress(OSError, KeyError):
            self._write(b"")

    def _write(self, text: bytes) -> None:
        path = _memory_files(self._pid)[MEMORY_PROGRAM]
        with path.open("r+b", buffering=0) as file:
            file.write(text.ljust(PROGRAM_BYTES, b"\0"))


def _memory_files(pid: int) -> dict[str, Path]:
    """Return the memory files of a process by the beginnings of their names.

    A process that was forked without the knowledge of Python has those of its parent.
    """
    found = {}
    own_pid = _innermost_pid(pid)
    for number, link in process_tree.descriptor_links(pid).items():
        for name in (MEMORY_JOURNAL, MEMORY_STACKS, MEMORY_PROGRAM):
            if link.startswith(f"/memfd:{name}{own_pid} "):
                found[name] = Path(f"/proc/{pid}/fd/{number}")
    return found


def _innermost_pid(pid: int) -> int:
    """Return the pid that a process sees as its own: in a container it is a different number."""
    for line in blocked_on.read_proc_file(f"/proc/{pid}/status").splitlines():
        if line.startswith("NSpid:"):
            return int(line.split()[-1])
    return pid
