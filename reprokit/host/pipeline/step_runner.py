"""How steps go over a run directory, so that a capture and a later judgement of the same run are
one list of them.

Each step takes a state and gives one. What a step added to the observation it leaves as one whole
file below ``steps/`` in the run directory, and a step whose file is there is read instead of done
again. A step that may not be done now, or that fails, says why in ``missing`` and the rest go on,
so that a pack is always left.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from reprokit.core.judge import machine_limits
from reprokit.core.judge.verdict import judge
from reprokit.core.records.observation import Missing, Observation
from reprokit.core.shared.contract.serialize import from_json, hints, to_json
from reprokit.host.pipeline.state import UNJUDGED, State
from reprokit.host.system import files, interrupts

FOLDER = "steps"
NOT_DONE = "it was not done when the target ran, and judging a run again runs nothing of the target"
INTERRUPTED = "interrupted"


@dataclass(frozen=True)
class Step:
    """One step over a run directory."""

    what: str
    """How ``missing`` names it."""
    do: Callable[[State], State]
    applies: Callable[[State], bool] = lambda state: True
    file: str = ""
    """The file below ``steps/`` that keeps what it added; empty for a step that only reads other
    files.
    """
    load: Callable[[State], State | None] = lambda state: None
    """Reads what the step left elsewhere; None where it left nothing."""
    may: Callable[[State], bool] = lambda state: True
    """Whether it may be done now, where it was not."""
    why_not: str = NOT_DONE
    is_vital: bool = False
    """Without it nothing can be judged: what it raises ends the capture."""


def follow_steps(state: State, steps: tuple[Step, ...]) -> State:
    """Go over all ``steps``, and judge after each that adds to the observation."""
    for step in steps:
        before = state
        if step.applies(state):
            state = _one(step, state)
        if state.seen is not before.seen:
            state = with_judgement(state)
        if interrupts.interrupt_has_come() and not state.is_given_up:
            state = dataclasses.replace(state, is_given_up=True)
    return state


def with_judgement(state: State) -> State:
    """Give the verdict on what is known, or one that says that there is none."""
    try:
        return dataclasses.replace(state, verdict=judge(state.seen))
    except Exception as problem:
        return dataclasses.replace(state, verdict=UNJUDGED).lacks(
            "verdict", internal_error(problem)
        )


def internal_error(problem: Exception) -> str:
    """An exception that nobody expected, in words."""
    if spent := machine_limits.limit_in(problem):
        return spent
    return f"a defect of reprokit: {problem!r}"


def _one(step: Step, state: State) -> State:
    loaded = load_step(step, state) or step.load(state)
    if loaded is not None:
        return loaded
    if not step.may(state):
        return state.lacks(step.what, INTERRUPTED if state.is_given_up else step.why_not)
    if step.is_vital:
        return step.do(state)
    try:
        after = step.do(state)
    except KeyboardInterrupt:
        return dataclasses.replace(state.lacks(step.what, INTERRUPTED), is_given_up=True)
    except Exception as problem:
        why = (
            (problem.strerror or str(problem))
            if isinstance(problem, OSError)
            else internal_error(problem)
        )
        return state.lacks(step.what, why)
    if step.file:
        with contextlib.suppress(OSError):  # a full disk costs only the file
            save_step(step, state, after)
    return after


def path_of(step: Step, state: State) -> Path:
    """Where a step keeps what it added."""
    return state.run_path / FOLDER / step.file


def save_step(step: Step, before: State, after: State) -> None:
    """Keep what a step added to the observation, and what it could not do."""
    names = [f.name for f in dataclasses.fields(Observation)]
    changes = {
        n: to_json(new) for n in names if (new := getattr(after.seen, n)) != getattr(before.seen, n)
    }
    rows = [to_json(row) for row in after.missing if row not in before.missing]
    path = path_of(step, after)
    path.parent.mkdir(exist_ok=True)
    files.write_json(path, {"changes": changes, "missing": rows})


def load_step(step: Step, state: State) -> State | None:
    """Add what a step kept; None where it kept nothing, or nothing that can be read."""
    told = files.read_object(path_of(step, state)) if step.file else {}
    if not told:
        return None
    types = hints(Observation)
    try:
        changes: dict[str, Any] = {
            name: from_json(types[name], value) for name, value in told["changes"].items()
        }
        rows = from_json(tuple[Missing, ...], told["missing"])
    except (ValueError, KeyError, AttributeError, RecursionError):
        return None
    return dataclasses.replace(state, seen=dataclasses.replace(state.seen, **changes)).lacks_all(
        rows
    )
