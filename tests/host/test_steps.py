"""The request and the results of the steps are stored completely in the run directory."""

from __future__ import annotations

import dataclasses
import tempfile
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reprokit.core.records.finding import Verdict
from reprokit.core.records.observation import Missing, Observation
from reprokit.host.minimize.minimize_result import MinimizeResult
from reprokit.host.pipeline import step_runner, study_steps
from reprokit.host.pipeline.pipeline import ABLATE, COMPARE, CONFIRM, JUDGE, MINIMIZE, TRY_RECORDED
from reprokit.host.pipeline.state import Callbacks, State, StudyTools
from reprokit.host.request import run_request
from reprokit.host.request.run_request import Request
from reprokit.host.request.target import Target
from reprokit.host.run import run_directory
from reprokit.host.run.restore_run import restore_run
from reprokit.host.system import files
from tests.support.examples import examples
from tests.support.field_values import values_of_type

REQUEST = Request(Target("file", "model.py", "make"))
FILES = [step for step in JUDGE if step.file]


@pytest.fixture(scope="module")
def run_dir() -> Iterator[run_directory.RunDir]:
    with tempfile.TemporaryDirectory() as folder:
        held = run_directory.create_run_directory(Path(folder), "steps")
        yield held
        held.release_lock()


def state_of(
    run_dir: run_directory.RunDir, seen: Observation, missing: tuple[Missing, ...] = ()
) -> State:
    return State(
        REQUEST, run_dir, Callbacks(lambda text: None), StudyTools(), seen=seen, missing=missing
    )


def test_every_field_of_a_request_is_stored() -> None:
    """All fields are in run.json except the listed fields of a single run; a new field is included
    automatically.
    """
    names = {f.name for f in dataclasses.fields(Request)}
    assert set(run_request.request_to_json(REQUEST)) == names - run_request.UNSAVED_FIELDS
    of_one_run = {"cwd", "variables", "stage", "has_writer", "save_artifacts", "load_artifacts"}
    of_one_run.add("samples_calls")
    assert of_one_run == run_request.UNSAVED_FIELDS


@settings(max_examples=examples(80))
@given(request=values_of_type(Request, run_request.UNSAVED_FIELDS))
def test_a_request_survives_its_run_directory(request: Request) -> None:
    """The options of the user, such as --compare-simulated, are known when the run is judged
    again.
    """
    with tempfile.TemporaryDirectory() as folder:
        files.write_json(
            Path(folder) / "run.json",
            {**run_request.request_to_json(request), "argv": ["python"], "ended": 1.0},
        )
        assert restore_run(Path(folder))[0] == request


@settings(max_examples=examples(40), suppress_health_check=[])
@given(
    step=st.sampled_from(FILES),
    before=values_of_type(Observation),
    after=values_of_type(Observation),
    missing=values_of_type(tuple[Missing, ...]),
)
def test_the_result_of_a_step_is_restored(
    run_dir: run_directory.RunDir,
    step: step_runner.Step,
    before: Observation,
    after: Observation,
    missing: tuple[Missing, ...],
) -> None:
    """The observation and the missing data of a step are loaded instead of computed again."""
    first = state_of(run_dir, before)
    step_runner.save_step(step, first, state_of(run_dir, after, missing))
    loaded = step_runner.load_step(step, first)
    assert loaded is not None and loaded.seen == after
    assert set(loaded.missing) == set(missing)


def test_each_step_has_its_own_file() -> None:
    """Two steps with one file would overwrite each other."""
    names = [step.file for step in FILES]
    assert len(names) == len(set(names)) == 13


def test_a_step_that_may_not_run_is_reported(run_dir: run_directory.RunDir) -> None:
    """A later judgement does not run the target and reports this."""
    calls: list[State] = []
    step = dataclasses.replace(
        CONFIRM, do=lambda s: calls.append(s) or s, applies=lambda s: True, file="never.json"
    )
    state = dataclasses.replace(state_of(run_dir, Observation(exit_status=1)), may_run=False)
    after = step_runner.follow_steps(state, (step,))
    assert after.missing == (Missing("eager run", step_runner.NOT_DONE),) and not calls


@pytest.mark.parametrize(
    "text", ["", "{", '{"changes": {"eager": 3}, "missing": []}', '{"changes": {"odd": 3}}', "[]"]
)
def test_a_damaged_file_is_not_a_result(run_dir: run_directory.RunDir, text: str) -> None:
    """An unreadable file counts as a step that was not done."""
    state = state_of(run_dir, Observation())
    path = step_runner.step_path(COMPARE, state)
    path.parent.mkdir(exist_ok=True)
    path.write_text(text)
    assert step_runner.load_step(COMPARE, state) is None


@pytest.mark.parametrize(
    "problem", [KeyboardInterrupt(), OSError(28, "No space left on device"), ValueError("odd")]
)
def test_a_failed_step_is_reported_and_the_others_continue(
    run_dir: run_directory.RunDir, problem: BaseException
) -> None:
    """A pack is always written."""

    def fail(state: State) -> State:
        raise problem

    done: list[str] = []

    def note(state: State) -> State:
        done.append("pack")
        return state

    after = step_runner.follow_steps(
        state_of(run_dir, Observation()),
        (step_runner.Step("first", fail), step_runner.Step("pack", note)),
    )
    assert [row.what for row in after.missing] == ["first"] and done == ["pack"]
    assert after.is_given_up == isinstance(problem, KeyboardInterrupt)


def test_an_interrupt_after_the_reduction_keeps_its_record(
    run_dir: run_directory.RunDir, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ctrl-C during the run of the recorded program abandons that run but keeps the result of the
    reduction.
    """
    reduced = MinimizeResult(text="import torch\n")

    def interrupted(*arguments: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(study_steps.reducer, "minimize_case", lambda *arguments: reduced)
    monkeypatch.setattr(study_steps.shown_program, "prove_recorded_program", interrupted)
    for name in ("case_for", "server_for"):
        monkeypatch.setattr(StudyTools, name, lambda self, of: None)
    outcome: Any = SimpleNamespace(is_interrupted=False)
    failed = Verdict(
        "exception", "lowering", "KeyError", "KeyError was raised.", responsible="torch"
    )
    state = dataclasses.replace(state_of(run_dir, Observation()), outcome=outcome, verdict=failed)
    after = step_runner.follow_steps(state, (MINIMIZE, TRY_RECORDED, ABLATE))
    assert after.minimized is reduced and after.is_given_up
    assert [row.what for row in after.missing] == [TRY_RECORDED.what, ABLATE.what]
