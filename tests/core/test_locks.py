"""Who holds which lock is read from the source, and threads that wait for each other are found."""

from __future__ import annotations

import ast

import pytest

from reprokit.core.judge.hangs import lock_cycles, source_locks, waiting
from reprokit.core.records.observation import Observation
from reprokit.core.records.process_state import (
    Evidence,
    LockName,
    LockUse,
    ProcessState,
    ThreadState,
    evidence_from_json,
)
from reprokit.core.shared.contract.serialize import to_json

SOURCE = """import threading, shared
from pool import guard as door
first, second = threading.Lock(), threading.Lock()
class Store:
    def swap(self, other):
        with self.lock, open("f") as file:
            with other.lock:
                work()
        second.acquire()
        try:
            work()
        finally:
            second.release()
        work()
def run(lock):
    inner = threading.Lock()
    with first, door:
        with inner, lock:
            def nested():
                with inner:
                    pass
            nested()
        with shared.lock:
            work()
async def serve(condition):
    async with first:
        pass
    with condition:
        condition.wait()
        condition.notify()
work = lambda: first
"""


@pytest.mark.parametrize(
    ("line", "held", "acquired"),
    [
        (6, [], [".lock"]),
        (7, [".lock"], [".lock"]),
        (8, [".lock"], []),
        (9, [], ["m.second"]),
        (11, ["m.second"], []),
        (13, ["m.second"], []),
        (14, [], []),
        (17, [], ["m.first", "pool.guard"]),
        (18, ["m.first", "pool.guard"], ["m.run.<locals>.inner", "m.run.<locals>.lock"]),
        (20, [], ["m.run.<locals>.inner"]),
        (24, ["m.first", "pool.guard", "shared.lock"], []),
        (26, [], ["m.first"]),
        (29, [], []),
        (30, ["m.serve.<locals>.condition"], []),
        (31, [], []),
        (1, [], []),
        (99, [], []),
    ],
)
def test_a_line_holds_and_acquires_locks(line: int, held: list[str], acquired: list[str]) -> None:
    """Inside the block and behind ``acquire``; a condition is released while it waits."""
    found = source_locks.locks_of_line(ast.parse(SOURCE), "m", line)
    assert [[lock.identity for lock in locks] for locks in found] == [held, acquired]


def use(tid: int, waits: str, *holds: str) -> LockUse:
    names = tuple(LockName(name, f"m.{name}") for name in holds)
    return LockUse(
        7, tid, f"T{tid} (f)", f"m.py:{tid} in f", f"m.{waits}" * bool(waits), waits, names
    )


def seen(*uses: LockUse, busy: int = 0, working: int = 0) -> Observation:
    threads = tuple(
        ThreadState(u.tid, want=1.0 if u.tid == busy else 0.0, syscall="futex") for u in uses
    )
    evidence = Evidence((ProcessState(7, 1, "python", threads=threads),), lock_uses=uses)
    return Observation(evidence=evidence, main_pid=7, working_tid=working)


def test_threads_that_wait_for_each_other_are_a_cycle() -> None:
    """Each is described once, the working thread first. Others that wait are counted."""
    rows = [use(1, "a", "b"), use(2, "b", "c"), use(3, "c", "a"), use(4, "a"), use(5, "", "d")]
    cycle = lock_cycles.find_cycle(seen(*rows, working=2))
    assert [u.tid for u in cycle] == [2, 1, 3]
    assert lock_cycles.describe_cycle(cycle) == (
        "thread T2 holds c and waits for b at m.py:2 in f;"
        " thread T1 holds b and waits for a at m.py:1 in f;"
        " thread T3 holds a and waits for c at m.py:3 in f"
    )
    assert lock_cycles.describe_others(cycle, seen(*rows)) == (
        "1 more thread waits for a at m.py:4 in f",
    )
    assert waiting.choose_cycle(seen(*rows, working=9)).working_tid == 1


@pytest.mark.parametrize(
    "rows",
    [
        [use(1, "a", "b"), use(2, "b", "c")],
        [use(1, "a", "a")],
        [use(1, "a", "b"), use(2, "", "a")],
        [use(1, "a"), use(2, "a")],
        [],
    ],
)
def test_no_cycle(rows: list[LockUse]) -> None:
    """A chain has an end, and a lock of the same name may be that of a different object."""
    assert lock_cycles.find_cycle(seen(*rows)) == ()


def test_a_thread_that_runs_is_in_no_cycle() -> None:
    """It does not wait."""
    assert lock_cycles.find_cycle(seen(use(1, "a", "b"), use(2, "b", "a"), busy=2)) == ()


def test_lock_uses_are_read_back() -> None:
    """From the evidence of a run, whatever a stranger wrote into it."""
    evidence = seen(use(1, "a", "b"), use(2, "b", "a")).evidence
    document = to_json(evidence)
    assert evidence_from_json(document).lock_uses == evidence.lock_uses
    assert evidence_from_json({"lock_uses": [3, {"pid": "x", "holds": [5, {}]}]}).lock_uses
