"""Classify a program that does not advance: inside the compiler, outside of it, or idle.

An open compile, and compiled code on the stack of a thread, are visible. All other work is that of
the program itself. A program is idle if each of its Python threads waits for something that may
come at any time.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from reprokit.core.judge.hangs import hang_causes, lock_cycles, wait_graph, wait_kinds
from reprokit.core.judge.hangs.thread_facts import is_service
from reprokit.core.judge.stacks import frames as fr
from reprokit.core.judge.stacks import location, phases
from reprokit.core.judge.stacks.main_process import MainProcess
from reprokit.core.judge.stacks.recent_dumps import only_recent, stack_place, threads_of
from reprokit.core.records.dumps import ThreadStack
from reprokit.core.records.observation import Observation
from reprokit.core.records.process_state import BUSY_SHARE, ProcessState, ThreadState
from reprokit.core.records.stalls import IDLE, INSIDE, OUTSIDE, Stall

MAX_FRAMES = 12
_POLLS = frozenset("accept accept4 select pselect6 poll ppoll epoll_wait epoll_pwait".split())
_SLEEPS = frozenset(
    "sleep clock_nanosleep nanosleep restart_syscall pause rt_sigtimedwait rt_sigsuspend".split()
)
_READS = frozenset("read readv recvfrom recvmsg recvmmsg".split())
_PEER = re.compile(
    r"/dev/(tty|pts/|console).*|descriptor \d+, (a socket|an unnamed socket|anon_inode:\W?(inotify|\w+fd)).*"
    r"|descriptor 0, a pipe; also open.*|descriptor \d+, a pipe; open in no other process"
)
"""A terminal, a socket, a descriptor for events, a pipe as the standard input, or one by which
threads wake each other. Any other file or pipe has a writer that may be stuck, so waiting for it is
not idle.
"""
_CALLS_THAT_WAIT = re.compile(r"\.(get|recv|recv_bytes|read\w*|accept|poll|select)\(")
_WAITS = (
    re.compile(
        r"<stdlib>/(threading|queue|concurrent/futures/.*|multiprocessing/.*|asyncio/.*|selectors|socket)\.py"
    ),
    re.compile(
        r"wait|wait_for|get|put|join|result|exception|as_completed|acquire|select|_wait_for_tstate_lock|_shutdown|_python_exit"
    ),
)
"""Condition, queue, event, semaphore, join and future of the standard library. A plain lock has no
frame.
"""
_CHILD_WAITS = frozenset({"wait4", "waitid"})
_MAX_DEPTH = 4
"""The innermost frames that are searched for such a wait."""


def classify_stall(seen: Observation, others: Sequence[MainProcess] = ()) -> Stall:
    """Classify the process ``seen.main_pid`` together with the other instrumented processes of the
    program.

    A process inside the compiler decides. The caller sets the beginning and the length of the
    stall.
    """
    for process in (None, *others):
        of_process = seen
        if process is not None:
            of_process = replace(
                seen,
                main_pid=process.pid,
                working_tid=process.tid,
                open_events=process.open_events,
                endless_line="",
            )
        if _is_inside(of_process, is_first=process is None):
            return _stall(INSIDE, of_process)
    pids = [seen.main_pid or 0, *(process.pid for process in others)]
    waits = [_idle_threads(seen, pid) for pid in dict.fromkeys(pids)]
    is_idle = bool(waits[0]) and all(threads is not None for threads in waits)
    if is_idle and not wait_graph.find_stuck(seen):
        texts = [text for threads in waits for text in threads or ()]
        return replace(_stall(IDLE, seen), detail="; ".join(dict.fromkeys(texts[:4])))
    return _stall(OUTSIDE, seen)


def waits_of_tree(seen: Observation) -> tuple[str, ...] | None:
    """Describe what each process waits in, if all are idle; None otherwise.

    A launcher that waits for an idle service is idle too.
    """
    found: dict[str, None] = {}
    if wait_graph.find_stuck(seen):
        return None
    for process in seen.evidence.processes:
        texts = _waits_of_process(seen, process)
        if texts is None:
            return None
        of_process = f"process {process.pid}: " if len(seen.evidence.processes) > 1 else ""
        found.update(dict.fromkeys(of_process + text for text in texts))
    return tuple(found) or None


def choose_stuck_thread(seen: Observation) -> Observation:
    """Return the observation with the thread as its working thread that the program waits for.

    Threads that wait for each other's locks come first, then a thread that compiles. Else it is the
    main process, or a process that neither is idle nor waits for one of the tree. If its working
    thread is idle, such as one that accepts connections, it is a thread that is not.
    """
    if lock_cycles.find_cycle(seen):
        return choose_cycle(seen)
    if location.phase_at_work(only_recent(seen))[0] in phases.COMPILE_PHASES:
        return seen
    if ends := wait_graph.find_stuck(seen):
        return replace(seen, main_pid=ends[0].pid, working_tid=ends[0].tid)
    seen = _choose_stuck_process(seen)
    process = seen.evidence.process_of_pid(seen.main_pid)
    if process is None or location.phase_at_work(only_recent(seen))[0] in phases.COMPILE_PHASES:
        return seen
    states = {t.tid: t for t in process.threads}
    threads = next(iter(threads_of(only_recent(seen), process.pid)[-1:]), [])
    calls = seen.evidence.waiting_calls
    stuck = [
        thread
        for thread in sorted(threads, key=lambda t: not t.is_main)
        if thread.tid in states
        and not (is_service(thread) and not thread.is_main)
        and not _waits_in(thread, states[thread.tid], (), calls)
    ]
    if not stuck and seen.evidence.requests:  # the request that waits is more than the idle thread
        jobs = [wait for wait in wait_graph.waits_of(seen) if wait.is_job]
        if jobs and all(wait.pid != process.pid for wait in jobs):
            return replace(seen, main_pid=jobs[0].pid, working_tid=jobs[0].tid)
        tids_of_jobs = {wait.tid for wait in jobs}
        stuck = [t for t in threads if t.tid in states and t.tid in tids_of_jobs]
    tids = [thread.tid for thread in stuck]
    if not tids or (seen.working_tid or process.pid) in tids:
        return seen
    blocked = {use.tid for use in seen.evidence.lock_uses if use.waits}
    return replace(seen, working_tid=next((tid for tid in tids if tid in blocked), tids[0]))


def choose_cycle(seen: Observation) -> Observation:
    """Return the observation with a thread as its working thread that waits for the lock of a
    different one, while that one waits for a lock of it. A thread that compiles stays the working
    thread.
    """
    cycle = lock_cycles.find_cycle(seen)
    if not cycle or phases.is_compiling(seen.open_events):
        return seen
    tid = cycle[0].tid
    if tid < 0:  # a task, in the thread of its loop
        tid = seen.evidence.tasks[-tid - 1].tid
    return replace(seen, main_pid=cycle[0].pid, working_tid=tid)


def _choose_stuck_process(seen: Observation) -> Observation:
    pythons = {dump.pid for dump in seen.dumps if dump.threads}
    main = seen.evidence.process_of_pid(seen.main_pid)
    if main is None or _is_inside(seen, is_first=True) or _waits_of_process(seen, main) is None:
        return seen
    for process in seen.evidence.processes:
        if process.pid in pythons - {main.pid} and _waits_of_process(seen, process) is None:
            return replace(seen, main_pid=process.pid, working_tid=0)
    return seen


def _waits_of_process(seen: Observation, process: ProcessState) -> tuple[str, ...] | None:
    """Describe what each thread of a process of a tree waits in; None if one does not wait."""
    tree = {p.pid for p in seen.evidence.processes if p.pid != process.pid}
    if any(dump.threads and dump.pid == process.pid for dump in seen.dumps):
        return _idle_threads(seen, process.pid, tree)
    # a program that is not written in Python
    main = next((t for t in process.threads if t.tid == process.pid), None)
    how = main is not None and not process.is_stopped and _system_call_wait(main, tree)
    return (f"it waits in {how}",) if how else None


def call_that_waits(source_line: str) -> str:
    """Return the function that a line of Python calls and that waits for work; empty if there is
    none.
    """
    found = _CALLS_THAT_WAIT.search(source_line)
    return found[1] if found and ".acquire(" not in source_line else ""


def is_running(seen: Observation) -> bool:
    """Return whether the working thread no longer waits: it ran when it was last seen, or its
    process has ended. A thread that waits for a GPU runs all the time.
    """
    process = seen.evidence.process_of_pid(seen.main_pid)
    tid = seen.working_tid or seen.main_pid
    thread = (
        next((t for t in process.threads if t.tid == tid), None) if process is not None else None
    )
    if thread is None:
        return True
    return thread.states.endswith("R") and hang_causes.diagnose_hang(seen).name != "gpu-wait"


def _stall(state: str, seen: Observation) -> Stall:
    phase, _ = location.phase_at_work(seen)
    cause = hang_causes.diagnose_hang(seen)
    thread = _working_thread(seen)
    stack = (
        tuple(f"{f.file}:{f.line} in {f.function}" for f in thread.frames[:MAX_FRAMES])
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
    if phases.is_compiling(seen.open_events):
        return True
    pid = seen.main_pid or 0
    if any(
        _is_compiled(thread)
        for threads in threads_of(only_recent(seen), pid)[-1:]
        for thread in threads
    ):
        return True
    # an idle compile worker has frames of the compiler on its stack, but no open compile
    if not is_first:
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


def _idle_threads(
    seen: Observation, pid: int, tree: Collection[int] = ()
) -> tuple[str, ...] | None:
    """Describe what each Python thread of ``pid`` waits in; None if a thread is not idle, or if
    that is not known. A thread that waits for one of the processes ``tree`` is idle.
    """
    process = seen.evidence.process_of_pid(pid)
    threads = next(iter(threads_of(only_recent(seen), pid)[-1:]), None)
    if process is None or not threads or process.is_stopped:
        return None
    states = {t.tid: t for t in process.threads}
    calls = seen.evidence.waiting_calls
    texts = []
    has_locks = bool(seen.evidence.lock_uses) or any(t.waits_for_pid for t in process.threads)
    waits = list(wait_graph.waits_of(seen)) if has_locks else []
    for thread in sorted(threads, key=lambda t: not t.is_main):
        if is_service(thread) and not thread.is_main:
            continue
        state = states.get(thread.tid or (pid if thread.is_main else 0))
        how = _waits_in(thread, state, tree, calls) if state is not None else ""
        if not how and wait_graph.waits_for_idle_holder(waits, pid, thread.tid):
            how = "a lock whose holder waits"
        if not how:
            return None
        texts.append(f"thread {thread.thread} waits in {how} at {stack_place(thread.frames)}")
    return tuple(texts)


def _waits_in(
    thread: ThreadStack, state: ThreadState, tree: Collection[int], calls: Mapping[str, str]
) -> str:
    """Return the call in which an idle thread waits; empty if the thread is not idle.

    ``calls`` are the calls of C code that wait for work, by their places.
    """
    how = _system_call_wait(state, tree)
    is_sleep = how in _SLEEPS and not wait_kinds.polls_in_library(thread.frames)
    if not is_sleep and wait_kinds.must_end(thread.frames):
        return ""
    if how:
        return how
    if state.syscall not in ("futex", "") or (state.want or 0.0) > BUSY_SHARE:
        return ""
    files, functions = _WAITS
    for frame in fr.normalise_frames(thread.frames)[:_MAX_DEPTH]:
        if files.fullmatch(frame.file) and functions.fullmatch(frame.function.rsplit(".", 1)[-1]):
            return frame.function
    inner = thread.frames[0] if thread.frames else None
    return calls.get(f"{inner.file}:{inner.line}", "") if inner is not None else ""


def _system_call_wait(state: ThreadState, tree: Collection[int]) -> str:
    """Return the system call in which a thread waits for something that may come at any time, or
    for a process of the tree.
    """
    if (state.want or 0.0) > BUSY_SHARE:
        return ""
    if state.syscall in _POLLS or state.syscall in _SLEEPS:
        return state.syscall
    if state.syscall in _CHILD_WAITS and tree:
        return state.syscall
    if state.syscall in _READS:
        peers = {int(pid) for pid in re.findall(r"\bprocess (\d+)", state.waits_for)}
        is_peer = _PEER.fullmatch(state.waits_for) or peers & set(tree)
        return f"{state.syscall} of {state.waits_for}" if is_peer else ""
    return ""
