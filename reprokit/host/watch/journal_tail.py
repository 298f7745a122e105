"""Follow the journals of a running target: new events, open events, heartbeats."""

from __future__ import annotations

import time
from pathlib import Path

from reprokit.core.judge.stacks import main_process
from reprokit.core.records.journal_reader import decode_events, decode_now, open_events
from reprokit.core.shared.contract.event_base import Event
from reprokit.core.shared.contract.events import (
    Begin,
    End,
    Finished,
    Graph,
    GraphDone,
    Process,
    Recompile,
    Torch,
)
from reprokit.core.shared.contract.journal_format import NOW_BYTES, Now
from reprokit.host.system import files, host_log, process_tree

_NEWS = (Begin, End, Graph, GraphDone, Recompile, Torch, Process, Finished)
"""Events that show progress. Progress by lines and nodes is in ``<pid>.now``."""
MAX_READ_BYTES = 1 << 22
MAX_EVENTS_KEPT = 2000


class JournalFollower:
    """Follows the journals of one run. Times are from this process, not from the clock of the
    target.
    """

    def __init__(self, folder: Path, line_repeats: int) -> None:
        self._folder, self.line_repeats = folder, line_repeats
        self._offsets: dict[Path, int] = {}
        self._last_data: dict[Path, bytes] = {}
        self._beats: dict[int, tuple[bytes, float]] = {}
        self._kept: dict[int, list[Event]] = {}
        self.now: dict[int, Now] = {}
        self.can_dump: set[int] = set()
        self.has_begun = False
        """A process has imported the compiler, or the agent has called the model. From then on, no
        progress is a stall.
        """

    def read_news(self) -> list[str]:
        """Describe the progress since the last call; empty if there was none."""
        news: list[str] = []
        with host_log.suppress(OSError):
            for path in sorted(self._folder.iterdir()):
                if not (path.stem.isascii() and path.stem.isdigit()):
                    continue
                with host_log.suppress(OSError, ValueError):
                    if path.suffix == ".jsonl":
                        news += self._read_journal(path)
                    elif path.suffix == ".now":
                        news += self._read_now(path)
                    elif path.suffix == ".beat":
                        news += self._read_beat(path)
        return news

    def find_main_process(self, root_pid: int) -> main_process.MainProcess:
        """Return the main process: one of the running processes if there are any."""
        return main_process.find_main_process(self.living or self._kept, root_pid)

    @property
    def living(self) -> dict[int, list[Event]]:
        """The events of the running processes."""
        return {p: events for p, events in self._kept.items() if not process_tree.has_ended(p)}

    def describe_process(self, pid: int) -> main_process.MainProcess:
        """Return the open events of one process."""
        return main_process.describe_process(self._kept, pid)

    def gil_ages(self) -> dict[int, float]:
        """Return the seconds since the last change of each process's heartbeat."""
        now = time.monotonic()
        return {pid: round(now - changed, 2) for pid, (_, changed) in self._beats.items()}

    def _read_journal(self, path: Path) -> list[str]:
        if path.lstat().st_size == self._offsets.get(path, 0):
            return []
        with files.open_regular_file(path) as file:
            file.seek(self._offsets.get(path, 0))
            data = file.read(MAX_READ_BYTES)
        whole = data.rfind(b"\n") + 1
        if not whole and len(data) == MAX_READ_BYTES:
            whole = len(data)  # skip a line that is too long
        self._offsets[path] = self._offsets.get(path, 0) + whole
        pid, news = int(path.stem), []
        kept = self._kept.setdefault(pid, [])
        for event in decode_events(data[:whole])[0]:
            if isinstance(event, _NEWS):
                kept.append(event)
                which = getattr(event, "name", "") or getattr(event, "n", "") or ""
                news.append(f"{event.ev} {which}".strip())
            is_call = isinstance(event, Begin) and event.name.startswith(
                ("stage:call", "stage:eager")
            )
            self.has_begun |= is_call or isinstance(event, Torch)
            if isinstance(event, Process) and event.can_dump is not None:
                (self.can_dump.add if event.can_dump else self.can_dump.discard)(pid)
        if len(kept) > MAX_EVENTS_KEPT:  # a long training: of the old events, keep the open ones
            kept[:] = [*open_events(kept[: -MAX_EVENTS_KEPT // 2]), *kept[-MAX_EVENTS_KEPT // 2 :]]
        return news

    def _read_now(self, path: Path) -> list[str]:
        with files.open_regular_file(path) as file:
            data = file.read(NOW_BYTES)
        if self._last_data.get(path) == data:
            return []
        self._last_data[path] = data
        now = self.now[int(path.stem)] = decode_now(data)
        if now.repeats > self.line_repeats:
            return []  # a further iteration of an unrolled loop is not progress
        return [f"{now.unit} {now.where}"]

    def _read_beat(self, path: Path) -> list[str]:
        with files.open_regular_file(path) as file:
            data = file.read(64)
        pid = int(path.stem)
        beats, _, calls = data.partition(b" ")
        if pid not in self._beats or self._beats[pid][0] != beats:
            self._beats[pid] = beats, time.monotonic()
        before = self._last_data.get(path)
        self._last_data[path] = calls
        return ["a call of a compiled graph"] if before is not None and before != calls else []
