"""The steps that study a proved program: what raises its rate, and what it needs elsewhere."""

from __future__ import annotations

import dataclasses

from reprokit.core.experiments import condition_lines, rates
from reprokit.core.reduce import repeated
from reprokit.host.experiments import find_conditions
from reprokit.host.minimize import cases, minimization
from reprokit.host.minimize.proofs import proof, proven
from reprokit.host.pipeline.state import State
from reprokit.host.system import deletion, interrupts

FREQUENT_RUNS = 10
"""Plain runs of a program that shows a rare failure more often."""


def is_rare(state: State) -> bool:
    """Return True for a proved program whose failure shows in some of its runs only."""
    result = state.minimized
    if result is None or result.proof is None or not result.is_proved:
        return False
    return result.proof.share < rates.GOOD_RATE


def raise_rate(state: State) -> State:
    """Repeat the call or the compile in the program, and keep the change that fails most often."""
    result, case = state.minimized, state.study.case_for(state)
    assert result is not None and result.proof is not None
    state.callbacks.say("looking for a program that fails more often")
    best = result
    with interrupts.allowed():
        for how, text in repeated.repeated_programs(result.text):
            again = _prove(state, text, result.rate, FREQUENT_RUNS)
            assert best.proof is not None
            if proven.why_unproven(text, again) or again.share <= best.proof.share:
                continue
            before = f"instead of {result.proof.hits} of {result.proof.runs}"
            note = f"{how}, so that {again.hits} of {again.runs} runs fail {before}"
            best = dataclasses.replace(result, text=text, proof=again, notes=[*result.notes, note])
            if again.share >= rates.GOOD_RATE:
                break
    if best is not result:
        minimization.save_minimized(case.run_path, best)
    return dataclasses.replace(state, minimized=best)


def _prove(state: State, text: str, rate: float, min_plain: int = 0) -> proof.Proof:
    case = state.study.case_for(state)
    return proof.prove_program(
        text,
        case.python,
        state.run_path / minimization.FOLDER / "proof",
        case.signature,
        cases.probe_limits_of(case),
        proof.ProofRuns(case.proofs, rate, cores=case.processes_at_once, min_plain=min_plain),
        show=state.callbacks.show_status,
    )


def can_study_conditions(state: State) -> bool:
    """Return True for a proved program whose failure may depend on the machine or the process."""
    result = state.minimized
    if result is None or not result.is_proved or result.conditions is not None:
        return False
    limits = cases.probe_limits_of(state.study.case_for(state))
    is_timed = limits.is_slow or bool(limits.sizes)
    return not (is_timed or limits.gpu is not None or limits.stage or limits.is_kernel)


def study_conditions(state: State) -> State:
    """Find what the failure needs of the machine and the process.

    A repro that needs something sets or checks it, and is proved again.
    """
    result, machine = state.minimized, find_conditions.machine_of(state.environment.facts)
    assert result is not None and result.proof is not None
    if machine is None:
        return state.with_missing("conditions", "the CPU of the machine is not known")
    state.callbacks.say("looking for the conditions of the failure")
    case = state.study.case_for(state)
    limits = cases.probe_limits_of(case)
    folder = state.run_path / minimization.FOLDER / "conditions"
    program = find_conditions.Program(result.text, case.python, case.signature, limits, result.rate)
    finder = find_conditions.ConditionFinder(
        program,
        machine,
        state.study.server_for(case),
        folder,
        max(result.cpu_s, find_conditions.MIN_BUDGET_CPU_S),
        state.callbacks.show_status or (lambda status: None),
    )
    with interrupts.allowed():
        found = finder.find(result.proof.changed)
        if found.lines:
            text = condition_lines.with_lines(result.text, found.lines)
            again = _prove(state, text, result.rate)
            if proven.why_unproven(text, again):
                found = dataclasses.replace(found, lines=())
            else:
                result = dataclasses.replace(result, text=text, proof=again)
    deletion.delete_path(folder, inside=state.run_path)
    result = dataclasses.replace(result, conditions=found)
    minimization.save_minimized(state.run_path, result)
    return dataclasses.replace(state, minimized=result)
