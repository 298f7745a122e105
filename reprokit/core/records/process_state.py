"""What the processes of a run did while it stalled, as the kernel reports it.

``host/watch/proc_snapshot.py`` fills every record from ``/proc`` (see proc(5)), and
``core/judge/hangs/hang_causes.py`` judges them. An empty text or None means that the kernel did not
report the value.
"""

from __future__ import annotations

import signal
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

from reprokit.core.records.dumps import Frame

PYTHON_MARK = "<python>"
"""The last native name of a thread: the frames below are Python code."""

BUSY_SHARE = 0.6
"""A thread or process is busy if it wants more than this share of one CPU."""
UNMET_STATUS = 77
"""Exit status of a repro on a machine that cannot show the failure; automake's status of a test
that is skipped.
"""
UNMET_WORDS = "cannot show the failure: it needs "
"""The beginning of the line that such a repro writes to its standard error."""


@dataclass(frozen=True)
class ThreadState:
    """One thread over several samples."""

    tid: int
    name: str = ""
    states: str = ""
    """One letter per sample, as in proc(5): R running, S sleeping, D uninterruptible, T stopped."""
    want: float | None = None
    """Share of one CPU that it used or waited for; 0.0 to 1.0."""
    syscall: str = ""
    has_limit: bool = False
    """Whether the system call returns after a time by itself."""
    wchan: str = ""
    waits_for: str = ""
    """The object of the system call's descriptor: a path, a pipe and the process at its other end,
    or a peer.
    """
    waits_for_pid: int = 0
    """The child that a ``wait4`` or ``waitid`` names, or the holder of a file lock; 0 for any."""
    native: tuple[str, ...] = ()
    """Native function names above the innermost Python frame, innermost first, then
    ``PYTHON_MARK``; empty if they were not read.
    """


@dataclass(frozen=True)
class ProcessState:
    """One process over several samples."""

    pid: int
    ppid: int = 0
    command: str = ""
    states: str = ""
    want: float | None = None
    """Share of one CPU that all its threads together wanted; above 1.0 with several threads."""
    rss_bytes: int = 0
    threads: tuple[ThreadState, ...] = ()
    gil_age_s: float | None = None
    """Seconds since its heartbeat thread last got the GIL; None if it has no heartbeat thread."""
    memory: tuple[tuple[float, int, float], ...] = ()
    """(seconds, resident bytes, CPU seconds) over the stall, oldest first."""
    handles_signals: bool = False
    """It has a handler for a signal other than SIGINT, those of a crash, and ours."""
    rank: str = ""
    """The variable RANK of its environment; empty if it has none."""
    world_size: str = ""
    """The variable WORLD_SIZE of its environment; empty if it has none."""

    @property
    def is_stopped(self) -> bool:
        """Whether a signal or a debugger stopped it in every sample."""
        return bool(self.states) and set(self.states) <= {"T", "t"}


@dataclass(frozen=True)
class HeldLock:
    """A file lock that a process holds."""

    path: str
    pid: int
    command: str = ""
    is_holder: bool = True
    """The kernel names the process as the holder; False if the process only has the file open."""


@dataclass(frozen=True)
class GpuUse:
    """One GPU during the stall."""

    index: int
    busy_share: float | None
    """Share of the time in which a kernel ran, 0.0 to 1.0; None where the driver does not report
    it, as of a GPU in MIG mode.
    """
    memory_bytes: int = 0


@dataclass(frozen=True)
class WaitingRequest:
    """A connection to a TCP port of the program whose last data wait."""

    port: int
    pid: int
    """The process that has the connection open; 0 if the program has not accepted it."""
    seconds: float
    """Since the data arrived."""
    state: str
    """``unread``, or ``unanswered`` if the program has read them."""


@dataclass(frozen=True)
class LockName:
    """A lock, as the source of the program names it."""

    name: str
    """The expression: ``self._lock``."""
    identity: str
    """Equal for two expressions that may be the same lock."""


