"""An oracle decides when a run has no answer, and what is run again."""

from __future__ import annotations

import contextlib
import dataclasses
import sys
from pathlib import Path
from typing import Any, NoReturn

import pytest

from reprokit.core.experiments.ablation import (
    VARIANTS,
    AblationStep,
    CompileVariant,
    ProgramAblation,
)
from reprokit.core.judge import same_failure
from reprokit.core.shared.errors import BadInput
from reprokit.host.minimize.answers import oracle as oracle_module
from reprokit.host.minimize.answers.budget import Budget
from reprokit.host.minimize.answers.oracle import (
    EAGER_S,
    MAX_RESTARTS,
    BudgetExhausted,
    Oracle,
    ProbeResult,
)
from reprokit.host.probe.candidate import CandidateResult, ProbeLimits
from reprokit.host.probe.client import ProbeServer, ServerLost
from tests.support.candidates import WANTED, ScriptedOracle, judged, signature_of

PROGRAM = "import torch\ntorch.compile(torch.relu)(torch.ones(2))\n"
LIMITS = ProbeLimits(60.0)


class LostServer(ProbeServer):
    """A server that ends with each program."""

    calls = 0

    def run_program(self, *arguments: Any, **more: Any) -> NoReturn:
        """Count the call, and end."""
        self.calls += 1
        raise ServerLost("the process for trial runs ended: Killed")


def oracle_of(folder: Path) -> tuple[Oracle, LostServer]:
    server = LostServer(folder / "server", sys.executable, "aot")
    return Oracle(folder, server, WANTED, LIMITS, sys.executable), server


def test_a_program_whose_server_is_lost_has_no_answer(tmp_path: Path) -> None:
    """It is not repeated: no different program ran that may have ended the server."""
    oracle, server = oracle_of(tmp_path)
    with contextlib.closing(oracle):
        result = oracle.run_once(PROGRAM)
    assert server.calls == 1
    assert (result.answer, result.verdict.kind) == (same_failure.UNRESOLVED, "unknown")
    assert result.signature.title == "the process for trial runs ended: Killed"


def test_a_server_that_is_lost_each_time_ends_the_reduction(tmp_path: Path) -> None:
    """The message says what ended it, and how often it was started."""
    oracle, _ = oracle_of(tmp_path)
    with contextlib.closing(oracle):
        for _ in range(MAX_RESTARTS):
            oracle.run_once(PROGRAM)
        with pytest.raises(BadInput, match="ended: Killed; it was started 6 times"):
            oracle.run_once(PROGRAM)


def test_the_end_of_the_budget_is_no_answer_for_a_flaky_failure(tmp_path: Path) -> None:
    """A program that passed in too few runs is run again when there is a budget."""

    def answer(text: str) -> str:
        oracle.budget = Budget(-1.0) if len(oracle.ran) == 2 else Budget()
        return same_failure.PASSES

    oracle = ScriptedOracle(tmp_path, answer)
    oracle.rate = 0.5
    with contextlib.closing(oracle):
        with pytest.raises(BudgetExhausted):
            oracle.answer_for(PROGRAM)
        assert len(oracle.ran) == 2
        oracle.budget = Budget()
        assert oracle.answer_for(PROGRAM) == same_failure.PASSES
    assert len(oracle.ran) == 2 + same_failure.repeats_for(0.5)


