"""From a failing run to the smallest program that still shows the same failure.

Everything is a program's text: the target's own source, or a recorded graph of which any subset of
lines is a program. So a candidate is what a maintainer would run, a question about it can be asked
warm or cold, and what is left at the end is the repro. The ladder: the graph that Dynamo saw, the
source, the graph that Inductor got; of what they give, the shortest is taken.
"""

from __future__ import annotations

import contextlib
import dataclasses
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from reprokit.core.judge import same_failure
from reprokit.core.records.finding import Signature, Verdict
from reprokit.core.records.kinds import kind_named
from reprokit.core.records.observation import Observation
from reprokit.core.redaction.redactor import Redactor
from reprokit.core.reduce import readable
from reprokit.core.shared.contract import run_names
from reprokit.core.shared.contract.events import Process, TargetBuilt, Weights
from reprokit.core.shared.contract.serialize import from_json
from reprokit.core.shared.errors import BadInput
from reprokit.host.minimize import (
    fail_by_itself,
    locate,
    program_source,
    proof,
    reducer,
    starting_points,
)
from reprokit.host.minimize.minimize_result import MinimizeResult
from reprokit.host.minimize.oracle import BudgetExhausted, Oracle, lines_of
from reprokit.host.probe.candidate import ProbeLimits, limits_for
from reprokit.host.probe.client import ProbeServer, ServerLost
from reprokit.host.request.run_request import Request
from reprokit.host.run.observation_reader import Journals
from reprokit.host.system import deletion, files, interrupts, private_names
from reprokit.host.system.progress import OperationStatus

ENDLESS_REPEATS = 2_000
"""So often must a probe trace one line for an endless loop: enough to tell, soon enough to ask
often.
"""
DEPTHS = {
    "dynamo-trace": "aot",
    "guards": "aot",
    "backend": "aot",
    "aot": "aot",
    "partition": "aot",
    "fx-passes": "inductor",
    "lowering": "inductor",
}
"""How deep the server must be warm for a phase; the others need the C++ compiler too."""
STOPPABLE = frozenset(
    {*DEPTHS, "scheduler", "codegen", "cpp-build", "triton-compile", "worker-wait"}
) - {"guards"}
"""Phases behind which a compile may stop; agent/experiments/stop_after_phase.py knows where they
end.
"""
FOLDER = "minimize"
SERVER = "server"


@dataclass(frozen=True)
class MinimizeCase:
    """What is to be minimized."""

    verdict: Verdict
    signature: Signature
    seen: Observation
    run_path: Path
    python: str
    source: str = ""
    """The target's own program, where it stands alone."""
    is_training: bool = False
    is_fake: bool = False
    """It ran on fake tensors: real ones would not fit in memory, until they are small enough."""
    line_repeats: int = Request.line_repeats
    gpu: Mapping[str, Any] | None = None
    """It was compiled for a GPU that is not there."""
    proofs: int = Request.proofs


def case_of(
    request: Request,
    verdict: Verdict,
    signature: Signature,
    seen: Observation,
    journals: Journals,
    run_path: Path,
) -> MinimizeCase:
    """The case of a run on this machine."""
    python = request.python
    if request.target.kind == "command":
        told = journals.last(Process).executable
        python = told if told and Path(told).exists() else python
    source = program_source.own_source(request, journals)
    is_training = request.train or journals.last(TargetBuilt).train
    is_fake = journals.last(Weights).kind == "fake"
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
    )