@dataclass(frozen=True)
class LockUse:
    """The locks that a thread holds and waits for, read from the source at its frames."""

    pid: int
    tid: int
    thread: str
    place: str
    """``FILE:LINE in FUNCTION`` of its innermost line."""
    waits: str = ""
    """The identity of the lock that the line acquires; empty if it acquires none."""
    waits_name: str = ""
    holds: tuple[LockName, ...] = ()
    is_shared: bool = False
    """The lock that it waits for is of multiprocessing: a different process may hold it."""


@dataclass(frozen=True)
class TaskState:
    """A task of asyncio that has not ended."""

    pid: int
    tid: int
    """The thread of its event loop."""
    name: str
    frames: tuple[Frame, ...] = ()
    """Its coroutines, the innermost first."""
    locks: tuple[tuple[str, int, str, int], ...] = ()
    """File and line of a frame, an expression for a lock there, and a number that is equal for the
    same lock.
    """
    waits_for: tuple[str, ...] = ()
    """The names of the tasks that it waits for."""


_Record = TypeVar("_Record", ThreadState, ProcessState, HeldLock, GpuUse, WaitingRequest)


@dataclass(frozen=True)
class Evidence:
    """What the kernel reported when the run stalled or reached its deadline."""

    processes: tuple[ProcessState, ...] = ()
    locks: tuple[HeldLock, ...] = ()
    gpus: tuple[GpuUse, ...] = ()
    requests: tuple[WaitingRequest, ...] = ()
    """Of a process that was attached to; the oldest is first."""
    own_ports: tuple[int, ...] = ()
    """TCP ports of the program to which it is connected itself."""
    generated_lines: dict[str, str] | None = None
    """``file:line`` of generated code on a stack -> the source text of that line."""
    lock_file: str = ""
    """The file that a lock in Python code waits for, read from the local variables of that code."""
    waiting_calls: dict[str, str] = field(default_factory=dict)
    """``file:line`` of a frame -> the function of C code that it calls and that waits for work."""
    native_calls: tuple[str, ...] = ()
    """``file:line`` of innermost frames whose source acquires no lock: a wait is in native code."""
    tasks: tuple[TaskState, ...] = ()
    """Of a process that was attached to, if it could be asked."""
    lock_uses: tuple[LockUse, ...] = ()
    """Of threads that do not move."""

    def process_of_pid(self, pid: int | None) -> ProcessState | None:
        """Return the process with this pid, if it was seen."""
        return next((p for p in self.processes if p.pid == pid), None)

    def children_of(self, pid: int) -> list[ProcessState]:
        """Return the children of a process, in the order of their pids."""
        return sorted((p for p in self.processes if p.ppid == pid), key=lambda p: p.pid)


def evidence_from_json(data: Any) -> Evidence:
    """Read evidence that ``to_json`` wrote; parts of a wrong type are ignored."""
    if not isinstance(data, dict):
        return Evidence()
    lines, calls = data.get("generated_lines"), data.get("waiting_calls")
    ports = data.get("own_ports")
    return Evidence(
        tuple(p for r in _rows(data, "processes") if (p := _process(r)) is not None),
        tuple(x for r in _rows(data, "locks") if (x := _record(HeldLock, r)) is not None),
        tuple(g for r in _rows(data, "gpus") if (g := _record(GpuUse, r)) is not None),
        tuple(w for r in _rows(data, "requests") if (w := _record(WaitingRequest, r)) is not None),
        tuple(n for n in ports if isinstance(n, int)) if isinstance(ports, list) else (),
        {str(k): str(v) for k, v in lines.items()} if isinstance(lines, dict) else {},
        str(data.get("lock_file") or ""),
        {str(k): str(v) for k, v in calls.items()} if isinstance(calls, dict) else {},
        tuple(map(str, native)) if isinstance(native := data.get("native_calls"), list) else (),
        read_tasks(_rows(data, "tasks")),
        tuple(_lock_use(row) for row in _rows(data, "lock_uses")),
    )


def read_tasks(rows: Iterable[Mapping[str, Any]]) -> tuple[TaskState, ...]:
    """Read tasks that the agent or ``to_json`` wrote; parts of a wrong type are ignored."""
    found = []
    for row in rows:
        frames = row.get("frames")
        names = row.get("waits_for")
        pid, tid = (n if isinstance(n := row.get(name), int) else 0 for name in ("pid", "tid"))
        found.append(
            TaskState(
                pid,
                tid,
                str(row.get("name") or ""),
                tuple(map(_frame, frames)) if isinstance(frames, list) else (),
                tuple(_locks_of_task(row.get("locks"))),
                tuple(map(str, names)) if isinstance(names, list) else (),
            )
        )
    return tuple(found)


