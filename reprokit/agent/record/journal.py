"""This process's journal: one line an event, one ``write(2)`` a line, so SIGKILL loses nothing
written.
"""

from __future__ import annotations

import _thread
import contextlib
import dataclasses
import os
import threading
import time
from typing import Any

from ...core.shared.contract import events, run_names
from ...core.shared.contract.journal_format import Now, encode_event, encode_now

_fd: int | None = None
_now_fd: int | None = None
_beat_fd: int | None = None
_dropped = 0

BEAT_EVERY_S = 0.25
calls = 0
"""How many calls of compiled graphs have been begun; the heartbeat tells it."""


RUN_DIR = os.environ.get(run_names.RUN_DIR_VARIABLE, "")
"""The run directory, read once: the target may clear its environment at any time."""


def _after_fork() -> None:
    global _fd, _now_fd, _beat_fd, _dropped
    for fd in (_fd, _now_fd, _beat_fd):
        if fd is not None:
            os.close(fd)
    _fd, _now_fd, _beat_fd, _dropped = None, None, None, 0


os.register_at_fork(after_in_child=_after_fork)


def write(event: events.Event) -> None:
    """Append one event; never raises: a full disk must not change what the target does."""
    global _fd, _dropped
    try:
        if _fd is None:
            _fd = _open("jsonl", os.O_APPEND)
        stamp: dict[str, Any] = {
            "t": round(time.time(), 6),
            "pid": os.getpid(),
            "tid": threading.get_native_id(),
        }
        os.write(_fd, encode_event(dataclasses.replace(event, dropped=_dropped, **stamp)))
        _dropped = 0
    except Exception:  # whatever it is, the target goes on
        _dropped += 1


def now(unit: str, where: str, repeats: int = 0, repeated: str = "") -> None:
    """Overwrite the record of what this process is at; a few microseconds, so every line and node
    can afford it.

    ``pwrite`` and no mapping: a full disk must give an error here, not a SIGBUS in the target.
    """
    global _now_fd
    try:
        if _now_fd is None:
            _now_fd = _open("now", 0)
        os.pwrite(_now_fd, encode_now(Now(time.monotonic(), unit, where, repeats, repeated)), 0)
    except Exception:  # as above
        return


def start_heartbeat() -> None:
    """Count up four times a second for as long as Python threads of this process get the GIL.

    A counter that stands still, seen from outside, means that the GIL is held or the process
    stopped. Only a process that compiles has this thread: programs that fork before are not made
    multi-threaded by us.
    """
    global _beat_fd
    if _beat_fd is not None:
        return
    try:
        _beat_fd = _open("beat", 0)
        _thread.start_new_thread(
            _beat, (_beat_fd,)
        )  # one that the program's list of threads does not show
    except Exception as problem:  # a full disk, or no more threads: the host then asks other tools
        write(events.AgentProblem(hook="start_heartbeat", problem=repr(problem)))


def _beat(fd: int) -> None:
    count = 0
    while _beat_fd == fd:
        count += 1
        with contextlib.suppress(OSError):  # a full disk; the next beat may fit
            os.pwrite(fd, b"%020d %020d" % (count, calls), 0)
        time.sleep(BEAT_EVERY_S)


def _open(suffix: str, flags: int) -> int:
    path = os.path.join(RUN_DIR, run_names.JOURNAL_FOLDER, f"{os.getpid()}.{suffix}")
    return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC | flags, 0o600)