def why_not(verdict: Verdict) -> str:
    """Why a run of this verdict cannot be minimized; empty when it can."""
    if kind_named(verdict.kind).is_minimizable:
        return ""
    if verdict.kind == "ok":
        return "nothing failed"
    if verdict.responsible == "reprokit":
        return "it is a gap in reprokit, not a failure of the target"
    if verdict.kind == "error-in-eager":
        return (
            "no failure of the compiler was seen that a smaller program could show:"
            f" {verdict.reason}"
        )
    if verdict.kind == "rank-mismatch":
        return (
            "it takes several ranks to show; the program in the pack is the target's own source,"
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
    say: Callable[[str], None] = lambda text: None,
) -> MinimizeResult:
    """Reduce what a run directory recorded; a reduction that fails says in its notes how far it
    came.

    ``budget_s`` is wall-clock time of all but the proof: the start of the server, the search for a
    first program that shows the failure, and the reduction. The time of the proof is counted
    separately.
    """
    folder = case.run_path / FOLDER
    if not resume:
        deletion.delete(folder, inside=case.run_path)
    folder.mkdir(exist_ok=True)
    found = MinimizeResult(budget_s=budget_s)
    began = time.monotonic()
    verdict = case.verdict
    starts, redactor = starts_of(case), private_names.redactor()
    own_cpu_s = time.process_time() - server.cpu_s
    with contextlib.ExitStack() as stack:
        asker = Oracle(folder, server, case.signature, limits_of(case), case.python, show)
        stack.callback(asker.close)
        job = reducer.Reducer(asker, found, folder, verdict, case.seen)
        job.ends = asker.ends = began + budget_s
        try:
            with interrupts.allowed():
                locate.leave_out_others(asker, case.seen, starts)
                _until_proved(case, job, asker, server, found, starts, redactor, say)
        except KeyboardInterrupt:
            found.notes.append("interrupted: this is the best so far; --resume goes on from it")
        except (BadInput, ServerLost, OSError) as problem:
            found.notes.append(f"it ended early: {problem}")
        except Exception as problem:  # the best so far stands
            found.notes.append(f"it ended early, by a defect of reprokit: {problem!r}")
        found.probes, found.asked, found.rate = asker.status.probes, asker.status.asked, asker.rate
    if found.text:
        found.text = job.finished or redactor.python(
            readable.lay_out(found.text, case.signature.title, verdict.kind)
        )
    found.cpu_s = round(server.cpu_s + time.process_time() - own_cpu_s, 2)
    found.seconds = round(time.monotonic() - began, 1)
    _leave(folder, found)
    return found


def _until_proved(
    case: MinimizeCase,
    job: reducer.Reducer,
    asker: Oracle,
    server: ProbeServer,
    found: MinimizeResult,
    starts: list[starting_points.StartingPoint],
    redactor: Redactor,
    say: Callable[[str], None],
) -> None:
    """Reduce and prove; once more when fresh processes say that forked ones misled, or that the
    failure is flaky.
    """
    folder = case.run_path / FOLDER
    for _ in range(3):
        is_spent, job.finished, found.unproved = False, "", ""
        try:
            job.run(starts)
        except BudgetExhausted:
            is_spent = True
            found.is_complete = False
        if not found.text:
            if is_spent:
                found.notes.append("the budget ended before any program showed the failure")
            return
        _leave(folder, found)
        say("proving the repro in fresh processes")
        proves = time.monotonic()
        usual = asker.limits
        asker.limits = dataclasses.replace(usual, alone={})  # all that is wrong in it is at work
        # what is proved is what leaves: redaction may change a text, and with it what the program
        # does
        job.finished = redactor.python(
            fail_by_itself.make_it_fail(case.verdict, case.signature, asker, found)
        )
        place, wanted = folder / "proof", case.signature
        confirm = locate.LocationCheck(server, job.finished, wanted, asker.limits, case.python)
        found.proof = proof.prove_program(
            job.finished,
            case.python,
            place,
            wanted,
            asker.limits,
            asker.rate,
            case.proofs,
            confirm=confirm,
        )
        found.proof_s = round(found.proof_s + time.monotonic() - proves, 1)
        if confirm.is_elsewhere:
            found.notes.append(
                f"the smallest program is wrong elsewhere in the compiler: {found.proof.title}"
            )
            break
        is_same = found.proof.answer == same_failure.SAME
        is_always = found.proof.hits == found.proof.runs and found.proof.tries == 1
        rate = (found.proof.hits + 1) / (found.proof.runs + found.proof.tries)
        if is_spent or time.monotonic() > job.ends or (is_same and (is_always or asker.rate < 1.0)):
            asker.rate = min(asker.rate, rate) if is_same and found.proof.hits else asker.rate
            break
        if is_same and kind_named(case.verdict.kind).is_silent and not found.proof.hits:
            break  # it has no check of its own, and more patience gives it none
        if not is_same and asker.is_cold:
            break
        asker.limits = usual
        if is_same:
            job.go_patient(rate)
        else:
            job.go_cold()
    if not found.is_complete:
        found.notes.append("the budget ended: this is the best so far; --resume goes on from it")


