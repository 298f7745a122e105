"""Find the calls of C code in which threads wait for work, from the lines of the program.

The frames of such calls, as that of ``queue.SimpleQueue.get``, are not on the stack, so they look
like the acquisition of a lock.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

from reprokit.core.judge.hangs import waiting
from reprokit.core.records.dumps import Dump, Frame
from reprokit.host.system import files

MAX_SOURCE_BYTES = 4 << 20
_MAY_LOCK = re.compile(
    r"\bwith\b|lock|acquire|\.(get|put|wait|join|enter_context)\(", re.IGNORECASE
)
"""A line that may acquire a lock of Python."""


def find_waiting_calls(dumps: Iterable[Dump]) -> dict[str, str]:
    """Return ``file:line`` of the innermost frames that call something which waits for work, with
    the name of the function.
    """
    found = {}
    for dump in dumps:
        for frame in {thread.frames[0] for thread in dump.threads if thread.frames}:
            if name := waiting.call_that_waits(_source_line(dump.pid, frame)):
                found[f"{frame.file}:{frame.line}"] = name
    return found


def find_native_calls(dumps: Iterable[Dump]) -> tuple[str, ...]:
    """Return ``file:line`` of the innermost frames whose source acquires no lock of Python: a
    thread that waits there is in native code.
    """
    found = set()
    for dump in dumps:
        for frame in {thread.frames[0] for thread in dump.threads if thread.frames}:
            line = _source_line(dump.pid, frame)
            if line.strip() and not _MAY_LOCK.search(line):
                found.add(f"{frame.file}:{frame.line}")
    return tuple(sorted(found))


def _source_line(pid: int, frame: Frame) -> str:
    path = Path(f"/proc/{pid}/cwd", frame.file)  # a relative path is that of the program
    rows = files.read_text(path, MAX_SOURCE_BYTES).splitlines()
    return rows[frame.line - 1] if 0 < frame.line <= len(rows) else ""
