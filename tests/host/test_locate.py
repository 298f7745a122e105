"""The search for the part of the compiler where wrong results begin, without a process."""

from __future__ import annotations

import contextlib
import dataclasses
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from reprokit.core.experiments.ablation import BACKENDS, CompileVariant
from reprokit.core.judge import same_failure
from reprokit.core.judge.signature import sign_verdict
from reprokit.core.judge.verdict import judge_run
from reprokit.core.records.observation import Observation
from reprokit.core.shared.result_comparison import Comparison, Difference
from reprokit.host.experiments.run_ablation import SUBSYSTEMS
from reprokit.host.minimize import locate
from reprokit.host.minimize.starts.starting_points import StartingPoint
from reprokit.host.probe.candidate import CandidateResult, ProbeLimits
from reprokit.host.probe.client import ProbeServer, ServerLost
from reprokit.host.system.progress import OperationStatus
from tests.support.candidates import FakeRunner, ScriptedOracle, judged, signature_of

SAME, OTHER, PASSES = same_failure.SAME, same_failure.OTHER, same_failure.PASSES
PROGRAM = "import torch\ntorch.compile(torch.relu)(torch.ones(2))\n"
LIMITS = ProbeLimits(60.0, compares=True)
WRONG = Comparison((Difference(0, "output[0]", "values", "compiled"),), leaves=1, tensors=1)
WANTED = signature_of("wrong-result", "decompositions", "numbers")


def check_of(
    folder: Path, monkeypatch: pytest.MonkeyPatch, **of_runner: Any
) -> locate.LocationCheck:
    """Return the check of a program with a runner that has these attributes."""
    runner = type("Runner", (FakeRunner,), of_runner)
    monkeypatch.setattr(locate, "AblationRunner", runner)
    server = ProbeServer(folder / "server", sys.executable, "build")
    return locate.LocationCheck(server, PROGRAM, WANTED, LIMITS, sys.executable)


