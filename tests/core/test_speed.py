"""Compiled calls are called slower only where the measurement shows it, and the cause is a part of a
call.
"""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Sequence

import pytest

from reprokit.core.experiments import speedup
from reprokit.core.experiments.remedies.advice import advise
from reprokit.core.judge import slow_calls
from reprokit.core.judge.signature import sign_verdict
from reprokit.core.judge.silent_failures import is_tolerated
from reprokit.core.judge.verdict import judge_run
from reprokit.core.records.observation import Observation
from reprokit.core.records.rank_graphs import GraphRecord
from reprokit.core.records.recompiles import GraphBreak
from reprokit.core.records.speed import NOT_SLOWER, SLOWER, UNSURE, Speed
from reprokit.core.shared.contract.events import CallPart, CallParts, CallsTimed


def timed(ratio: float, noise: float = 0.02, pairs: int = 60, seed: int = 0) -> CallsTimed:
    """Return the timings of calls whose costs other programs increase at random."""
    draw = random.Random(seed)

    def costs(cost: float) -> list[float]:
        return [cost * (1 + noise * draw.expovariate(1)) for _ in range(pairs)]

    return CallsTimed(
        eager=costs(1e-3), compiled=costs(ratio * 1e-3), no_instructions="there are none"
    )


def answer(*runs: CallsTimed) -> str:
    speed = speedup.compare_speed(runs, CallParts())
    assert speed is not None
    return speed.answer


@pytest.mark.parametrize(
    ("ratio", "noise", "says"),
    [
        (1.5, 0.02, SLOWER),
        (0.7, 0.02, NOT_SLOWER),
        (1.0, 0.02, NOT_SLOWER),
        (1.05, 0.05, UNSURE),
        (1.2, 3.0, UNSURE),
    ],
)
def test_the_whole_interval_decides(ratio: float, noise: float, says: str) -> None:
    """Calls are slower if the interval is above 1.05, and not slower if it is below."""
    assert answer(timed(ratio, noise)) == says


def test_no_noise_makes_equal_calls_slower() -> None:
    """Two hundred comparisons of equal calls, confirmed by a second process, have no alarm."""
    for seed in range(200):
        noise = (0.02, 0.3, 2.0)[seed % 3]
        runs = [timed(1.0, noise, 20, 2 * seed + number) for number in range(2)]
        assert answer(*runs) != SLOWER, seed


def test_few_pairs_and_processes_that_disagree_decide_nothing() -> None:
    """Three pairs are too few, and each process must confirm that calls are slower."""
    assert answer(timed(2.0, pairs=3)) == UNSURE
    assert answer(timed(2.0), timed(2.0, seed=1)) == SLOWER
    assert answer(timed(2.0), timed(1.0, seed=1)) == UNSURE
    assert speedup.compare_speed([CallsTimed(eager=[1.0], compiled=[2.0])], CallParts()) is None


def test_instructions_decide_where_the_time_is_too_noisy() -> None:
    """Time decides first, so fewer instructions do not hide calls that take longer."""
    noisy, exact = timed(1.2, 3.0), timed(1.2, 0.0001)
    counted = dataclasses.replace(
        noisy, eager_instructions=exact.eager, compiled_instructions=exact.compiled
    )
    speed = speedup.compare_speed([counted, counted], CallParts())
    assert speed is not None and speed.answer == SLOWER and speed.ratio.is_of_instructions
    fewer = dataclasses.replace(
        timed(1.5), eager_instructions=exact.compiled, compiled_instructions=exact.eager
    )
    assert answer(fewer, fewer) == SLOWER


GUARDS = {
    "guards": 409,
    "tree_s": 1e-4,
    "line_guards": 400,
    "line_s": 9e-5,
    "code": "L['self'].weights[0] == 0.0",
    "where": "/home/someone/model.py:10 in forward",
    "settings": ["set torch._dynamo.config.some_flag = True"],
}
BREAK = GraphBreak("Call to print", "/home/someone/model.py:7", 3)


