"""Write the journal of this process, to files of the run directory or into memory.

Each event is one line, written with one ``write(2)``, so that SIGKILL loses no event that was
written. A program that only prepares for ``reprokit attach`` has no run directory and writes its
last events into memory.
"""

from __future__ import annotations

import _thread
import contextlib
import dataclasses
import errno
import os
import threading
import time

from ...core.shared.contract import events, run_names
from ...core.shared.contract.event_base import Event
from ...core.shared.contract.journal_format import Now, encode_event, encode_now
from .memory_journal import MemoryJournal

_fd: int | None = None
_now_fd: int | None = None
_beat_fd: int | None = None
_memory: MemoryJournal | None = None
_dropped = 0
_is_stopped = False

HEARTBEAT_INTERVAL_S = 0.25
calls = 0
"""How many calls of compiled graphs have begun; the heartbeat includes it."""


RUN_DIR = os.environ.get(run_names.RUN_DIR_VARIABLE, "")
"""The run directory. It is read at import, because the target may change its environment later."""


def _after_fork() -> None:
    global _fd, _now_fd, _beat_fd, _dropped, _memory
    for fd in (_fd, _now_fd, _beat_fd):
        if fd is not None:
            os.close(fd)
    _fd, _now_fd, _beat_fd, _dropped = None, None, None, 0
    if _memory is not None:
        _memory.close()
        _memory = None  # without memory of its own, a child writes no journal
        with contextlib.suppress(OSError):
            write_to_memory()


os.register_at_fork(after_in_child=_after_fork)


def write_to_memory() -> None:
    """Keep the last events of this process in memory. Raises OSError if that is not possible."""
    global _memory
    _memory = MemoryJournal()


def write_event(event: Event) -> None:
    """Append one event. It never raises: a full disk must not change what the target does."""
    global _fd, _dropped
    if _is_stopped:
        return
    try:
        stamped = dataclasses.replace(
            event,
            t=round(time.time(), 6),
            pid=os.getpid(),
            tid=threading.get_native_id(),
            dropped=_dropped,
        )
        line = encode_event(stamped)
        if _memory is not None:
            _memory.append(line)
        else:
            if _fd is None:
                _fd = _open("jsonl", os.O_APPEND)
            os.write(_fd, line)
        _dropped = 0
    except Exception:  # the target must go on
        _dropped += 1


def stop() -> None:
    """Write nothing in the rest of this process."""
    global _is_stopped
    close_journal()
    _is_stopped = True


def close_journal() -> None:
    """Close the file of the journal; the next event opens it again."""
    global _fd
    if _fd is not None:
        os.close(_fd)
    _fd = None


def write_now(unit: str, where: str, repeats: int = 0, repeated: str = "") -> None:
    """Overwrite the record of what this process is doing now.

    It takes a few microseconds, so it can run for each traced line and each lowered node. It uses
    ``pwrite`` and not a memory mapping: on a full disk, a mapping would end the target with SIGBUS.
    """
    global _now_fd
    if _is_stopped:
        return
    try:
        record = encode_now(Now(time.monotonic(), unit, where, repeats, repeated))
        if _memory is not None:
            _memory.put_now(record)
            return
        if _now_fd is None:
            _now_fd = _open("now", 0)
        os.pwrite(_now_fd, record, 0)
    except Exception:  # the target must go on
        return


def start_heartbeat() -> None:
    """Start a thread that increments a counter in a file four times a second.

    The host reads the counter: if it does not change, a thread holds the GIL or the process is
    stopped. Only a process that compiles has this thread, so that a program that forks before it
    compiles does not become multi-threaded. A program that only prepares for ``reprokit attach``
    never has it.
    """
    global _beat_fd
    if _beat_fd is not None or _memory is not None:
        return
    try:
        _beat_fd = _open("beat", 0)
        # threading.enumerate() of the program does not list a thread of _thread
        _thread.start_new_thread(_beat, (_beat_fd,))
    except Exception as problem:  # a full disk or a limit of threads: the host has other evidence
        write_event(events.AgentProblem(hook="start_heartbeat", problem=repr(problem)))


def _beat(fd: int) -> None:
    count = 0
    while _beat_fd == fd:
        count += 1
        with contextlib.suppress(OSError):  # the disk may be full
            os.pwrite(fd, b"%020d %020d" % (count, calls), 0)
        time.sleep(HEARTBEAT_INTERVAL_S)


def _open(suffix: str, flags: int) -> int:
    if not RUN_DIR:
        raise OSError(errno.ENOENT, "there is no run directory")
    path = os.path.join(RUN_DIR, run_names.JOURNAL_FOLDER, f"{os.getpid()}.{suffix}")
    return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC | flags, 0o600)
