"""The graph of who waits for whom, over all threads and processes of a program.

A thread may go on if it runs, sleeps, or waits for something outside of the program, such as a
socket. A thread that waits for something inside the program may go on if one of those may that can
end its wait: the holder of its lock, any thread of its process, or the processes at the other end
of its pipe. A thread that is left cannot go on, whatever comes from outside, except a signal.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

from reprokit.core.judge.hangs import task_waits, wait_kinds
from reprokit.core.judge.hangs.thread_facts import is_service
from reprokit.core.judge.hangs.wait_kinds import WaitKind
from reprokit.core.judge.stacks.location import plural
from reprokit.core.judge.stacks.recent_dumps import only_recent, stacks_of, threads_of
from reprokit.core.records.dumps import Frame, ThreadStack
from reprokit.core.records.observation import Observation
from reprokit.core.records.process_state import BUSY_SHARE, LockUse, ProcessState, ThreadState

MAX_CALLERS = 2
_BLOCKED_LOOP = "it is the thread of an event loop, so no task goes on meanwhile"
MAX_ROWS = 6
"""Groups of threads that a text names."""
_PEERS = re.compile(r"(?:\bprocess |\), )(\d+) \(")
_ENDS_IN_NUMBER = re.compile(r"[_-]\d+$")


@dataclass(frozen=True)
class Wait:
    """What one thread of Python waits for; see ``wait_kinds``."""

    pid: int
    tid: int
    thread: str
    kind: WaitKind
    place: str
    """``FILE:LINE in FUNCTION``, of the program's own line if there is one on the stack."""
    is_main: bool = False
    """It is the main thread of the first process."""
    is_service: bool = False
    """It only serves other threads, such as an idle worker of a pool."""
    callers: tuple[str, ...] = ()
    """The user's lines that led to the place, the innermost first."""
    has_users_line: bool = False
    is_job: bool = False
    """It runs something that ends, such as a request; see ``wait_kinds.must_end``."""
    peers: frozenset[int] = field(default_factory=frozenset)
    """The processes that can end the wait; empty if a thread of the same process can."""
    holders: frozenset[int] = field(default_factory=frozenset)
    """The threads that hold its lock; empty if they are not known."""

    @property
    def is_resting(self) -> bool:
        """Whether a healthy program waits in this way for as long as nothing is to do."""
        if self.is_main:
            return self.kind.name in ("event", "condition")
        return self.is_service or self.kind.name in ("queue", "pipe")


def find_stuck(seen: Observation) -> tuple[Wait, ...]:
    """Return the threads that cannot go on, of the programs that this observation is of; empty if
    each may, or if those that cannot only rest.

    A thread that is not a service and waits for the work of others is the first.
    """
    waits = list(waits_of(seen))
    free = _free_processes(seen, waits)
    blocked = [wait for wait in waits if not wait.kind.is_free]
    while True:
        left = [wait for wait in blocked if not _may_go_on(wait, waits, blocked, free)]
        if len(left) == len(blocked):
            break
        blocked = left
    stuck = [wait for wait in blocked if not wait.is_service]
    alone = {w.pid for w in stuck if sum(o.pid == w.pid and not o.is_service for o in waits) == 1}
    harmed = [
        w
        for w in stuck
        if not w.is_resting or (w.kind.name == "queue" and w.pid in alone and not w.is_service)
    ]
    if not harmed:
        return ()
    pids = {wait.pid for wait in harmed}
    first = max(harmed, key=lambda w: (w.kind.rank, bool(w.kind.below), -w.tid))
    rest = [w for w in stuck if w is not first and (w.pid in pids or w.pid in first.peers)]
    return (first, *rest)