def load_minimized(run_path: Path) -> MinimizeResult | None:
    """What an earlier reduction left in a run directory."""
    if told := files.read_object(run_path / FOLDER / run_names.MINIMIZE_FILE):
        with contextlib.suppress(ValueError):
            found: MinimizeResult = from_json(MinimizeResult, told)
            return found
    return None


def server_of(case: MinimizeCase) -> ProbeServer:
    """The probe server of a case; it starts when it is asked first."""
    if case.seen.kernel:
        return ProbeServer(case.run_path / SERVER, case.python, "triton")
    return ProbeServer(
        case.run_path / SERVER, case.python, _depth(case.verdict, starts_of(case)), case.gpu
    )


def starts_of(case: MinimizeCase) -> list[starting_points.StartingPoint]:
    """The programs that a reduction begins with."""
    if case.verdict.kind == "superlinear-compile":
        return starting_points.find_sized(case.source, str(case.seen.growth.get("knob") or ""))
    if case.seen.kernel:
        return starting_points.find_kernel(case.run_path, case.seen.kernel)
    is_wrong = case.verdict.kind == "wrong-result"
    starts = starting_points.find_starts(
        case.seen, case.run_path, case.source, case.is_training, case.is_fake, is_wrong
    )
    # what takes long is much of the same, which a loop in the source says in few lines; and each
    # question takes long, too
    return (
        sorted(starts, key=lambda s: lines_of(s.text))
        if case.verdict.kind == "slow-compile"
        else starts
    )


def _depth(verdict: Verdict, starts: list[starting_points.StartingPoint]) -> str:
    """Not deeper than the failure lies: Inductor is not imported for somebody's own backend."""
    is_own = bool(starts) and all(
        s.graph is not None and s.graph.settings.get("backend") for s in starts
    )
    if is_own and verdict.phase == "backend":
        return "dynamo"
    is_whole = verdict.kind in ("wrong-result", "superlinear-compile")
    return "build" if is_whole else DEPTHS.get(verdict.phase or "", "build")


def limits_of(case: MinimizeCase) -> ProbeLimits:
    verdict, seen = case.verdict, case.seen
    is_hang = verdict.kind == "hang"
    # what a cold run did before it hung, imports and all, is more than a warm one needs
    healthy_s = max(seen.seconds - (seen.quiet_s or 0.0), reducer.LEAST_HANG_S)
    return limits_for(
        verdict.kind,
        min(healthy_s, reducer.LEAST_DEADLINE_S) if is_hang else reducer.LEAST_DEADLINE_S,
        growth=seen.growth,
        gpu=None if seen.kernel else case.gpu,
        is_kernel=bool(seen.kernel),
        stop=None if seen.kernel else _stop(verdict),
        is_backward=verdict.work.get("direction") == "backward"
        or any(g.is_backward and not g.is_done for g in seen.graphs),
        wants_stacks=is_hang,
        line_repeats=(
            min(case.line_repeats, ENDLESS_REPEATS) if seen.endless_line else case.line_repeats
        ),
    )


def _stop(verdict: Verdict) -> str | None:
    """The phase behind which a candidate's compile may stop."""
    if verdict.phase not in STOPPABLE or not kind_named(verdict.kind).shows_before_end:
        return None
    if verdict.kind in ("exception", "crash", "hang"):
        return verdict.phase
    # what takes time is looked for in a whole part of the compiler
    order = [
        p
        for p in ("fx-passes", "codegen", "cpp-build")
        if p in same_failure.compiler_part(verdict.phase)
    ]
    return order[0] if order else verdict.phase


def _leave(folder: Path, found: MinimizeResult) -> None:
    found.lines = lines_of(found.text)
    with contextlib.suppress(OSError):
        files.write_json(folder / run_names.MINIMIZE_FILE, dataclasses.asdict(found))
        if found.text:
            files.write_whole(folder / "best.py", found.text)
