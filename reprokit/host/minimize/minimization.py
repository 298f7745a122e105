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
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from reprokit.core.judge import same_failure
from reprokit.core.records.finding import Signature, Verdict
from reprokit.core.records.observation import Observation
from reprokit.core.records.verdict_kinds import kind_named
from reprokit.core.redaction.redactor import Redactor
from reprokit.core.reduce import readable, two_processes
from reprokit.core.shared.contract import run_names
from reprokit.core.shared.contract.events import Process, TargetBuilt, Weights
from reprokit.core.shared.contract.serialize import from_json
from reprokit.core.shared.errors import BadInput
from reprokit.host.experiments.run_cache_stages import DEFAULT_CHANGE
from reprokit.host.minimize import (
    fail_by_itself,
    locate,
    program_source,
    proof,
    reducer,
    starting_points,
)
from reprokit.host.minimize.minimize_result import MinimizeResult
from reprokit.host.minimize.oracle import BudgetExhausted, Oracle, count_code_lines
from reprokit.host.probe.candidate import ProbeLimits, probe_limits_for
from reprokit.host.probe.client import ProbeServer, ServerLost
from reprokit.host.request.run_request import Request
from reprokit.host.run.observation_reader import Journals
from reprokit.host.system import deletion, files, host_log, interrupts, private_names
from reprokit.host.system.progress import OperationStatus

ENDLESS_LINE_REPEATS = 2_000
"""How many times a probe must trace one line before that counts as an endless loop. It is lower
than the limit for a whole run, because a reduction makes many probes.
"""
DEPTHS = {
    "dynamo-trace": "aot",
    "guards": "aot",
    "export": "aot",
    "backend": "aot",
    "aot": "aot",
    "partition": "aot",
    "fx-passes": "inductor",
    "lowering": "inductor",
}
"""How far the probe server must warm up for a phase; all other phases need the C++ compiler too."""
STOPPABLE = frozenset(
    {*DEPTHS, "scheduler", "codegen", "cpp-build", "triton-compile", "worker-wait"}
) - {"guards"}
"""Phases after which a compile may stop; agent/experiments/stop_after_phase.py finds their end."""
FOLDER = "minimize"
SERVER = "server"


@dataclass(frozen=True)
class MinimizeCase:
    """A failing run that can be minimized."""

    verdict: Verdict
    signature: Signature
    seen: Observation
    run_path: Path
    python: str
    source: str = ""
    """The target's own program; empty where it is not self-contained."""
    is_training: bool = False
    is_fake: bool = False
    """The run used fake tensors, because real ones would not fit in memory."""
    line_repeats: int = Request.line_repeats
    gpu: Mapping[str, Any] | None = None
    """The simulated GPU that the run compiled for."""
    proofs: int = Request.proofs
    plan: two_processes.CachePlan | None = None
    """What the writer and the reader of a cache do; None for a failure that needs no cache."""
    why_no_source: str = ""
    """Why the target's own program is not reduced."""


def case_of_run(
    request: Request,
    verdict: Verdict,
    signature: Signature,
    seen: Observation,
    journals: Journals,
    run_path: Path,
) -> MinimizeCase:
    """Return the case of a run on this machine."""
    python = request.python
    if request.target.kind == "command":
        executable = journals.last_event_of_type(Process).executable
        python = executable if executable and Path(executable).exists() else python
    source, why_no_source = program_source.own_source(request, journals)
    is_training = request.train or journals.last_event_of_type(TargetBuilt).train
    is_fake = journals.last_event_of_type(Weights).kind == "fake"
    return MinimizeCase(
        verdict,
        signature,
        seen,
        run_path,
        python,
        source,
        is_training,
        is_fake,
        request.line_repeats,
        request.gpu,
        request.proofs,
        two_processes.plan_of_observation(
            seen, request.cache_change or DEFAULT_CHANGE, request.cache_python
        ),
        why_no_source,
    )


def why_not_minimizable(verdict: Verdict) -> str:
    """Return why a run with this verdict cannot be minimized; empty when it can."""
    if kind_named(verdict.kind).is_minimizable:
        return ""
    if verdict.kind == "ok":
        return "nothing failed"
    if verdict.responsible == "reprokit":
        return "it is a gap in reprokit, not a failure of the target"
    if verdict.kind == "error-in-eager":
        return (
            "no failure of the compiler was found that a smaller program could show:"
            f" {verdict.reason}"
        )
    if verdict.kind == "rank-mismatch":
        return (
            "the failure needs several ranks; the program in the pack is the target's own source,"
            " for torchrun"
        )
    return (
        f"the verdict is {verdict.kind}, and no signature says what a smaller program should show"
    )