def slow(
    parts: Sequence[tuple[str, str, float, str]],
    eager_us: float = 10,
    total_us: float = 100,
    regions: float = 1,
    **eager: float,
) -> Speed:
    """Return slow calls with parts: kind, name, microseconds, operators."""
    rows = [
        CallPart(
            kind=kind, name=name, is_compiled=True, seconds=us * 1e-6, count=1, ops=ops.split()
        )
        for kind, name, us, ops in parts
    ]
    speed = speedup.compare_speed([timed(2.0), timed(2.0, seed=1)], CallParts(parts=rows))
    assert speed is not None
    return dataclasses.replace(
        speed,
        eager_s=eager_us * 1e-6,
        compiled_s=total_us * 1e-6,
        regions=regions,
        most_rest_s=total_us * 1e-6,
        guards=GUARDS,
        eager_operators={name: us * 1e-6 for name, us in eager.items()},
    )


def found(speed: Speed, *breaks: GraphBreak) -> Observation:
    graphs = (GraphRecord(1, "dynamo", "0/0", 3),)
    return Observation(exit_status=0, has_finished=True, speed=speed, breaks=breaks, graphs=graphs)


ADD = ("kernel", "cpp_fused_add_0", 3, "add")


@pytest.mark.parametrize(
    ("speed", "breaks", "cause"),
    [
        (slow([("guards", "", 80, ""), ADD]), (), slow_calls.GUARDS),
        (slow([("guards", "", 20, ""), ADD], regions=30), (BREAK,), slow_calls.BREAKS),
        (slow([("guards", "", 2, ""), ADD]), (), slow_calls.OVERHEAD),
        (
            slow([("kernel", "cpp_fused_cumsum_0", 70, "cumsum"), ADD], cumsum=5),
            (),
            "kernel of cumsum",
        ),
        (
            slow([("operator", "mm", 60, "mm"), ("operator", "sort", 30, "sort")], mm=60, sort=5),
            (),
            "operator of sort",
        ),
        (slow([("kernel", "cpp_fused_clone_t_0", 90, "clone t")]), (), slow_calls.COPIES),
    ],
)
def test_the_part_that_eager_does_not_have_is_the_cause(
    speed: Speed, breaks: tuple[GraphBreak, ...], cause: str
) -> None:
    """A kernel is the cause only if computing alone takes longer than eager; an operator that takes
    as long in eager is not the cause.
    """
    seen = found(speed, *breaks)
    verdict = judge_run(seen)
    assert (verdict.kind, verdict.cause) == ("slower", cause), verdict.reason
    assert sign_verdict(verdict, seen).title.endswith(f"| {cause}")
    assert verdict.responsible == (
        "torch" if " of " in cause and cause != slow_calls.OVERHEAD else "unknown"
    )
    assert advise(verdict, seen)


def test_a_long_kernel_has_no_overhead_that_the_profiler_does_not_show() -> None:
    """Where the kernel was shorter under the profiler than in the timed calls, the difference is
    not the cost of a call.
    """
    parts = [("guards", "", 1, ""), ("kernel", "cpp_fused_div_0", 800, "div")]
    speed = slow(parts, eager_us=900, total_us=1100, div=700)
    seen = found(dataclasses.replace(speed, most_rest_s=20e-6))
    verdict = judge_run(seen)
    assert verdict.cause == "kernel of div" and "98 % of it is the kernel" in verdict.reason


def test_guards_are_named_with_their_line_and_what_avoids_them() -> None:
    """The reason has the share, the number and the line, and the advice the settings of this
    torch.
    """
    seen = found(slow([("guards", "", 80, ""), ADD]))
    verdict = judge_run(seen)
    assert (
        "guards take 80 % of a call, more than kernels; 400 of 409 guards are at" in verdict.reason
    )
    assert verdict.work == {"line": "/home/someone/model.py:10 in forward"}
    assert advise(verdict, seen) == (
        "hold the 400 values in one object, such as a tensor; or"
        " set torch._dynamo.config.some_flag = True"
    )
    fast = dataclasses.replace(seen.speed or slow([]), answer=NOT_SLOWER)
    healthy = judge_run(dataclasses.replace(seen, speed=fast))
    assert healthy.kind == "ok"
    assert any(note.startswith("Guards take 80 % of a call") for note in healthy.evidence)


def test_pytorch_regards_slow_calls_as_working() -> None:
    """The exit code is 0 unless ``--fail-on slower`` is given."""
    seen = found(slow([ADD]))
    assert is_tolerated(judge_run(seen), seen)
    assert not is_tolerated(judge_run(seen), dataclasses.replace(seen, fail_on=("slower",)))
