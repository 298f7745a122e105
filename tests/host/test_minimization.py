"""A reduction proves its smallest program, and its notes say why the result is not more."""

from __future__ import annotations

import itertools
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from reprokit.core.experiments.ablation import AblationStep, ProgramAblation
from reprokit.core.judge import same_failure
from reprokit.core.records.finding import Signature, Verdict
from reprokit.core.records.observation import Observation
from reprokit.core.reduce.graphs.graph_units import GraphProgram
from reprokit.core.shared.result_comparison import Comparison, Difference
from reprokit.host.minimize import cases, locate, minimization
from reprokit.host.minimize.answers.budget import Budget
from reprokit.host.minimize.answers.oracle import Oracle
from reprokit.host.minimize.minimize_result import MinimizeResult
from reprokit.host.minimize.proofs.proof import Proof
from reprokit.host.minimize.starts.starting_points import StartingPoint
from reprokit.host.probe.candidate import CandidateResult, ProbeLimits
from reprokit.host.probe.client import ProbeServer
from tests.support.candidates import WANTED, FakeRunner, ScriptedOracle, judged, signature_of

PROGRAM = "import torch\ntorch.compile(torch.relu)(torch.ones(2))\n"
WRONG = Comparison((Difference(0, "output[0]", "values", "compiled"),), leaves=1, tensors=1)


def minimize(
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    kind: str,
    wanted: Signature,
    answer_for: Callable[[Oracle, str], str],
    eager: str = "",
) -> tuple[MinimizeResult, int]:
    """Return the result of a reduction whose proof shows the failure each time, and the number of
    proofs.
    """
    proofs = itertools.count()

    def make_oracle(
        folder: Path, server: object, wanted: Signature, limits: ProbeLimits, *_: object
    ) -> Oracle:
        oracle = ScriptedOracle(folder, lambda text: answer_for(oracle, text), limits=limits)
        return oracle

    def prove(
        text: str,
        python: str,
        folder: Path,
        wanted: Signature,
        limits: ProbeLimits,
        number: object,
        confirm: Callable[[CandidateResult], CandidateResult],
        *_: object,
    ) -> Proof:
        next(proofs)
        seen = Observation(exit_status=0, has_instrumentation=True, comparison=WRONG)
        result = confirm(judged(same_failure.SAME, kind, seen=seen))
        hits = 3 if result.answer == same_failure.SAME else 0
        return Proof(result.answer, result.signature.title, "", runs=3, hits=hits, eager=eager)

    monkeypatch.setattr(minimization, "Oracle", make_oracle)
    monkeypatch.setattr(minimization.proof, "prove_program", prove)
    case = cases.MinimizeCase(
        Verdict(kind, wanted.parts.phase or "lowering", None, ""),
        wanted,
        Observation(exit_status=1, eager="passes"),
        folder,
        sys.executable,
        PROGRAM,
    )
    server = ProbeServer(folder / "server", sys.executable, "aot")
    return minimization.minimize_case(case, server, 600.0), next(proofs)


@pytest.mark.parametrize("first", ['backend="aot_eager_decomp_partition"', 'backend="inductor"'])
def test_a_smaller_program_that_is_wrong_elsewhere_is_named(
    first: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is not proved again in another way, because more runs do not move it."""
    runner: Any = type("Runner", (FakeRunner,), {"first": first})
    monkeypatch.setattr(locate, "AblationRunner", runner)
    wanted = signature_of("wrong-result", "decompositions", "numbers")

    def answer(oracle: Oracle, text: str) -> str:
        return same_failure.SAME if "relu" in text else same_failure.PASSES

    result, proofs = minimize(tmp_path, monkeypatch, "wrong-result", wanted, answer)
    note = (
        "the smallest program has a different failure: it is wrong elsewhere in the compiler:"
        " wrong-result: inductor | numbers"
    )
    assert result.notes == ([note] if "inductor" in first else [])
    assert proofs == 1 and result.is_complete and "relu" in result.text


@pytest.mark.parametrize("eager", ["passes", "IndexError: Target 1 is out of bounds."])
def test_a_program_that_fails_in_eager_is_no_repro(
    eager: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The original passes without torch.compile, so its repro must do so too."""

    def answer(oracle: Oracle, text: str) -> str:
        return same_failure.SAME if "relu" in text else same_failure.PASSES

    result, proofs = minimize(tmp_path, monkeypatch, "exception", WANTED, answer, eager)
    assert result.proof is not None and proofs == 1
    is_same = result.proof.answer == same_failure.SAME
    assert is_same == (eager == "passes")
    assert result.proof.instead == (
        "" if is_same else f"without torch.compile it ends with {eager}"
    )


def test_a_reduction_whose_budget_ends_keeps_the_best_program(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is proved once, and the user reads how to go on."""

    def answer(oracle: Oracle, text: str) -> str:
        oracle.budget = Budget(-1.0)
        return same_failure.SAME

    result, proofs = minimize(tmp_path, monkeypatch, "exception", WANTED, answer)
    assert result.notes == ["the budget ended: this is the best so far; --resume continues from it"]
    assert proofs == 1 and not result.is_complete
    assert "torch.relu" in result.text and (tmp_path / "minimize" / "best.py").is_file()


def test_a_budget_that_ends_before_the_first_failure_gives_no_program(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is proved."""

    def answer(oracle: Oracle, text: str) -> str:
        oracle.budget = Budget(-1.0)
        return same_failure.PASSES

    result, proofs = minimize(tmp_path, monkeypatch, "exception", WANTED, answer)
    assert result.notes == ["the budget ended before any program showed the failure"]
    assert (proofs, result.text) == (0, "")


@pytest.mark.parametrize(
    ("phase", "first", "is_plain"),
    [
        ("guards", "", True),
        ("guards", 'backend="eager"', True),
        ("guards", 'backend="inductor"', False),
        ("lowering", "", False),
    ],
)
def test_a_graph_of_a_failure_while_dynamo_traces_needs_only_dynamo(
    phase: str, first: str, is_plain: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A convolution that only Inductor specializes is not the loop that Dynamo specialized."""
    start = StartingPoint("dynamo", PROGRAM, GraphProgram((), {}, (), (), {}, {}))
    monkeypatch.setattr(cases, "starting_points_of_case", lambda case: [start])
    verdict = Verdict("exception", phase, "ConstraintViolationError", "It was raised.")
    steps = (AblationStep(first, "backends", same_failure.SAME, "", ""),) * bool(first)
    profile = ProgramAblation(steps)
    case = cases.MinimizeCase(verdict, WANTED, Observation(), tmp_path, "", profile=profile)
    (changed,) = (s for s in minimization._with_plain_backend(case) if s.graph is not None)
    assert ("backend='eager'" in changed.text) is is_plain
    assert changed.graph is not None
    assert (changed.graph.settings.get("backend") == "'eager'") is is_plain
