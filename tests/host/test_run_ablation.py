"""An ablation goes on without a lost server, and ends early where the program's own code fails."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from reprokit.core.experiments.ablation import (
    BACKENDS,
    EAGER,
    INDUCTOR,
    OWN_BACKEND,
    OWN_PASSES,
    VARIANTS,
    CompileVariant,
)
from reprokit.core.experiments.remedies import remedy_table
from reprokit.core.judge import same_failure
from reprokit.core.records.finding import Verdict
from reprokit.core.records.observation import Observation
from reprokit.host.experiments import run_ablation
from reprokit.host.probe.candidate import CandidateResult, ProbeLimits
from reprokit.host.probe.client import ProbeServer, ServerLost
from reprokit.host.report import report_head
from tests.support.candidates import WANTED, judged, signature_of

SAME, PASSES = same_failure.SAME, same_failure.PASSES


class ScriptedRunner(run_ablation.AblationRunner):
    """A runner with an answer for each variant; None where its server ends."""

    def __init__(self, folder: Path, answers: dict[str, list[str | None]], usual: str) -> None:
        server = ProbeServer(folder / "server", sys.executable, "aot")
        super().__init__(server, "import torch\n", WANTED, ProbeLimits(60.0), sys.executable)
        self._answers = {name: iter(rows) for name, rows in answers.items()}
        self._usual = usual
        self.searched: list[str] = []

    def run_variant(self, variant: CompileVariant) -> CandidateResult:
        """Return the next answer of a variant."""
        rows: Iterator[str | None] = self._answers.get(variant.name, iter((self._usual,)))
        answer = next(rows)
        if answer is None:
            raise ServerLost(f"the process for trial runs ended: {variant.name}")
        return judged(answer)

    def find_application(
        self,
        subsystem: str,
        show: object = None,
        without: Sequence[str] = (),
        overrides: Any = None,
    ) -> str:
        """Note the search."""
        self.searched.append(subsystem)
        return "aten.relu" if subsystem == "lowerings" else ""


def ignore(status: object) -> None:
    """Show nothing."""


def test_a_step_whose_server_is_lost_is_run_again(tmp_path: Path) -> None:
    """It is unresolved only where the second run loses its server too, and the others go on."""
    lost: list[str | None] = [None, None, SAME]
    runner = ScriptedRunner(tmp_path, {EAGER.name: [None, PASSES], INDUCTOR.name: lost}, SAME)
    ablation = runner.run_variants(VARIANTS[:5])
    assert [step.answer for step in ablation.steps] == [
        PASSES,
        *[SAME] * 3,
        same_failure.UNRESOLVED,
    ]
    last = ablation.steps[-1]
    assert (last.name, last.group, last.verdict) == (INDUCTOR.name, "backends", "unknown")
    assert last.title.startswith('the process for trial runs ended: backend="inductor"')


@pytest.mark.parametrize(
    ("seen", "answers", "own"),
    [
        (Observation(own_passes=("train.py:9",)), {OWN_PASSES.name: [PASSES]}, "passes"),
        (Observation(own_backend="train.py:3"), {OWN_BACKEND.name: [SAME]}, "backend"),
    ],
)
def test_a_failure_of_own_code_is_not_searched_in_the_compiler(
    seen: Observation, answers: dict[str, list[str | None]], own: str, tmp_path: Path
) -> None:
    """All steps run, with those of the own code first, and no pass of torch is blamed."""
    before: dict[str, list[str | None]] = {v.name: [PASSES] for v in VARIANTS[:4]}
    usual = SAME if own == "passes" else PASSES
    runner = ScriptedRunner(tmp_path, {**before, **answers}, usual)
    ablation = run_ablation.ablate_everything(runner, seen, ignore)
    assert (ablation.own, ablation.blamed, runner.searched) == (own, "", [])
    assert ablation.steps[0].group == "own" and len(ablation.steps) == len(VARIANTS) + 1


def test_a_failure_of_the_compiler_is_searched_in_it(tmp_path: Path) -> None:
    """The first application that is found is blamed."""
    before: dict[str, list[str | None]] = {v.name: [PASSES] for v in VARIANTS[:4]}
    runner = ScriptedRunner(tmp_path, before, SAME)
    ablation = run_ablation.ablate_everything(runner, Observation(), ignore)
    assert ablation.blamed == "it disappears without the lowering `aten.relu`"
    assert runner.searched == list(run_ablation.SUBSYSTEMS["inductor"])


@pytest.mark.parametrize("text", [None, "{", '{"steps": 3}', "[]"])
def test_a_missing_or_damaged_ablation_is_none(text: str | None, tmp_path: Path) -> None:
    """The ablation of an earlier run is optional."""
    if text is not None:
        (tmp_path / "ablation.json").write_text(text)
    assert run_ablation.load_ablation(tmp_path) is None


@pytest.mark.parametrize(
    ("is_traced", "eager", "costly"),
    [(True, SAME, False), (True, PASSES, True), (False, SAME, True)],
)
def test_a_failure_of_tracing_needs_no_costly_backend(
    is_traced: bool, eager: str, costly: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What fails with the backend "eager" while it is traced fails with the backends above it."""
    monkeypatch.setattr(ScriptedRunner, "is_traced", is_traced)
    answers: dict[str, list[str | None]] = {EAGER.name: [PASSES], VARIANTS[1].name: [eager]}
    runner = ScriptedRunner(tmp_path, answers, SAME)
    ablation = run_ablation.ablate_for_capture(runner, Observation(), ignore)
    names = [step.name for step in ablation.steps]
    assert (INDUCTOR.name in names) == costly
    assert VARIANTS[2].name in names and "dynamic=False" in names


