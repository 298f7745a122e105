"""Study a failure: where in the compiler it begins, and the smallest program that shows it, on one
warm server.
"""

from __future__ import annotations

import contextlib
import dataclasses

from reprokit.core.experiments.ablation import Ablation
from reprokit.core.judge.verdict import judge
from reprokit.host.experiments import run_ablation
from reprokit.host.minimize import locate
from reprokit.host.minimize import minimization as reducer
from reprokit.host.pack import shown_program
from reprokit.host.pipeline.state import State
from reprokit.host.request.run_request import Request
from reprokit.host.system import files, interrupts, private_names
from reprokit.host.system.progress import OperationStatus

NO_WRONG_PART = (
    "no recorded graph, and no source that stands alone, gives the wrong results by itself"
)
NO_PARTS = "a whole command is run again only in small parts, and there are none"


def is_wanted(state: State) -> bool:
    """Whether the user asks for more than what happened, of a run that ended."""
    return state.has_run and (state.request.minimizes or state.request.rungs != "none")


def can_locate(state: State) -> bool:
    """Wrong results have no identity until it is known where in the compiler they begin."""
    return is_wanted(state) and state.verdict.kind == "wrong-result"


def locate_begin(state: State) -> State:
    """Ask where in the compiler wrong results begin: of the target, or of the first part of a
    command that shows them.
    """
    state.callbacks.say("asking where in the compiler it begins")
    with interrupts.allowed():
        program = _first_wrong(state) if state.is_command else state.request
        if not program:
            return state.lacks("location", NO_WRONG_PART)
        with contextlib.closing(state.study.ladder(state, program)) as ladder:
            seen, ablation = locate.locate_begin(ladder, state.seen, _trying(state))
    return _with_ablation(dataclasses.replace(state, seen=seen), ablation)


def _first_wrong(state: State) -> str:
    case = state.study.case(state)
    return locate.first_wrong(
        reducer.starts_of(case),
        state.study.server(case),
        case.signature,
        reducer.limits_of(case),
        case.python,
        _trying(state),
    )


def cannot_minimize(state: State) -> bool:
    """Whether something failed that has no smaller program."""
    return is_wanted(state) and state.verdict.kind != "ok" and bool(reducer.why_not(state.verdict))


def say_why_not(state: State) -> State:
    """Say why such a failure has no smaller program."""
    return state.lacks("minimization", reducer.why_not(state.verdict))


def can_minimize(state: State) -> bool:
    """Whether a smaller program is wanted, and the failure can have one."""
    return is_wanted(state) and state.request.minimizes and not reducer.why_not(state.verdict)


def minimize(state: State) -> State:
    """Look for the smallest program that shows the failure."""
    budget_s, calls = state.request.budget_s, state.callbacks
    calls.say(f"minimizing, for at most {budget_s:g} s")
    case = state.study.case(state)
    with interrupts.allowed():
        found = reducer.minimize_case(
            case,
            state.study.server(case),
            budget_s,
            state.study.resume,
            calls.show_status,
            calls.say,
        )
    return minimized(dataclasses.replace(state, minimized=found))


def minimized(state: State) -> State:
    """Say why there is no smaller program, where there is none."""
    found = state.minimized
    for note in found.notes if found is not None and not found.text else ():
        state = state.lacks("minimization", note)
    return state


def can_try_recorded(state: State) -> bool:
    """Whether a reduction that was done now has left no proved program."""
    found = state.minimized
    is_open = found is not None and not (found.is_proved or found.is_interrupted)
    return state.may_study and not state.is_given_up and can_minimize(state) and is_open


def try_recorded(state: State) -> State:
    """Run the recorded program alone: it may be a repro as it is."""
    state.callbacks.say("running the recorded program alone, in fresh processes")
    with interrupts.allowed():
        shown_program.try_recorded(
            state.request, state.study.case(state), state.journals, private_names.redactor()
        )
    return state


def load_minimized(state: State) -> State | None:
    """What an earlier reduction left; a reduction that may be done now is done again."""
    found = None if state.may_study else reducer.load_minimized(state.run_path)
    return None if found is None else minimized(dataclasses.replace(state, minimized=found))


def can_ablate(state: State) -> bool:
    """A kernel has no other backend; nor has a graph of CUDA's that Inductor does not record."""
    is_of_inductor = state.seen.kernel or state.verdict.kind == "cudagraph-skip"
    if not is_wanted(state) or state.request.rungs == "none" or is_of_inductor:
        return False
    return not reducer.why_not(state.verdict) or (
        state.request.rungs == "all" and not state.is_command
    )


def do_ablate(state: State) -> State:
    """Compile the small program, which is quick, in other ways; or the target where there is no
    small program.
    """
    program = _to_ablate(state)
    if state.ablation is not None and (program is None or state.request.rungs != "all"):
        return state  # it was made to locate wrong results
    if program is None:
        return state.lacks("ablation", NO_PARTS)
    climb = (
        run_ablation.ablate_everything if state.request.rungs == "all" else run_ablation.in_capture
    )
    state.callbacks.say("asking with which backends it fails")
    with interrupts.allowed(), contextlib.closing(state.study.ladder(state, program)) as ladder:
        ablation = climb(ladder, state.seen, _trying(state))
    return _with_ablation(state, ablation)


def _with_ablation(state: State, ablation: Ablation) -> State:
    """The state with what an ablation says, also of the program's own backend and passes."""
    seen = dataclasses.replace(state.seen, fails_only_with=ablation.needs)
    ablation = dataclasses.replace(ablation, responsible=judge(seen).responsible)
    if state.may_study:
        files.write_json(state.run_path / run_ablation.FILE, ablation.to_json())
    return dataclasses.replace(state, seen=seen, ablation=ablation)


def load_ablation(state: State) -> State | None:
    """What an earlier ablation left; one that may be done now is done again."""
    if state.may_study:
        return None
    found = run_ablation.load_ablation(state.run_path)
    if found is None:
        return state.lacks("ablation", NO_PARTS) if _to_ablate(state) is None else None
    return _with_ablation(state, found)


def _to_ablate(state: State) -> Request | str | None:
    """The small program, else the target; None for a command that has no small program."""
    found = state.minimized
    if found is not None and found.has_shown:
        return found.text
    return None if state.is_command else state.request


def _trying(state: State) -> run_ablation.Show:
    show = state.callbacks.show_status
    return lambda name: show(OperationStatus(trying=name)) if show else None
