"""The verdict on a run: its kind, phase and cause, with the evidence.

:func:`judge_run` tries its questions in a fixed order, and the first verdict decides. Each verdict
has its evidence, and ``unknown`` is a verdict too.
"""

from __future__ import annotations

import dataclasses

from reprokit.core.judge import attached, exhausted, exit_signal, finished, silent_failures
from reprokit.core.judge.hangs import hang_causes, ranks, waiting
from reprokit.core.judge.responsible import responsibility, simulation_gaps
from reprokit.core.judge.stacks import frames as fr
from reprokit.core.judge.stacks import location, phases, python_traceback, recent_dumps
from reprokit.core.judge.stacks.evidence import (
    blamed_exception,
    ends_by_check,
    fatal_fault,
    is_from_compiler,
    is_same_exception,
)
from reprokit.core.judge.stacks.location import as_sentence
from reprokit.core.judge.stacks.messages import error_of_gpu_kernel
from reprokit.core.records import crash_sites, rank_graphs, stalls
from reprokit.core.records.caches import cache_stages
from reprokit.core.records.dumps import Raised
from reprokit.core.records.finding import LAST_LINE, Verdict
from reprokit.core.records.observation import Observation
from reprokit.core.records.process_state import UNMET_WORDS, describe_exit, unmet_need
from reprokit.core.records.verdict_kinds import FAILED_CHECK
from reprokit.core.shared import cuts

MAX_LINE_CHARS = 200
_BACKENDS = {"dynamo": "eager", "aot": "aot_eager"}
"""Part of the compiler -> the backend that has it as its last part and generates no code."""
LEAST_CPUS = 0.5
"""A compile that had less than this many CPUs, though it wanted them, is not called slow."""


def judge_run(seen: Observation) -> Verdict:
    """Return the verdict on one run. The same evidence always gets the same verdict."""
    questions = (
        _interrupted,
        attached.judge_attached,
        _simulation_gap,
        _eager_fails,
        _grows,
        _deadline,
        exhausted.disk_full,
        exhausted.out_of_memory,
        _crash,
        *silent_failures.QUESTIONS,
        _failed_check,
        _exception,
        _swallowed,
        finished.judge_finished,
    )
    answers = (question(seen) for question in questions)
    verdict = next((answer for answer in answers if answer is not None), None) or _ended(seen)
    work = {**verdict.work, "kernel": seen.kernel} if seen.kernel else verdict.work
    evidence = (*verdict.evidence, *(f"fails too: {other}" for other in seen.failing_kernels[:8]))
    if seen.graphs_differ and verdict.kind not in ("ok", "rank-mismatch"):
        if mismatch := rank_graphs.mismatch_of_graphs(seen.graphs):
            verdict = dataclasses.replace(
                verdict, reason=f"{verdict.reason} In the compiled graphs, {mismatch.summary}."
            )
        evidence += (seen.graphs_differ,)
    evidence += (*seen.beside, *(as_sentence(stall.summary) for stall in seen.stalls))
    verdict = dataclasses.replace(verdict, simulated=seen.simulated, work=work, evidence=evidence)
    if seen.stage and verdict.kind not in ("ok", "unknown"):
        verdict = _of_stage(verdict, seen)
    responsible = responsibility.decide_responsible(verdict, seen)
    return dataclasses.replace(
        verdict,
        responsible=responsible.party,
        responsible_because=responsible.because,
        responsible_place=responsible.place,
    )


def _of_stage(verdict: Verdict, seen: Observation) -> Verdict:
    """Return the verdict of a run that read a cache, with the stages that pass."""
    failing = next((stage for stage in seen.stages if stage.name == seen.stage), None)
    damaged = failing.damaged if failing else ()
    words = cache_stages.STAGE_WORDS.get(seen.stage, seen.stage)
    rows = [stage.sentence for stage in seen.stages]
    rows += [f"damaged before the stage: {file.name}: {file.what}" for file in damaged]
    reason = f"It fails only {words} (stage {seen.stage}): {verdict.reason}"
    evidence = (*verdict.evidence, *rows)
    return dataclasses.replace(verdict, stage=seen.stage, reason=reason, evidence=evidence)