def waits_of(seen: Observation) -> Iterator[Wait]:
    """Yield what each thread waits for that runs Python."""
    seen = only_recent(seen)
    tree = frozenset(process.pid for process in seen.evidence.processes)
    for process in seen.evidence.processes:
        states = {state.tid: state for state in process.threads}
        for thread in next(iter(threads_of(seen, process.pid)[-1:]), []):
            state = states.get(thread.tid or (process.pid if thread.is_main else 0))
            if state is not None:
                yield _wait_of(seen, process, thread, state, tree)


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
        names = f"thread {first}{of_process} waits"
        if several and waits[0].tid == pid:
            names = f"process {pid} waits"
        if len(waits) > 1:
            name = _ENDS_IN_NUMBER.sub("", first)
            names = f"{plural(len(waits), 'thread')} {name}{of_process} wait"
        rows.append(f"{names} for {words or 'something'} at {place}")
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
    mates = [w for w in waits_of(seen) if w.pid == first.pid and w.tid != first.tid]
    if first.kind.name == "future" and wait_kinds.POOL in first.kind.below:
        pool = _ENDS_IN_NUMBER.sub("", _short(first.thread))
        workers = [w for w in mates if _ENDS_IN_NUMBER.sub("", _short(w.thread)) == pool]
        if all(w.kind.name == "future" for w in workers):
            count = plural(len(workers) + 1, "worker")
            return Reason(
                f"all {count} of a pool wait for jobs that a worker of the pool must run",
                "use a different pool for the inner jobs, or do not wait for them inside a job",
            )
    if first.kind.is_in_thread and wait_kinds.LOOP in first.kind.below:
        return Reason(
            "the thread of the event loop waits, so no task can end its wait",
            "await it (asyncio.wrap_future, asyncio.to_thread) instead of blocking the thread",
        )
    if first.kind.name == "loop":
        return Reason(
            "no task of the event loop waits for a socket or a time, so none can go on",
            "" if seen.evidence.tasks else "attach with --tasks, which shows them",
        )
    if first.kind.name == "pool":
        return Reason(
            "no worker of the pool has a job: the job or its result was lost, as when a worker was"
            " killed",
            "use concurrent.futures.ProcessPoolExecutor, which raises BrokenProcessPool then",
        )
    if first.kind.name == "server":
        return Reason("the thread waits for the end of a loop that it runs itself")
    if any(w.kind.name == "full pipe" for w in stuck):
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
    others = [w for w in mates if not w.is_service]
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
    stuck = find_stuck(seen)
    if all((wait.pid, wait.tid) != (seen.main_pid, tid) for wait in stuck):
        return ""
    first, *others = describe_stuck(stuck)
    rows = (first, *describe_callers(stuck), *others)
    if stuck[0].kind.name == "loop":
        rows = task_waits.describe_tasks(seen) or rows
    return "; ".join((why_stuck(stuck, seen).words, *rows))


def describe_work(seen: Observation) -> tuple[str, ...]:
    """Return what the working thread waits for, or the tasks of its event loop, and then the
    threads that run a request or a job, before those that wait for work.
    """
    tid = seen.working_tid or seen.main_pid
    waits = [wait for wait in waits_of(seen) if not wait.is_service]
    first = [w for w in waits if (w.pid, w.tid) == (seen.main_pid, tid)]
    rest = [w for w in waits if w not in first and w.has_users_line]
    rest.sort(key=lambda w: (not w.is_job, w.pid != seen.main_pid))
    if is_loop_at_rest(seen) and seen.evidence.tasks:
        return *task_waits.describe_tasks(seen), *describe_stuck(rest)
    loop = [_BLOCKED_LOOP] if first and blocks_loop(seen) else []
    return *describe_stuck(first), *describe_callers(first), *loop, *describe_stuck(rest)


def words_of(seen: Observation) -> str:
    """Return what the working thread waits for in this program, in words; empty for a thread that
    may go on.
    """
    tid = seen.working_tid or seen.main_pid
    waits = (w for w in waits_of(seen) if (w.pid, w.tid) == (seen.main_pid, tid))
    return next((w.kind.words for w in waits if not w.kind.is_free), "")


def is_loop_at_rest(seen: Observation) -> bool:
    """Return whether the working thread runs an event loop that waits for the next event."""
    tid = seen.working_tid or seen.main_pid
    return any(
        (w.pid, w.tid) == (seen.main_pid, tid) and wait_kinds.LOOP in w.kind.below and not w.is_job
        for w in waits_of(seen)
    )


def describe_holder(seen: Observation) -> tuple[str, ...]:
    """Return the wait of the working thread for a lock, and what the threads that hold it wait for;
    empty if no holder is known.
    """
    waits = list(waits_of(seen))
    tid = seen.working_tid or seen.main_pid
    first = next((w for w in waits if (w.pid, w.tid) == (seen.main_pid, tid)), None)
    if first is None or not first.holders:
        return ()
    rows = [f"thread {_short(first.thread)} waits for {first.kind.words} at {first.place}"]
    for wait in waits:
        if wait.pid == first.pid and wait.tid in first.holders:
            does = "is" if wait.kind.is_free else f"waits for {wait.kind.words}"
            rows.append(f"thread {_short(wait.thread)} holds it and {does} at {wait.place}")
    return tuple(rows)


