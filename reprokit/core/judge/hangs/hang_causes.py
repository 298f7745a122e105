"""Find the cause of a hang: start at the working thread, and follow what it waits for.

The working thread either runs, or is stopped, or waits for something that can be examined in turn:
a child, a compile worker, a different thread, a rank. The rules are in ``hang_causes.json``, one
ordered table. This module reads the facts and follows the waits.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from reprokit.core.judge.hangs import cause_details, lock_cycles, task_waits, wait_graph, wait_words
from reprokit.core.judge.hangs.thread_facts import (
    TABLE,
    ThreadFacts,
    growth_per_s,
    is_growing,
    is_service,
    rule_holds,
)
from reprokit.core.judge.hangs.thread_facts import facts_of_thread as facts_of
from reprokit.core.judge.stacks import frames as fr
from reprokit.core.judge.stacks.recent_dumps import stack_place, stacks_of, threads_of
from reprokit.core.records.finding import Verdict
from reprokit.core.records.observation import Observation
from reprokit.core.records.process_state import (
    BUSY_SHARE,
    ProcessState,
    ThreadState,
    cut_words,
)

EXPLAIN: dict[str, str] = TABLE["explain"]
"""cause -> one line that explains it."""

CAUSES_WITH_NATIVE_FRAMES = frozenset(
    {"lock-deadlock", "native-wait", "native-loop", "native-loop-holding-gil", "gil-blocked"}
)
"""Causes that native frames can confirm, change or make more precise."""


_MADE_PRECISE = frozenset(
    "thread-wait child-stuck io-wait lock-deadlock file-lock native-wait sleep unknown".split()
)
"""Causes of one thread that the graph of all threads explains better."""


@dataclass(frozen=True)
class Cause:
    """The cause of a hang, and how it was found."""

    name: str
    """A name of ``hang_causes.json``."""
    detail: str = ""
    """One sentence: which thread, child, lock, file, rank."""
    also: tuple[str, ...] = ()
    """Other causes that hold at the same time, such as memory-runaway."""
    path: tuple[str, ...] = ()
    """The waits that were followed, outermost first."""


def explain_cause(verdict: Verdict) -> str:
    """Return the line that explains the cause of a hang; empty for any other verdict."""
    return EXPLAIN.get(verdict.cause or "", "") if verdict.kind == "hang" else ""


def explain_also(verdict: Verdict) -> list[str]:
    """Return the names and explanations of the other causes that hold at the same time."""
    return [f"{name}: {EXPLAIN.get(name, '')}" for name in verdict.also]


def diagnose_hang(seen: Observation) -> Cause:
    """Return the cause of the hang of the working thread; ``unknown`` has the known facts as its
    detail.
    """
    if seen.main_pid is None:
        return Cause("unknown", "no process could be examined")
    tid = seen.working_tid or seen.main_pid
    cause = _of_process(seen, seen.main_pid, tid, set())
    cycle = lock_cycles.find_cycle(seen)
    if cycle and cycle[0].tid < 0 and cause.name in _MADE_PRECISE:
        rows = (lock_cycles.describe_cycle(cycle), *task_waits.describe_tasks(seen, len(cycle)))
        return Cause("lock-deadlock", "; ".join(rows), cause.also)
    # inside the compiler, the cause is a part of the identity that the catalogue has
    if cause.name not in _MADE_PRECISE or cycle or wait_graph.is_compiling(seen):
        return cause
    if cause.name == "lock-deadlock" and (rows := wait_words.describe_holder(seen)):
        return replace(cause, detail="; ".join(rows))
    if detail := wait_words.describe_end(seen):
        return Cause("deadlock", detail, cause.also)
    if cause.name in ("thread-wait", "native-wait") or wait_graph.runs_job(seen):
        rows = wait_words.describe_work(seen)
        return replace(cause, detail="; ".join(rows) or cause.detail)
    return cause


def _of_process(seen: Observation, pid: int, tid: int, visited: set[int]) -> Cause:
    process = seen.evidence.process_of_pid(pid)
    if process is None:
        return Cause("unknown", f"process {pid} was gone, or /proc could not be read")
    thread = next(
        (t for t in process.threads if t.tid == tid), ThreadState(tid, states=process.states)
    )
    visited.add(tid)
    return _of_thread(seen, facts_of(seen, process, thread), visited)


def _of_thread(seen: Observation, facts: ThreadFacts, visited: set[int]) -> Cause:
    also: tuple[str, ...] = ()
    for rule in TABLE["rules"]:
        if not rule_holds(rule["when"], facts):
            continue
        name = rule["cause"]
        if name == "memory-runaway":
            activity = _of_thread(seen, replace(facts, growing=False), visited)
            also = () if activity.name == "unknown" else (activity.name,)
            rate = growth_per_s(facts.process.memory) / 1e6
            grew = (
                f"process {facts.process.pid} holds {facts.process.rss_bytes / 1e6:.0f} MB and"
                f" grows by {rate:.0f} MB per second"
            )
            return Cause(name, f"{grew}; it is at {facts.top}", also, activity.path)
        follow = _FOLLOW.get(rule.get("follow", ""))
        if follow is not None:
            cause = follow(seen, facts, visited)
            if cause is None:
                continue
            return cause
        if name != "stopped" and facts.growing:
            also = ("memory-runaway",)
        cycle = lock_cycles.find_cycle(seen) if name == "lock-deadlock" else ()
        others = lock_cycles.describe_others(cycle, seen)
        return Cause(name, cause_details.describe_cause(seen, name, facts), also, others)
    return Cause("unknown", cause_details.describe_facts(facts))


def _follow_child(seen: Observation, facts: ThreadFacts, visited: set[int]) -> Cause | None:
    children = [
        c for c in seen.evidence.children_of(facts.process.pid) if "compile_worker" not in c.command
    ]
    # the processes at the other end of a pipe
    peers = {int(n) for n in re.findall(r"\bprocess (\d+)", facts.thread.waits_for)}
    named = [c for c in children if c.pid == facts.thread.waits_for_pid or c.pid in peers]
    if not children:
        return None
    waiter = f"its parent waits for it at {facts.top}"
    return _child_cause(seen, max(named or children, key=_relevance), "child", waiter)


def _relevance(process: ProcessState) -> tuple[bool, float, int]:
    """Return the sort key of a child: a stopped one is the largest, then the busiest, then the
    youngest.
    """
    return process.is_stopped, _wanted(process), process.pid


def _wanted(process: ProcessState) -> float:
    """Return the share of a CPU that a process wanted; if it was seen only once, 1.0 if it ran."""
    return (1.0 if "R" in process.states else 0.0) if process.want is None else process.want


def _child_cause(seen: Observation, child: ProcessState, prefix: str, waiter: str) -> Cause:
    """Return the cause ``<prefix>-busy``, ``-stuck`` or ``-stopped`` from the most relevant
    descendants; ``waiter`` is a clause about the process that waits.
    """
    chain = [child]
    while below := [p for p in seen.evidence.children_of(chain[-1].pid) if p not in chain]:
        if chain[-1].is_stopped:
            break
        chain.append(max(below, key=_relevance))
    leaf = chain[-1]
    wanted = max(map(_wanted, chain))
    how = "stopped" if leaf.is_stopped else "busy" if wanted > BUSY_SHARE else "stuck"
    state = {
        "stopped": "is stopped by a signal",
        "busy": f"wants {wanted:.0%} of a CPU",
        "stuck": "does nothing",
    }
    main = next((t for t in leaf.threads if t.tid == leaf.pid), ThreadState(leaf.pid))
    waits = f", waiting in {main.syscall}" if how == "stuck" and main.syscall else ""
    detail = f"process {leaf.pid} {state[how]}{waits}: {cut_words(leaf.command, 300)}; {waiter}"
    also = ("memory-runaway",) if any(is_growing(p.memory) for p in chain) else ()
    path = tuple(f"process {p.ppid} waits for {p.pid}: {cut_words(p.command, 120)}" for p in chain)
    return Cause(f"{prefix}-{how}", detail, also, path)


_IS_POOL = re.compile(r"torch/_inductor/(async_compile|codecache|compile_worker/.*)\.py")


def _follow_worker(seen: Observation, facts: ThreadFacts, visited: set[int]) -> Cause | None:
    sidecar = next(
        (c for c in seen.evidence.children_of(facts.process.pid) if "compile_worker" in c.command),
        None,
    )
    if sidecar is None:
        return None
    if sidecar.is_stopped:
        return Cause(
            "compile-worker-sidecar-stopped",
            f"process {sidecar.pid} is stopped; the parent waits for a result at {facts.top}",
        )
    workers = [c for c in seen.evidence.children_of(sidecar.pid) if "compile_worker" in c.command]
    for worker in workers:
        if worker.is_stopped:
            return Cause(
                "compile-worker-stopped",
                f"worker {worker.pid} is stopped; the parent waits for a result at {facts.top}",
            )
    for worker in workers:
        stack = next(iter(stacks_of(seen, worker.pid, worker.pid)[-1:]), ())
        has_job = any(f.function.endswith("do_job") for f in stack)
        is_busy = (worker.want or 0.0) > BUSY_SHARE
        path = (
            (
                f"process {facts.process.pid} waits for compile worker {worker.pid} of process"
                f" {sidecar.pid}"
            ),
        )
        if below := seen.evidence.children_of(worker.pid):
            waiter = f"compile worker {worker.pid} waits for it"
            cause = _child_cause(seen, below[-1], "compile-worker-child", waiter)
            return replace(cause, path=path + cause.path)
        if has_job or is_busy:
            at = stack_place(stack)
            how = "busy" if is_busy else "stuck"
            state = "wants a whole CPU" if is_busy else "has a job and does nothing"
            return Cause(f"compile-worker-{how}", f"worker {worker.pid} {state} at {at}", (), path)
    if any(_IS_POOL.fullmatch(f.file) for f in facts.frames[:8]):
        return Cause(
            "compile-worker-lost",
            f"no compile worker of process {sidecar.pid} has a job; the parent waits at"
            f" {facts.top}",
        )
    return None


_WAITS_FOR_WORK = re.compile(r"epoll_p?wait|p?poll|p?select6?|accept4?")


def _follow_thread(seen: Observation, facts: ThreadFacts, visited: set[int]) -> Cause | None:
    """Return the cause of a busy or deadlocked thread of this process, or else ``thread-wait``."""
    dumps = threads_of(seen, facts.process.pid)
    others = [
        t
        for t in (dumps[-1] if dumps else [])
        if t.tid and t.tid != facts.thread.tid and not is_service(t)
    ]
    for other in others:
        if other.tid in visited:
            continue
        state = next((s for s in facts.process.threads if s.tid == other.tid), None)
        if state is None:
            continue
        visited.add(other.tid)  # visits each thread once, also in a cycle of waits
        cause = _of_thread(seen, facts_of(seen, facts.process, state), visited)
        is_busy = (state.want or 0.0) > BUSY_SHARE
        # with several idle threads, the one that is waited for is not known
        is_only = len(others) == 1 and cause.name not in ("thread-wait", "sleep", "unknown")
        if is_busy or (is_only and not _WAITS_FOR_WORK.fullmatch(state.syscall)):
            path = (
                f"the working thread waits at {facts.top} for thread {other.thread}",
                *cause.path,
            )
            return replace(cause, path=path)
    files = {f.file for t in (dumps[-1] if dumps else []) for f in fr.normalise_frames(t.frames)}
    if files & {"<stdlib>/concurrent/futures/process.py", "<stdlib>/multiprocessing/pool.py"}:
        pool = [
            c
            for c in seen.evidence.children_of(facts.process.pid)
            if "resource_tracker" not in c.command
        ]
        if pool := [c for c in pool if "compile_worker" not in c.command]:
            busiest = max(pool, key=lambda c: c.want or 0.0)
            return _child_cause(seen, busiest, "child", f"its parent waits for it at {facts.top}")
    doing = "; ".join(f"{t.thread} at {stack_place(t.frames)}" for t in others[:5])
    return Cause("thread-wait", f"waits at {facts.top}; other threads: {doing or 'none'}")


def _follow_lock(seen: Observation, facts: ThreadFacts, visited: set[int]) -> Cause | None:
    """Return the cause of the only other thread, if it runs: it may hold the lock."""
    others = cause_details.other_threads(seen, facts)
    states = {t.tid: t for t in facts.process.threads}
    if len(others) != 1 or (other := states.get(others[0][0].tid)) is None or other.tid in visited:
        return None
    if (other.want or 0.0) <= BUSY_SHARE:
        return None
    visited.add(other.tid)
    cause = _of_thread(seen, facts_of(seen, facts.process, other), visited)
    path = (
        f"the working thread waits for a lock at {facts.top}; thread {others[0][0].thread} may"
        " hold it",
        *cause.path,
    )
    return replace(cause, path=path)


_FOLLOW = {
    "child": _follow_child,
    "worker": _follow_worker,
    "thread": _follow_thread,
    "lock": _follow_lock,
}
