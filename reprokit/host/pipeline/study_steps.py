"""The steps that study a failure: locate it in the compiler, minimize it, and ablate the compiler.

They share one warm server.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable

from reprokit.core.experiments.ablation import AnyAblation, PartAblation, ProgramAblation
from reprokit.core.judge import same_failure
from reprokit.core.judge.responsible import own_traces, ownership
from reprokit.core.judge.verdict import judge_run
from reprokit.core.records.finding import identity_of_title
from reprokit.core.records.observation import Observation
from reprokit.core.shared.contract import run_names
from reprokit.host.experiments import ablate_command, memory_settings, own_check, run_ablation
from reprokit.host.minimize import cases, locate
from reprokit.host.minimize import minimization as reducer
from reprokit.host.minimize.proofs import plain_runs, proof
from reprokit.host.pack import shown_program
from reprokit.host.pipeline.state import State
from reprokit.host.probe.candidate import CandidateResult
from reprokit.host.probe.fresh_process import run_in_fresh_process
from reprokit.host.request.run_request import Request
from reprokit.host.system import deletion, files, interrupts, private_names

NO_WRONG_PART = "no recorded graph, and no self-contained source, gives the wrong results by itself"
MAX_PROGRAM_CPU_S = 300.0
"""CPU seconds of a program that is compiled in other ways as a whole."""
ENDS_A_PROGRAM = ("exception", "crash", "oom")
"""Kinds of verdicts that end a process, with or without reprokit."""
MIN_PLAIN_S, PLAIN_MULTIPLE = 60.0, 4.0
"""The time of a run without reprokit: seconds, and times the time of the watched run."""
Ablate = Callable[[run_ablation.AblationRunner, Observation, run_ablation.Show], ProgramAblation]
NO_PARTS = "reprokit runs a command only once, and found no smaller program to run again"


def failed_by_itself(state: State) -> bool:
    """Return True for a command that compiled something, and ended by an exception of its own, or
    by an exit status of its own. A rank does not run without the others.
    """
    is_own = (
        state.seen.world_size < 2
        and state.has_run
        and state.is_command
        and state.has_failed_by_itself
    )
    is_open = state.seen.eager != "fails" and not state.seen.check
    return is_own and is_open and bool(state.seen.graphs)


def check_without_compile(state: State) -> State:
    """Run a copy of the program without torch.compile, if it is one text."""
    case = state.study.case_for(state)
    if not case.source or case.isolation is None:
        return state
    state.callbacks.say(
        "it failed outside the compiler: running a copy of it without torch.compile"
    )
    with interrupts.allowed():
        seen = own_check.check_without_compile(
            case.source,
            case.isolation,
            state.study.server_for(case),
            case.python,
            case.signature,
            state.seen,
            state.run_path / run_names.EAGER_FOLDER,
        )
    return dataclasses.replace(state, seen=seen)


def can_locate(state: State) -> bool:
    """Return True for wrong results: their signature needs the part where they begin.

    Those of a cache begin there.
    """
    is_wrong = state.verdict.kind == "wrong-result"
    return state.wants_study and is_wrong and not (state.seen.stage or _why_not(state))


def locate_failure(state: State) -> State:
    """Find the part of the compiler where wrong results begin.

    The program is the target, or the first starting point of a command that shows the failure.
    """
    state.callbacks.say("locating the failure in the compiler")
    with interrupts.allowed():
        program = _first_wrong(state) if state.is_command else state.request
        if not program:
            return state.with_missing("location", NO_WRONG_PART)
        with contextlib.closing(state.study.create_ablation_runner(state, program)) as runner:
            seen, ablation = locate.locate_first_failing_part(runner, state.seen, _trying(state))
    if state.is_command:
        return _with_ablation(dataclasses.replace(state, seen=seen), ablation.of_part())
    return _with_ablation(dataclasses.replace(state, seen=seen), ablation)


def _first_wrong(state: State) -> str:
    case = state.study.case_for(state)
    return locate.first_wrong_program(
        cases.starting_points_of_case(case),
        state.study.server_for(case),
        case.signature,
        cases.probe_limits_of(case),
        case.python,
        _trying(state),
    )


def can_ablate_program(state: State) -> bool:
    """Return True where the user's whole program can be compiled in other ways before it is
    reduced, which shows what a smaller program must have in common with it.
    """
    return (
        can_ablate(state)
        and state.ablation is None
        and state.seen.cpu_s <= MAX_PROGRAM_CPU_S
        and bool(_whole_program(state))
    )


def ablate_program(state: State) -> State:
    """Compile the user's whole program in different ways."""
    program = _whole_program(state)
    ablation, eager = _run_ablation(state, program, run_ablation.ablate_for_capture)
    if eager is not None and isinstance(program, str):
        seen = own_check.note_eager_end(program, state.verdict, state.seen, eager)
        if seen is not state.seen:
            return _with_ablation(dataclasses.replace(state, seen=seen), ablation)
    is_skip = state.verdict.kind == "cudagraph-skip"
    if ablation.first_failing is None and not ablation.own and not is_skip:
        return state  # in the server it does not fail as it did
    return _with_ablation(state, ablation)


