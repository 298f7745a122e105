"""The target's stdout and stderr: to a file each, and live to the screen where one is given."""

from __future__ import annotations

import contextlib
import os
import subprocess
import threading
from pathlib import Path
from typing import IO


def pump(
    child: subprocess.Popen[bytes], logs: Path, echo: tuple[IO[bytes], IO[bytes]] | None
) -> list[threading.Thread]:
    threads = []
    for number, (name, pipe) in enumerate((("stdout", child.stdout), ("stderr", child.stderr))):
        live = echo[number] if echo else None
        thread = threading.Thread(
            target=_copy, args=(pipe, logs / f"{name}.txt", live), daemon=True, name=f"pump-{name}"
        )
        thread.start()
        threads.append(thread)
    return threads


def _copy(pipe: IO[bytes], path: Path, live: IO[bytes] | None) -> None:
    """Copy a stream to its file and to the screen; a full disk or a closed screen must not stop the target."""
    file: IO[bytes] | None = None
    with contextlib.suppress(OSError):
        file = path.open("ab", buffering=0)
    while True:
        try:
            data = os.read(pipe.fileno(), 1 << 16)
        except (OSError, ValueError):
            break
        if not data:
            break
        if file is not None:
            try:
                file.write(data)
            except OSError:
                file = None
        if live is not None:
            try:
                live.write(data)
                live.flush()
            except (OSError, ValueError):
                live = None
    if file is not None:
        with contextlib.suppress(OSError):
            file.close()
