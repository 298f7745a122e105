"""What the processes of a run were doing while it stalled, as the kernel tells it.

Every record here comes from ``/proc`` (see proc(5)) through ``host/watch/proc_snapshot.py`` and is
judged by ``core/judge/hangs/hang_causes.py``. Empty texts and None mean that the kernel did not
say.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeVar

PYTHON = "<python>"
"""Ends the native names of a thread: below them it is in Python code."""

BUSY_SHARE = 0.6
"""A thread or process is busy when it wants more than this of one processor."""


@dataclass(frozen=True)
class ThreadState:
    """One thread over several samples."""

    tid: int
    name: str = ""
    states: str = ""
    """One letter a sample, as in proc(5): R running, S sleeping, D uninterruptible, T stopped."""
    want: float | None = None
    """Share of one processor that it ran or waited for; 0.0 to 1.0."""
    syscall: str = ""
    wchan: str = ""
    waits_for: str = ""
    """What the system call's descriptor leads to: a path, a pipe and who is at its other end, a
    peer.
    """
    waits_for_pid: int = 0
    """The child that a ``wait4`` or ``waitid`` names; 0 for any."""
    native: tuple[str, ...] = ()
    """Native function names above the innermost Python frame, innermost first, then ``PYTHON``;
    empty: not asked.
    """


@dataclass(frozen=True)
class ProcessState:
    """One process over several samples."""

    pid: int
    ppid: int = 0
    command: str = ""
    states: str = ""
    want: float | None = None
    """Share of one processor that all its threads together wanted; above 1.0 with several
    threads.
    """
    rss_bytes: int = 0
    threads: tuple[ThreadState, ...] = ()
    gil_age_s: float | None = None
    """Seconds since its heartbeat thread last got the GIL; None where there is no heartbeat."""
    memory: tuple[tuple[float, int, float], ...] = ()
    """(seconds, resident bytes, processor seconds) over the stall, oldest first."""

    @property
    def is_stopped(self) -> bool:
        """Every sample found it stopped, by a signal or by a debugger."""
        return bool(self.states) and set(self.states) <= {"T", "t"}


@dataclass(frozen=True)
class HeldLock:
    """A file lock that some process holds."""

    path: str
    pid: int
    command: str = ""
    is_holder: bool = True
    """The kernel says so; False: it only has the file open."""


@dataclass(frozen=True)
class GpuUse:
    """One GPU during the stall."""

    index: int
    busy_share: float
    """Share of the time that a kernel was running, 0.0 to 1.0, as NVML tells it."""
    memory_bytes: int = 0


_Record = TypeVar("_Record", ThreadState, ProcessState, HeldLock, GpuUse)


@dataclass(frozen=True)
class Evidence:
    """What was asked of the kernel when the run stalled or its deadline came."""

    processes: tuple[ProcessState, ...] = ()
    locks: tuple[HeldLock, ...] = ()
    gpus: tuple[GpuUse, ...] = ()
    generated_lines: dict[str, str] | None = None
    """``file:line`` of generated code on a stack -> the source text of that line."""
    lock_file: str = ""
    """The file that a lock in Python code waits for, read from that code's local variables."""

    def process(self, pid: int | None) -> ProcessState | None:
        """The process with this pid, if it was seen."""
        return next((p for p in self.processes if p.pid == pid), None)

    def children(self, pid: int) -> list[ProcessState]:
        """Its children, in the order of their pids."""
        return sorted((p for p in self.processes if p.ppid == pid), key=lambda p: p.pid)


def evidence_from_json(data: Any) -> Evidence:
    """Read what ``records.to_json`` wrote; what does not fit is left out."""
    if not isinstance(data, dict):
        return Evidence()
    lines = data.get("generated_lines")
    return Evidence(
        tuple(p for r in _rows(data, "processes") if (p := _process(r)) is not None),
        tuple(x for r in _rows(data, "locks") if (x := _made(HeldLock, r)) is not None),
        tuple(g for r in _rows(data, "gpus") if (g := _made(GpuUse, r)) is not None),
        {str(k): str(v) for k, v in lines.items()} if isinstance(lines, dict) else {},
        str(data.get("lock_file") or ""),
    )


def cut_words(text: str, most: int) -> str:
    """The first whole words: half a secret is one that no rule of redaction knows."""
    if len(text) <= most:
        return text
    return text[: text.rfind(" ", 0, most) if " " in text[:most] else 0] + " ..."


def _process(row: dict[str, Any]) -> ProcessState | None:
    threads = []
    for told in _rows(row, "threads"):
        native = told.get("native")
        names = tuple(map(str, native)) if isinstance(native, list) else ()
        if (thread := _made(ThreadState, {**told, "native": names})) is not None:
            threads.append(thread)
    points = row.get("memory")
    try:
        memory = tuple((float(t), int(r), float(c)) for t, r, c in points or ())
    except (TypeError, ValueError, OverflowError):
        memory = ()
    return _made(ProcessState, {**row, "threads": tuple(threads), "memory": memory})


_KINDS: dict[str, tuple[type, ...]] = {
    "str": (str,),
    "int": (int,),
    "float": (int, float),
    "bool": (bool,),
}


def _made(kind: type[_Record], row: dict[str, Any]) -> _Record | None:
    """The record with the fields of ``row`` that fit; None when one that it needs is missing or
    wrong.
    """
    told = {}
    for name, field in kind.__dataclass_fields__.items():
        wanted = str(field.type).removesuffix(" | None")
        if name in row and (
            isinstance(row[name], _KINDS.get(wanted, (tuple,)))
            or (row[name] is None and "None" in str(field.type))
        ):
            told[name] = row[name]
    try:
        return kind(**told)
    except TypeError:
        return None


def _rows(data: dict[str, Any], name: str) -> list[dict[str, Any]]:
    rows = data.get(name) or []
    return [r for r in rows if isinstance(r, dict)] if isinstance(rows, list) else []
