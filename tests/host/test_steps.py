"""What is asked and what the steps find stays in the run directory, whole."""

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

from ..strategies import of

REQUEST = Request(Target("file", "model.py", "make"))
FILES = [step for step in JUDGE if step.file]


@pytest.fixture(scope="module")
def place() -> Iterator[run_directory.RunDir]:
    with tempfile.TemporaryDirectory() as folder:
        held = run_directory.create_run(Path(folder), "steps")
        yield held
        held.release()


def state_of(
    place: run_directory.RunDir, seen: Observation, missing: tuple[Missing, ...] = ()
) -> State:
    return State(
        REQUEST, place, Callbacks(lambda text: None), StudyTools(), seen=seen, missing=missing
    )


def test_no_field_of_a_request_can_be_forgotten() -> None:
    """Each is in run.json but for those of one run, which are named; a new field is in it by
    itself.
    """
    names = {f.name for f in dataclasses.fields(Request)}
    assert set(run_request.request_to_json(REQUEST)) == names - run_request.OF_ONE_RUN
    assert frozenset({"cwd", "variables"}) == run_request.OF_ONE_RUN


@settings(max_examples=80, deadline=None)
@given(request=of(Request, run_request.OF_ONE_RUN))
def test_a_request_survives_its_run_directory(request: Request) -> None:
    """What the user asked for, such as --compare-simulated, is known when the run is judged
    again.
    """
    with tempfile.TemporaryDirectory() as folder:
        files.write_json(
            Path(folder) / "run.json",
            {**run_request.request_to_json(request), "argv": ["python"], "ended": 1.0},
        )
        assert restore_run(Path(folder))[0] == request


@settings(max_examples=40, deadline=None, suppress_health_check=[])
@given(
    step=st.sampled_from(FILES),
    before=of(Observation),
    after=of(Observation),
    missing=of(tuple[Missing, ...]),
)
def test_what_a_step_added_is_read_back(
    place: run_directory.RunDir,
    step: step_runner.Step,
    before: Observation,
    after: Observation,
    missing: tuple[Missing, ...],
) -> None:
    """Any observation, and what was missing: read instead of done again."""
    first = state_of(place, before)
    step_runner.save_step(step, first, state_of(place, after, missing))
    loaded = step_runner.load_step(step, first)
    assert loaded is not None and loaded.seen == after
    assert set(loaded.missing) == set(missing)


def test_each_step_has_a_file_of_its_own() -> None:
    """Two steps in one file would overwrite each other."""
    names = [step.file for step in FILES]
    assert len(names) == len(set(names)) == 7


def test_a_step_that_may_not_be_done_says_so(place: run_directory.RunDir) -> None:
    """A later judgement runs nothing of the target, and does not pretend that it did."""
    asked: list[State] = []
    step = dataclasses.replace(
        CONFIRM, do=lambda s: asked.append(s) or s, applies=lambda s: True, file="never.json"
    )
    state = dataclasses.replace(state_of(place, Observation(exit_status=1)), may_run=False)
    after = step_runner.follow_steps(state, (step,))
    assert after.missing == (Missing("eager run", step_runner.NOT_DONE),) and not asked


@pytest.mark.parametrize(
    "text", ["", "{", '{"changes": {"eager": 3}, "missing": []}', '{"changes": {"odd": 3}}', "[]"]
)
def test_half_a_file_is_no_result(place: run_directory.RunDir, text: str) -> None:
    """What cannot be read counts as not done."""
    state = state_of(place, Observation())
    path = step_runner.path_of(COMPARE, state)
    path.parent.mkdir(exist_ok=True)
    path.write_text(text)
    assert step_runner.load_step(COMPARE, state) is None


@pytest.mark.parametrize(
    "problem", [KeyboardInterrupt(), OSError(28, "No space left on device"), ValueError("odd")]
)
def test_a_step_that_fails_says_why_and_the_rest_go_on(
    place: run_directory.RunDir, problem: BaseException
) -> None:
    """A pack is always left."""

    def fail(state: State) -> State:
        raise problem

    done: list[str] = []

    def note(state: State) -> State:
        done.append("pack")
        return state

    after = step_runner.follow_steps(
        state_of(place, Observation()),
        (step_runner.Step("first", fail), step_runner.Step("pack", note)),
    )
    assert [row.what for row in after.missing] == ["first"] and done == ["pack"]
    assert after.is_given_up == isinstance(problem, KeyboardInterrupt)


def test_an_interrupt_after_the_reduction_keeps_its_record(
    place: run_directory.RunDir, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ctrl-C while the recorded program runs alone gives up that run, and not what the reduction
    found.
    """
    found = MinimizeResult(text="import torch\n")

    def interrupted(*given: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(study_steps.reducer, "minimize_case", lambda *given: found)
    monkeypatch.setattr(study_steps.shown_program, "try_recorded", interrupted)
    for name in ("case", "server"):
        monkeypatch.setattr(StudyTools, name, lambda self, of: None)
    outcome: Any = SimpleNamespace(is_interrupted=False)
    failed = Verdict(
        "exception", "lowering", "KeyError", "KeyError was raised.", responsible="torch"
    )
    state = dataclasses.replace(state_of(place, Observation()), outcome=outcome, verdict=failed)
    after = step_runner.follow_steps(state, (MINIMIZE, TRY_RECORDED, ABLATE))
    assert after.minimized is found and after.is_given_up
    assert [row.what for row in after.missing] == [TRY_RECORDED.what, ABLATE.what]
