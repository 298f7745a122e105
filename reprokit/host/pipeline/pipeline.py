"""From a target to a pack, as one list of steps: run it, judge it, sign it, make it small, pack it.

A capture starts with nothing and runs the target. A later judgement of its run directory starts
with what the run left, goes over the same list, and reads what each step left there.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import IO

from reprokit.core.shared.contract import run_names
from reprokit.core.shared.contract.events import Process, TransformersModel, Weights
from reprokit.core.shared.contract.serialize import to_json
from reprokit.host.environment import machine_facts
from reprokit.host.experiments import eager_vs_compiled, follow_up
from reprokit.host.minimize.proven import Candidate
from reprokit.host.pack import contents
from reprokit.host.pipeline import own_kernel, run_steps, study_steps
from reprokit.host.pipeline.capture_result import CaptureResult, phases_of, versions_of
from reprokit.host.pipeline.state import Callbacks, Say, State, StudyTools
from reprokit.host.pipeline.step_runner import Step, follow_steps
from reprokit.host.request.run_request import Request
from reprokit.host.run import restore_run, run_directory, supervise
from reprokit.host.system import files, interrupts
from reprokit.host.system.progress import OperationStatus


def capture(
    request: Request,
    output: Path | None,
    say: Say,
    show: supervise.Show | None = None,
    echo: tuple[IO[bytes] | None, IO[bytes] | None] | None = None,
    show_status: Callable[[OperationStatus], None] | None = None,
) -> CaptureResult:
    """Run the target and go over all steps; raises BadInput only for what the user must change."""
    with interrupts.deferred():
        place = run_directory.create_run(output, request.target.label)
        state = State(request, place, Callbacks(say, show, echo, show_status), StudyTools())
        try:
            return captured_of(follow_steps(state, STEPS))
        except run_directory.NothingRan:
            place.discard()
            raise
        finally:
            state.study.close()
            eager_vs_compiled.forget_results(place.path)
            place.release()


def repack(
    run_path: Path,
    say: Say,
    budget_s: float = 0.0,
    resume: bool = False,
    show: Callable[[OperationStatus], None] | None = None,
    python: str | None = None,
    ablates: bool = False,
    proofs: int = Request.proofs,
) -> CaptureResult:
    """Judge and pack a run directory once more, after minimizing it when there is a budget for
    that.

    ``ablates`` asks for the ablation too, also where the capture was told not to.

    For a reprokit that was killed, or whose pack found no room, or that was told not to minimize.
    """
    with interrupts.deferred():
        place = run_directory.reopen_run(run_path)
        calls = Callbacks(say, show_status=show)
        try:
            state = reopened(place, calls, StudyTools(python, resume), may_study=bool(budget_s))
            if budget_s:
                rungs = (
                    "none"
                    if not ablates
                    else "few"
                    if state.request.rungs == "none"
                    else state.request.rungs
                )
                asked = dataclasses.replace(
                    state.request, minimizes=True, budget_s=budget_s, proofs=proofs, rungs=rungs
                )
                state = dataclasses.replace(state, request=asked)
            try:
                return captured_of(follow_steps(state, STEPS))
            finally:
                state.study.close()
        finally:
            place.release()


def reopened(
    place: run_directory.RunDir, callbacks: Callbacks, study: StudyTools, may_study: bool = False
) -> State:
    """The state of a run directory in which the target has run; nothing of the target is run
    again.
    """
    request, outcome = restore_run.restore_run(place.path)
    state = State(request, place, callbacks, study, may_run=False, may_study=may_study)
    return run_steps.run_has_ended(state, outcome)


def captured_of(state: State) -> CaptureResult:
    """What the steps came to."""
    journals, made = state.journals, state.journals.last(TransformersModel)
    captured = state.captured or CaptureResult(
        state.verdict, state.signature, state.seen, state.run_path
    )
    captured.missing = [*state.missing]
    captured.minimized, captured.ablation, captured.phases = (
        state.minimized,
        state.ablation,
        state.phases,
    )
    captured.versions = versions_of(journals, state.environment)
    is_known = state.request.target.kind in ("zoo", "hf")
    captured.weights = journals.last(Weights).why if is_known else ""
    if made.kind:
        captured.model = ", ".join(
            [made.kind, *(f"{name} {shape}" for name, shape in made.inputs.items())]
        )
    return captured


def count_costs(state: State) -> State:
    """Count what each phase of the compile cost."""
    return dataclasses.replace(state, phases=phases_of(state.journals, state.ended))


def collect_environment(state: State) -> State:
    """Ask the machine, and the interpreter that the target used."""
    state.callbacks.say("collecting the environment")
    python = (
        state.journals.last(Process).executable or None
        if state.is_command
        else state.request.python
    )
    if state.has_run:
        found = machine_facts.collect_facts(python, state.run_path, is_fresh=False)
    else:
        found = machine_facts.collect_facts(None, state.run_path, "not asked after an interrupt")
    return dataclasses.replace(state, environment=found).lacks_all(found.missing)


def write_pack(state: State) -> State:
    """Leave the records in the run directory, and the pack beside it."""
    state.callbacks.say("packing")
    captured = captured_of(state)
    records = {
        "observation": captured.seen,
        "verdict": captured.verdict,
        "signature": captured.signature,
    }
    for name, record in records.items():
        with contextlib.suppress(OSError):  # they can be made again, and are in the pack
            files.write_json(state.run_path / f"{name}.json", to_json(record))
    story = contents.PackInput(
        state.request,
        state.verdict,
        state.signature,
        state.seen,
        state.journals,
        state.environment,
        state.minimized,
        state.ablation,
    )
    made = contents.make_pack(story, captured.missing, state.place)
    captured.pack_path, captured.issue_path, captured.repro_path = made.pack, made.issue, made.repro
    captured.candidate_path = made.candidate
    if captured.verdict.kind != "ok" and isinstance(made.program, Candidate):
        captured.unproven = made.program.why
    captured.report_path, captured.url = made.report, made.url
    captured.trimmed, captured.hidden = made.trimmed, made.hidden
    return dataclasses.replace(state, captured=captured).lacks_all(captured.missing)


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
    lambda s: run_steps.may_hide_more(s) and s.request.gpu is None and s.request.compares,
    "comparison.json",
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
    lambda s: own_kernel.may_be_own(s.request, s.seen, s.verdict),
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
FOLLOW_UP = Step(
    "questions",
    run_steps.follow_up_hang,
    lambda s: follow_up.is_wanted(s.request, s.verdict, s.ended),
    "answers.json",
    may=_may_run,
)
LOCATE = Step(
    "location",
    study_steps.locate_begin,
    study_steps.can_locate,
    "location.json",
    may=_may_study,
    why_not=NOT_STUDIED,
)
REFUSE = Step("minimization", study_steps.say_why_not, study_steps.cannot_minimize)
MINIMIZE = Step(
    "minimization",
    study_steps.minimize,
    study_steps.can_minimize,
    load=study_steps.load_minimized,
    may=_may_study,
    why_not=NOT_STUDIED,
)
TRY_RECORDED = Step(
    "proof of the recorded program", study_steps.try_recorded, study_steps.can_try_recorded
)
ABLATE = Step(
    "ablation",
    study_steps.do_ablate,
    study_steps.can_ablate,
    load=study_steps.load_ablation,
    may=_may_study,
    why_not=NOT_STUDIED,
)
COUNT = Step("costs", count_costs)
COLLECT = Step("environment", collect_environment)
PACK = Step("pack", write_pack)

JUDGE = (
    OBSERVE,
    READ_PROBLEMS,
    COMPARE,
    COMPILE_KERNELS,
    ISOLATE_KERNEL,
    SIMULATE,
    CONFIRM,
    FOLLOW_UP,
    LOCATE,
)
"""What the verdict and the signature come from."""
LEAVE = (REFUSE, MINIMIZE, TRY_RECORDED, ABLATE, COUNT, COLLECT, PACK)
STEPS = (RUN, *JUDGE, *LEAVE)
"""All of a capture, in its order."""
