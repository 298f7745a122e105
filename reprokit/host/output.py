"""The target's stdout and stderr: to a file each, and live to the screen where one is given."""

from __future__ import annotations

import contextlib
import os
import subprocess
import threading
import time
from pathlib import Path
from typing import IO


class Pump(threading.Thread):
    """Copies one stream until it ends; a full disk or a closed screen must not stop the target."""

    def __init__(self, pipe: IO[bytes], path: Path, live: IO[bytes] | None) -> None:
        super().__init__(daemon=True, name=f"pump-{path.stem}")
        self._pipe, self._path, self._live = pipe, path, live
        self.last_output = 0.0
        """When the last byte came, in seconds since the epoch; 0 before the first."""

    def run(self) -> None:
        """Copy until the end of the stream."""
        file: IO[bytes] | None = None
        with contextlib.suppress(OSError):
            file = self._path.open("ab", buffering=0)
        live = self._live
        with contextlib.suppress(OSError, ValueError):
            while data := os.read(self._pipe.fileno(), 1 << 16):
                self.last_output = time.time()
                file, live = _write(file, data), _write(live, data)
        if file is not None:
            with contextlib.suppress(OSError):
                file.close()


def _write(stream: IO[bytes] | None, data: bytes) -> IO[bytes] | None:
    """Write what can be written; a stream that fails once is given up."""
    if stream is not None:
        try:
            stream.write(data)
            stream.flush()
        except (OSError, ValueError):
            return None
    return stream


def pump(child: subprocess.Popen[bytes], logs: Path, echo: tuple[IO[bytes], IO[bytes]] | None) -> list[Pump]:
    """Start copying both streams of ``child``."""
    assert child.stdout is not None and child.stderr is not None
    streams = (("stdout", child.stdout), ("stderr", child.stderr))
    pumps = [Pump(pipe, logs / f"{name}.txt", echo[n] if echo else None) for n, (name, pipe) in enumerate(streams)]
    for thread in pumps:
        thread.start()
    return pumps