def load_program_ablation(state: State) -> State | None:
    """Return the state with an earlier ablation, if there is one; None where it may be done now."""
    if state.may_study:
        return None
    ablation = run_ablation.load_ablation(state.run_path)
    return state if ablation is None else _with_ablation(state, ablation)


def _whole_program(state: State) -> Request | str:
    """Return the target, or the self-contained source of a command; empty if there is none."""
    return state.study.case_for(state).source if state.is_command else state.request


def cannot_minimize(state: State) -> bool:
    """Return True for a failure that cannot be minimized."""
    return state.wants_study and state.verdict.kind != "ok" and bool(_why_not(state))


def note_why_not(state: State) -> State:
    """Add to ``missing`` why the failure is not minimized."""
    return state.with_missing("minimization", _why_not(state))


def _why_not(state: State) -> str:
    """Return why the failure is not minimized; empty if it is."""
    if state.seen.broken_operator and state.verdict.responsible == "user":
        return f"{state.seen.broken_contract}: change that first"
    return cases.why_not_minimizable(state.verdict)


def can_minimize(state: State) -> bool:
    """Return True where the options ask for a smaller program, and the failure can have one."""
    return state.wants_study and state.request.minimizes and not _why_not(state)


def minimize_failure(state: State) -> State:
    """Find the smallest program that shows the failure."""
    budget_s, calls = state.request.budget_s, state.callbacks
    case = state.study.case_for(state)
    with interrupts.allowed():
        result = reducer.minimize_case(
            case,
            state.study.server_for(case),
            budget_s,
            state.study.resume,
            calls.show_status,
            calls.say,
        )
    return with_minimize_notes(dataclasses.replace(state, minimized=result))


def with_minimize_notes(state: State) -> State:
    """Add to ``missing`` why there is no smaller program, where there is none."""
    result = state.minimized
    for note in result.notes if result is not None and not result.text else ():
        state = state.with_missing("minimization", note)
    return state


def can_prove_recorded_program(state: State) -> bool:
    """Return True where the reduction ended without a proved program."""
    result = state.minimized
    is_open = result is not None and not (result.is_proved or result.is_interrupted)
    return can_minimize(state) and is_open


def prove_recorded_program(state: State) -> State:
    """Run the recorded program alone, because it may be a repro as it is."""
    state.callbacks.say("running the recorded program alone, in fresh processes")
    with interrupts.allowed():
        shown_program.prove_recorded_program(
            state.request, state.study.case_for(state), state.journals, private_names.get_redactor()
        )
    return _with_eager_end(state)


def load_recorded_program(state: State) -> State | None:
    """Return the state with an earlier proof; None where the runs may be done again now."""
    return None if state.may_study else _with_eager_end(state)


