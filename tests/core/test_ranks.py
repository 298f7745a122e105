"""The diagnosis of several ranks names the rank that waits, the rank that is elsewhere, and the
rank that never started.
"""

from __future__ import annotations

from dataclasses import replace

from reprokit.core.judge.hangs import ranks
from reprokit.core.judge.verdict import judge_run
from reprokit.core.records.dumps import Dump, Frame, ThreadStack
from reprokit.core.records.observation import Observation
from reprokit.core.records.process_state import Evidence, ProcessState, ThreadState

SITE = "/v/lib/python3.11/site-packages/"
TRAIN = Frame("/home/bob/train.py", "step", 12)
BASE = Observation(
    is_timed_out=True, is_stalled=True, quiet_s=61.0, deadline_s=600.0, has_instrumentation=True
)


def run(stacks: dict[int, tuple[Frame, ...]], world_size: int = 0) -> Observation:
    """Return the observation of a job in which rank n is process 100 + n with these frames,
    innermost first. A rank with an empty stack has ended.
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
    return ranks.choose_waiting_rank(replace(seen, main_pid=100))


def waits(name: str) -> tuple[Frame, ...]:
    return (Frame(SITE + "torch/distributed/distributed_c10d.py", name, 9), TRAIN)


SLEEPS = (Frame("/home/bob/data.py", "load", 44), TRAIN)
LOWERING = (Frame(SITE + "torch/_inductor/lowering.py", "f", 1), TRAIN)


def test_the_rank_that_differs_is_first() -> None:
    """Three ranks wait and one does not: the path names that rank first, with its position in the
    program.
    """
    verdict = judge_run(
        run({0: waits("all_reduce"), 1: waits("all_reduce"), 2: SLEEPS, 3: waits("all_reduce")})
    )
    assert (verdict.kind, verdict.phase, verdict.cause) == ("hang", "collective", "collective")
    assert verdict.path[0].startswith(
        "rank 2 (process 102) is not in a collective: sleep at data.py:44"
    )
    assert "rank 0 (process 100) waits in all_reduce, called at train.py:12 in step" in verdict.path
    assert (verdict.responsible, verdict.responsible_place) == ("user", "/home/bob/data.py:44")
    assert verdict.responsible_because[0].startswith("Rank 2 is in your own code at")


def test_a_rank_that_ended_or_never_started_is_reported() -> None:
    """The ranks wait for a rank that will not arrive."""
    gone = judge_run(run({0: waits("barrier"), 1: ()}))
    assert (gone.cause, gone.path[0]) == ("collective", "rank 1 (process 101) has ended")
    never = judge_run(run({0: waits("barrier"), 1: waits("barrier")}, world_size=4))
    assert "2 of 4 ranks are not on this machine" in never.detail


def test_ranks_that_wait_in_different_operations_disagree() -> None:
    """The disagreement is the bug itself."""
    verdict = judge_run(run({0: waits("all_reduce"), 1: waits("broadcast")}))
    assert "the ranks disagree: they wait in all_reduce and in broadcast" in verdict.detail
    assert (verdict.responsible, verdict.responsible_place) == ("user", "/home/bob/train.py:12")
    assert (
        "calls different collectives on its ranks: rank 0 (process 100) waits in"
        in (verdict.responsible_because[0])
    )


def test_nobody_is_responsible_for_a_collective_without_evidence() -> None:
    """All wait in one collective, one has ended, DDP calls one of two, or one sends to the other."""
    in_ddp = Frame(SITE + "torch/nn/parallel/distributed.py", "_sync_buffers", 3)
    alike = run({0: waits("all_reduce"), 1: waits("all_reduce")})
    ended = run({0: waits("barrier"), 1: ()})
    by_ddp = run({0: (waits("broadcast")[0], in_ddp, TRAIN), 1: waits("barrier")})
    branch = (waits("broadcast")[0], Frame("/home/bob/train.py", "step", 15))
    branches = run({0: waits("broadcast"), 1: branch})
    pair = run({0: waits("send"), 1: waits("recv")})
    for seen in (alike, ended, by_ddp, branches, pair):
        verdict = judge_run(seen)
        assert (verdict.kind, verdict.responsible) == ("hang", "unknown")


def test_torch_may_be_responsible_for_a_collective_of_compiled_code() -> None:
    """Compiled code is on the stack of a rank."""
    generated = Frame("/tmp/torchinductor_bob/ab/cabcdefghij.py", "call", 7)
    stack = (waits("all_reduce")[0], generated, TRAIN)
    assert judge_run(run({0: stack, 1: stack})).responsible == "torch"


def test_a_rank_that_is_stuck_in_the_compiler_is_the_cause() -> None:
    """The other ranks only wait for it."""
    seen = run({0: waits("all_reduce"), 1: LOWERING})
    verdict = judge_run(replace(seen, main_pid=101))
    assert (verdict.phase, verdict.cause) == ("lowering", "sleep")
    assert ranks.choose_waiting_rank(replace(seen, main_pid=101)).main_pid == 101
