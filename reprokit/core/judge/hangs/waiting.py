"""Where a program is while it does not advance: inside the compiler, outside of it, or idle.

Key insight: a compile that is open, and compiled code on any thread's stack, can be seen.
Everything else is the program's own business. A program is idle when each of its Python threads
waits for something that may come at any time.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

from reprokit.core.judge.hangs import hang_causes
from reprokit.core.judge.hangs.thread_facts import is_service
from reprokit.core.judge.stacks import frames as fr
from reprokit.core.judge.stacks import location, phases
from reprokit.core.judge.stacks.main_process import MainProcess
from reprokit.core.judge.stacks.recent_dumps import only_recent, stack_place, threads_of
from reprokit.core.records.dumps import ThreadStack
from reprokit.core.records.observation import Observation
from reprokit.core.records.process_state import BUSY_SHARE, ThreadState
from reprokit.core.records.stalls import IDLE, INSIDE, OUTSIDE, Stall

MOST_FRAMES = 12
_POLLS = frozenset("accept accept4 select pselect6 poll ppoll epoll_wait epoll_pwait".split())
_SLEEPS = frozenset("sleep clock_nanosleep nanosleep pause rt_sigtimedwait rt_sigsuspend".split())
_READS = frozenset("read readv recvfrom recvmsg recvmmsg".split())
_PEER = re.compile(r"/dev/(tty|pts/|console).*|descriptor \d+, a socket.*")
"""A terminal or a socket. A file or a pipe has a writer that may be stuck, so waiting for it is not
idle.
"""
_WAITS = (
    re.compile(
        r"<stdlib>/(threading|queue|concurrent/futures/.*|multiprocessing/.*|asyncio/.*|selectors|socket)\.py"
    ),
    re.compile(
        r"wait|wait_for|get|put|join|result|exception|as_completed|acquire|select|_wait_for_tstate_lock|_shutdown|_python_exit"
    ),
)
"""Condition, queue, event, semaphore, join and future of the standard library; a plain lock has no
frame of its own.
"""
_WITHIN = 4


def classify_stall(seen: Observation, others: Sequence[MainProcess] = ()) -> Stall:
    """Classify the process ``seen.main_pid``, and with it the other instrumented processes of the
    program.

    One that is inside the compiler decides. The caller fills in when the stall began and how long
    it is.
    """
    for told in (None, *others):
        one = seen
        if told is not None:
            one = replace(
                seen,
                main_pid=told.pid,
                working_tid=told.tid,
                open_events=told.open_events,
                endless_line="",
            )
        if _is_inside(one, is_first=told is None):
            return _stall(INSIDE, one)
    pids = [seen.main_pid or 0, *(told.pid for told in others)]
    waits = [_idle_threads(seen, pid) for pid in dict.fromkeys(pids)]
    if waits[0] and all(found is not None for found in waits):
        told_waits = [text for found in waits for text in found or ()]
        return replace(_stall(IDLE, seen), detail="; ".join(dict.fromkeys(told_waits[:4])))
    return _stall(OUTSIDE, seen)


def is_running(seen: Observation) -> bool:
    """The thread at work ran when it was seen last, or its process was gone: it does not wait any
    more.
    """
    process = seen.evidence.process(seen.main_pid)
    tid = seen.working_tid or seen.main_pid
    thread = (
        next((t for t in process.threads if t.tid == tid), None) if process is not None else None
    )
    return thread is None or thread.states.endswith("R")


def _stall(state: str, seen: Observation) -> Stall:
    phase, _ = location.phase_at_work(seen)
    cause = hang_causes.diagnose_hang(seen)
    thread = _working_thread(seen)
    stack = (
        tuple(f"{f.file}:{f.line} in {f.function}" for f in thread.frames[:MOST_FRAMES])
        if thread
        else ()
    )
    return Stall(state, phase or "", cause.name, cause.detail, stack)


def _working_thread(seen: Observation) -> ThreadStack | None:
    threads = next(iter(threads_of(seen, seen.main_pid or 0)[-1:]), [])
    return next(
        (t for t in threads if (t.tid == seen.working_tid if seen.working_tid else t.is_main)), None
    )


def _is_inside(seen: Observation, is_first: bool) -> bool:
    named = phases.phase_of_events(seen.open_events)
    if named and named[0] in phases.COMPILE_PHASES:
        return True
    pid = seen.main_pid or 0
    if any(
        _is_compiled(thread)
        for threads in threads_of(only_recent(seen), pid)[-1:]
        for thread in threads
    ):
        return True
    if (
        not is_first
    ):  # an idle compile worker has the compiler's frames on its stack, and no compile open
        return False
    phase, _ = location.phase_at_work(seen)
    return (
        phase in phases.COMPILE_PHASES
        or phase == "kernel-run"
        or hang_causes.diagnose_hang(seen).name.startswith("compile-worker")
    )


def _is_compiled(thread: ThreadStack) -> bool:
    return not is_service(thread) and any(
        fr.enters_compiled(f) for f in fr.normalise_frames(thread.frames)
    )


def _idle_threads(seen: Observation, pid: int) -> tuple[str, ...] | None:
    """What each Python thread of ``pid`` waits in; None where one does something else, or where
    nobody can tell.
    """
    process = seen.evidence.process(pid)
    threads = next(iter(threads_of(only_recent(seen), pid)[-1:]), None)
    if process is None or not threads or process.is_stopped:
        return None
    states = {t.tid: t for t in process.threads}
    found = []
    for thread in sorted(threads, key=lambda t: not t.is_main):
        if is_service(thread) and not thread.is_main:
            continue
        state = states.get(thread.tid or (pid if thread.is_main else 0))
        how = _waits_in(thread, state) if state is not None else ""
        if not how:
            return None
        found.append(f"thread {thread.thread} waits in {how} at {stack_place(thread.frames)}")
    return tuple(found)


def _waits_in(thread: ThreadStack, state: ThreadState) -> str:
    """The call that an idle thread waits in; empty when it is not idle."""
    if (state.want or 0.0) > BUSY_SHARE:
        return ""
    if state.syscall in _POLLS or state.syscall in _SLEEPS:
        return state.syscall
    if state.syscall in _READS:
        return f"{state.syscall} of {state.waits_for}" if _PEER.fullmatch(state.waits_for) else ""
    if state.syscall not in ("futex", ""):
        return ""
    files, functions = _WAITS
    for frame in fr.normalise_frames(thread.frames)[:_WITHIN]:
        if files.fullmatch(frame.file) and functions.fullmatch(frame.function.rsplit(".", 1)[-1]):
            return frame.function
    return ""