def _with_eager_end(state: State) -> State:
    """Note that the recorded program fails without torch.compile too, if its proof shows that."""
    recorded = shown_program.load_recorded_proof(state.run_path)
    eager = recorded.proof.eager if recorded is not None and recorded.proof is not None else ""
    what = identity_of_title(state.signature.title).what
    if not ownership.fails_in_eager_too(state.verdict, what, eager):
        return state
    why = f"the program fails without torch.compile too: {eager}"
    seen = dataclasses.replace(state.seen, fails_only_with="nothing", eager_detail=why)
    return dataclasses.replace(state, seen=seen)


def load_minimized(state: State) -> State | None:
    """Return the state with the result of an earlier reduction.

    Return None where there is none, or where the reduction may be done again now.
    """
    result = None if state.may_study else reducer.load_minimized(state.run_path)
    return (
        None
        if result is None
        else with_minimize_notes(dataclasses.replace(state, minimized=result))
    )


def wants_plain_run(state: State) -> bool:
    """Return True for a failure that was seen only under reprokit: no repro is proved, and it is
    one of a command, or its evidence names something of reprokit.
    """
    request, result = state.request, state.minimized
    if state.verdict.kind not in ENDS_A_PROGRAM or not state.has_run or request.attached_pid:
        return False
    if request.gpu is not None or state.seen.has_fake_tensors or state.seen.stage:
        return False
    if result is not None and result.is_proved:
        return False
    return (state.is_command and request.minimizes) or bool(_trace_of_reprokit(state))


def run_plainly(state: State) -> State:
    """Run the program once without reprokit, and once more if it passes."""
    case, plain, why = state.study.case_for(state), "", ""
    if case.source:
        state.callbacks.say("running the program without reprokit")
        plain, why = _plain_end(state, case)
    else:
        because = f": {case.why_no_source}" if case.why_no_source else ""
        why = f"a command is run only once{because}" if state.is_command else "it has no source"
    seen = dataclasses.replace(
        state.seen, plain=plain, why_not_plain=why, names_reprokit=_trace_of_reprokit(state)
    )
    return dataclasses.replace(state, seen=seen)


def _plain_end(state: State, case: cases.MinimizeCase) -> tuple[str, str]:
    """Return ``same`` or ``passes`` for the program without reprokit, or why that is not known."""
    folder = state.run_path / "plain"
    deletion.delete_path(folder, inside=state.run_path)
    folder.mkdir()
    with interrupts.allowed():
        file = files.write_atomically(folder / run_names.REPRO_FILE, case.source)
        runs = plain_runs.PlainRuns(case.python, file, folder, None, case.isolation)
        limit_s = MIN_PLAIN_S + PLAIN_MULTIPLE * state.seen.seconds
        (ending,), _ = runs.run(1, limit_s, 1, has_eager=False)
        if ending.status == 0:  # a failure that is rare may not occur
            (ending,), _ = runs.run(1, limit_s, 1, has_eager=False)
    if ending.status == 0:
        # it may pass because it runs alone, in a different folder and environment
        with interrupts.allowed():
            watched = run_in_fresh_process(
                case.source,
                case.python,
                folder / "watched",
                case.signature,
                cases.probe_limits_of(case),
            )
        if watched.answer == same_failure.SAME:
            return "passes", ""
        return "", "alone, the program does not fail in this way under reprokit either"
    if own_traces.is_same_end(state.seen, ending.status, ending.link):
        return "same", ""
    end = private_names.get_redactor().redact_text(proof.describe_end(ending))
    return "", f"alone, the program ends with {end}"


def _trace_of_reprokit(state: State) -> str:
    path = str(state.run_path)
    return own_traces.trace_of_reprokit(
        state.seen, (path, private_names.get_redactor().redact_text(path))
    )


