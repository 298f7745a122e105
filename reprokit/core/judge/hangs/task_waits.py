"""What the tasks of asyncio wait for."""

from __future__ import annotations

from collections.abc import Sequence

from reprokit.core.judge.hangs import lock_cycles, wait_kinds
from reprokit.core.judge.stacks import frames as fr
from reprokit.core.records.dumps import Frame
from reprokit.core.records.observation import Observation
from reprokit.core.records.process_state import TaskState

MAX_ROWS = 6
"""Groups of tasks that a text names."""
_WORDS = {
    ("locks.py", "acquire"): "a lock",
    ("locks.py", "__aenter__"): "a lock",
    ("locks.py", "wait"): "an event",
    ("queues.py", "get"): "an item of a queue",
    ("queues.py", "put"): "room in a queue",
    ("queues.py", "join"): "the tasks of a queue to be done",
    ("taskgroups.py", "__aexit__"): "the tasks of its group",
    ("tasks.py", "sleep"): "a time",
    ("tasks.py", "wait_for"): "a future, with a limit",
    ("tasks.py", "wait"): "other tasks",
    ("streams.py", "read"): "data of a connection",
    ("streams.py", "readline"): "data of a connection",
    ("streams.py", "readuntil"): "data of a connection",
    ("streams.py", "readexactly"): "data of a connection",
    ("streams.py", "drain"): "room to write",
    ("subprocess.py", "wait"): "a process to end",
    ("subprocess.py", "communicate"): "a process to end",
}
"""Functions of asyncio, and what a task in them waits for."""
_LATE = frozenset({"a time", "data of a connection", "room to write"})
"""Waits that end without a different task."""


def describe_tasks(seen: Observation, first: int = 0) -> tuple[str, ...]:
    """Return what each task waits for, from number ``first`` of :func:`ordered_tasks` on, those in
    the same line together.
    """
    groups: dict[tuple[str, str], list[str]] = {}
    for task, words in _waits(seen)[first:]:
        groups.setdefault((words, wait_kinds.place_of(task.frames)), []).append(task.name)
    rows = []
    for (words, place), names in list(groups.items())[:MAX_ROWS]:
        verb, rest = ("sleep", "") if words == wait_kinds.A_TIME else ("wait", f" for {words}")
        who = f"task {names[0]} {verb}s" if len(names) == 1 else f"{len(names)} tasks {verb}"
        rows.append(f"{who}{rest} at {place}")
    return tuple(rows)


def ordered_tasks(seen: Observation) -> list[TaskState]:
    """Return the tasks: those of a cycle of locks, those that wait for a lock, those that wait for
    a queue, an event or a future, and then those that wait for data, a time or other tasks.
    """
    return [task for task, _ in _waits(seen)]


def _waits(seen: Observation) -> list[tuple[TaskState, str]]:
    names = {use.tid: use.waits_name for use in seen.evidence.lock_uses if use.waits}
    cycle = {use.tid for use in lock_cycles.find_cycle(seen)}
    rows = []
    for number, task in enumerate(seen.evidence.tasks, 1):
        words = _words_of(task.frames)
        rank = 2 if words in _LATE else 1
        if words == "a lock":
            words, rank = f"the lock {names[-number]}" if -number in names else words, 0
        elif task.waits_for:
            noun = "task" if len(task.waits_for) == 1 else "tasks"
            words, rank = f"the {noun} {', '.join(task.waits_for[:3])}", 3
        rows.append((-number not in cycle, rank, number, task, words))
    return [(task, words) for *_, task, words in sorted(rows, key=lambda row: row[:3])]


def _words_of(frames: Sequence[Frame]) -> str:
    words = ""
    for frame in fr.normalise_frames(frames):
        if not frame.file.startswith("<stdlib>/asyncio/"):
            break
        call = frame.file.removeprefix("<stdlib>/asyncio/"), frame.function.rsplit(".", 1)[-1]
        words = _WORDS.get(call, words)
        if words == "a lock" and "Semaphore" in frame.function:
            words = "a semaphore"
    return words or "a future"