def _locks_of_task(rows: Any) -> Iterator[tuple[str, int, str, int]]:
    for row in rows if isinstance(rows, list) else ():
        if isinstance(row, (list, tuple)) and [type(v) for v in row] == [str, int, str, int]:
            yield row[0], row[1], row[2], row[3]


def _frame(row: Any) -> Frame:
    if isinstance(row, dict):
        row = (row.get("file"), row.get("line"), row.get("function"))
    file, line, function = row if isinstance(row, (list, tuple)) and len(row) == 3 else ("", 0, "")
    return Frame(str(file), str(function), line if isinstance(line, int) else 0)


def _lock_use(row: Mapping[str, Any]) -> LockUse:
    held = (LockName(str(r.get("name")), str(r.get("identity"))) for r in _rows(row, "holds"))
    pid, tid = (value if isinstance(value := row.get(name), int) else 0 for name in ("pid", "tid"))
    thread, place, waits, waits_name = (
        str(row.get(name) or "") for name in ("thread", "place", "waits", "waits_name")
    )
    is_shared = row.get("is_shared") is True
    return LockUse(pid, tid, thread, place, waits, waits_name, tuple(held), is_shared)


def cut_words(text: str, max_chars: int) -> str:
    """Return the first whole words of ``text``: redaction does not recognise half of a secret."""
    if len(text) <= max_chars:
        return text
    return text[: text.rfind(" ", 0, max_chars) if " " in text[:max_chars] else 0] + " ..."


def _process(row: Mapping[str, Any]) -> ProcessState | None:
    threads = []
    for fields in _rows(row, "threads"):
        native = fields.get("native")
        names = tuple(map(str, native)) if isinstance(native, list) else ()
        if (thread := _record(ThreadState, {**fields, "native": names})) is not None:
            threads.append(thread)
    points = row.get("memory")
    try:
        memory = tuple((float(t), int(r), float(c)) for t, r, c in points or ())
    except (TypeError, ValueError, OverflowError):
        memory = ()
    return _record(ProcessState, {**row, "threads": tuple(threads), "memory": memory})


_KINDS: dict[str, tuple[type, ...]] = {
    "str": (str,),
    "int": (int,),
    "float": (int, float),
    "bool": (bool,),
}


def _record(kind: type[_Record], row: Mapping[str, Any]) -> _Record | None:
    """Return the record with the fields of ``row`` that have the right type; None if a required
    field has not.
    """
    kept = {}
    for name, of_class in kind.__dataclass_fields__.items():
        wanted = str(of_class.type).removesuffix(" | None")
        if name in row and (
            isinstance(row[name], _KINDS.get(wanted, (tuple,)))
            or (row[name] is None and "None" in str(of_class.type))
        ):
            kept[name] = row[name]
    try:
        return kind(**kept)
    except TypeError:
        return None


def _rows(data: Mapping[str, Any], name: str) -> list[dict[str, Any]]:
    rows = data.get(name) or []
    return [r for r in rows if isinstance(r, dict)] if isinstance(rows, list) else []


def describe_exit(status: int | None) -> str:
    """Return how a process ended, such as ``killed by SIGSEGV`` or ``exit status 1``.

    A negative status is a signal; None is a process that did not end by itself.
    """
    if status is None:
        return "did not end by itself"
    if status >= 0:
        return f"exit status {status}"
    try:
        return f"killed by {signal.Signals(-status).name}"
    except ValueError:
        return f"killed by signal {-status}"


def unmet_need(exit_status: int | None, stderr: str) -> str:
    """Return what the machine lacks, of a repro that ended because of it; empty otherwise."""
    if exit_status != UNMET_STATUS:
        return ""
    lines = [row for row in stderr.splitlines() if row.startswith(UNMET_WORDS)]
    return lines[-1].removeprefix(UNMET_WORDS).strip() if lines else ""