def blocks_loop(seen: Observation) -> bool:
    """Return whether the working thread runs code of a task of an event loop."""
    return wait_kinds.blocks_loop(_working_stack(seen))


def runs_job(seen: Observation) -> bool:
    """Return whether the working thread runs something that ends, such as a request."""
    return wait_kinds.must_end(_working_stack(seen))


def _working_stack(seen: Observation) -> tuple[Frame, ...]:
    pid = seen.main_pid or 0
    return next(iter(stacks_of(seen, pid, seen.working_tid or pid)[-1:]), ())


def _short(thread: str) -> str:
    """Return the name of a thread without the name of its function."""
    return thread.partition(" (")[0]


def _wait_of(
    seen: Observation,
    process: ProcessState,
    thread: ThreadStack,
    state: ThreadState,
    tree: frozenset[int],
) -> Wait:
    use = next(
        (
            use
            for use in seen.evidence.lock_uses
            if (use.pid, use.tid) == (process.pid, state.tid) and use.waits
        ),
        None,
    )
    kind = wait_kinds.kind_of(thread, state, use, seen.evidence.waiting_calls)
    if (state.want or 0.0) > BUSY_SHARE or process.is_stopped:
        kind = replace(kind, name="free", is_free=True)
    peers = _peers_of(process, state, kind, tree)
    if kind.needs_peers and not peers:
        kind = replace(wait_kinds.free_kind(state), below=kind.below)
    return Wait(
        process.pid,
        state.tid,
        "MainThread" if state.tid == process.pid else thread.thread,
        kind,
        wait_kinds.place_of(thread.frames),
        thread.is_main and process.ppid not in tree,
        kind.name != "full pipe" and _is_service(thread),
        wait_kinds.calling_places(thread.frames),
        bool(wait_kinds.users_place(thread.frames)),
        wait_kinds.must_end(thread.frames),
        peers,
        _holders_of(seen, use),
    )


def _is_service(thread: ThreadStack) -> bool:
    if wait_kinds.only_serves(thread.frames):
        return True
    return not thread.is_main and is_service(
        replace(thread, frames=wait_kinds.own_frames(thread.frames))
    )


def _peers_of(
    process: ProcessState, state: ThreadState, kind: WaitKind, tree: frozenset[int]
) -> frozenset[int]:
    """Return the processes that can end a wait; empty if something else can."""
    if kind.name in ("process lock", "full process queue"):
        return tree
    if not kind.needs_peers:
        return frozenset()
    if state.syscall == wait_kinds.RESTARTED:
        return tree - {process.pid}
    if state.syscall in ("wait4", "waitid"):
        return frozenset({state.waits_for_pid}) if state.waits_for_pid else tree - {process.pid}
    named = frozenset(map(int, _PEERS.findall(state.waits_for)))
    only_pipes = all("a pipe" in part for part in state.waits_for.split(", descriptor "))
    return named if named and only_pipes and named <= tree else frozenset()


def _holders_of(seen: Observation, use: LockUse | None) -> frozenset[int]:
    if use is None:
        return frozenset()
    return frozenset(
        other.tid
        for other in seen.evidence.lock_uses
        if other.pid == use.pid
        and other.tid != use.tid
        and use.waits in {lock.identity for lock in other.holds}
    )


def _may_go_on(
    wait: Wait, waits: Sequence[Wait], blocked: Sequence[Wait], free: frozenset[int]
) -> bool:
    """Return whether a wait may end, if all waits that are not ``blocked`` may."""
    stuck = {(other.pid, other.tid) for other in blocked}
    going = [other for other in waits if (other.pid, other.tid) not in stuck]
    if wait.holders:
        return any(other.pid == wait.pid and other.tid in wait.holders for other in going)
    pids = wait.peers or {wait.pid}
    return bool(pids & free) or any(other.pid in pids for other in going)


def _free_processes(seen: Observation, waits: Sequence[Wait]) -> frozenset[int]:
    """Return the processes with something that may go on and has no stack of Python."""
    known = {(wait.pid, wait.tid) for wait in waits}
    pythons = {wait.pid for wait in waits}
    free = set()
    for process in seen.evidence.processes:
        if process.pid not in pythons and "Z" not in process.states:
            free.add(process.pid)
        for state in process.threads:
            is_native = (process.pid, state.tid) not in known
            if is_native and not state.name.startswith("cuda") and not _is_parked(state):
                free.add(process.pid)
    return frozenset(free)


def _is_parked(state: ThreadState) -> bool:
    """Return whether a native thread waits without a limit for a thread of its process."""
    return state.syscall == "futex" and not state.has_limit