def _ended(seen: Observation) -> Verdict:
    why = (
        f"the target ended by itself with exit status {seen.exit_status} and no uncaught exception"
    )
    if not seen.is_command and seen.exit_status == 0:
        why = "the target ended the process with status 0 before its calls returned"
    evidence = [f"exit status {seen.exit_status}", *_last_line(seen)]
    if need := unmet_need(seen.exit_status, seen.stderr_tail):
        why = f"this machine {UNMET_WORDS}{need}"
    return Verdict(
        "unknown",
        location.phase_of_open_events(seen),
        "exit",
        f"{as_sentence(why)}",
        tuple(evidence),
    )


def _last_line(seen: Observation) -> list[str]:
    """Return the last line on stderr of a program that ended itself, because ``sys.exit`` prints
    its message there.
    """
    lines = [line.strip() for line in seen.stderr_tail.splitlines() if line.strip()]
    is_shown = bool(seen.exit_status and lines) and seen.raised is None
    return [f"{LAST_LINE}{cuts.cut_head(lines[-1], MAX_LINE_CHARS)}"] if is_shown else []


def _interrupted(seen: Observation) -> Verdict | None:
    if not seen.is_interrupted:
        return None
    phase, evidence = location.phase_at_work(seen)
    return Verdict(
        "unknown",
        phase,
        "interrupted",
        as_sentence(
            f"the run was interrupted after {seen.seconds:.0f} s,"
            f" {location.doing_in_words(phase, seen)}"
        ),
        evidence,
    )


def _simulation_gap(seen: Observation) -> Verdict | None:
    """Return the verdict on a failure of reprokit's own simulation; None if the program or torch
    caught it and continued.
    """
    if not (seen.simulated or seen.has_fake_tensors):
        return None
    is_gpu = bool(simulation_gaps.simulated_gpu_of(seen.simulated))
    raised, symbol, evidence = blamed_exception(seen), "", tuple[str, ...]()
    has_gone_on = seen.exit_status == 0 and seen.is_command and not seen.compile_failures
    if raised is not None and not has_gone_on:
        symbol, evidence = (
            simulation_gaps.gap_of_links(raised.chain, is_gpu),
            location.exception_evidence(raised),
        )
    elif is_gpu and exit_signal.signal_of(seen):
        symbol, evidence = (
            simulation_gaps.gap_of_crash(seen),
            (f"C++ exception: {fr.parse_terminate(seen.stderr_tail)[:300]}",),
        )
    if not symbol:
        return None
    phase = (
        location.phase_of_exception(raised, seen)
        if raised is not None
        else location.phase_of_open_events(seen)
    )
    why = (
        f"a gap in reprokit's simulation{' of a GPU' if is_gpu else ''}: {symbol} is not simulated"
    )
    return Verdict(
        "unknown", phase, simulation_gaps.CAUSE, as_sentence(why), evidence, detail=symbol
    )


