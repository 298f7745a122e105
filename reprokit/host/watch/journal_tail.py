"""Read journals while they grow: what is new, who is inside what, whose GIL is free."""

from __future__ import annotations

import contextlib
import os
import time
from pathlib import Path

from reprokit.core.judge.stacks import main_process
from reprokit.core.records.journal_reader import decode_events, decode_now, open_events
from reprokit.core.shared.contract.events import (
    Begin,
    End,
    Event,
    Finished,
    Graph,
    GraphDone,
    Process,
    Recompile,
    Torch,
)
from reprokit.core.shared.contract.journal_format import NOW_BYTES, Now
from reprokit.host.system import files

_NEWS = (Begin, End, Graph, GraphDone, Recompile, Torch, Process, Finished)
"""Events that show that something advanced. Lines and nodes are told in ``<pid>.now``."""
MOST_READ_BYTES = 1 << 22
MOST_KEPT = 2000


class JournalFollower:
    """Keeps up with the journals of one run. Times are the reader's own: no clock of the target
    matters.
    """

    def __init__(self, folder: Path, line_repeats: int) -> None:
        self._folder, self.line_repeats = folder, line_repeats
        self._offsets: dict[Path, int] = {}
        self._said: dict[Path, bytes] = {}
        self._beats: dict[int, tuple[bytes, float]] = {}
        self._kept: dict[int, list[Event]] = {}
        self.now: dict[int, Now] = {}
        self.can_dump: set[int] = set()
        self.has_begun = False
        """Some process has imported the compiler, or our agent has called the model: from here on
        silence tells.
        """

    def look(self) -> list[str]:
        """What has advanced since the last look, in words; empty when nothing has."""
        news: list[str] = []
        with contextlib.suppress(OSError):
            for path in sorted(self._folder.iterdir()):
                if not (path.stem.isascii() and path.stem.isdigit()):
                    continue
                with contextlib.suppress(OSError, ValueError):
                    if path.suffix == ".jsonl":
                        news += self._read(path)
                    elif path.suffix == ".now":
                        news += self._read_now(path)
                    elif path.suffix == ".beat":
                        news += self._read_beat(path)
        return news

    def teller(self, root_pid: int) -> main_process.MainProcess:
        """Whose story is told as things stand: of the living, where there are any."""
        living = {
            pid: events for pid, events in self._kept.items() if os.path.exists(f"/proc/{pid}")
        }
        return main_process.find_main_process(living or self._kept, root_pid)

    def tell(self, pid: int) -> main_process.MainProcess:
        """What one process has open."""
        return main_process.describe_process(self._kept, pid)

    def gil_ages(self) -> dict[int, float]:
        """Seconds since the heartbeat of each process was last seen to change."""
        now = time.monotonic()
        return {pid: round(now - changed, 2) for pid, (_, changed) in self._beats.items()}

    def _read(self, path: Path) -> list[str]:
        if path.lstat().st_size == self._offsets.get(path, 0):
            return []
        with files.open_plain(path) as file:
            file.seek(self._offsets.get(path, 0))
            data = file.read(MOST_READ_BYTES)
        whole = data.rfind(b"\n") + 1
        if not whole and len(data) == MOST_READ_BYTES:
            whole = len(data)  # a line without end is nobody's news
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
        if len(kept) > MOST_KEPT:  # days of training: what is open now is all that counts
            kept[:] = [*open_events(kept[: -MOST_KEPT // 2]), *kept[-MOST_KEPT // 2 :]]
        return news

    def _read_now(self, path: Path) -> list[str]:
        with files.open_plain(path) as file:
            data = file.read(NOW_BYTES)
        if self._said.get(path) == data:
            return []
        self._said[path] = data
        now = self.now[int(path.stem)] = decode_now(data)
        if now.repeats > self.line_repeats:
            return []  # another iteration of a loop that is unrolled is no progress
        return [f"{now.unit} {now.where}"]

    def _read_beat(self, path: Path) -> list[str]:
        with files.open_plain(path) as file:
            data = file.read(64)
        pid = int(path.stem)
        beats, _, calls = data.partition(b" ")
        if pid not in self._beats or self._beats[pid][0] != beats:
            self._beats[pid] = beats, time.monotonic()
        before = self._said.get(path)
        self._said[path] = calls
        return ["a call of a compiled graph"] if before is not None and before != calls else []