def can_ablate(state: State) -> bool:
    """Return True where the options ask for an ablation, and other backends can be tried.

    A kernel has no other backend, nor has a cache. A damaged heap ends a program by chance, so a
    run that passes shows nothing.
    """
    is_chance = same_failure.is_found_by_chance(state.signature)
    has_one_backend = state.seen.kernel or state.seen.stage or is_chance
    if not state.wants_study or state.request.ablation_steps == "none" or has_one_backend:
        return False
    return not _why_not(state) or state.request.ablation_steps == "all"


def ablate_failure(state: State) -> State:
    """Compile the small program, or the target if there is none, in different ways.

    A command is run again only if the user asks for all ablation steps of it.
    """
    program = _to_ablate(state)
    if state.is_command and state.request.ablation_steps == "all" and program is None:
        with interrupts.allowed():
            ablation = ablate_command.ablate_command(
                state.request, state.signature, state.seen, state.run_path, _trying(state)
            )
        return _with_ablation(state, ablation)
    if state.ablation is not None and (program is None or state.request.ablation_steps != "all"):
        return state  # it was done before the reduction
    if program is None:
        return state.with_missing("ablation", NO_PARTS)
    ablate = (
        run_ablation.ablate_everything
        if state.request.ablation_steps == "all"
        else run_ablation.ablate_for_capture
    )
    ablated, _ = _run_ablation(state, program, ablate)
    return _with_ablation(state, ablated.of_part() if isinstance(program, str) else ablated)


def can_ablate_memory(state: State) -> bool:
    """Return True where the options ask for an ablation of a peak of the memory."""
    is_memory = state.verdict.kind == "peak-memory" and state.seen.memory is not None
    return state.wants_study and is_memory and state.request.ablation_steps != "none"


def ablate_memory(state: State) -> State:
    """Measure the peak of the memory with other settings."""
    assert state.seen.memory is not None
    with interrupts.allowed():
        ablation = memory_settings.ablate_memory(
            state.request, state.signature, state.seen.memory, state.run_path, _trying(state)
        )
    return _with_ablation(state, ablation)


def _run_ablation(
    state: State,
    program: Request | str,
    ablate: Ablate,
) -> tuple[ProgramAblation, CandidateResult | None]:
    """Run the ablation steps of ``ablate`` for a program, and return how it ended without
    torch.compile too.
    """
    with (
        interrupts.allowed(),
        contextlib.closing(state.study.create_ablation_runner(state, program)) as runner,
    ):
        return ablate(runner, state.seen, _trying(state)), runner.eager_end


def _with_ablation(state: State, ablation: AnyAblation) -> State:
    """Return the state with an ablation, and with what the failure needs of the user's own code.

    A program that fails without torch.compile too needs nothing, whatever the ablation shows.
    """
    seen = state.seen
    if seen.fails_only_with != "nothing":
        needs = ablation.needs or seen.fails_only_with
        is_of_part = bool(ablation.needs) and isinstance(ablation, PartAblation)
        seen = dataclasses.replace(seen, fails_only_with=needs, is_need_of_part=is_of_part)
    ablation = dataclasses.replace(ablation, responsible=judge_run(seen).responsible)
    if state.may_study:
        files.write_json(state.run_path / run_names.ABLATION_FILE, ablation.to_json())
    return dataclasses.replace(state, seen=seen, ablation=ablation)


def load_ablation(state: State) -> State | None:
    """Return the state with an earlier ablation.

    Return None where there is none, or where the ablation may be done again now.
    """
    if state.may_study:
        return None
    ablation = run_ablation.load_ablation(state.run_path)
    if ablation is None:
        return state.with_missing("ablation", NO_PARTS) if _to_ablate(state) is None else None
    return _with_ablation(state, ablation)


def _to_ablate(state: State) -> Request | str | None:
    """Return the small program, or else the target; None for a command without a small program."""
    result = state.minimized
    if result is not None and result.has_shown:
        return result.text
    return None if state.is_command else state.request


def _trying(state: State) -> run_ablation.Show:
    return state.callbacks.show_status or (lambda status: None)