def _deadline(seen: Observation) -> Verdict | None:
    if not seen.is_timed_out or seen.raised is not None:
        return None  # an exception before a shutdown that hangs is the failure
    phase, evidence = location.phase_at_work(seen)
    limit = f"the {seen.deadline_s:.0f} s deadline" if seen.deadline_s else "the deadline"
    if seen.eager == "hangs":
        why = f"The target does not finish without torch.compile either: {seen.eager_detail}."
        return Verdict("error-in-eager", "eager", "hang", why, (*evidence, seen.eager_detail))
    if not seen.dumps and not seen.has_instrumentation:
        why = f"{limit} was reached, and no process of the target could be watched"
        return Verdict("unknown", phase, "deadline", as_sentence(why), evidence)
    cause = ranks.cause_of_collective(seen) or hang_causes.diagnose_hang(seen)
    if cause.name == "collective" and phase not in phases.COMPILE_PHASES:
        phase = "collective"  # a collective that compiled code calls has no frame
    work = location.work_details(seen, phase)
    far = location.how_far(seen)
    evidence += (*location.motion_evidence(seen), *((far,) if far else ()))

    def verdict_of(kind: str, name: str, why: str) -> Verdict:
        return Verdict(
            kind,
            phase,
            name,
            as_sentence(why),
            evidence,
            cause.detail,
            cause.also,
            cause.path,
            work,
        )

    doing = f"{location.doing_in_words(phase, seen, work)}, {cause.name}: {cause.detail}"
    quiet, is_inside = seen.quiet_s, phase in phases.COMPILE_PHASES
    is_fresh = quiet is not None and quiet < seen.quiet_limit_s
    is_fresh |= (
        is_inside
        and not seen.endless_line
        and location.has_moved(recent_dumps.only_recent(seen), phase)
    )
    if not seen.is_stalled and is_fresh:
        if is_inside and _lacked_cpus(seen):
            why = (
                f"{limit} was reached while the compiler was still advancing, and the target ran"
                f" for {seen.cpu_s:.0f} of the {seen.wanted_cpu_s:.0f} CPU-seconds that it wanted,"
                " because the CPUs were busy; increase --timeout"
            )
            return verdict_of("unknown", "deadline", why)
        if is_inside:
            why = f"{limit} was reached while the compiler was still advancing, {doing}" + (
                f"; {far}" if far else ""
            )
            return verdict_of("slow-compile", cause.name, why)
        why = (
            f"{limit} was reached while the target was still running outside the compiler"
            + (f" (phase {phase})" if phase else "")
            + "; increase --timeout"
        )
        return verdict_of("unknown", "deadline", why)
    still = f"no progress for {quiet:.0f} s" if quiet is not None else "no progress at all"
    if seen.endless_line:
        still = f"Dynamo continued to trace one loop for {quiet or 0:.0f} s after --line-repeats"
    if seen.is_command and not seen.is_stalled and seen.on_stall != stalls.END:
        stall = waiting.classify_stall(seen)
        if stall.state != stalls.INSIDE:
            how = (
                f"idle: {stall.detail}"
                if stall.state == stalls.IDLE
                else f"outside the compiler: {cause.name}: {cause.detail}"
            )
            why = (
                f"{limit} was reached with {still}, {how}; a command that waits outside the"
                " compiler is not a hang of the compiler"
            )
            return verdict_of("unknown", "idle" if stall.state == stalls.IDLE else "deadline", why)
    at = "" if seen.is_stalled else f" at {limit}"
    return verdict_of("hang", cause.name, f"{still}{at}, {doing}")


def _lacked_cpus(seen: Observation) -> bool:
    """Return whether a target had less than half of a CPU, and less than half of what it wanted, so
    that its time says nothing about the compiler.
    """
    return seen.cpu_s < LEAST_CPUS * min(seen.seconds, seen.wanted_cpu_s)


def _eager_fails(seen: Observation) -> Verdict | None:
    if seen.eager != "fails":
        return None
    why = _with_message_of_worker(seen.eager_detail, blamed_exception(seen))
    return Verdict(
        "error-in-eager",
        "eager",
        _short_cause(seen) or "exit",
        as_sentence(f"the target fails without torch.compile too: {why}"),
        (why, *_last_line(seen)),
    )


def _with_message_of_worker(text: str, raised: Raised | None) -> str:
    """Add to ``Caught KeyError in DataLoader worker process 0.`` what that exception says, and
    replace the head of a traceback by the exception of the process.
    """
    inner = python_traceback.raised_in_worker(fr.root_cause(raised)) if raised is not None else None
    if inner is not None and text.startswith("Traceback"):
        return f"{inner.type}: {location.first_line(inner)}"
    if inner is None or "Caught " not in text:
        return text
    return f"{text.rstrip('.')}: {location.first_line(inner)}"