def minimize_case(
    case: MinimizeCase,
    server: ProbeServer,
    budget_s: float,
    resume: bool = False,
    show: Callable[[OperationStatus], None] | None = None,
) -> MinimizeResult:
    """Reduce the failure that a run directory recorded; the notes of the result name what failed.

    ``budget_s`` limits the wall-clock time of all but the proof: the start of the server, the
    search for a first program that shows the failure, and the reduction. The time of the proof is
    counted separately.
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
    starts, redactor = starting_points_of_case(case), private_names.get_redactor()
    own_cpu_s = time.process_time() - server.cpu_s
    with contextlib.ExitStack() as stack:
        oracle = Oracle(folder, server, case.signature, probe_limits_of(case), case.python, show)
        oracle.finish = functools.partial(two_processes.with_writer, plan=case.plan)
        oracle.is_cold = case.plan is not None  # a forked child has no process of its own
        stack.callback(oracle.close)
        job = reducer.Reducer(oracle, result, folder, verdict, case.seen)
        job.ends = oracle.ends = began + budget_s
        oracle.status.limit_s = budget_s
        oracle.show_progress("starting a server that has imported torch")
        try:
            with interrupts.allowed():
                locate.isolate_signature(oracle, case.seen, starts)
                _until_proved(case, job, oracle, server, result, starts, redactor, show)
        except KeyboardInterrupt:
            result.notes.append("interrupted: this is the best so far; --resume goes on from it")
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
        result.notes.append(f"the source of the target is not reduced: {case.why_no_source}")
    if result.text:
        result.text = job.finished or redactor.redact_python(
            oracle.finish(readable.lay_out(result.text, case.signature.title, verdict.kind))
        )
    result.cpu_s = round(server.cpu_s + time.process_time() - own_cpu_s, 2)
    result.seconds = round(time.monotonic() - began, 1)
    _leave(folder, result)
    return result


def _until_proved(
    case: MinimizeCase,
    job: reducer.Reducer,
    oracle: Oracle,
    server: ProbeServer,
    result: MinimizeResult,
    starts: list[starting_points.StartingPoint],
    redactor: Redactor,
    show: proof.Show | None,
) -> None:
    """Reduce the failure and prove the result.

    Repeat both, at most three times in all, when the fresh processes of the proof answer
    differently from forked ones, or show that the failure is flaky.
    """
    folder = case.run_path / FOLDER
    for _ in range(3):
        is_budget_spent, job.finished, result.unproved = False, "", ""
        try:
            job.reduce_from(starts)
        except BudgetExhausted:
            is_budget_spent = True
            result.is_complete = False
        if not result.text:
            if is_budget_spent:
                result.notes.append("the budget ended before any program showed the failure")
            return
        _leave(folder, result)
        proves = time.monotonic()
        usual = oracle.limits
        # the proof runs the program with every part of the compiler at work
        oracle.limits = dataclasses.replace(usual, alone={})
        # redaction may change what the program does, so the redacted text is what is proved
        job.finished = redactor.redact_python(
            oracle.finish(
                fail_by_itself.make_failing_program(case.verdict, case.signature, oracle, result)
            )
        )
        proof_folder, wanted = folder / "proof", case.signature
        confirm = locate.LocationCheck(server, job.finished, wanted, oracle.limits, case.python)
        result.proof = proof.prove_program(
            job.finished,
            case.python,
            proof_folder,
            wanted,
            oracle.limits,
            oracle.rate,
            case.proofs,
            confirm=confirm,
            show=show,
        )
        result.proof_s = round(result.proof_s + time.monotonic() - proves, 1)
        if confirm.is_elsewhere:
            result.notes.append(
                f"the smallest program is wrong elsewhere in the compiler: {result.proof.title}"
            )
            break
        is_same = result.proof.answer == same_failure.SAME
        is_always = result.proof.hits == result.proof.runs and result.proof.tries == 1
        rate = (result.proof.hits + 1) / (result.proof.runs + result.proof.tries)
        if (
            is_budget_spent
            or time.monotonic() > job.ends
            or (is_same and (is_always or oracle.rate < 1.0))
        ):
            oracle.rate = min(oracle.rate, rate) if is_same and result.proof.hits else oracle.rate
            break
        if is_same and kind_named(case.verdict.kind).is_silent and not result.proof.hits:
            break  # the program has no check of its own, and more runs do not add one
        if not is_same and oracle.is_cold:
            break
        oracle.limits = usual
        if is_same:
            job.repeat_probes(rate)
        else:
            job.use_fresh_processes()
    if not result.is_complete:
        result.notes.append("the budget ended: this is the best so far; --resume goes on from it")


def load_minimized(run_path: Path) -> MinimizeResult | None:
    """Return the result of an earlier reduction from a run directory; None where there is none."""
    if fields := files.read_json_object(run_path / FOLDER / run_names.MINIMIZE_FILE):
        with host_log.suppress(ValueError):
            result: MinimizeResult = from_json(MinimizeResult, fields)
            return result
    return None


def create_probe_server(case: MinimizeCase) -> ProbeServer:
    """Return the probe server of a case; it starts with its first request."""
    if case.seen.kernel:
        return ProbeServer(case.run_path / SERVER, case.python, "triton")
    return ProbeServer(
        case.run_path / SERVER,
        case.python,
        _depth(case.verdict, starting_points_of_case(case)),
        case.gpu,
    )


def starting_points_of_case(case: MinimizeCase) -> list[starting_points.StartingPoint]:
    """Return the programs that a reduction begins with."""
    if case.verdict.kind == "superlinear-compile":
        return starting_points.sized_starting_points(
            case.source, str(case.seen.growth.get("knob") or "")
        )
    if case.seen.kernel:
        return starting_points.kernel_starting_points(case.run_path, case.seen.kernel)
    if kind_named(case.verdict.kind).is_of_calls and case.source:
        return starting_points.source_starting_points(case.source)
    is_wrong = case.verdict.kind == "wrong-result"
    starts = starting_points.find_starting_points(
        case.seen, case.run_path, case.source, case.is_training, case.is_fake, is_wrong
    )
    # a slow compile usually repeats the same code, which a loop in the source has in few lines;
    # probes of it are slow as well
    return (
        sorted(starts, key=lambda s: count_code_lines(s.text))
        if case.verdict.kind == "slow-compile"
        else starts
    )


def _depth(verdict: Verdict, starts: list[starting_points.StartingPoint]) -> str:
    """Return how far the server warms up: Inductor is not imported for a user's own backend."""
    is_own = bool(starts) and all(
        s.graph is not None and s.graph.settings.get("backend") for s in starts
    )
    if is_own and verdict.phase == "backend":
        return "dynamo"
    is_whole = verdict.kind in ("wrong-result", "superlinear-compile")
    return "build" if is_whole else DEPTHS.get(verdict.phase or "", "build")


