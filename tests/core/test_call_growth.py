"""What grows with each call is a straight line until the last call; a cache that fills is not."""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reprokit.core.growth.growth_of_calls import growth_of_calls
from reprokit.core.growth.straight_lines import fit_line
from reprokit.core.judge.signature import sign_verdict
from reprokit.core.judge.verdict import judge_run
from reprokit.core.records.finding import Verdict
from reprokit.core.records.observation import Observation
from reprokit.core.shared.contract import growth_events as names
from reprokit.core.shared.contract.growth_events import CallsSampled, GrowingHolder
from tests.support.examples import examples

AT = list(range(40, 200, 5))
OWN = GrowingHolder(
    what="list",
    path=["model.KEPT"],
    place="/home/me/model.py:7",
    grew=1.0,
    holds="torch.Tensor",
    made=[("/home/me/model.py", "", 9)],
)


def sampled(
    holders: tuple[GrowingHolder, ...] = (), **series: Callable[[int], float]
) -> CallsSampled:
    """Return samples of a run, with ``types`` for each name that is no series."""
    known = {
        "tensors": names.TENSORS,
        "heap": names.HEAP,
        "none": names.NONE,
        "blocks": names.BLOCKS,
        "entries": names.ENTRIES,
    }
    rows = {name: [int(value(at)) for at in AT] for name, value in series.items()}
    return CallsSampled(
        calls=200,
        at=AT,
        series={known[name]: row for name, row in rows.items() if name in known},
        types={f"builtins.{name}": row for name, row in rows.items() if name not in known},
        holders=[*holders],
    )


def judged(compiled: CallsSampled, eager: CallsSampled | None) -> tuple[Verdict, Observation]:
    seen = Observation(
        exit_status=0, has_finished=True, call_growth=growth_of_calls(compiled, eager)
    )
    return judge_run(seen), seen


@settings(max_examples=examples(100))
@given(slope=st.integers(1, 10_000), start=st.integers(0, 10**9))
def test_an_exact_line_grows_with_an_exact_interval(slope: int, start: int) -> None:
    """The slope is found, and the interval has no width."""
    line = fit_line(AT, [start + slope * at for at in AT])
    assert line.is_straight
    assert line.slope == pytest.approx(slope) == line.low == line.high


@settings(max_examples=examples(100))
@given(seed=st.integers(0, 10**6))
def test_noise_on_a_line_is_in_the_interval_and_noise_alone_does_not_grow(seed: int) -> None:
    """A line of 4 with each call and noise of 3 is found; its slope is in the interval."""
    noise = random.Random(seed)
    values = [4 * at + noise.gauss(0, 3) for at in AT]
    line = fit_line(AT, values)
    assert line.is_straight and line.low < line.slope < line.high
    assert not fit_line(AT, [noise.choice((0, 0, 0, 1)) for _ in AT]).is_straight


@pytest.mark.parametrize(
    "value",
    [
        lambda at: 7,
        lambda at: 1000 * (at > 100),
        lambda at: 1000 * (at > 100) + 1000 * (at > 160),
        lambda at: min(at, 120),
        lambda at: min(at, 150),
        lambda at: at % 64,
        lambda at: 1000 * (1 - 0.95**at),
        lambda at: 8 * 2 ** (at // 50),
    ],
    ids="constant step steps cache large_cache emptied saturates doubles".split(),
)
def test_what_fills_once_or_is_emptied_does_not_grow(value: Callable[[int], float]) -> None:
    """A constant, a step, a cache, a list that is emptied and the buffer of a list do not grow."""
    assert not fit_line(AT, [value(at) for at in AT]).is_straight


def test_what_only_compiled_code_keeps_in_the_program_is_the_programs() -> None:
    """The verdict names what grows, its holder and the line that makes it."""
    compiled = sampled((OWN,), tensors=lambda at: 512 * at, list=lambda at: 3)
    verdict, seen = judged(compiled, sampled(tensors=lambda at: 64))
    assert verdict.kind == "memory-growth" and verdict.responsible == "user"
    assert verdict.reason == (
        "Bytes of tensors grow by 512 with each call, and not in eager: held by the list"
        " model.KEPT at /home/me/model.py:7."
    )
    assert verdict.responsible_place == verdict.work["line"] == "/home/me/model.py:9"
    assert sign_verdict(verdict, seen).title == "memory-growth: no phase | bytes of tensors"


def test_what_grows_in_eager_too_is_no_failure_of_the_compiler() -> None:
    """The program is named, and nobody else."""
    compiled = sampled(tensors=lambda at: 512 * at, heap=lambda at: 1000 * at)
    eager = sampled(tensors=lambda at: 512 * at + 7, heap=lambda at: 990 * at)
    verdict, _ = judged(compiled, eager)
    assert (verdict.kind, verdict.responsible) == ("memory-growth", "user")
    assert "in eager as fast" in verdict.reason


def test_what_grows_faster_than_in_eager_says_both_slopes() -> None:
    """The excess is that of compiled code."""
    compiled = sampled(tensors=lambda at: 512 * at)
    verdict, _ = judged(compiled, sampled(tensors=lambda at: 128 * at))
    assert verdict.responsible == "torch"
    assert "grow by 512 with each call, in eager by 128" in verdict.reason


def test_without_a_run_in_eager_nobody_is_responsible() -> None:
    """A growth that was not compared is reported, and not blamed on torch."""
    verdict, _ = judged(sampled(tensors=lambda at: 512 * at), None)
    assert (verdict.kind, verdict.responsible) == ("memory-growth", "unknown")


def test_references_to_none_grow_only_with_a_holder_and_fall_without_one() -> None:
    """Torch 2.13 adds references to None with each call; a number that falls ends Python."""
    eager = sampled(none=lambda at: 9)
    assert judged(sampled(none=lambda at: 8 * at), eager)[0].kind != "memory-growth"
    nothings = GrowingHolder(what="list", path=["m.N"], place="/m.py:1", grew=1, holds="NoneType")
    kept, _ = judged(sampled((nothings,), none=lambda at: 9 * at), eager)
    assert kept.cause == names.NONE
    falls, _ = judged(sampled(none=lambda at: 100_000 - 92 * at), eager)
    assert "Python ends the program after some 892 calls" in falls.reason


def test_a_type_of_the_program_is_not_in_the_signature() -> None:
    """The names of the program are blanked, and those of torch and Python stay."""
    compiled = sampled(**{"torch.Tensor": lambda at: at})
    verdict, _ = judged(compiled, sampled())
    assert verdict.cause == "objects of torch.Tensor"
    own = CallsSampled(calls=200, at=AT, types={"secret_model.Node": AT})
    assert judged(own, sampled())[0].cause == "objects of the program"


def test_blocks_that_python_keeps_at_first_do_not_hide_a_holder() -> None:
    """The first calls take more blocks than the later ones, which only the holder grows by."""
    texts = dataclasses.replace(OWN, what="dict", holds="str")
    kept = sampled((texts,), blocks=lambda at: 5 * min(at, 110) + 2 * at)
    growth = growth_of_calls(kept, sampled(blocks=lambda at: 5 * min(at, 110)))
    (row,) = growth.growing
    assert (row.name, row.slope, row.is_in_eager) == (names.BLOCKS, 2.0, False)
    assert not growth_of_calls(sampled((texts,), blocks=lambda at: 5 * min(at, 110)), None).growing