def _crash(seen: Observation) -> Verdict | None:
    name = exit_signal.signal_of(seen)
    if name is None:
        return None
    fault = fatal_fault(seen)
    evidence: list[str] = [describe_exit(seen.exit_status)]
    phase: str | None = None
    error = fr.parse_terminate(seen.stderr_tail)
    site = seen.crash_site
    heap = fr.parse_heap_error(seen.stderr_tail)
    is_of_kernel = bool(error) and fr.names_generated(seen.stderr_tail)
    is_of_kernel |= site is not None and site.place == crash_sites.GENERATED
    if fault is not None:
        frames = fr.normalise_frames(fault.frames)
        phase_and_frame = phases.phase_of_frames(frames) if not heap else None
        is_outside = not (fr.RULES.is_compiled(frames) or seen.open_events)
        if heap:  # where the damage is found is chance
            is_outside = not seen.graphs
        evidence.append(f"faulthandler: {fault.headline}")
        if phase_and_frame:
            phase = phase_and_frame[0]
            evidence.append(f"phase {phase} from frame {fr.show_frame(phase_and_frame[1])}")
        elif is_outside and not is_of_kernel and seen.eager != "passes":
            return Verdict(
                "error-in-eager",
                "eager",
                name,
                f"The target was killed by {name} outside the compiler and outside compiled"
                f" code{_not_compared(seen)}.",
                tuple(evidence),
            )
    if seen.is_watched and not seen.has_instrumentation and phase not in phases.COMPILE_PHASES:
        evidence.append("no process imported torch._dynamo")
        why = f"The target was killed by {name} before anything was compiled{_not_compared(seen)}."
        return Verdict("error-in-eager", "eager", name, why, tuple(evidence))
    if phase is None and is_of_kernel:
        phase = "kernel-run"
        what = "message" if site is None else "report of the sanitizers"
        evidence.append(f"the {what} names a file that Inductor generated")
    if not heap:
        phase = phase or location.phase_of_open_events(seen)
    if says := error or heap:
        evidence.append(f"{'C++ exception' if error else 'stderr'}: {says[:300]}")
    how = f"the target was killed by {name}" + (f" ({says[:160]})" if says else "")
    called = location.called_kernel(fault.source) if fault and phase == "kernel-run" else ""
    work = {"kernel": called} if called else {}
    doing = location.doing_in_words(phase, seen, work)
    if heap and phase is None:
        doing = "because its heap was damaged before"
    if site is not None:
        doing += f": {site.summary}"
        evidence += site.evidence
        work |= {"line": site.line} if site.line else {}
    return Verdict("crash", phase, name, as_sentence(f"{how}, {doing}"), tuple(evidence), work=work)


def _failed_check(seen: Observation) -> Verdict | None:
    """Return the verdict on a program that ends by its own check, and passes in eager."""
    backend = _BACKENDS.get(seen.failing_part)
    if not (seen.check and backend) or seen.eager != "passes":
        return None
    raised = blamed_exception(seen)
    if raised is not None and is_from_compiler(raised, seen):
        return None
    ending = describe_exit(seen.exit_status)
    what = f"the program ends with {ending}"
    if seen.raised is not None:
        what = f"the check `{seen.check}` fails"
        if not ends_by_check(seen):
            what = f"the line `{seen.check}` raises {_short_cause(seen)}"
    why = f'{what} with torch.compile, also with backend="{backend}", and not without'
    evidence = location.exception_evidence(raised) if raised is not None else _last_line(seen)
    return Verdict(
        FAILED_CHECK,
        seen.failing_part,
        _short_cause(seen) or "exit",
        as_sentence(why),
        tuple(evidence),
    )