def probe_limits_of(case: MinimizeCase) -> ProbeLimits:
    """Return the limits of each probe of a case."""
    verdict, seen = case.verdict, case.seen
    is_hang = verdict.kind == "hang"
    # the healthy part of a fresh run, with its imports, takes longer than that of a forked run
    healthy_s = max(seen.seconds - (seen.quiet_s or 0.0), reducer.MIN_HANG_DEADLINE_S)
    return probe_limits_for(
        verdict.kind,
        min(healthy_s, reducer.MIN_DEADLINE_S) if is_hang else reducer.MIN_DEADLINE_S,
        growth=seen.growth,
        gpu=None if seen.kernel else case.gpu,
        is_kernel=bool(seen.kernel),
        stop=None if seen.kernel or seen.stage else _stop(verdict),
        is_backward=verdict.work.get("direction") == "backward"
        or any(g.is_backward and not g.is_done for g in seen.graphs),
        wants_stacks=is_hang,
        stage=seen.stage,
        line_repeats=(
            min(case.line_repeats, ENDLESS_LINE_REPEATS) if seen.endless_line else case.line_repeats
        ),
    )


def _stop(verdict: Verdict) -> str | None:
    """Return the phase after which the compile of a candidate may stop; None for no such phase."""
    if verdict.phase not in STOPPABLE or not kind_named(verdict.kind).shows_before_end:
        return None
    if verdict.kind in ("exception", "crash", "hang"):
        return verdict.phase
    # for the other kinds the signature names a whole part of the compiler, not one phase
    order = [
        p
        for p in ("fx-passes", "codegen", "cpp-build")
        if p in same_failure.compiler_part(verdict.phase)
    ]
    return order[0] if order else verdict.phase


def _leave(folder: Path, result: MinimizeResult) -> None:
    result.lines = count_code_lines(result.text)
    with host_log.suppress(OSError):
        files.write_json(folder / run_names.MINIMIZE_FILE, dataclasses.asdict(result))
        if result.text:
            files.write_atomically(folder / "best.py", result.text)
