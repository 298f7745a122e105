"""Read journals while they grow."""

from __future__ import annotations

import contextlib
import time
from pathlib import Path

from ..core.journal import decode
from . import files


class Follower:
    """Reads the newest journal as it grows, for the screen."""

    EVERY_S = 0.5

    def __init__(self, folder: Path) -> None:
        self._folder, self._next = folder, 0.0
        self._offsets: dict[Path, int] = {}
        self._open: list[str] = []
        self._position = ""

    def look(self) -> tuple[str, str]:
        """The innermost open event and the line or node at work."""
        if time.monotonic() >= self._next:
            self._next = time.monotonic() + self.EVERY_S
            with contextlib.suppress(OSError):
                for path in self._folder.glob("*.jsonl"):
                    self._read(path)
        return (self._open[-1] if self._open else ""), self._position

    def _read(self, path: Path) -> None:
        with path.open("rb") as file:
            file.seek(self._offsets.get(path, 0))
            data = file.read(1 << 22)
        whole = data.rfind(b"\n") + 1
        self._offsets[path] = self._offsets.get(path, 0) + whole
        for event in decode(data[:whole])[0]:
            name = str(event.get("name", ""))
            if event["ev"] == "begin":
                self._open.append(name)
            elif event["ev"] == "end" and name in self._open:
                del self._open[len(self._open) - 1 - self._open[::-1].index(name) :]
            elif event["ev"] == "progress":
                self._position = str(event.get("where", ""))


def can_dump(run_path: Path) -> frozenset[int]:
    """Processes whose journal says that faulthandler listens to SIGUSR2."""
    found = set()
    for path in (run_path / "journal").glob("*.jsonl"):
        events, _ = decode(files.read_text(path, 1 << 16).encode())
        if any(e["ev"] == "process" and e.get("can_dump") for e in events) and path.stem.isdigit():
            found.add(int(path.stem))
    return frozenset(found)
