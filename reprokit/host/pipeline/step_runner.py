"""Apply a list of steps to a run directory.

A capture and a later judgement of the same run use the same list. Each step takes a state and
returns a state. A step writes what it added to the observation to one file below ``steps/`` in the
run directory; if that file is there, it is read instead of doing the step again. A step that is
not allowed now, or that fails, adds a row to ``missing``, and the next step goes on. So there is
always a pack.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from reprokit.core.judge import machine_limits
from reprokit.core.judge.verdict import judge_run
from reprokit.core.records.observation import Missing, Observation
from reprokit.core.shared.contract.serialize import field_types, from_json, to_json
from reprokit.host.pipeline import step_costs
from reprokit.host.pipeline.state import UNJUDGED, State
from reprokit.host.system import files, host_log, interrupts

FOLDER = "steps"
NOT_DONE = "it was not done when the target ran, and judging a run again does not run the target"
INTERRUPTED = "interrupted"


@dataclass(frozen=True)
class Step:
    """One step of a capture."""

    what: str
    """Its name in ``missing``."""
    do: Callable[[State], State]
    applies: Callable[[State], bool] = lambda state: True
    file: str = ""
    """The file below ``steps/`` with what it added; empty for a step that only reads files."""
    load: Callable[[State], State | None] = lambda state: None
    """Reads what the step wrote elsewhere in the run directory; returns None where nothing is."""
    may: Callable[[State], bool] = lambda state: True
    """Whether the step may be done now, if it was not done before."""
    why_not: str = NOT_DONE
    """The row in ``missing`` for a step that may not be done."""
    is_vital: bool = False
    """Nothing can be judged without this step: an exception in it ends the capture."""


def follow_steps(state: State, steps: tuple[Step, ...]) -> State:
    """Do all ``steps`` that apply, and judge after each that changes the observation."""
    for step in steps:
        before = state
        if step.applies(state):
            with step_costs.recorded(state.run_path, step.what):
                state = _do_step(step, state)
        if state.seen is not before.seen:
            state = judge_state(state)
        if interrupts.interrupt_has_come() and not state.is_given_up:
            state = dataclasses.replace(state, is_given_up=True)
    return state


def judge_state(state: State) -> State:
    """Return the state with a verdict on its observation, or with UNJUDGED if that fails."""
    try:
        return dataclasses.replace(state, verdict=judge_run(state.seen))
    except Exception as problem:
        host_log.LOGGER.exception("no verdict")
        return dataclasses.replace(state, verdict=UNJUDGED).with_missing(
            "verdict", describe_exception(problem)
        )


def describe_exception(problem: Exception) -> str:
    """Return a description of an unexpected exception."""
    if spent := machine_limits.limit_in(problem):
        return spent
    return f"a defect of reprokit: {problem!r}"


def _do_step(step: Step, state: State) -> State:
    loaded = load_step(step, state) or step.load(state)
    if loaded is not None:
        return loaded
    if not step.may(state):
        return state.with_missing(step.what, INTERRUPTED if state.is_given_up else step.why_not)
    if step.is_vital:
        return step.do(state)
    try:
        after = step.do(state)
    except KeyboardInterrupt:
        return dataclasses.replace(state.with_missing(step.what, INTERRUPTED), is_given_up=True)
    except Exception as problem:
        host_log.LOGGER.exception("step %s failed", step.what)
        why = (
            (problem.strerror or str(problem))
            if isinstance(problem, OSError)
            else describe_exception(problem)
        )
        return state.with_missing(step.what, why)
    if step.file:
        with host_log.suppress(OSError):  # a full disk must not end the capture
            save_step(step, state, after)
    return after


def step_path(step: Step, state: State) -> Path:
    """Return the path of the file of a step."""
    return state.run_path / FOLDER / step.file


def save_step(step: Step, before: State, after: State) -> None:
    """Write what a step changed in the observation and added to ``missing``."""
    names = [f.name for f in dataclasses.fields(Observation)]
    changes = {
        n: to_json(new) for n in names if (new := getattr(after.seen, n)) != getattr(before.seen, n)
    }
    rows = [to_json(row) for row in after.missing if row not in before.missing]
    path = step_path(step, after)
    path.parent.mkdir(exist_ok=True)
    files.write_json(path, {"changes": changes, "missing": rows})


def load_step(step: Step, state: State) -> State | None:
    """Return the state with what a step wrote; None where there is no valid file."""
    kept = files.read_json_object(step_path(step, state)) if step.file else {}
    if not kept:
        return None
    types = field_types(Observation)
    try:
        changes: dict[str, Any] = {
            name: from_json(types[name], value) for name, value in kept["changes"].items()
        }
        rows = from_json(tuple[Missing, ...], kept["missing"])
    except (ValueError, KeyError, AttributeError, RecursionError) as problem:
        host_log.log_ignored(problem)
        return None
    return dataclasses.replace(
        state, seen=dataclasses.replace(state.seen, **changes)
    ).with_all_missing(rows)
