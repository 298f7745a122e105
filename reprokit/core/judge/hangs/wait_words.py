"""Say in words who waits for whom, and why threads cannot go on."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from reprokit.core.judge.hangs import task_waits, wait_graph, wait_kinds
from reprokit.core.judge.hangs.wait_graph import Wait
from reprokit.core.judge.stacks.location import plural
from reprokit.core.records.observation import Observation

MAX_ROWS = 6
"""Groups of threads that a text names."""
MAX_CALLERS = 2
_BLOCKED_LOOP = "it is the thread of an event loop, so no task goes on meanwhile"
_ENDS_IN_NUMBER = re.compile(r"[_-]\d+$")


def describe_stuck(stuck: Sequence[Wait]) -> tuple[str, ...]:
    """Return one clause for each group of threads that wait in the same line for the same."""
    groups: dict[tuple[int, str, str], list[Wait]] = {}
    for wait in stuck:
        groups.setdefault((wait.pid, wait.kind.words, wait.place), []).append(wait)
    several = len({wait.pid for wait in stuck}) > 1
    rows = []
    for (pid, words, place), waits in groups.items():
        of_process = f" of process {pid}" if several else ""
        first = _short(waits[0].thread)
        verb = "sleeps" if words == wait_kinds.A_TIME else "waits"
        names = f"thread {first}{of_process} {verb}"
        if several and waits[0].tid == pid:
            title = f" ({waits[0].process})" if waits[0].process else ""
            names = f"process {pid}{title} {verb}"
        if len(waits) > 1:
            name = _ENDS_IN_NUMBER.sub("", first)
            named = "" if name == "Thread" else f" {name}"
            names = f"{plural(len(waits), 'thread')}{named}{of_process} {verb.removesuffix('s')}"
        inside = f" in {waits[0].inside}" if waits[0].inside else ""
        is_plain = words == wait_kinds.A_TIME or (inside and words == wait_kinds.NATIVE)
        for_words = "" if is_plain else f" for {words or 'something'}"
        rows.append(f"{names}{inside}{for_words} at {place}")
    more = len(rows) - MAX_ROWS
    return (*rows[:MAX_ROWS], *([f"and {plural(more, 'more wait')}"] if more > 0 else []))


@dataclass(frozen=True)
class Reason:
    """Why threads cannot go on, as clauses."""

    words: str
    advice: str = ""
    """What to change in the program."""


def describe_callers(stuck: Sequence[Wait]) -> tuple[str, ...]:
    """Return a clause with the user's lines that led to the first wait; none if it is one line."""
    callers = stuck[0].callers[:MAX_CALLERS] if stuck else ()
    return (f"called at {' and at '.join(callers)}",) if callers else ()


def why_stuck(stuck: Sequence[Wait], seen: Observation) -> Reason:
    """Return why none of the threads can go on."""
    first = stuck[0]
    mates = [w for w in wait_graph.waits_of(seen) if w.pid == first.pid and w.tid != first.tid]
    if first.kind.name == "future" and wait_kinds.POOL in first.kind.below:
        pool = _ENDS_IN_NUMBER.sub("", _short(first.thread))
        workers = [w for w in mates if _ENDS_IN_NUMBER.sub("", _short(w.thread)) == pool]
        has_loop = any(wait_kinds.LOOP in w.kind.below for w in mates)
        if all(w.kind.name == "future" for w in workers) and not has_loop:
            count = len(workers) + 1
            return Reason(
                f"all {count} workers of a pool wait for jobs that a worker of the pool must run"
                if workers
                else "the only worker of a pool waits for a job that it must run itself",
                "use a different pool for the inner jobs, or do not wait for them inside a job",
            )
    if first.kind.is_in_thread and wait_kinds.LOOP in first.kind.below:
        return Reason(
            "the thread of the event loop waits, so no task can end its wait",
            "await it (asyncio.wrap_future, asyncio.to_thread) instead of blocking the thread",
        )
    if first.kind.name == "loop":
        shown = "" if seen.evidence.tasks else " (--tasks shows them)"
        return Reason(
            f"no task of the event loop waits for a socket or a time, so none can go on{shown}"
        )
    if first.kind.name == "pool":
        return Reason(
            "no worker of the pool has a job: the job or its result was lost, as when a worker was"
            " killed",
            "use concurrent.futures.ProcessPoolExecutor, which raises BrokenProcessPool then",
        )
    if first.kind.name == "server":
        return Reason("the thread waits for the end of a loop that it runs itself")
    if first.kind.name == "barrier":
        return Reason("the other parties of the barrier have ended, or cannot go on either")
    if first.holds_it:
        return Reason(
            "the thread holds this lock itself",
            "use threading.RLock, or do not take the lock in a signal handler or in __del__",
        )
    full = [w for w in stuck if w.kind.name == "full pipe"]
    if full and not any("queue" in w.kind.words for w in full):
        return Reason(
            "a process writes more into a pipe than it holds, and nobody reads it",
            "read the pipe while the process runs, such as with communicate()",
        )
    if full:
        return Reason(
            "a process sends what is left in a queue before it ends, and nobody reads it",
            "get the items of the queue before the join",
        )
    if first.kind.name == "process lock":
        return Reason("no process is left that would release the lock")
    if first.kind.name == "full process queue":
        return Reason(
            "nobody gets the items of the queue: each process that could waits too",
            "get its items while the other processes run, or give it no limit",
        )
    if first.kind.name == "file lock" and first.peers == {first.pid}:
        return Reason(
            "the process holds this file lock itself, through a different descriptor",
            "release it first, or take it once",
        )
    idle = ("queue", "pipe")
    others = [w for w in mates if not (w.is_service and w.kind.name in idle)]
    if others or first.peers:
        return Reason("they wait for each other")
    if first.kind.name != "lock":
        return Reason("no other thread of the process is left that could end the wait")
    return Reason(
        "no other thread of the process is left that could release the lock: it was held at a"
        " fork, or by a thread that ended",
        'start the processes with the method "spawn", or before any thread',
    )


