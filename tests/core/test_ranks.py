"""Several ranks: who waits, who is elsewhere, who never came."""

from __future__ import annotations

from dataclasses import replace

from reprokit.core.judge.hangs import ranks
from reprokit.core.judge.verdict import judge
from reprokit.core.records.dumps import Dump, Frame, ThreadStack
from reprokit.core.records.observation import Observation
from reprokit.core.records.process_state import Evidence, ProcessState, ThreadState

SITE = "/v/lib/python3.11/site-packages/"
TRAIN = Frame("/home/bob/train.py", "step", 12)
BASE = Observation(
    is_timed_out=True, is_stalled=True, quiet_s=61.0, deadline_s=600.0, has_instrumentation=True
)


def run(stacks: dict[int, tuple[Frame, ...]], world_size: int = 0) -> Observation:
    """Rank n is process 100 + n and stands on these frames, innermost first; an empty stack has
    ended.
    """
    dumps, processes = [], []
    for rank, frames in stacks.items():
        pid = 100 + rank
        if frames:
            state = ThreadState(pid, states="SSS", want=0.0, syscall="clock_nanosleep")
            processes.append(ProcessState(pid, 1, "python train.py", "SSS", threads=(state,)))
            own = (ThreadStack(pid, "MainThread", frames, is_main=True, tid=pid),)
            dumps += [Dump(n, "py-spy", pid, own) for n in (1, 2)]
    where = {str(rank): 100 + rank for rank in stacks}
    size = world_size or len(stacks)
    seen = replace(
        BASE, dumps=tuple(dumps), evidence=Evidence(tuple(processes)), ranks=where, world_size=size
    )
    return ranks.odd_one_out(replace(seen, main_pid=100))


def waits(name: str) -> tuple[Frame, ...]:
    return (Frame(SITE + "torch/distributed/distributed_c10d.py", name, 9), TRAIN)


SLEEPS = (Frame("/home/bob/data.py", "load", 44), TRAIN)
LOWERING = (Frame(SITE + "torch/_inductor/lowering.py", "f", 1), TRAIN)


def test_the_odd_one_out_stands_first() -> None:
    """Three ranks wait, one does not: that one is named first, with its place."""
    verdict = judge(
        run({0: waits("all_reduce"), 1: waits("all_reduce"), 2: SLEEPS, 3: waits("all_reduce")})
    )
    assert (verdict.kind, verdict.phase, verdict.cause) == ("hang", "collective", "collective")
    assert verdict.path[0].startswith("rank 2 is elsewhere: sleep at data.py:44 in load")
    assert "rank 0 waits in all_reduce, called at train.py:12 in step" in verdict.path


def test_a_rank_that_ended_or_never_came_is_told() -> None:
    """Waiting for nobody."""
    gone = judge(run({0: waits("barrier"), 1: ()}))
    assert (gone.cause, gone.path[0]) == ("collective", "rank 1 has ended")
    never = judge(run({0: waits("barrier"), 1: waits("barrier")}, world_size=4))
    assert "2 of 4 ranks are not seen on this machine" in never.detail


def test_ranks_that_wait_in_different_operations_disagree() -> None:
    """A mismatch is the bug itself."""
    verdict = judge(run({0: waits("all_reduce"), 1: waits("broadcast")}))
    assert "the ranks disagree: all_reduce and broadcast" in verdict.detail


def test_a_rank_that_is_stuck_in_the_compiler_is_the_cause() -> None:
    """The others only wait for it."""
    seen = run({0: waits("all_reduce"), 1: LOWERING})
    verdict = judge(replace(seen, main_pid=101))
    assert (verdict.phase, verdict.cause) == ("lowering", "sleep")
    assert ranks.odd_one_out(replace(seen, main_pid=101)).main_pid == 101
