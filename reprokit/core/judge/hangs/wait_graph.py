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

from reprokit.core.judge.hangs import wait_kinds
from reprokit.core.judge.hangs.thread_facts import is_service
from reprokit.core.judge.hangs.wait_kinds import WaitKind
from reprokit.core.judge.stacks.recent_dumps import only_recent, stacks_of, threads_of
from reprokit.core.records.dumps import Frame, ThreadStack
from reprokit.core.records.observation import Observation
from reprokit.core.records.process_state import (
    BUSY_SHARE,
    LockUse,
    ProcessState,
    ThreadState,
    cut_words,
)

MAX_TITLE = 40
_IS_PYTHON = re.compile(r"\S*python|pt_main_thread")
_PEERS = re.compile(r"(?:\bprocess |\), )(\d+) \(")


@dataclass(frozen=True)
class Wait:
    """What one thread of Python waits for; see ``wait_kinds``."""

    pid: int
    tid: int
    thread: str
    process: str
    """The title of its process, if the process has set one."""
    kind: WaitKind
    place: str
    """``FILE:LINE in FUNCTION``, of the program's own line if there is one on the stack."""
    is_main: bool = False
    """It is the main thread of the first process."""
    is_service: bool = False
    """It only serves other threads, such as an idle worker of a pool."""
    inside: str = ""
    """The function of a package that the program called; see ``wait_kinds.call_of_package``."""
    callers: tuple[str, ...] = ()
    """The user's lines that led to the place, the innermost first."""
    has_users_line: bool = False
    is_job: bool = False
    """It runs something that ends, such as a request; see ``wait_kinds.runs_job``."""
    peers: frozenset[int] = field(default_factory=frozenset)
    """The processes that can end the wait; empty if a thread of the same process can."""
    holders: frozenset[tuple[int, int]] = field(default_factory=frozenset)
    """The process and the thread of each holder of its lock; empty if they are not known."""
    holds_it: bool = False
    """The thread itself holds the lock that it waits for."""

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
    with_handlers = {process.pid for process in seen.evidence.processes if process.handles_signals}
    alone = {w.pid for w in stuck if sum(o.pid == w.pid and not o.is_service for o in waits) == 1}
    harmed = [w for w in stuck if not w.is_resting or _is_alone(w, alone - with_handlers)]
    if not harmed:
        return ()
    pids = {wait.pid for wait in harmed}
    first = max(harmed, key=lambda w: (w.kind.rank, bool(w.kind.below), -w.tid))
    rest = [w for w in stuck if w is not first and (w.pid in pids or w.pid in first.peers)]
    rest.sort(key=lambda w: w.kind.name != first.kind.name)
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


def _is_alone(wait: Wait, alone: frozenset[int] | set[int]) -> bool:
    """Return whether a wait that rests in a program of several threads is that of the only one."""
    return wait.kind.name in ("queue", "condition") and wait.pid in alone


def waits_for_idle_holder(waits: Sequence[Wait], pid: int, tid: int) -> bool:
    """Return whether a thread waits for a lock whose holders wait for a connection or an event from
    outside: the next of several threads or processes that accept.
    """
    wait = next((w for w in waits if (w.pid, w.tid) == (pid, tid)), None)
    if wait is None or not wait.holders:
        return False
    held = [w for w in waits if (w.pid, w.tid) in wait.holders]
    return all(w.kind.is_free and w.kind.words in wait_kinds.FROM_OUTSIDE for w in held)


def is_loop_at_rest(seen: Observation) -> bool:
    """Return whether the working thread runs an event loop that waits for the next event."""
    tid = seen.working_tid or seen.main_pid
    return any(
        (w.pid, w.tid) == (seen.main_pid, tid) and wait_kinds.LOOP in w.kind.below and not w.is_job
        for w in waits_of(seen)
    )


def blocks_loop(seen: Observation) -> bool:
    """Return whether the working thread runs code of a task of an event loop."""
    return wait_kinds.blocks_loop(_working_stack(seen))


def is_compiling(seen: Observation) -> bool:
    """Return whether the working thread runs the compiler, or code that it calls."""
    return wait_kinds.is_compiling(_working_stack(seen))


def runs_job(seen: Observation) -> bool:
    """Return whether the working thread runs something that ends, such as a request."""
    return wait_kinds.runs_job(_working_stack(seen))


def _working_stack(seen: Observation) -> tuple[Frame, ...]:
    pid = seen.main_pid or 0
    return next(iter(stacks_of(seen, pid, seen.working_tid or pid)[-1:]), ())


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
    if kind.name == "loop" and process.handles_signals:
        kind = replace(kind, name="free", is_free=True, words="the next event")
    peers = _peers_of(process, state, kind, tree)
    if kind.needs_peers and state.waits_for.endswith("open in no other process"):
        kind = replace(kind, needs_peers=False)  # only a thread of this process may write
    if kind.needs_peers and not peers:
        kind = replace(wait_kinds.free_kind(state), below=kind.below)
    return Wait(
        process.pid,
        state.tid,
        "MainThread" if state.tid == process.pid else thread.thread,
        _title_of(process),
        kind,
        wait_kinds.place_of(thread.frames),
        thread.is_main and process.ppid not in tree,
        kind.name != "full pipe" and _is_service(thread),
        wait_kinds.call_of_package(thread.frames),
        wait_kinds.calling_places(thread.frames),
        bool(wait_kinds.users_place(thread.frames)),
        wait_kinds.runs_job(thread.frames),
        peers,
        _holders_of(seen, process, state, kind, use),
        use is not None and use.waits in {lock.identity for lock in use.holds},
    )


def _title_of(process: ProcessState) -> str:
    """Return the title that a process has set, or the name of its main thread; empty if both are
    those of the interpreter.
    """
    if not _IS_PYTHON.match(process.command):
        return cut_words(process.command, MAX_TITLE)
    name = next((state.name for state in process.threads if state.tid == process.pid), "")
    return "" if _IS_PYTHON.match(name) else name


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
    if kind.name == "file lock":
        return frozenset({state.waits_for_pid}) & tree
    if state.syscall in ("wait4", "waitid"):
        return frozenset({state.waits_for_pid}) if state.waits_for_pid else tree - {process.pid}
    named = frozenset(map(int, _PEERS.findall(state.waits_for)))
    only_pipes = all("a pipe" in part for part in state.waits_for.split(", descriptor "))
    return named if named and only_pipes and named <= tree else frozenset()


def _holders_of(
    seen: Observation,
    process: ProcessState,
    state: ThreadState,
    kind: WaitKind,
    use: LockUse | None,
) -> frozenset[tuple[int, int]]:
    if kind.name == "file lock" and state.waits_for_pid:
        return frozenset({(state.waits_for_pid, state.waits_for_pid)})
    if use is None:
        return frozenset()
    return frozenset(
        (other.pid, other.tid)
        for other in seen.evidence.lock_uses
        if (use.is_shared or other.pid == use.pid)
        and (other.pid, other.tid) != (use.pid, use.tid)
        and use.waits in {lock.identity for lock in other.holds}
    )


def _may_go_on(
    wait: Wait, waits: Sequence[Wait], blocked: Sequence[Wait], free: frozenset[int]
) -> bool:
    """Return whether a wait may end, if all waits that are not ``blocked`` may."""
    stuck = {(other.pid, other.tid) for other in blocked}
    going = [other for other in waits if (other.pid, other.tid) not in stuck]
    if wait.holders and not wait.peers:
        return any((other.pid, other.tid) in wait.holders for other in going)
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
