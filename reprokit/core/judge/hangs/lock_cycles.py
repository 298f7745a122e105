"""Threads that wait for each other's locks."""

from __future__ import annotations

from collections.abc import Sequence

from reprokit.core.judge.stacks.location import plural
from reprokit.core.records.observation import Observation
from reprokit.core.records.process_state import BUSY_SHARE, LockUse


def find_cycle(seen: Observation) -> tuple[LockUse, ...]:
    """Return threads of which each waits for a lock that the next one holds, and the last one for a
    lock of the first; empty if there are none. The working thread is the first, if it is one of
    them.
    """
    uses = [use for use in seen.evidence.lock_uses if use.waits and _is_blocked(seen, use)]
    for start in uses:
        if cycle := _follow([start], uses, set()):
            tids = [use.tid for use in cycle]
            working = seen.working_tid or seen.main_pid
            first = tids.index(working) if working in tids else 0
            return (*cycle[first:], *cycle[:first])
    return ()


def describe_cycle(cycle: Sequence[LockUse]) -> str:
    """Return who holds what and waits for what, as clauses."""
    rows = []
    several = len({use.pid for use in cycle}) > 1
    for use, before in zip(cycle, (cycle[-1], *cycle), strict=False):
        held = next((lock.name for lock in use.holds if lock.identity == before.waits), "a lock")
        name = use.thread.partition(" (")[0]
        name = name if use.tid < 0 else f"thread {name}"
        if several:
            is_main = use.tid == use.pid
            name = f"process {use.pid}" if is_main else f"{name} of process {use.pid}"
        rows.append(f"{name} holds {held} and waits for {use.waits_name} at {use.place}")
    return "; ".join(rows)


def describe_others(cycle: Sequence[LockUse], seen: Observation) -> tuple[str, ...]:
    """Return the threads that wait for a lock of the cycle too, those with one line together."""
    held = {lock.identity for use in cycle for lock in use.holds}
    tids = {use.tid for use in cycle}
    waiting: dict[tuple[str, str], set[str]] = {}
    for use in seen.evidence.lock_uses:
        if use.waits in held and use.tid not in tids:
            waiting.setdefault((use.waits_name, use.place), set()).add(use.thread)
    return tuple(
        f"{plural(len(threads), 'more thread')} wait{'s' * (len(threads) == 1)} for {name} at"
        f" {place}"
        for (name, place), threads in waiting.items()
    )


def _follow(
    path: list[LockUse], uses: Sequence[LockUse], seen: set[LockUse]
) -> tuple[LockUse, ...]:
    """Return the way from the last thread of ``path`` to the first, with the whole path; empty if
    there is none. No thread leads there that was ``seen`` on a different way.
    """
    first, last = path[0], path[-1]
    for use in uses:
        if use.tid == last.tid or last.waits not in {lock.identity for lock in use.holds}:
            continue
        if use.pid != last.pid and not last.is_shared:
            continue
        if use == first:
            return tuple(path)
        if use in seen or use.tid in {known.tid for known in path}:
            continue
        seen.add(use)
        if cycle := _follow([*path, use], uses, seen):
            return cycle
    return ()


def _is_blocked(seen: Observation, use: LockUse) -> bool:
    """Return whether a thread waits in the kernel, as far as that is known."""
    process = seen.evidence.process_of_pid(use.pid)
    threads = process.threads if process is not None else ()
    state = next((t for t in threads if t.tid == use.tid), None)
    if state is None:
        return True
    return state.syscall in ("futex", "") and (state.want or 0.0) <= BUSY_SHARE
