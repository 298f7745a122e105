"""A proof has as many fresh processes as the evidence needs, and they overrule a forked child."""

from __future__ import annotations

import dataclasses
import os
import sys
from pathlib import Path

import pytest

from reprokit.core.experiments.places import Place
from reprokit.core.judge import same_failure
from reprokit.core.records.finding import Verdict
from reprokit.core.shared.errors import BadInput
from reprokit.host.minimize import rerun_repro
from reprokit.host.minimize.proofs import proof
from reprokit.host.probe.candidate import CandidateResult, ProbeLimits
from reprokit.host.probe.fresh_process import run_in_fresh_process

FRESH = pytest.mark.real("each run of a proof is a new process that imports torch")

PROGRAM = """
import torch
def backend(graph, inputs):
    raise {error}('the backend refuses')
torch.compile(lambda x: x.relu(), backend=backend)(torch.ones(2))
"""
LIMITS = ProbeLimits(60.0)


@pytest.fixture(scope="module")
def watched(tmp_path_factory: pytest.TempPathFactory) -> CandidateResult:
    """The watched run of the program, whose signature is the one that is wanted."""
    from reprokit.core.judge.signature import ALGORITHM
    from reprokit.core.records.finding import Signature

    folder = tmp_path_factory.mktemp("watched") / "run"
    text = PROGRAM.format(error="KeyError")
    found = run_in_fresh_process(text, sys.executable, folder, Signature("", "", ALGORITHM), LIMITS)
    return dataclasses.replace(found, answer=same_failure.SAME)


def prove(
    folder: Path, error: str, watched: CandidateResult, forked: CandidateResult | None
) -> proof.Proof:
    return proof.prove_program(
        PROGRAM.format(error=error),
        sys.executable,
        folder,
        watched.signature,
        LIMITS,
        proof.ProofRuns(cores=2, max_tries=1),
        watch=None if forked is None else lambda text: forked,
    )


@FRESH
def test_a_forked_watched_run_is_one_of_the_runs(tmp_path: Path, watched: CandidateResult) -> None:
    """Two plain runs and one in eager confirm it, and no fresh process is watched."""
    proved = prove(tmp_path, "KeyError", watched, watched)
    assert (proved.answer, proved.hits, proved.runs) == (same_failure.SAME, 2, 2)
    assert proved.eager == "passes" and not os.path.exists(tmp_path / "watched")


@FRESH
def test_a_forked_child_that_shares_a_failure_is_noticed(
    tmp_path: Path, watched: CandidateResult
) -> None:
    """The forked child says that the program fails as wanted, because of something that it shares.
    In fresh processes the program fails differently, and those decide.
    """
    proved = prove(tmp_path, "ValueError", watched, watched)
    assert proved.answer == same_failure.OTHER and "ValueError" in proved.instead
    assert (tmp_path / "watched").exists()


@pytest.mark.long
def test_without_a_forked_child_a_fresh_process_is_watched(
    tmp_path: Path, watched: CandidateResult
) -> None:
    """The proof has the same counts."""
    proved = prove(tmp_path, "KeyError", watched, None)
    assert (proved.hits, proved.runs, proved.tries) == (2, 2, 1)
    assert (tmp_path / "watched").exists()


@pytest.mark.parametrize(
    ("kind", "rate", "limit", "runs"),
    [
        ("exception", 1.0, 3, 2),
        ("exception", 1.0, 1, 1),
        ("crash", 1.0, 3, 3),
        ("wrong-result", 1.0, 3, 3),
        ("exception", 0.5, 3, 8),
    ],
)
def test_the_evidence_sets_the_number_of_runs(
    kind: str, rate: float, limit: int, runs: int
) -> None:
    """A failure of the compiler needs fewer plain runs than one of compiled code."""
    assert proof.ProofRuns(limit, rate).plain_runs(kind) == runs


def test_a_simulated_gpu_cannot_show_what_needs_a_kernel() -> None:
    """It compiles, and runs nothing."""
    place, text = Place("gpu=h100", gpu="h100"), "import torch\n"
    rerun_repro.check_device(place, text, Verdict("exception", "lowering", None, ""))
    for verdict in (
        Verdict("wrong-result", "inductor", None, ""),
        Verdict("crash", "kernel-run", None, ""),
    ):
        with pytest.raises(BadInput, match="a simulated GPU runs no kernels"):
            rerun_repro.check_device(place, text, verdict)
    with pytest.raises(BadInput, match="the repro is not a program"):
        rerun_repro.check_device(place, "x = (", Verdict("exception", "lowering", None, ""))
