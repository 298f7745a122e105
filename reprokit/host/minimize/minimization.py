"""Reduce a failing run to the smallest program that still shows the same failure.

Every candidate is the text of a program: the target's own source, or a subset of the lines of a
recorded graph. A candidate is therefore what a maintainer would run, a forked child or a fresh
process can run it, and the last one is the repro. The starting points are the graph that Dynamo
saw, the source, and the graph that Inductor got; the shortest result wins.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import math
import time
from collections.abc import Callable
from pathlib import Path

from reprokit.core.experiments.ablation import BACKENDS, TRACED, CompileVariant
from reprokit.core.judge import same_failure
from reprokit.core.records.verdict_kinds import FAILED_CHECK, kind_named
from reprokit.core.redaction.redactor import Redactor
from reprokit.core.reduce import readable, two_processes
from reprokit.core.reduce.passes import statements
from reprokit.core.shared.contract import run_names
from reprokit.core.shared.contract.measured_kinds import PEAK_MEMORY, SLOWER
from reprokit.core.shared.contract.serialize import from_json
from reprokit.core.shared.errors import BadInput
from reprokit.host.minimize import cases, fail_by_itself, locate, reducer
from reprokit.host.minimize.answers.budget import Budget
from reprokit.host.minimize.answers.oracle import BudgetExhausted, Oracle
from reprokit.host.minimize.candidate_text import count_code_lines
from reprokit.host.minimize.minimize_result import MinimizeResult
from reprokit.host.minimize.proofs import proof
from reprokit.host.minimize.starts import starting_points
from reprokit.host.probe.candidate import CandidateResult, ProbeLimits
from reprokit.host.probe.client import ProbeServer, ServerLost
from reprokit.host.system import deletion, files, host_log, interrupts, private_names
from reprokit.host.system.progress import OperationStatus

FOLDER = "minimize"
MAX_ROUNDS = 3
"""How many times a failure is reduced and proved, at most."""


def minimize_case(
    case: cases.MinimizeCase,
    server: ProbeServer,
    budget_s: float,
    resume: bool = False,
    show: Callable[[OperationStatus], None] | None = None,
    say: Callable[[str], None] = lambda line: None,
) -> MinimizeResult:
    """Reduce the failure that a run directory recorded; the notes of the result name what failed.

    ``say`` gets one line with the path of the first program that shows the failure.

    ``budget_s`` limits the wall-clock time of all but the proof: the start of the server, the
    search for a first program that shows the failure, and the reduction. Seconds in which probes
    wait for a CPU do not count. The time of the proof is counted separately.
    """
    folder = case.run_path / FOLDER
    if not resume:
        deletion.delete_path(folder, inside=case.run_path)
    folder.mkdir(exist_ok=True)
    result = MinimizeResult(budget_s=budget_s)
    if case.plan is not None and case.plan.why_not:
        result.notes.append(case.plan.why_not)
        return result
    began = time.monotonic()
    verdict = case.verdict
    starts, redactor = _with_plain_backend(case), private_names.get_redactor()
    own_cpu_s = time.process_time() - server.cpu_s
    with contextlib.ExitStack() as stack:
        limits = cases.probe_limits_of(case)
        is_cpp_error = bool(limits.stop) and verdict.cause == "CppCompileError"
        limits = dataclasses.replace(
            limits, checks_syntax=is_cpp_error, is_simulated=limits.measures == PEAK_MEMORY
        )
        oracle = Oracle(folder, server, case.signature, limits, case.python, show)
        oracle.finish = functools.partial(two_processes.with_writer, plan=case.plan)
        oracle.ways.must_pass = case.profile.last_passing
        oracle.ways.candidates = cheapest_way(case)
        oracle.is_cold = case.plan is not None  # a forked child has no process of its own
        stack.callback(oracle.close)
        job = reducer.Reducer(oracle, result, folder, verdict, case.seen, say)
        job.began, job.passes_in_eager = began, case.passes_in_eager
        job.budget = oracle.budget = Budget(budget_s, lambda: server.waited_s)
        oracle.show_progress("importing torch once for all trial runs")
        try:
            with interrupts.allowed():
                locate.isolate_signature(oracle, case.seen, starts)
                _until_proved(case, job, oracle, server, result, starts, redactor, show)
        except KeyboardInterrupt:
            result.notes.append("interrupted: this is the best so far; --resume continues from it")
        except (BadInput, ServerLost, OSError) as problem:
            result.notes.append(f"it ended early: {problem}")
        except Exception as problem:  # the best program so far is still a result
            result.notes.append(f"it ended early, by a defect of reprokit: {problem!r}")
        result.probes, result.asked, result.rate = (
            oracle.status.probes,
            oracle.status.answered,
            oracle.rate,
        )
    if not result.text and case.why_no_source:
        result.notes.append(
            f"reprokit did not reduce the source of the target: {case.why_no_source}"
        )
    if result.text:
        result.text = job.finished or redactor.redact_python(
            oracle.finish(readable.lay_out(result.text, case.signature.title, verdict.kind))
        )
    result.cpu_s = round(server.cpu_s + time.process_time() - own_cpu_s, 2)
    result.seconds = round(time.monotonic() - began, 1)
    save_minimized(case.run_path, result)
    return result


def _with_plain_backend(case: cases.MinimizeCase) -> list[starting_points.StartingPoint]:
    """Return the starting points. If the original fails while it is traced with every backend, its
    source is tried with the backend "eager" first.

    A graph is compiled with that backend where Dynamo failed: a graph with which only a later part
    of the compiler fails has a different cause.
    """
    starts, first = cases.starting_points_of_case(case), case.profile.first_failing
    if case.verdict.phase in TRACED and first in (None, BACKENDS[1]):
        starts = [_only_traced(start) if start.graph is not None else start for start in starts]
    is_traced = case.verdict.phase in (*TRACED, BACKENDS[1].part)
    if not is_traced or first != BACKENDS[1]:
        return starts
    plain = [
        dataclasses.replace(start, text=statements.with_backend(start.text, "eager"))
        for start in starts
        if start.graph is None
    ]
    index = next((n for n, start in enumerate(starts) if start.graph is None), 0)
    return [*starts[:index], *plain, *starts[index:]]


def _only_traced(start: starting_points.StartingPoint) -> starting_points.StartingPoint:
    assert start.graph is not None
    settings = {**start.graph.settings, "backend": repr("eager")}
    graph = dataclasses.replace(start.graph, settings=settings)
    text = statements.with_backend(start.text, "eager")
    return dataclasses.replace(start, text=text, graph=graph)


def cheapest_way(case: cases.MinimizeCase) -> CompileVariant | None:
    """Return the backend with the least work with which the original fails; None for Inductor.

    A program with a compiler of its own, and one whose failure shows while it is traced, are
    compiled as they are.
    """
    first = case.profile.first_failing
    is_usual = case.verdict.kind in ("exception", FAILED_CHECK)
    is_usual &= case.verdict.phase not in TRACED
    return first if is_usual and first in BACKENDS[1:-1] else None


def _until_proved(
    case: cases.MinimizeCase,
    job: reducer.Reducer,
    oracle: Oracle,
    server: ProbeServer,
    result: MinimizeResult,
    starts: list[starting_points.StartingPoint],
    redactor: Redactor,
    show: proof.Show | None,
) -> None:
    """Reduce the failure and prove the result.

    Repeat both, at most ``MAX_ROUNDS`` times in all, when the fresh processes of the proof answer
    differently from forked ones, or show that the failure is flaky, or when other backends fail
    than with the original.
    """
    folder = case.run_path / FOLDER
    lost: tuple[str, str, str] | None = None
    for round_number in range(MAX_ROUNDS):
        is_budget_spent, job.finished, result.unproved = False, "", ""
        try:
            job.reduce_from(starts)
        except BudgetExhausted:
            is_budget_spent = True
            result.is_complete = False
        if not result.text and lost is not None:
            result.text, result.level, why = lost
            result.notes.append(f"the smallest program has a different failure: {why}")
            return
        if not result.text:
            if is_budget_spent:
                result.notes.append("the budget ended before any program showed the failure")
            return
        save_minimized(case.run_path, result)
        proves = time.monotonic()
        usual = oracle.limits
        # the proof runs the program with every part of the compiler at work
        way = oracle.ways.candidates
        oracle.limits = _limits_of_proof(usual)
        oracle.ways.candidates = None
        program = oracle.finish(
            fail_by_itself.make_failing_program(case.verdict, case.signature, oracle, result)
        )
        proof_folder, wanted = folder / "proof", case.signature
        for job.finished in redactor.redacted_programs(program):
            confirm = locate.LocationCheck(
                server,
                job.finished,
                wanted,
                dataclasses.replace(oracle.limits, alone=usual.alone),
                case.python,
                case.profile,
                case.seen,
            )
            result.proof = proof.prove_program(
                job.finished,
                case.python,
                proof_folder,
                wanted,
                oracle.limits,
                proof.ProofRuns(case.proofs, oracle.rate, cores=case.processes_at_once),
                confirm,
                _forked_watch(case, oracle),
                show,
            )
            if result.proof.answer == same_failure.SAME or confirm.is_elsewhere:
                break
        assert result.proof is not None
        fails_in_eager = result.proof.eager not in ("", "passes")
        if case.passes_in_eager and fails_in_eager:
            # its readers would see a different error first
            result.proof = dataclasses.replace(
                result.proof,
                answer=same_failure.OTHER,
                instead=f"without torch.compile it ends with {result.proof.eager}",
            )
        result.proof_s = round(result.proof_s + time.monotonic() - proves, 1)
        has_time = not is_budget_spent and job.budget.left_s > 0
        may_repeat = confirm.is_elsewhere and has_time and round_number < MAX_ROUNDS - 1
        if may_repeat and oracle.keep_profile(confirm.differs_with, case.profile):
            oracle.limits, oracle.ways.candidates = usual, way
            lost = result.text, result.level, confirm.why
            result.text, result.proof = "", None
            starts = [*job.best_with_profile(), *starts]
            continue
        if confirm.is_elsewhere:
            result.notes.append(f"the smallest program has a different failure: {confirm.why}")
            break
        is_same = result.proof.answer == same_failure.SAME
        is_always = result.proof.hits == result.proof.runs and result.proof.tries == 1
        rate = (result.proof.hits + 1) / (result.proof.runs + result.proof.tries)
        if not has_time or (is_same and (is_always or oracle.rate < 1.0)):
            oracle.rate = min(oracle.rate, rate) if is_same and result.proof.hits else oracle.rate
            break
        if is_same and kind_named(case.verdict.kind).is_silent and not result.proof.hits:
            break  # the program has no check of its own, and more runs do not add one
        if not is_same and (oracle.is_cold or result.proof.needs or fails_in_eager):
            break
        oracle.limits, oracle.ways.candidates = usual, way
        if is_same:
            job.repeat_probes(rate)
        else:
            # the original may need what the best program does not need any more, such as its data
            if result.level == "source":
                starts = [starting_points.StartingPoint("source", result.text), *starts]
            job.use_fresh_processes()
    if not result.is_complete:
        result.notes.append("the budget ended: this is the best so far; --resume continues from it")


def _limits_of_proof(usual: ProbeLimits) -> ProbeLimits:
    """Return the limits of a program that runs with every part of the compiler at work.

    What was only simulated is executed, which takes longer, and its peaks differ by a few percent.
    """
    limits = dataclasses.replace(usual, alone={}, checks_syntax=False)
    if not usual.is_simulated:
        return limits
    deadline_s = max(usual.deadline_s, reducer.MIN_DEADLINE_S)
    return dataclasses.replace(
        limits.relaxed(), is_simulated=False, deadline_s=deadline_s, most_cpu_s=math.inf
    )


def _forked_watch(
    case: cases.MinimizeCase, oracle: Oracle
) -> Callable[[str, bool], CandidateResult] | None:
    """Return a function that runs a program once in a forked child, compiled or in eager.

    Return None where a fresh process must run it: the failure is flaky or needs one, or its time
    matters.
    """
    limits = oracle.limits
    is_timed = case.verdict.kind in ("hang", SLOWER) or limits.is_slow or bool(limits.sizes)
    if oracle.is_cold or is_timed or oracle.rate < 1.0:
        return None

    def watch(text: str, is_eager: bool) -> CandidateResult:
        budget, oracle.budget = oracle.budget, Budget()  # the budget is not that of the proof
        oracle.limits = dataclasses.replace(limits, stop=None)
        try:
            return oracle.run_once(text, is_eager)
        finally:
            oracle.budget, oracle.limits = budget, limits

    return watch


def load_minimized(run_path: Path) -> MinimizeResult | None:
    """Return the result of an earlier reduction from a run directory; None where there is none."""
    if fields := files.read_json_object(run_path / FOLDER / run_names.MINIMIZE_FILE):
        with host_log.suppress(ValueError):
            result: MinimizeResult = from_json(MinimizeResult, fields)
            return result
    return None


def save_minimized(run_path: Path, result: MinimizeResult) -> None:
    """Write the result, and the best program so far, to the run directory."""
    folder = run_path / FOLDER
    result.lines = count_code_lines(result.text)
    with host_log.suppress(OSError):
        files.write_json(folder / run_names.MINIMIZE_FILE, dataclasses.asdict(result))
        if result.text:
            files.write_atomically(folder / "best.py", result.text)