def describe_end(seen: Observation) -> str:
    """Return why the working thread cannot go on, and what each thread waits for, as clauses; empty
    if it may go on.
    """
    tid = seen.working_tid or seen.main_pid
    stuck = wait_graph.find_stuck(seen)
    if all((wait.pid, wait.tid) != (seen.main_pid, tid) for wait in stuck):
        return ""
    first, *others = describe_stuck(stuck)
    rows = (first, *describe_callers(stuck), *others)
    if stuck[0].kind.name == "loop":
        threads = describe_stuck([wait for wait in stuck if wait.kind.name != "loop"])
        rows = (*task_waits.describe_tasks(seen), *threads) if seen.evidence.tasks else rows
    return "; ".join((why_stuck(stuck, seen).words, *rows))


def describe_work(seen: Observation) -> tuple[str, ...]:
    """Return what the working thread waits for, or the tasks of its event loop, and then the
    threads that run a request or a job, before those that wait for work.
    """
    tid = seen.working_tid or seen.main_pid
    waits = [wait for wait in wait_graph.waits_of(seen) if not wait.is_service]
    first = [w for w in waits if (w.pid, w.tid) == (seen.main_pid, tid)]
    if first and first[0].kind.words in wait_kinds.FROM_OUTSIDE and any(w.is_job for w in waits):
        first = []  # it only accepts requests
    rest = [w for w in waits if w not in first and w.has_users_line]
    rest.sort(key=lambda w: (not w.is_job, w.pid != seen.main_pid))
    if wait_graph.is_loop_at_rest(seen) and seen.evidence.tasks:
        return *task_waits.describe_tasks(seen), *describe_stuck(rest)
    loop = [_BLOCKED_LOOP] if first and wait_graph.blocks_loop(seen) else []
    return *describe_stuck(first), *describe_callers(first), *loop, *describe_stuck(rest)


def words_of(seen: Observation) -> str:
    """Return what the working thread waits for in this program, in words; empty for a thread that
    may go on.
    """
    tid = seen.working_tid or seen.main_pid
    waits = (w for w in wait_graph.waits_of(seen) if (w.pid, w.tid) == (seen.main_pid, tid))
    return next((w.kind.words for w in waits if not w.kind.is_free), "")


def describe_holder(seen: Observation) -> tuple[str, ...]:
    """Return the wait of the working thread for a lock, and what the threads that hold it wait for;
    empty if no holder is known.
    """
    waits = list(wait_graph.waits_of(seen))
    tid = seen.working_tid or seen.main_pid
    first = next((w for w in waits if (w.pid, w.tid) == (seen.main_pid, tid)), None)
    if first is None or not first.holders:
        return ()
    rows = [f"thread {_short(first.thread)} waits for {first.kind.words} at {first.place}"]
    for wait in waits:
        if (wait.pid, wait.tid) in first.holders:
            who = (
                f"thread {_short(wait.thread)}" if wait.pid == first.pid else f"process {wait.pid}"
            )
            does = "is" if wait.kind.is_free else f"waits for {wait.kind.words}"
            rows.append(f"{who} holds it and {does} at {wait.place}")
    return tuple(rows)


def _short(thread: str) -> str:
    """Return the name of a thread without the name of its function."""
    return thread.partition(" (")[0]