def _exception(seen: Observation) -> Verdict | None:
    raised = blamed_exception(seen)
    if raised is None or seen.raised is None or (seen.exit_status == 0 and seen.is_command):
        return None
    root = fr.root_cause(raised)
    message = _with_message_of_worker(location.first_line(root), raised)
    short = root.type.rsplit(".", 1)[-1]
    evidence = location.exception_evidence(raised)
    if seen.is_timed_out:
        evidence += (
            f"the target had not exited after {seen.seconds:.0f} s, and reprokit ended it",
        )
    if raised is not seen.raised:
        evidence += (
            (
                f"the program then ended with {fr.root_cause(seen.raised).type}:"
                f" {location.first_line(fr.root_cause(seen.raised))}"
            ),
        )
    phase = location.phase_of_exception(raised, seen)
    is_of_kernel = bool(error_of_gpu_kernel(root.message)) and phase == "kernel-run"
    is_ours = (
        is_from_compiler(raised, seen)
        or phase in phases.COMPILE_PHASES
        or (is_of_kernel and seen.has_instrumentation)
    )
    if not is_ours and seen.eager != "passes":
        why = (
            f"{short} was raised outside the compiler and outside compiled code:"
            f" {message.rstrip('.')}{_not_compared(seen)}"
        )
        return Verdict("error-in-eager", "eager", short, as_sentence(why), evidence)
    where = location.doing_in_words(phase, seen)
    if not is_ours and phase is None:
        eager = seen.eager_detail or "the target passes"
        where = f"outside the compiler; without torch.compile {eager}"
    why = f"{short} was raised, {where}: {message}"
    work, nodes = _nodes_at_work(raised, seen)
    return Verdict("exception", phase, short, as_sentence(why), (*evidence, *nodes), work=work)


def _swallowed(seen: Observation) -> Verdict | None:
    if not seen.compile_failures:
        return None
    raised = seen.compile_failures[-1]
    work, nodes = _nodes_at_work(raised, seen)
    short = fr.root_cause(raised).type.rsplit(".", 1)[-1]
    then = (
        "continued without it"
        if seen.exit_status in (0, None)
        else f"ended ({describe_exit(seen.exit_status)})"
    )
    why = (
        f"{short} left the compiler and the program {then}:"
        f" {location.first_line(fr.root_cause(raised))}"
    )
    return Verdict(
        "exception",
        location.phase_of_exception(raised, seen),
        short,
        as_sentence(why),
        (*location.exception_evidence(raised), *nodes),
        work=work,
    )


def _nodes_at_work(raised: Raised, seen: Observation) -> tuple[dict[str, str], tuple[str, ...]]:
    """Return the user's line of the node on which Inductor worked, and how it was found."""
    alike = (f for f in (raised, *seen.compile_failures) if is_same_exception(f, raised))
    nodes = next((f.nodes for f in alike if f.nodes), ())
    if not nodes:
        return {}, ()
    lines = list(dict.fromkeys(place for _, place in nodes))
    names = ", ".join(f"`{name}`" for name, place in nodes if place == lines[0])
    found = f"Inductor worked on {names} of the graph, which {lines[0]} made"
    found += f"; its kernel has nodes of {', '.join(lines[1:])} too" if lines[1:] else ""
    return {"line": lines[0].rpartition(" in ")[0]}, (found,)


def _grows(seen: Observation) -> Verdict | None:
    if not seen.growth.get("is_superlinear"):
        return None
    growth = seen.growth
    worst, knob = growth["worst"], growth["knob"]
    used = [row for row in growth["sizes"] if row["is_used"]]
    rise = ", ".join(
        f"{row['phases'].get(worst['phase'], 0.0):.2f} s at {knob}={row['size']}" for row in used
    )
    return Verdict(
        "superlinear-compile",
        worst["phase"],
        worst["words"],
        as_sentence(growth["says"]),
        (f"{worst['phase']}: {rise}", *growth["left_out"]),
        work={name: worst[name] for name in ("frame", "event") if worst[name]},
    )


def _not_compared(seen: Observation) -> str:
    """Return a note that the target was not run without torch.compile, or how such a run ended if
    that shows nothing; empty if it shows whether the target fails there.
    """
    if seen.eager:
        return ""
    if seen.eager_detail:
        return f" ({seen.eager_detail})"
    once = "the command ran once; " if seen.is_command else ""
    return f" ({once}it was not run without torch.compile)"


def _short_cause(seen: Observation) -> str | None:
    return (
        fr.root_cause(seen.raised).type.rsplit(".", 1)[-1]
        if seen.raised
        else exit_signal.signal_of(seen)
    )
