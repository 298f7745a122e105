"""The steps that study a failure pass on what the commands of a user allow."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from reprokit.core.experiments.ablation import AblationStep, ProgramAblation
from reprokit.core.judge import same_failure
from reprokit.core.records.dumps import Link, Raised
from reprokit.core.records.finding import Verdict
from reprokit.core.records.observation import Answer, Missing, Observation
from reprokit.core.records.rank_graphs import GraphRecord
from reprokit.core.shared.result_comparison import Comparison, Difference
from reprokit.host.minimize import locate
from reprokit.host.minimize.minimize_result import MinimizeResult
from reprokit.host.minimize.proofs.proof import Proof
from reprokit.host.minimize.starts.starting_points import StartingPoint
from reprokit.host.pipeline import announcement, run_steps, study_steps
from reprokit.host.pipeline.state import Callbacks, State, StudyTools
from reprokit.host.probe.candidate import CandidateResult
from reprokit.host.request.run_request import Request
from reprokit.host.request.target import Target, parse_command
from reprokit.host.run import run_directory
from tests.support.candidates import judged

COMMAND = Request(parse_command(("python", "train.py")))
FACTORY = Request(Target("file", "model.py", "make"))
PROGRAM = "import torch\ntorch.compile(torch.relu)(torch.ones(2))\n"
WRONG = Verdict("wrong-result", None, None, "Compiled results are wrong.", responsible="torch")
DIFFERENT = Comparison((Difference(0, "output[0]", "values", "compiled"),), leaves=1, tensors=1)
HANG = Verdict("hang", "lowering", "unknown", "It did not advance.", responsible="torch")
ENDED: Any = SimpleNamespace(is_interrupted=False, seconds=9.0, quiet_s=4.0)


@pytest.fixture
def run_dir(tmp_path: Path) -> Iterator[run_directory.RunDir]:
    held = run_directory.create_run_directory(tmp_path, "steps")
    yield held
    held.release_lock()


def state_of(
    run_dir: run_directory.RunDir, request: Request, verdict: Verdict, **more: Any
) -> State:
    state = State(request, run_dir, Callbacks(lambda text: None), StudyTools(), outcome=ENDED)
    return dataclasses.replace(state, verdict=verdict, **more)


@pytest.mark.parametrize("world_size", [0, 1, 2])
def test_a_rank_is_not_run_without_the_others(
    world_size: int, run_dir: run_directory.RunDir
) -> None:
    """A copy of it alone would end because it has no rank."""
    seen = Observation(
        is_command=True, world_size=world_size, graphs=(GraphRecord(0, "dynamo", "0/0", 1),)
    )
    own = Verdict("error-in-eager", "eager", "RuntimeError", "It was raised.")
    state = state_of(run_dir, COMMAND, own, seen=seen)
    assert study_steps.failed_by_itself(state) is (world_size < 2)


@pytest.mark.parametrize("wrong", [1, None])
def test_the_first_wrong_graph_of_a_command_is_located(
    wrong: int | None, run_dir: run_directory.RunDir, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A command is not run again for it. Where no graph is wrong by itself, the user reads that."""
    starts = [StartingPoint("dynamo", f"{PROGRAM}# {n}\n") for n in range(3)]
    ran: list[str] = []
    shown: list[str] = []

    def run(server: object, text: str, *_: object) -> CandidateResult:
        ran.append(text)
        is_wrong = wrong is not None and text == starts[wrong].text
        return judged(same_failure.SAME if is_wrong else same_failure.PASSES)

    def locate_in(runner: Any, seen: Observation, show: Any) -> tuple[Observation, ProgramAblation]:
        ran.append(f"located: {runner._program}")
        step = AblationStep('backend="inductor"', "backends", same_failure.SAME, "", "")
        return dataclasses.replace(seen, failing_part="inductor"), ProgramAblation((step,))

    monkeypatch.setattr(study_steps.cases, "starting_points_of_case", lambda case: starts)
    monkeypatch.setattr(locate, "run_in_forked_child", run)
    monkeypatch.setattr(locate, "locate_first_failing_part", locate_in)
    state = state_of(run_dir, COMMAND, WRONG, seen=Observation(exit_status=0, comparison=DIFFERENT))
    calls = Callbacks(lambda text: None, show_status=lambda status: shown.append(status.trying))
    after = study_steps.locate_failure(dataclasses.replace(state, callbacks=calls))
    texts = [start.text for start in starts]
    assert shown == ["which recorded graph gives wrong results by itself"] * (
        3 if wrong is None else 2
    )
    if wrong is None:
        assert ran == texts and after.ablation is None
        assert after.missing == (Missing("location", study_steps.NO_WRONG_PART),)
    else:
        assert ran == [*texts[: wrong + 1], f"located: {texts[wrong]}"]
        assert after.seen.failing_part == "inductor" and not after.missing
        saved = json.loads((run_dir.path / "ablation.json").read_text())
        assert saved["first"] == 'backend="inductor"'