def test_the_first_graph_with_wrong_results_is_located(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A graph whose server is lost is left out, and the user sees how many graphs were tried."""
    starts = [StartingPoint("dynamo", f"{PROGRAM}# {n}\n") for n in range(4)]
    answers = dict(zip((s.text for s in starts), (PASSES, "lost", SAME, SAME), strict=True))

    def run(server: ProbeServer, text: str, *_: object) -> object:
        if answers[text] == "lost":
            raise ServerLost("the process for trial runs ended: killed")
        return judged(answers[text])

    monkeypatch.setattr(locate, "run_in_forked_child", run)
    shown: list[tuple[int, int, str]] = []

    def show(status: OperationStatus) -> None:
        shown.append((status.done, status.total, status.trying))

    def first(starts: Sequence[StartingPoint]) -> str:
        server = ProbeServer(tmp_path / "server", sys.executable, "build")
        return locate.first_wrong_program(starts, server, WANTED, LIMITS, sys.executable, show)

    assert first(starts) == starts[2].text
    words = "which recorded graph gives wrong results by itself"
    assert shown == [(n, 4, words) for n in (1, 2, 3)]
    assert first(starts[:2]) == ""


def test_a_backend_alone_isolates_what_has_no_operator() -> None:
    """Where the operator is known, it is isolated too, and the strictest overrides come first."""
    seen = Observation(failing_part="decompositions")
    backend = {"compile": {"backend": "aot_eager_decomp_partition"}}
    assert list(locate.isolating_overrides(seen)) == [backend]
    located = dataclasses.replace(seen, departs="aten.silu", departs_in="decomposition")
    bisect = {"subsystem": "decomposition", "only": "aten.silu"}
    assert list(locate.isolating_overrides(located)) == [{**backend, "bisect": bisect}, backend]


@pytest.mark.parametrize("answer", [SAME, PASSES])
def test_a_part_is_isolated_only_where_it_still_fails(answer: str, tmp_path: Path) -> None:
    """Otherwise candidates are compiled as usual."""
    oracle = ScriptedOracle(tmp_path, lambda text: answer, limits=LIMITS)
    seen = Observation(failing_part="decompositions")
    with contextlib.closing(oracle):
        locate.isolate_signature(oracle, seen, [StartingPoint("dynamo", PROGRAM)])
    backend = {"compile": {"backend": "aot_eager_decomp_partition"}}
    assert oracle.limits.alone == (backend if answer == SAME else {})
    assert oracle.ran == [PROGRAM]


@pytest.mark.parametrize(
    ("first", "answer", "phase"),
    [
        ('backend="aot_eager_decomp_partition"', SAME, "decompositions"),
        ('backend="inductor"', OTHER, "inductor"),
        ("no backend", OTHER, None),
    ],
)
def test_wrong_results_that_begin_elsewhere_are_different(
    first: str, answer: str, phase: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A program is the same failure only if its wrong results begin in the part of the
    signature.
    """
    check = check_of(tmp_path, monkeypatch, first=first)
    seen = Observation(exit_status=0, has_instrumentation=True, comparison=WRONG)
    confirmed = check(judged(SAME, "wrong-result", seen=seen))
    assert (confirmed.answer, check.is_elsewhere) == (answer, answer == OTHER)
    assert confirmed.verdict.kind == "wrong-result"
    if phase is None:
        assert confirmed.seen == seen and not FakeRunner.searches
    else:
        assert confirmed.signature.parts.phase == phase


def test_several_wrong_subsystems_are_searched_one_by_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each is first searched with all others at work, the last one first, and then with the later
    ones off.
    """
    names = SUBSYSTEMS["inductor"]
    found = {(names[1], names[2:]): "pass_pattern"}
    check = check_of(tmp_path, monkeypatch, first='backend="inductor"', found=found)
    seen = Observation(exit_status=0, has_instrumentation=True, comparison=WRONG)
    confirmed = check(judged(SAME, "wrong-result", seen=seen))
    assert FakeRunner.searches == [
        *((name, ()) for name in reversed(names)),
        (names[0], names[1:]),
        (names[1], names[2:]),
    ]
    assert (confirmed.seen.departs, confirmed.seen.departs_in) == ("pass_pattern", names[1])
    confirmed = check_of(tmp_path, monkeypatch, first='backend="inductor"')(
        judged(SAME, "wrong-result", seen=seen)
    )
    later = [(name, names[n:]) for n, name in enumerate(names[:-1], 1)]
    assert FakeRunner.searches == [*((name, ()) for name in reversed(names)), *later]
    assert (confirmed.seen.departs, confirmed.seen.failing_part) == ("", "inductor")


@pytest.mark.parametrize(
    ("first", "why"),
    [
        ('backend="inductor"', ""),
        (
            'backend="aot_eager"',
            'with backend="aot_eager" it fails, and the original passes',
        ),
    ],
)
def test_an_exception_is_the_same_if_the_same_backends_fail(
    first: str, why: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Message and frames may agree although the failing layer does not."""
    runner = type("Runner", (FakeRunner,), {"first": first})
    monkeypatch.setattr(locate, "AblationRunner", runner)
    original = type("Original", (FakeRunner,), {"first": 'backend="inductor"'})
    profile = original().run_variants(BACKENDS)
    server = ProbeServer(tmp_path / "server", sys.executable, "build")
    wanted = signature_of(
        "exception", "kernel-run", "RuntimeError: modified by an inplace operation"
    )
    check = locate.LocationCheck(
        server, PROGRAM, wanted, ProbeLimits(60.0), sys.executable, profile
    )
    answer = check(judged(SAME)).answer
    assert (answer, check.why) == (OTHER if why else SAME, why)
    assert check.is_elsewhere == bool(why)
    assert check(judged(PASSES)).answer == PASSES


def test_without_a_profile_nothing_is_compared(tmp_path: Path) -> None:
    """The original could not be compiled in other ways."""
    server = ProbeServer(tmp_path / "server", sys.executable, "build")
    wanted = signature_of("exception", "lowering", "KeyError")
    check = locate.LocationCheck(server, PROGRAM, wanted, ProbeLimits(60.0), sys.executable)
    assert check(judged(SAME)).answer == SAME and not check.is_elsewhere


@pytest.mark.parametrize(
    ("wrong_with", "searches"),
    [
        (["bisect"], 0),
        ([], 1),
        (["bisect", 'backend="aot_eager_decomp_partition"'], 1),
    ],
)
def test_a_location_that_is_wanted_is_checked_before_it_is_searched(
    wrong_with: list[str], searches: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It holds if only that operator makes the results wrong, and no earlier backend does."""

    def run_variant(self: FakeRunner, variant: CompileVariant) -> CandidateResult:
        is_wrong = any(word in variant.overrides or word == variant.name for word in wrong_with)
        return judged(SAME if is_wrong else PASSES, "wrong-result")

    name = SUBSYSTEMS["inductor"][-1]
    first = 'backend="inductor"'
    of_runner = {"first": first, "run_variant": run_variant, "found": {(name, ()): "aten.mm"}}
    runner = type("Runner", (FakeRunner,), of_runner)
    monkeypatch.setattr(locate, "AblationRunner", runner)
    profile = type("Original", (FakeRunner,), {"first": first})().run_variants(BACKENDS)
    seen = Observation(exit_status=0, has_instrumentation=True, comparison=WRONG)
    original = dataclasses.replace(
        seen, failing_part="inductor", departs="aten.mm", departs_in=name
    )
    alone = next(locate.isolating_overrides(original))
    check = locate.LocationCheck(
        ProbeServer(tmp_path / "server", sys.executable, "build"),
        PROGRAM,
        sign_verdict(judge_run(original), original),
        dataclasses.replace(LIMITS, alone=alone),
        sys.executable,
        profile,
        original,
    )
    confirmed = check(judged(SAME, "wrong-result", seen=seen))
    assert (confirmed.seen.departs, confirmed.seen.departs_in) == ("aten.mm", name)
    assert confirmed.answer == SAME and len(FakeRunner.searches) == searches
