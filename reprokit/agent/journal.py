"""This process's journal: one line an event, one ``write(2)`` a line, so SIGKILL loses nothing written."""

from __future__ import annotations

import os
import threading
import time
from typing import Any

from ..core.journal import encode

_fd: int | None = None
_dropped = 0


def run_dir() -> str:
    """The run directory, as the host gave it through the environment."""
    return os.environ["REPROKIT_RUN_DIR"]


def _after_fork() -> None:
    global _fd, _dropped
    if _fd is not None:
        os.close(_fd)
    _fd, _dropped = None, 0


os.register_at_fork(after_in_child=_after_fork)


def write(event: str, **values: Any) -> None:
    """Append one event; never raises: a full disk must not change what the target does."""
    global _fd, _dropped
    try:
        if _fd is None:
            path = os.path.join(run_dir(), "journal", f"{os.getpid()}.jsonl")
            _fd = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
        head = {"t": round(time.time(), 6), "pid": os.getpid(), "tid": threading.get_native_id(), "ev": event}
        if _dropped:
            head["dropped"] = _dropped
        os.write(_fd, encode({**head, **values}))
        _dropped = 0
    except (OSError, ValueError, RecursionError):
        _dropped += 1