@pytest.mark.parametrize(
    ("rows", "answer", "backends"),
    [([SAME], SAME, ["eager"]), ([PASSES, PASSES], PASSES, ["eager", None])],
)
def test_a_switch_is_tried_with_the_fastest_backend(
    rows: list[str | None],
    answer: str,
    backends: list[str | None],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A switch that avoids a failure of tracing is tried again as the program compiles."""
    tried: list[str | None] = []

    class Noting(ScriptedRunner):
        is_traced = True

        def run_variant(self, variant: CompileVariant) -> CandidateResult:
            if variant.name == "dynamic=False":
                assert variant.overrides["compile"]["dynamic"] is False
                tried.append(variant.overrides["compile"].get("backend"))
            return super().run_variant(variant)

    answers: dict[str, list[str | None]] = {EAGER.name: [PASSES], "dynamic=False": rows}
    ablation = run_ablation.ablate_for_capture(
        Noting(tmp_path, answers, SAME), Observation(), ignore
    )
    assert tried == backends
    assert [s.answer for s in ablation.steps if s.name == "dynamic=False"] == [answer]


COUNTS = """
import torch
class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.step = 0
    def forward(self, x):
        self.step += 1
        return x + self.step
net = torch.compile(Net())
for _ in range(12):
    net(torch.ones(2))
"""


@pytest.mark.real("it compiles a program with each setting, as a capture of a recompile limit does")
def test_the_setting_that_avoids_recompiles_is_found(tmp_path: Path) -> None:
    """It is tried on the program itself, and comes before backends in what avoids the failure."""
    limits = ProbeLimits(60.0)
    with ProbeServer(tmp_path, sys.executable, "dynamo") as server:
        first = run_ablation.AblationRunner(server, COUNTS, WANTED, limits, sys.executable)
        found = first.run_variant(BACKENDS[1])
        tried = remedy_table.remedies_in_capture(found.verdict, found.seen, COUNTS, "")
        runner = run_ablation.AblationRunner(
            server, COUNTS, found.signature, limits, sys.executable, tried
        )
        ablation = run_ablation.ablate_for_capture(runner, found.seen, ignore)
    setting = "torch._dynamo.config.allow_unspec_int_on_nn_module = True"
    change = "`self.step = torch.tensor(0)` instead of `self.step = 0`"
    assert found.verdict.kind == "recompile-limit"
    assert report_head.ways_to_avoid(ablation.to_json(), "")[:2] == [change, setting]
    assert f"it passes with {change}, and with {setting}" in ablation.sentence
    (check,) = (check for check in ablation.checks if check.what["with"] == setting)
    assert check.what["configs"] == {setting.partition(" = ")[0]: True}


def test_only_failures_that_a_setting_may_avoid_have_remedies(tmp_path: Path) -> None:
    """An exception has none, and no step runs twice."""
    exception = Verdict("exception", "lowering", "it", "it fails")
    assert remedy_table.remedies_in_capture(exception, Observation(), "", "") == ()
    for kind in remedy_table.SETTINGS:
        runner = ScriptedRunner(tmp_path, {}, PASSES)
        runner._wanted = signature_of(kind, "guards", "it")
        verdict = Verdict(kind, "guards", "it", "it fails")
        runner.remedies = remedy_table.remedies_in_capture(verdict, Observation(), "", "")
        steps = run_ablation.ablate_everything(runner, Observation(), ignore).steps
        names = [step.name for step in steps]
        assert len(names) == len(set(names))
        assert {remedy.name for remedy in runner.remedies} <= {*names}
