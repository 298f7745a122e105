"""Why a run does not go on: walk from the thread at work along what it waits for, until something
explains it.

Key insight: the thread at work either runs, or is stopped, or waits for something that can be asked
in turn: a child, a compile worker, another thread, a rank. The rules stand in ``hang_causes.json``,
one ordered table; this room knows only how to read facts and how to follow.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

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
from reprokit.core.records.dumps import ThreadStack
from reprokit.core.records.finding import Verdict
from reprokit.core.records.observation import Observation
from reprokit.core.records.process_state import (
    BUSY_SHARE,
    PYTHON,
    ProcessState,
    ThreadState,
    cut_words,
)

EXPLAIN: dict[str, str] = TABLE["explain"]
"""cause -> one line that says what it means."""


@dataclass(frozen=True)
class Cause:
    """Why it hangs, and how that was found."""

    name: str
    """A name of ``hang_causes.json``."""
    detail: str = ""
    """One sentence: which thread, child, lock, file, rank."""
    also: tuple[str, ...] = ()
    """Other causes that hold at the same time, such as memory-runaway."""
    path: tuple[str, ...] = ()
    """What was followed on the way, outermost first: who waits for whom."""


def explain_cause(verdict: Verdict) -> str:
    """The line that says what the cause of a hang means; what was merely at work when a deadline
    came needs none.
    """
    return EXPLAIN.get(verdict.cause or "", "") if verdict.kind == "hang" else ""


def explain_also(verdict: Verdict) -> list[str]:
    """The same for the causes that hold at the same time, with their names."""
    return [f"{name}: {EXPLAIN.get(name, '')}" for name in verdict.also]


def diagnose_hang(seen: Observation) -> Cause:
    """Give the cause of the thread whose story is told; ``unknown`` says what is known."""
    if seen.main_pid is None:
        return Cause("unknown", "no process could be asked")
    return _of_process(seen, seen.main_pid, seen.working_tid or seen.main_pid, set())


def _of_process(seen: Observation, pid: int, tid: int, asked: set[int]) -> Cause:
    process = seen.evidence.process(pid)
    if process is None:
        return Cause("unknown", f"process {pid} was gone, or /proc could not be read")
    thread = next(
        (t for t in process.threads if t.tid == tid), ThreadState(tid, states=process.states)
    )
    asked.add(tid)
    return _of_thread(seen, facts_of(seen, process, thread), asked)


def _of_thread(seen: Observation, facts: ThreadFacts, asked: set[int]) -> Cause:
    also: tuple[str, ...] = ()
    for rule in TABLE["rules"]:
        if not rule_holds(rule["when"], facts):
            continue
        name = rule["cause"]
        if name == "memory-runaway":
            activity = _of_thread(seen, replace(facts, growing=False), asked)
            also = () if activity.name == "unknown" else (activity.name,)
            rate = growth_per_s(facts.process.memory) / 1e6
            grew = (
                f"process {facts.process.pid} holds {facts.process.rss_bytes / 1e6:.0f} MB and"
                f" grows by {rate:.0f} MB a second"
            )
            return Cause(name, f"{grew}; at work: {facts.top}", also, activity.path)
        follow = _FOLLOW.get(rule.get("follow"))
        if follow is not None:
            found = follow(seen, facts, asked)
            if found is None:
                continue
            return found
        if name != "stopped" and facts.growing:
            also = ("memory-runaway",)
        return Cause(name, _detail(seen, name, facts), also)
    return Cause("unknown", _known(facts))


def _follow_child(seen: Observation, facts: ThreadFacts, asked: set[int]) -> Cause | None:
    children = [
        c for c in seen.evidence.children(facts.process.pid) if "compile_worker" not in c.command
    ]
    told = {
        int(n) for n in re.findall(r"\bprocess (\d+)", facts.thread.waits_for)
    }  # at a pipe's other end
    named = [c for c in children if c.pid == facts.thread.waits_for_pid or c.pid in told]
    if not children:
        return None
    return _child_cause(seen, max(named or children, key=_telling), "child", f"at {facts.top}")


def _telling(process: ProcessState) -> tuple[bool, float, int]:
    """Of several children the stopped one, else the busiest, else the youngest."""
    return process.is_stopped, _wanted(process), process.pid


def _wanted(process: ProcessState) -> float:
    """What it wanted of a processor; of one that was seen only once, whether it ran then."""
    return (1.0 if "R" in process.states else 0.0) if process.want is None else process.want


def _child_cause(seen: Observation, child: ProcessState, prefix: str, where: str) -> Cause:
    """``<prefix>-busy``, ``-stuck`` or ``-stopped``, of the deepest descendant that tells."""
    chain = [child]
    while below := [p for p in seen.evidence.children(chain[-1].pid) if p not in chain]:
        if chain[-1].is_stopped:
            break
        chain.append(max(below, key=_telling))
    leaf = chain[-1]
    wanted = max(map(_wanted, chain))
    how = "stopped" if leaf.is_stopped else "busy" if wanted > BUSY_SHARE else "stuck"
    said = {
        "stopped": "is stopped by a signal",
        "busy": f"burns a processor ({wanted:.0%})",
        "stuck": "does nothing",
    }
    main = next((t for t in leaf.threads if t.tid == leaf.pid), ThreadState(leaf.pid))
    waits = f", waiting in {main.syscall}" if how == "stuck" and main.syscall else ""
    detail = (
        f"process {leaf.pid} {said[how]}{waits}: {cut_words(leaf.command, 300)}; it is waited for"
        f" {where}"
    )
    also = ("memory-runaway",) if any(is_growing(p.memory) for p in chain) else ()
    path = tuple(f"process {p.ppid} waits for {p.pid}: {cut_words(p.command, 120)}" for p in chain)
    return Cause(f"{prefix}-{how}", detail, also, path)


_IS_POOL = re.compile(r"torch/_inductor/(async_compile|codecache|compile_worker/.*)\.py")


def _follow_worker(seen: Observation, facts: ThreadFacts, asked: set[int]) -> Cause | None:
    sidecar = next(
        (c for c in seen.evidence.children(facts.process.pid) if "compile_worker" in c.command),
        None,
    )
    if sidecar is None:
        return None
    if sidecar.is_stopped:
        return Cause(
            "compile-worker-sidecar-stopped",
            f"process {sidecar.pid} is stopped; a result is awaited at {facts.top}",
        )
    workers = [c for c in seen.evidence.children(sidecar.pid) if "compile_worker" in c.command]
    for worker in workers:
        if worker.is_stopped:
            return Cause(
                "compile-worker-stopped",
                f"worker {worker.pid} is stopped; a result is awaited at {facts.top}",
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
        if below := seen.evidence.children(worker.pid):
            found = _child_cause(
                seen, below[-1], "compile-worker-child", f"by compile worker {worker.pid}"
            )
            return replace(found, path=path + found.path)
        if has_job or is_busy:
            at = stack_place(stack)
            how, said = (
                ("busy", "burns a processor")
                if is_busy
                else ("stuck", "has a job and does nothing")
            )
            return Cause(f"compile-worker-{how}", f"worker {worker.pid} {said} at {at}", (), path)
    if any(_IS_POOL.fullmatch(f.file) for f in facts.frames[:8]):
        return Cause(
            "compile-worker-lost",
            f"all {len(workers)} workers of process {sidecar.pid} are idle; awaited at {facts.top}",
        )
    return None


def _follow_thread(seen: Observation, facts: ThreadFacts, asked: set[int]) -> Cause | None:
    """The cause of a busy or deadlocked thread of this process is the cause; else it is a plain
    wait.
    """
    dumps = threads_of(seen, facts.process.pid)
    others = [
        t
        for t in (dumps[-1] if dumps else [])
        if t.tid and t.tid != facts.thread.tid and not is_service(t)
    ]
    for other in others:
        if other.tid in asked:
            continue
        state = next((s for s in facts.process.threads if s.tid == other.tid), None)
        if state is None:
            continue
        asked.add(other.tid)  # each thread is asked once, however the waits are tangled
        theirs = _of_thread(seen, facts_of(seen, facts.process, state), asked)
        is_busy = (state.want or 0.0) > BUSY_SHARE
        # one of several idle threads may be anybody's monitor: who waits for it cannot be told
        if is_busy or (len(others) == 1 and theirs.name not in ("thread-wait", "sleep", "unknown")):
            path = (
                f"the thread at work waits at {facts.top} for thread {other.thread}",
                *theirs.path,
            )
            return replace(theirs, path=path)
    files = {f.file for t in (dumps[-1] if dumps else []) for f in fr.normalise_frames(t.frames)}
    if files & {"<stdlib>/concurrent/futures/process.py", "<stdlib>/multiprocessing/pool.py"}:
        pool = [
            c
            for c in seen.evidence.children(facts.process.pid)
            if "resource_tracker" not in c.command
        ]
        if pool := [c for c in pool if "compile_worker" not in c.command]:
            return _child_cause(
                seen, max(pool, key=lambda c: c.want or 0.0), "child", f"at {facts.top}"
            )
    doing = "; ".join(f"{t.thread} at {stack_place(t.frames)}" for t in others[:5])
    return Cause(
        "thread-wait", f"waits at {facts.top}; other threads: {doing or 'none that works'}"
    )


def _detail(seen: Observation, name: str, facts: ThreadFacts) -> str:
    thread, top = facts.thread, facts.top
    share = f"{thread.want:.0%} of a processor" if thread.want is not None else "a processor"
    if name == "python-loop" and facts.endless:
        pace = f" {seen.endless_pace}" if seen.endless_pace else ""
        return (
            f"Dynamo unrolls a loop: the user line {seen.endless_line} was traced"
            f" {seen.endless_count} times so far{pace}"
        )
    if name == "lock-deadlock":
        others = _other_threads(seen, facts)
        blocked = [
            f"thread {t.thread} waits at {stack_place(t.frames)}"
            for t, is_blocked in others
            if is_blocked
        ]
        free = [
            f"thread {t.thread} is at {stack_place(t.frames)}"
            for t, is_blocked in others
            if not is_blocked
        ]
        nobody = "no other Python thread is there: its owner is gone or is this thread itself"
        return f"waits for a lock at {top}; {'; '.join([*blocked, *free][:5]) or nobody}"
    if name == "file-lock":
        path = seen.evidence.lock_file or thread.waits_for
        held = next((lock for lock in seen.evidence.locks if path and lock.path == path), None)
        held = held or (
            seen.evidence.locks[0] if len(seen.evidence.locks) == 1 and not path else None
        )
        verb = "holds it" if held and held.is_holder else "has it open"
        who = (
            f"process {held.pid} {verb}: {cut_words(held.command, 200)}"
            if held
            else "nobody could be seen to hold it"
        )
        return f"waits for the lock on {path or (held.path if held else 'a file')} at {top}; {who}"
    if name == "io-wait":
        return f"waits in {thread.syscall} for {thread.waits_for or 'an unknown peer'} at {top}"
    inside = [n for n in thread.native if not n.startswith("0x") and n != PYTHON]
    gpus = "".join(
        f"; GPU {g.index} is {'busy' if g.busy_share > 0.05 else 'idle'}"
        for g in seen.evidence.gpus
    )
    if name in ("native-wait", "gpu-wait", "collective") and thread.native:
        return (
            f"waits in native code ({' < '.join(inside[:4])}) under"
            f" {top}{gpus if name == 'gpu-wait' else ''}"
        )
    if name == "gpu-wait":
        return f"waits for the GPU at {top}{gpus or '; NVML could not say whether the GPU works'}"
    if name == "native-loop" and facts.team and not facts.busy:
        return (
            f"native threads of process {facts.process.pid} burn {facts.process.want or 0:.1f}"
            f" processors; waited for at {top}"
        )
    if name in ("native-loop", "native-loop-holding-gil", "python-loop"):
        return f"wants {share} at {top}" + (
            f", in native {inside[0]}" if inside and name != "python-loop" else ""
        )
    if name == "gil-blocked":
        waits = f" in {thread.syscall}" if thread.syscall else ""
        return (
            f"the GIL was held for {facts.process.gil_age_s:.0f} s by a call that waits{waits} at"
            f" {top}"
        )
    if name == "uninterruptible":
        return (
            "in the kernel at"
            f" {thread.wchan or 'a place it does not tell'}"
            f"{f', system call {thread.syscall}' if thread.syscall else ''},"
            f" under {top}"
        )
    if name == "stopped":
        return f"process {facts.process.pid} is in state T at {top}"
    return f"at {top}"


def _follow_lock(seen: Observation, facts: ThreadFacts, asked: set[int]) -> Cause | None:
    """The only other thread runs: it may hold the lock, and what it does is the cause."""
    others = _other_threads(seen, facts)
    states = {t.tid: t for t in facts.process.threads}
    if len(others) != 1 or (other := states.get(others[0][0].tid)) is None or other.tid in asked:
        return None
    if (other.want or 0.0) <= BUSY_SHARE:
        return None
    asked.add(other.tid)
    theirs = _of_thread(seen, facts_of(seen, facts.process, other), asked)
    path = (
        f"a lock is waited for at {facts.top}; thread {others[0][0].thread} may hold it",
        *theirs.path,
    )
    return replace(theirs, path=path)


def _other_threads(seen: Observation, facts: ThreadFacts) -> list[tuple[ThreadStack, bool]]:
    """The other Python threads of the process that do more than serve, and whether each waits for a
    lock too.
    """
    dumps = threads_of(seen, facts.process.pid)
    waiting = {
        t.tid
        for t in facts.process.threads
        if t.syscall in ("futex", "") and (t.want or 0.0) < BUSY_SHARE
    }
    others = [
        t for t in (dumps[-1] if dumps else []) if t.tid != facts.thread.tid and not is_service(t)
    ]
    return [(t, t.tid in waiting) for t in others]


def _known(facts: ThreadFacts) -> str:
    thread = facts.thread
    parts = [f"states {facts.states or 'unknown'}"]
    if thread.want is not None:
        parts.append(f"wants {thread.want:.0%} of a processor")
    if thread.syscall:
        parts.append(f"in system call {thread.syscall}")
    if thread.wchan:
        parts.append(f"kernel function {thread.wchan}")
    return f"{', '.join(parts)}, at {facts.top}"


_FOLLOW = {
    "child": _follow_child,
    "worker": _follow_worker,
    "thread": _follow_thread,
    "lock": _follow_lock,
}