def test_a_fresh_process_runs_the_finished_program(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The program has what it needs to run alone, and its folder is deleted also after an error."""
    ran: list[tuple[str, bool]] = []

    def run(
        text: str, python: str, folder: Path, wanted: object, limits: ProbeLimits, is_eager: bool
    ) -> CandidateResult:
        folder.mkdir()
        (folder / "journal").touch()
        ran.append((text, is_eager))
        if is_eager:
            raise OSError("no process")
        return judged(same_failure.SAME)

    monkeypatch.setattr(oracle_module, "run_in_fresh_process", run)
    oracle, server = oracle_of(tmp_path)
    oracle.finish = lambda text: f"{text}# the writer\n"
    oracle.is_cold = True
    with contextlib.closing(oracle):
        assert oracle.run_once(PROGRAM).answer == same_failure.SAME
        with pytest.raises(OSError, match="no process"):
            oracle.run_once(PROGRAM, is_eager=True)
    assert ran == [(f"{PROGRAM}# the writer\n", False), (f"{PROGRAM}# the writer\n", True)]
    assert not server.calls and not (tmp_path / "cold").exists()


@pytest.mark.parametrize(
    ("elsewhere", "answer"),
    [(same_failure.SAME, same_failure.OTHER), (same_failure.PASSES, same_failure.SAME)],
)
def test_a_program_that_fails_where_the_original_passes_has_a_different_failure(
    elsewhere: str, answer: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each program that fails is run once more with the last backend that passes."""
    oracle = ScriptedOracle(tmp_path, lambda text: same_failure.SAME)
    used = []

    def warm(text: str, is_eager: bool, **more: Any) -> CandidateResult:
        used.append(more["overrides"])
        return judged(elsewhere)

    monkeypatch.setattr(oracle, "_warm", warm)
    with contextlib.closing(oracle):
        assert oracle.answer_for(PROGRAM) == same_failure.SAME and not used
        oracle.ways.must_pass = next(v for v in VARIANTS if v.name == 'backend="aot_eager"')
        assert oracle.answer_for(PROGRAM) == answer
    assert used == [{"compile": {"backend": "aot_eager"}}]


@pytest.mark.parametrize("is_reached", [True, False])
def test_eager_reaches_the_statement_that_raises_if_the_first_program_does(
    is_reached: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise a program that always raises, where eager never goes, would be the smaller one."""
    what = "torch._dynamo.exc.ObservedValueError: raised exception ValueError('no')"
    wanted = signature_of("exception", "dynamo-trace", what)
    oracle = ScriptedOracle(tmp_path, lambda text: same_failure.SAME, wanted=wanted)
    compiled = oracle.run_once

    def run_once(text: str, is_eager: bool = False) -> CandidateResult:
        if not is_eager:
            return compiled(text)
        fails = "reprokit_reached" in text and not (is_reached and "if" in text)
        return judged(same_failure.OTHER if fails else same_failure.PASSES)

    monkeypatch.setattr(oracle, "run_once", run_once)
    first = f"{PROGRAM}def f(x):\n    if x:\n        raise ValueError('no')\n"
    always = first.replace("    if x:\n    ", "")
    with contextlib.closing(oracle):
        oracle.begin_program(PROGRAM)
        oracle.begin_program(first)
        assert oracle.answer_for(first) == same_failure.SAME
        other = same_failure.OTHER if is_reached else same_failure.SAME
        assert oracle.answer_for(always) == other
        assert oracle.answer_for(PROGRAM) == same_failure.SAME


def variant(name: str) -> CompileVariant:
    """Return the way to compile with a backend."""
    return next(v for v in VARIANTS if v.name == f'backend="{name}"')


def profile(**answers: str) -> ProgramAblation:
    """Return an ablation with the answers of some backends."""
    steps = (
        AblationStep(f'backend="{name}"', "backends", one, "", "") for name, one in answers.items()
    )
    return ProgramAblation(tuple(steps))


def test_a_program_keeps_the_backends_with_which_the_original_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A backend that differed once is compared for each later program, and once is enough."""
    original = profile(eager=same_failure.SAME, aot_eager=same_failure.SAME)
    oracle = ScriptedOracle(tmp_path, lambda text: same_failure.SAME)
    answers = iter([same_failure.PASSES, same_failure.SAME])
    monkeypatch.setattr(oracle, "_warm", lambda *_, **more: judged(next(answers)))
    with contextlib.closing(oracle):
        assert oracle.answer_for(PROGRAM) == same_failure.SAME
        assert not oracle.keep_profile(None, original)
        assert oracle.keep_profile(variant("aot_eager"), original)
        assert not oracle.keep_profile(variant("aot_eager"), original)
        assert oracle.answer_for(PROGRAM) == same_failure.OTHER  # the known answer is forgotten
        assert oracle.answer_for(f"{PROGRAM}# more\nx = 1\n") == same_failure.SAME


def test_candidates_are_compiled_in_the_cheapest_way(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The eager run stays as it is."""
    oracle, _ = oracle_of(tmp_path)
    used = []

    def warm(text: str, is_eager: bool, **more: Any) -> CandidateResult:
        used.append((is_eager, more["overrides"]))
        return judged(same_failure.SAME)

    monkeypatch.setattr(oracle, "_warm", warm)
    oracle.ways.candidates = variant("aot_eager")
    with contextlib.closing(oracle):
        oracle.run_once(PROGRAM)
        oracle.run_once(PROGRAM, is_eager=True)
    assert used == [(False, {"compile": {"backend": "aot_eager"}}), (True, None)]


@pytest.mark.parametrize("is_slow", [False, True])
def test_a_quick_program_has_little_time_in_eager(is_slow: bool, tmp_path: Path) -> None:
    """A candidate with an endless loop ends early, and the first program does not."""
    limits: list[tuple[bool, float]] = []

    class Noting(LostServer):
        def run_program(self, *arguments: Any, **more: Any) -> NoReturn:
            _, given, is_eager, *_ = arguments
            limits.append((is_eager, given.deadline_s))
            raise ServerLost("the process for trial runs ended: Killed")

    server = Noting(tmp_path / "server", sys.executable, "aot")
    oracle = Oracle(tmp_path, server, WANTED, LIMITS, sys.executable)
    with contextlib.closing(oracle):
        oracle.begin_program(PROGRAM)
        oracle.run_once(PROGRAM, is_eager=True)
        found = ProbeResult(same_failure.SAME, judged(same_failure.SAME), False, is_slow)
        oracle.accept(PROGRAM, oracle.examine(PROGRAM)[0], found)
        oracle.run_once(PROGRAM, is_eager=True)
        oracle.run_once(PROGRAM)
        oracle.begin_program(PROGRAM)
        oracle.run_once(PROGRAM, is_eager=True)
    usual = LIMITS.deadline_s
    later = usual if is_slow else EAGER_S
    assert limits == [(True, usual), (True, later), (False, usual), (True, usual)]


@pytest.mark.parametrize("cpu_s", [1.0, 9.0])
def test_a_program_that_takes_much_longer_is_not_smaller(cpu_s: float, tmp_path: Path) -> None:
    """Without its number of layers, a model has the default one."""

    class Timed(ScriptedOracle):
        def run_once(self, text: str, is_eager: bool = False) -> CandidateResult:
            result = super().run_once(text, is_eager)
            return dataclasses.replace(result, cpu_s=cpu_s)

    limits = ProbeLimits(60.0, most_cpu_s=5.0)
    oracle = Timed(tmp_path, lambda text: same_failure.SAME, limits=limits)
    with contextlib.closing(oracle):
        assert oracle.shows_failure(PROGRAM) == (cpu_s < 5.0)
