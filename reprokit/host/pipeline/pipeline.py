"""The steps from a target to a pack: run, judge, sign, minimize and pack it.

A capture starts with an empty run directory and runs the target. A later judgement starts with the
files of the run, does the same steps, and reads what each step wrote before.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import IO

from reprokit.core.shared.contract import run_names
from reprokit.core.shared.contract.events import Process, TransformersModel, Weights
from reprokit.core.shared.contract.serialize import to_json
from reprokit.core.triage.known_failures import KnownFailure
from reprokit.host.environment import machine_facts
from reprokit.host.experiments import (
    eager_vs_compiled,
    follow_up,
    run_cache_stages,
    sample_calls,
)
from reprokit.host.minimize.proofs.proven import Candidate, Repro
from reprokit.host.pack import contents
from reprokit.host.pipeline import (
    announcement,
    condition_steps,
    own_kernel,
    run_steps,
    step_costs,
    study_steps,
)
from reprokit.host.pipeline.capture_result import CaptureResult, phases_of, versions_of
from reprokit.host.pipeline.state import Callbacks, Say, State, StudyTools
from reprokit.host.pipeline.step_runner import Step, follow_steps
from reprokit.host.report import users_line
from reprokit.host.request.run_request import Request
from reprokit.host.run import restore_run, run_directory, supervise
from reprokit.host.system import files, host_log, interrupts, private_names
from reprokit.host.system.progress import OperationStatus


def capture_target(
    request: Request,
    output: Path | None,
    say: Say,
    show: supervise.Show | None = None,
    echo: tuple[IO[bytes] | None, IO[bytes] | None] | None = None,
    show_status: Callable[[OperationStatus], None] | None = None,
    catalogue: Sequence[KnownFailure] | None = None,
) -> CaptureResult:
    """Run the target, and do all steps. ``catalogue`` has the known failures; None: reprokit's.

    Raises:
        BadInput: the user must change the target, the options or the machine.
    """
    with interrupts.deferred():
        run_dir = run_directory.create_run_directory(output, request.target.label)
        state = State(
            request,
            run_dir,
            Callbacks(say, show, echo, show_status),
            StudyTools(),
            catalogue=catalogue,
        )
        try:
            with host_log.log_to(run_dir.path):
                return _follow_all_steps(state)
        except run_directory.NothingRan:
            run_dir.delete_run()
            raise
        finally:
            eager_vs_compiled.delete_results(run_dir.path)
            run_cache_stages.delete_caches(run_dir.path)
            run_dir.release_lock()


def repack_run(
    run_path: Path,
    say: Say,
    budget_s: float = 0.0,
    resume: bool = False,
    show: Callable[[OperationStatus], None] | None = None,
    python: str | None = None,
    ablates: bool = False,
    proofs: int = Request.proofs,
    cores: int = Request.cores,
) -> CaptureResult:
    """Judge and pack a run directory again, and minimize it if ``budget_s`` is not 0.

    ``ablates`` does the ablation too, also where the options of the capture excluded it. This is
    for a capture that was killed, that found no space for its pack, or that did not minimize.
    """
    with interrupts.deferred():
        run_dir = run_directory.reopen_run_directory(run_path)
        calls = Callbacks(say, show_status=show)
        try:
            state = reopen_state(
                run_dir, calls, StudyTools(python, resume), may_study=bool(budget_s)
            )
            if budget_s:
                steps = (
                    "none"
                    if not ablates
                    else "few"
                    if state.request.ablation_steps == "none"
                    else state.request.ablation_steps
                )
                request = dataclasses.replace(
                    state.request,
                    minimizes=True,
                    budget_s=budget_s,
                    proofs=proofs,
                    cores=cores,
                    ablation_steps=steps,
                )
                state = dataclasses.replace(state, request=request)
            with host_log.log_to(run_dir.path):
                return _follow_all_steps(state)
        finally:
            run_dir.release_lock()


def _follow_all_steps(state: State) -> CaptureResult:
    try:
        return capture_result_of(follow_steps(state, STEPS))
    finally:
        # the CPU seconds of the servers are known when they have ended
        with step_costs.recorded(state.run_path, "servers"):
            state.study.close()


def reopen_state(
    run_dir: run_directory.RunDir, callbacks: Callbacks, study: StudyTools, may_study: bool = False
) -> State:
    """Return the state of a run directory in which the target has run, without running it again."""
    request, outcome = restore_run.restore_run(run_dir.path)
    state = State(request, run_dir, callbacks, study, may_run=False, may_study=may_study)
    return run_steps.state_after_run(state, outcome)


def capture_result_of(state: State) -> CaptureResult:
    """Return the result of a capture from the state after its steps."""
    journals, model = state.journals, state.journals.last_event_of_type(TransformersModel)
    captured = state.captured or CaptureResult(
        state.verdict, state.signature, state.seen, state.run_path
    )
    captured.missing, captured.catalogue = [*state.missing], state.catalogue
    captured.minimized, captured.ablation, captured.phases = (
        state.minimized,
        state.ablation,
        state.phases,
    )
    captured.users_line = users_line.find_users_line(state.verdict, state.seen)
    captured.compiling = users_line.find_compiled_function(journals, state.verdict, state.seen)
    captured.total_s = time.monotonic() - state.began
    captured.versions = versions_of(journals, state.environment)
    is_known = state.request.target.kind in ("zoo", "hf")
    captured.weights = journals.last_event_of_type(Weights).why if is_known else ""
    if model.kind:
        captured.model = ", ".join(
            [model.kind, *(f"{name} {shape}" for name, shape in model.inputs.items())]
        )
    return captured


def count_costs(state: State) -> State:
    """Add up the CPU seconds of each phase of the compile."""
    return dataclasses.replace(state, phases=phases_of(state.journals, state.ended))


def collect_environment(state: State) -> State:
    """Collect facts about the machine and the interpreter of the target."""
    state.callbacks.say("collecting the environment")
    python = (
        state.journals.last_event_of_type(Process).executable or None
        if state.is_command and not state.request.attached_pid
        else state.request.python
    )
    if refused := state.request.python_refused:
        machine = machine_facts.collect_facts(None, state.run_path, refused)
    elif state.has_run:
        machine = machine_facts.collect_facts(python, state.run_path, is_fresh=False)
    else:
        machine = machine_facts.collect_facts(None, state.run_path, "not asked after an interrupt")
    packages = machine.facts.get("packages") or {}
    private_names.get_redactor().know_names(map(str, packages.values()))
    return dataclasses.replace(state, environment=machine).with_all_missing(machine.missing)


def write_pack(state: State) -> State:
    """Write the records to the run directory, and the pack next to it."""
    state.callbacks.say("packing")
    captured = capture_result_of(state)
    records = {
        "observation": captured.seen,
        "verdict": captured.verdict,
        "signature": captured.signature,
    }
    for name, record in records.items():
        with host_log.suppress(OSError):  # the pack has the records too
            files.write_json(state.run_path / f"{name}.json", to_json(record))
    pack_input = contents.PackInput(
        state.request,
        state.verdict,
        state.signature,
        state.seen,
        state.journals,
        state.environment,
        state.minimized,
        state.ablation,
        captured.known(),
    )
    pack = contents.make_pack(pack_input, captured.missing, state.run_dir)
    captured.pack_path, captured.issue_path, captured.repro_path = pack.pack, pack.issue, pack.repro
    captured.candidate_path = pack.candidate
    captured.repro = pack.program if isinstance(pack.program, Repro) else None
    if captured.verdict.kind != "ok" and isinstance(pack.program, Candidate):
        captured.unproven = pack.program.why
    captured.report_path, captured.decision = pack.report, pack.decision
    captured.trimmed, captured.hidden = pack.trimmed, pack.hidden
    return dataclasses.replace(state, captured=captured).with_all_missing(captured.missing)


def _may_run(state: State) -> bool:
    return state.may_run and not state.is_given_up


def _may_study(state: State) -> bool:
    return state.may_study and not state.is_given_up


NOT_STUDIED = "it was not done; reprokit minimize does it, with the run directory"

RUN = Step("run", run_steps.run_target, lambda s: s.outcome is None, is_vital=True)
OBSERVE = Step("observation", run_steps.read_evidence)
READ_PROBLEMS = Step("journal", run_steps.read_problems)
COMPARE = Step(
    "comparison with eager",
    run_steps.compare_with_eager,
    lambda s: (
        run_steps.may_compare(s)
        and s.request.gpu is None
        and s.request.compares
        and not s.seen.has_fake_tensors  # nothing was executed
    ),
    "comparison.json",
    may=_may_run,
)
SAMPLE_CALLS = Step(
    sample_calls.WHAT,
    run_steps.sample_calls,
    lambda s: run_steps.may_call_again(s) and s.request.calls > 0,
    "calls.json",
    may=_may_run,
)
COMPARE_SPEED = Step(
    "comparison of speed",
    run_steps.compare_speed_with_eager,
    lambda s: run_steps.may_hide_more(s) and s.request.compares_speed,
    "speed.json",
    may=_may_run,
)
COMPARE_MEMORY = Step(
    "comparison of memory",
    run_steps.compare_memory,
    lambda s: run_steps.may_hide_more(s) and s.request.compares_memory,
    "memory.json",
    may=_may_run,
)
COMPARE_CACHES = Step(
    "caches",
    run_steps.compare_caches,
    lambda s: run_steps.may_hide_more(s) and s.request.checks_caches,
    "caches.json",
    may=_may_run,
)
COMPILE_KERNELS = Step(
    "kernels",
    run_steps.compile_kernels,
    lambda s: (
        run_steps.may_hide_more(s) and s.request.gpu is not None and s.request.kernels != "none"
    ),
    run_names.KERNELS_FILE,
    may=_may_run,
)
ISOLATE_KERNEL = Step(
    "kernel",
    run_steps.isolate_kernel,
    lambda s: own_kernel.may_be_own_kernel(s.request, s.seen, s.verdict),
    "kernel.json",
    may=_may_run,
)
SIMULATE = Step(
    "simulation",
    run_steps.simulate_beside,
    lambda s: s.has_run and s.request.beside is not None,
    "simulation.json",
    may=_may_run,
)
CONFIRM = Step(
    "eager run", run_steps.confirm_in_eager, run_steps.wants_eager, "eager.json", may=_may_run
)
CHECK_OWN = Step(
    "own check",
    study_steps.check_without_compile,
    study_steps.failed_by_itself,
    "own_check.json",
    may=_may_study,
    why_not=NOT_STUDIED,
)
ANNOUNCE = Step(
    "announcement",
    announcement.announce_verdict,
    lambda s: s.may_run and s.has_run and s.verdict.kind != "ok",
)
FOLLOW_UP = Step(
    "questions",
    run_steps.follow_up_hang,
    lambda s: not s.seen.stage and follow_up.wants_follow_up(s.request, s.verdict, s.ended),
    "answers.json",
    may=_may_run,
)
FIND_CRASH_SITE = Step(
    "crash site",
    run_steps.find_crash_site,
    run_steps.wants_crash_site,
    "crash_site.json",
    may=_may_run,
)
LOCATE = Step(
    "location",
    study_steps.locate_failure,
    study_steps.can_locate,
    "location.json",
    may=_may_study,
    why_not=NOT_STUDIED,
)
ABLATE_PROGRAM = Step(
    "ablation of the program",
    study_steps.ablate_program,
    study_steps.can_ablate_program,
    load=study_steps.load_program_ablation,
    may=_may_study,
    why_not=NOT_STUDIED,
)
REFUSE = Step("minimization", study_steps.note_why_not, study_steps.cannot_minimize)
MINIMIZE = Step(
    "minimization",
    study_steps.minimize_failure,
    study_steps.can_minimize,
    load=study_steps.load_minimized,
    may=_may_study,
    why_not=NOT_STUDIED,
)
TRY_RECORDED = Step(
    "proof of the recorded program",
    study_steps.prove_recorded_program,
    study_steps.can_prove_recorded_program,
    load=study_steps.load_recorded_program,
    may=_may_study,
    why_not=NOT_STUDIED,
)
RUN_PLAINLY = Step(
    "run without reprokit",
    study_steps.run_plainly,
    study_steps.wants_plain_run,
    "plain.json",
    may=_may_study,
    why_not=NOT_STUDIED,
)
ABLATE = Step(
    "ablation",
    study_steps.ablate_failure,
    study_steps.can_ablate,
    load=study_steps.load_ablation,
    may=_may_study,
    why_not=NOT_STUDIED,
)
ABLATE_MEMORY = Step(
    "memory with other settings",
    study_steps.ablate_memory,
    study_steps.can_ablate_memory,
    load=study_steps.load_program_ablation,
    may=_may_study,
    why_not=NOT_STUDIED,
)
COUNT = Step("costs", count_costs)
COLLECT = Step("environment", collect_environment, run_steps.has_evidence)
RAISE_RATE = Step(
    "rate",
    condition_steps.raise_rate,
    condition_steps.is_rare,
    may=_may_study,
    why_not="it was not done; capture the failure again",
)
FIND_CONDITIONS = Step(
    "conditions",
    condition_steps.study_conditions,
    condition_steps.can_study_conditions,
    may=_may_study,
    why_not="it was not done; reprokit conditions does it, with the pack",
)
PACK = Step("pack", write_pack, run_steps.has_evidence)

JUDGE = (
    OBSERVE,
    READ_PROBLEMS,
    COMPARE,
    SAMPLE_CALLS,
    COMPARE_MEMORY,
    COMPARE_CACHES,
    COMPARE_SPEED,
    COMPILE_KERNELS,
    ISOLATE_KERNEL,
    SIMULATE,
    CONFIRM,
    CHECK_OWN,
    ANNOUNCE,
    FOLLOW_UP,
    FIND_CRASH_SITE,
    LOCATE,
)
"""The steps before the verdict and the signature are final."""
LEAVE = (
    REFUSE,
    ABLATE_PROGRAM,
    MINIMIZE,
    TRY_RECORDED,
    RUN_PLAINLY,
    ABLATE,
    ABLATE_MEMORY,
    COUNT,
    COLLECT,
    RAISE_RATE,
    FIND_CONDITIONS,
    PACK,
)
STEPS = (RUN, *JUDGE, *LEAVE)
"""All steps of a capture, in order."""
