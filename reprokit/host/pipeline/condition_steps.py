"""The steps that study a proved program: what raises its rate, and what it needs elsewhere."""

from __future__ import annotations

import dataclasses

from reprokit.core.experiments import condition_lines, rates
from reprokit.core.judge import same_failure
from reprokit.core.reduce import repeated, sized_program
from reprokit.host.experiments import find_conditions
from reprokit.host.minimize import cases, minimization
from reprokit.host.minimize.minimize_result import MinimizeResult
from reprokit.host.minimize.proofs import proof, proven
from reprokit.host.pipeline.state import State
from reprokit.host.system import deletion, interrupts

FREQUENT_RUNS = 10
"""Plain runs of a program that shows a rare failure more often."""
LOAD_PER_CPU, MAX_LOAD = 4, 40
"""Runs at once for each CPU, to see whether a busy machine shows a rare failure more often, and the
most of them, because each takes a gigabyte of memory.
"""


def is_rare(state: State) -> bool:
    """Return True for a proved program whose failure shows in some of its runs only."""
    result = state.minimized
    if result is None or result.proof is None or not result.is_proved:
        return False
    return result.proof.share < rates.GOOD_RATE


def raise_rate(state: State) -> State:
    """Change the program so that a rare failure shows in more runs: it repeats the call or the
    compile, then it uses more threads or one, then larger tensors. The change with the most
    failures is kept. At last, several runs at once show whether a busy machine raises the rate.
    """
    result, case = state.minimized, state.study.case_for(state)
    assert result is not None and result.proof is not None
    state.callbacks.say("looking for a program that fails more often")
    best = result
    with interrupts.allowed():
        for how, text in repeated.repeated_programs(result.text):
            best = _better(state, best, how, text)
        for how, text in _with_other_threads(state, best.text):
            best = _better(state, best, how, text)
        for how, text in sized_program.larger_programs(best.text):
            best = _better(state, best, how, text)
        best = _under_load(state, best)
    if best is not result:
        minimization.save_minimized(case.run_path, best)
    return dataclasses.replace(state, minimized=best)


def _better(state: State, best: MinimizeResult, how: str, text: str) -> MinimizeResult:
    """Return the result with the changed program if it fails in more runs than the best one."""
    assert best.proof is not None
    if best.proof.share >= rates.GOOD_RATE:
        return best
    again = _prove(state, text, best.rate, FREQUENT_RUNS)
    if proven.why_unproven(text, again) or again.share <= best.proof.share:
        return best
    before = f"instead of {best.proof.hits} of {best.proof.runs}"
    note = f"{how}, so that {again.hits} of {again.runs} runs fail {before}"
    return dataclasses.replace(best, text=text, proof=again, notes=[*best.notes, note])


def _with_other_threads(state: State, text: str) -> list[tuple[str, str]]:
    machine = find_conditions.machine_of(state.environment.facts)
    if machine is None or "set_num_threads(" in text:
        return []
    counts = dict.fromkeys((2 * machine.cpus + 1, 1))
    return [
        (
            f"it uses {count} OpenMP thread{'s' * (count > 1)}",
            condition_lines.with_lines(text, [f"torch.set_num_threads({count})"]),
        )
        for count in counts
        if count != machine.threads
    ]


def _under_load(state: State, best: MinimizeResult) -> MinimizeResult:
    """Return the result with a note if more runs fail while several of them run at once."""
    machine = find_conditions.machine_of(state.environment.facts)
    assert best.proof is not None
    if machine is None or best.proof.share >= rates.GOOD_RATE:
        return best
    at_once = min(LOAD_PER_CPU * machine.cpus, MAX_LOAD)
    loaded = _prove(state, best.text, best.rate, max(FREQUENT_RUNS, at_once), at_once)
    if loaded.share <= best.proof.share:
        return best
    note = (
        f"{loaded.hits} of {loaded.runs} runs fail if {at_once} of them run at once, instead of"
        f" {best.proof.hits} of {best.proof.runs}"
    )
    return dataclasses.replace(best, notes=[*best.notes, note])


def _prove(
    state: State, text: str, rate: float, min_plain: int = 0, at_once: int = 0
) -> proof.Proof:
    case = state.study.case_for(state)
    cores = at_once or case.processes_at_once
    return proof.prove_program(
        text,
        case.python,
        state.run_path / minimization.FOLDER / "proof",
        case.signature,
        cases.probe_limits_of(case),
        proof.ProofRuns(case.proofs, rate, cores=cores, min_plain=min_plain),
        show=state.callbacks.show_status,
    )


def can_study_conditions(state: State) -> bool:
    """Return True for a proved program whose failure may depend on the machine or the process."""
    result = state.minimized
    if result is None or not result.is_proved or result.conditions is not None:
        return False
    limits = cases.probe_limits_of(state.study.case_for(state))
    is_timed = limits.is_slow or bool(limits.sizes)
    is_chance = same_failure.is_found_by_chance(state.signature)
    return not (is_timed or is_chance or limits.gpu is not None or limits.stage or limits.is_kernel)


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