RAISED = Raised((Link("builtins.KeyError", "no such key in the table"),), where="compile")
FAILED = Observation(exit_status=1, raised=RAISED, compile_failures=(RAISED,))
EXCEPTION = Verdict("exception", "lowering", "KeyError", "It was raised.", responsible="torch")


@pytest.mark.parametrize(
    ("eager", "needs"),
    [
        ("builtins.KeyError: no such key in the table", "nothing"),
        ("builtins.ValueError: no such key in the table", ""),
        ("passes", ""),
    ],
)
def test_a_program_that_fails_in_eager_needs_no_compiler(
    eager: str, needs: str, run_dir: run_directory.RunDir
) -> None:
    """The proof of the recorded program says so, also when the run is judged again, and whatever
    an ablation with the compiler shows.
    """
    folder = run_dir.path / "candidate"
    folder.mkdir()
    proof = Proof(same_failure.SAME, "", "", runs=3, hits=3, eager=eager)
    row = {"text": PROGRAM, "about": "", "proof": dataclasses.asdict(proof), "unproved": ""}
    (folder / "candidate.json").write_text(json.dumps(row))
    state = state_of(run_dir, COMMAND, EXCEPTION, seen=FAILED, may_study=False)
    after = study_steps.load_recorded_program(state)
    assert after is not None and after.seen.fails_only_with == needs
    step = AblationStep('backend="inductor"', "backends", same_failure.SAME, "", "")
    steps = json.dumps(ProgramAblation((step,)).to_json())
    (run_dir.path / "ablation.json").write_text(steps)
    ablated = study_steps.load_ablation(after)
    assert ablated is not None and ablated.seen.fails_only_with == (needs or "torch")
    why = f"the program fails without torch.compile too: {eager}"
    assert after.seen.eager_detail == (why if needs else "")


def test_a_missing_ablation_has_a_reason_only_for_a_command(run_dir: run_directory.RunDir) -> None:
    """A command without a small program has nothing to compile in other ways. Any other run may be
    ablated later.
    """
    command = state_of(run_dir, COMMAND, EXCEPTION, may_study=False)
    after = study_steps.load_ablation(command)
    assert after is not None and after.missing == (Missing("ablation", study_steps.NO_PARTS),)
    small = MinimizeResult(PROGRAM, proof=Proof(same_failure.SAME, "", ""))
    assert study_steps.load_ablation(dataclasses.replace(command, minimized=small)) is None
    factory = state_of(run_dir, FACTORY, EXCEPTION, may_study=False)
    assert study_steps.load_ablation(factory) is None
    assert study_steps.load_ablation(dataclasses.replace(command, may_study=True)) is None


def test_a_hang_is_announced_with_its_shorter_runs(run_dir: run_directory.RunDir) -> None:
    """A command is run again only where the user asks for it, and a stage of a cache never is."""
    words = "run it again for a shorter time to learn more about the hang"
    factory = state_of(run_dir, FACTORY, HANG)
    assert announcement.next_steps(factory)[0] == words
    staged = dataclasses.replace(factory, seen=Observation(stage="warm"))
    escalated = dataclasses.replace(COMMAND, escalate=True)
    for state, is_announced in (
        (staged, False),
        (state_of(run_dir, COMMAND, HANG), False),
        (state_of(run_dir, escalated, HANG), True),
        (state_of(run_dir, FACTORY, EXCEPTION), False),
    ):
        assert (words in announcement.next_steps(state)) == is_announced


def test_the_answers_about_a_hang_are_kept(
    run_dir: run_directory.RunDir, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The user sees that the target runs again, and the observation has the answers."""
    answers = (Answer('with backend="eager"', "it passes in 2.0 s"),)
    asked: list[tuple[object, ...]] = []

    def ask(*arguments: object) -> tuple[Answer, ...]:
        asked.append(arguments)
        return answers

    said: list[str] = []
    monkeypatch.setattr(run_steps.follow_up, "ask_follow_ups", ask)
    state = state_of(run_dir, FACTORY, HANG, callbacks=Callbacks(said.append))
    after = run_steps.follow_up_hang(state)
    assert after.seen == dataclasses.replace(state.seen, answers=answers)
    assert asked == [(FACTORY, HANG, ENDED, run_dir.path, None)]
    assert said == ["running it again, in shorter runs, to learn more about the hang"]
