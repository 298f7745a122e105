"""Say in words what a thread does or waits for, by the cause of its hang."""

from __future__ import annotations

from reprokit.core.judge.hangs import lock_cycles
from reprokit.core.judge.hangs.thread_facts import ThreadFacts, is_service
from reprokit.core.judge.stacks.recent_dumps import stack_place, threads_of
from reprokit.core.records.dumps import ThreadStack
from reprokit.core.records.observation import Observation
from reprokit.core.records.process_state import BUSY_SHARE, PYTHON_MARK, cut_words


def describe_cause(seen: Observation, name: str, facts: ThreadFacts) -> str:
    """Return what a thread with this cause waits for or does, as clauses."""
    thread, top = facts.thread, facts.top
    share = f"{thread.want:.0%} of a CPU" if thread.want is not None else "a CPU"
    if name == "python-loop" and facts.endless:
        pace = f" {seen.endless_pace}" if seen.endless_pace else ""
        return (
            f"Dynamo unrolls a loop: the user line {seen.endless_line} was traced"
            f" {seen.endless_count} times so far{pace}"
        )
    if name == "lock-deadlock" and (cycle := lock_cycles.find_cycle(seen)):
        return lock_cycles.describe_cycle(cycle)
    if name == "lock-deadlock":
        others = other_threads(seen, facts)
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
        no_others = "no other Python thread exists: the owner has ended or is this thread itself"
        return f"waits for a lock at {top}; {'; '.join([*blocked, *free][:5]) or no_others}"
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
            else "no process was seen to hold it"
        )
        return f"waits for the lock on {path or (held.path if held else 'a file')} at {top}; {who}"
    if name == "io-wait":
        return f"waits in {thread.syscall} for {thread.waits_for or 'an unknown peer'} at {top}"
    inside = [n for n in thread.native if not n.startswith("0x") and n != PYTHON_MARK]
    gpus = "".join(
        f"; GPU {g.index} is {'busy' if g.busy_share > 0.05 else 'idle'}"
        for g in seen.evidence.gpus
        if g.busy_share is not None
    )
    if name in ("native-wait", "gpu-wait", "collective") and thread.native:
        return (
            f"waits in native code ({' < '.join(inside[:4])}) under"
            f" {top}{gpus if name == 'gpu-wait' else ''}"
        )
    if name == "native-wait":
        return f"waits in native code at {top}"
    if name == "gpu-wait":
        return f"waits for the GPU at {top}{gpus or '; NVML did not report whether the GPU works'}"
    if name == "native-loop" and facts.team and not facts.busy:
        return (
            f"native threads of process {facts.process.pid} want {facts.process.want or 0:.1f}"
            f" CPUs; a Python thread waits for them at {top}"
        )
    if name in ("native-loop", "native-loop-holding-gil", "python-loop"):
        return f"wants {share} at {top}" + (
            f", in native {inside[0]}" if inside and name != "python-loop" else ""
        )
    if name == "gil-blocked":
        waits = f" in {thread.syscall}" if thread.syscall else ""
        age = facts.process.gil_age_s
        verb = f"was held for {age:.0f} s" if age is not None else "is held"
        return f"the GIL {verb} by a call that waits{waits} at {top}"
    if name == "uninterruptible":
        return (
            "in the kernel at"
            f" {thread.wchan or 'an unknown function'}"
            f"{f', system call {thread.syscall}' if thread.syscall else ''},"
            f" under {top}"
        )
    if name == "stopped":
        return f"process {facts.process.pid} is stopped (state T) at {top}"
    return f"at {top}"


def other_threads(seen: Observation, facts: ThreadFacts) -> list[tuple[ThreadStack, bool]]:
    """Return the other Python threads of the process, without service threads, and whether each
    waits for a lock too.
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


def describe_facts(facts: ThreadFacts) -> str:
    """Return what the kernel reports about a thread whose cause is not known."""
    thread = facts.thread
    parts = [f"thread states {facts.states or 'unknown'}"]
    if thread.want is not None:
        parts.append(f"wants {thread.want:.0%} of a CPU")
    if thread.syscall:
        parts.append(f"in system call {thread.syscall}")
    if thread.wchan:
        parts.append(f"kernel function {thread.wchan}")
    return f"{', '.join(parts)}, at {facts.top}"
