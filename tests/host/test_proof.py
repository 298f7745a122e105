"""A proof has as many fresh processes as the evidence needs, and they overrule a forked child."""

from __future__ import annotations

import dataclasses
import os
import socket
import sys
from pathlib import Path
from typing import Any

import pytest

from reprokit.core.experiments.places import Place
from reprokit.core.judge import same_failure
from reprokit.core.records.finding import Verdict
from reprokit.core.records.observation import Observation
from reprokit.core.shared.errors import BadInput
from reprokit.host.minimize import rerun_repro
from reprokit.host.minimize.proofs import proof
from reprokit.host.probe.candidate import CandidateResult, ProbeLimits
from reprokit.host.probe.client import ServerLost
from reprokit.host.probe.fresh_process import run_in_fresh_process
from tests.support.candidates import WANTED, judged

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


def judged_eager(is_eager: bool, compiled: CandidateResult) -> CandidateResult:
    """The result of a forked child that passes in eager."""
    return judged(same_failure.PASSES, kind="ok") if is_eager else compiled


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
        watch=None if forked is None else lambda text, is_eager: judged_eager(is_eager, forked),
    )


@pytest.mark.long
def test_a_forked_watched_run_is_one_of_the_runs(tmp_path: Path, watched: CandidateResult) -> None:
    """A plain run confirms it. No fresh process is watched, or runs without torch.compile."""
    proved = prove(tmp_path, "KeyError", watched, watched)
    assert (proved.answer, proved.hits, proved.runs) == (same_failure.SAME, 1, 1)
    assert [path.name for path in sorted(tmp_path.glob("stderr-*"))] == ["stderr-0.txt"]
    assert proved.eager == "passes" and not os.path.exists(tmp_path / "watched")


@pytest.mark.long
def test_a_forked_run_that_does_not_pass_in_eager_is_repeated(
    tmp_path: Path, watched: CandidateResult
) -> None:
    """A fresh process without torch.compile decides."""
    proved = proof.prove_program(
        PROGRAM.format(error="KeyError"),
        sys.executable,
        tmp_path,
        watched.signature,
        LIMITS,
        proof.ProofRuns(cores=2, max_tries=1),
        watch=lambda text, is_eager: watched,
    )
    assert (proved.hits, proved.runs, proved.eager) == (1, 1, "passes")
    assert (tmp_path / "stderr-1.txt").exists()


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


@FRESH
def test_programs_with_one_port_do_not_run_at_once(
    tmp_path: Path, watched: CandidateResult
) -> None:
    """The second one would fail because the port is in use, and not because of the compiler."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    opened = f"import socket\nport = socket.create_server(('127.0.0.1', {port}))\n"
    proved = proof.prove_program(
        opened + PROGRAM.format(error="KeyError"),
        sys.executable,
        tmp_path,
        watched.signature,
        LIMITS,
        proof.ProofRuns(4, cores=2, max_tries=1),
        watch=lambda text, is_eager: judged_eager(is_eager, watched),
    )
    assert (proved.hits, proved.runs) == (2, 2)
    assert (proved.changed, proved.eager) == (same_failure.SAME, "passes")


@pytest.mark.parametrize(
    ("kind", "phase", "rate", "limit", "is_forked", "runs"),
    [
        ("exception", "lowering", 1.0, 3, False, 2),
        ("exception", "lowering", 1.0, 3, True, 1),
        ("exception", "cpp-build", 1.0, 3, True, 2),
        ("exception", "lowering", 1.0, 1, False, 1),
        ("crash", "kernel-run", 1.0, 3, False, 3),
        ("crash", "kernel-run", 1.0, 3, True, 2),
        ("wrong-result", "inductor", 1.0, 3, True, 2),
        ("exception", "lowering", 0.5, 3, True, 8),
    ],
)
def test_the_evidence_sets_the_number_of_runs(
    kind: str, phase: str, rate: float, limit: int, is_forked: bool, runs: int
) -> None:
    """A failure of the compiler needs fewer plain runs than one of compiled code, and so does one
    that forked processes have shown.
    """
    verdict = Verdict(kind, phase, None, "")
    assert proof.ProofRuns(limit, rate).plain_runs(verdict, is_forked) == runs


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


@pytest.mark.parametrize(
    ("fresh", "tries", "instead"),
    [
        ([same_failure.PASSES] * 4, 4, "passes"),
        ([same_failure.OTHER] * 4, 4, "exit status 3"),
        ([same_failure.UNRESOLVED, same_failure.PASSES], 2, "passes"),
    ],
)
def test_a_program_that_does_not_fail_in_fresh_processes_has_no_plain_run(
    fresh: list[str], tries: int, instead: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A forked child that gives no result does not end the proof, and none of the plain runs could
    fail in the same way.
    """
    answers, shown = iter(fresh), list[str]()

    def run(text: str, python: str, folder: Path, *_: object) -> CandidateResult:
        return judged(next(answers), title="the title", seen=Observation(exit_status=3))

    def watch(text: str, is_eager: bool) -> CandidateResult:
        raise ServerLost("the process for trial runs ended: Killed")

    monkeypatch.setattr(proof, "run_in_fresh_process", run)
    proved = proof.prove_program(
        PROGRAM,
        sys.executable,
        tmp_path,
        WANTED,
        LIMITS,
        proof.ProofRuns(max_tries=tries),
        watch=watch,
        show=lambda status: shown.append(status.trying),
    )
    assert (proved.answer, proved.title) == (fresh[-1], "the title")
    assert (proved.tries, proved.runs, proved.hits, proved.eager) == (tries, 0, 0, "")
    assert proved.instead == instead
    assert shown == [
        "recorded by reprokit, in a forked process",
        "recorded by reprokit",
        *(f"recorded by reprokit, try {number}" for number in range(2, tries + 1)),
    ]
    assert not (tmp_path / "alone").exists()


@pytest.mark.parametrize(
    ("gpu", "text", "changed"),
    [
        ("none", "import torch\nx = torch.ones(2, device='cuda')\n", ("cpu", None)),
        ("h100", "import torch\nx = torch.ones(2, device='cpu')\n", ("cuda", "NVIDIA H100")),
        ("", "import torch\nx = torch.ones(2, device='cuda')\n", ("cuda", "NVIDIA A100")),
    ],
)
def test_a_place_has_the_device_of_its_words(
    gpu: str,
    text: str,
    changed: tuple[str, str | None],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The program and the simulation change together, also for a pack with another GPU."""
    ran: list[tuple[str, Any]] = []

    def run(
        text: str, python: str, folder: Path, wanted: object, limits: ProbeLimits, **_: object
    ) -> CandidateResult:
        ran.append((text, limits.gpu))
        return judged(same_failure.SAME)

    monkeypatch.setattr(rerun_repro, "run_in_fresh_process", run)
    place = Place(f"gpu={gpu}", gpu=gpu)
    packed = {"name": "NVIDIA A100"}
    result = rerun_repro.replay_repro(
        text, sys.executable, WANTED, 1, tmp_path, 60.0, gpu=packed, place=place
    )
    ((program, simulated),) = ran
    device, name = changed
    other = {"cpu": "cuda", "cuda": "cpu"}[device]
    assert device in program and f"'{other}'" not in program and result.hits == 1
    assert (simulated and str(simulated["name"])[: len(name or "")]) == name
