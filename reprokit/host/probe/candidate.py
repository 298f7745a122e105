"""Judge the run of a candidate by the rules of a capture, and compare it with the wanted
signature.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from reprokit.core.growth import costs
from reprokit.core.judge import same_failure
from reprokit.core.judge.signature import sign_verdict
from reprokit.core.judge.verdict import judge_run
from reprokit.core.records import stalls
from reprokit.core.records.finding import Signature, Verdict
from reprokit.core.records.observation import Observation
from reprokit.core.records.process_state import unmet_need
from reprokit.core.records.verdict_kinds import NONDETERMINISTIC, kind_named
from reprokit.core.reduce import sized_program
from reprokit.core.shared.contract import measured_kinds, run_names
from reprokit.core.shared.contract.probe_messages import Isolation
from reprokit.core.shared.result_comparison import COMPILED_ROLES
from reprokit.host.probe import measurements
from reprokit.host.request.run_request import Request
from reprokit.host.request.target import Target
from reprokit.host.run import observation_reader, run_outcome
from reprokit.host.run.run_directory import RESULTS_FOLDER
from reprokit.host.system import files, host_log

SAME_RANDOM_NUMBERS = {"configs": {"torch._inductor.config.fallback_random": True}}
"""Overrides with which compiled code draws the same random numbers as eager mode."""
UNCOMPILED_ROLES = ("eager", "again", "float64")
"""Roles in which nothing is compiled."""

SLOW_COMPILE_S = 12.0
"""A compile that takes longer is slow: one operator takes two or three seconds, with its C++.
Seconds in which the process waits for a CPU do not count.
"""
START_S = 5.0
"""Seconds to start a process and import torch."""
MIN_COST_SHARE = 0.5
"""If the growth of the cost is wanted, a smaller program must have at least this share of the
original cost.
"""
RELAXED_COST_SHARE, RELAXED_RATIO_EXPONENT = 0.3, 0.9
"""Factors of the limits of a later run of a reduced program. A reduction stops close to its limits,
but the program may run again on an idle machine, or on one that is three times as fast. The first
is a factor of the seconds, the second of the logarithm of the ratio.
"""
MAX_STDERR_BYTES = 64_000
EXPENSIVE_S = 15.0
"""A size with a higher cost is used only if there are too few others."""


@dataclass(frozen=True)
class ProbeLimits:
    """The limits of a probe: when it is ended, and which failure is wanted."""

    deadline_s: float
    """Seconds, without those in which the program waits for a CPU."""
    most_cpu_s: float = math.inf
    """A program that takes more CPU seconds is no smaller program, such as one with the default
    sizes of a model.
    """
    stop: str | None = None
    """The phase after which the program is stopped; only forked children are."""
    is_backward: bool = False
    checks_syntax: bool = False
    """The C++ compiler only checks the generated code; only that of forked children does."""
    wants_stacks: bool = False
    """A hang is wanted, so the stacks are dumped at the deadline."""
    line_repeats: int = Request.line_repeats
    most_breaks: int | None = None
    """A larger number of graph breaks is a failure."""
    compares: bool = False
    """Wrong results are wanted, so a program runs in each role of
    ``core.shared.result_comparison``.
    """
    knob: str = ""
    """Growth of the cost is wanted, so a program runs with each of ``sizes`` in the variable of
    this name.
    """
    sizes: tuple[int, ...] = ()
    min_cost_s: float = 0.0
    """CPU seconds that the part of the compiler that grows must take at the largest size; shorter
    times are too noisy.
    """
    min_cost_ratio: float = 1.0
    """The minimum ratio of this time to that at the smallest size. It is the geometric mean of
    linear growth and the measured growth.
    """
    gpu: Mapping[str, Any] | None = None
    """The simulated GPU."""
    is_kernel: bool = False
    """The program only compiles a Triton kernel, so it has no eager run."""
    alone: Mapping[str, Any] = field(default_factory=dict)
    """Overrides of a compiled run with which only the part of the compiler in the signature can
    cause wrong results.
    """
    measures: str = ""
    """One of ``measured_kinds``: what is measured of the program after its end."""
    is_simulated: bool = False
    """It is measured on fake tensors: nothing is executed. Only forked children are."""
    min_ratio: float = 1.0
    """The smallest ratio of what is measured, compiled and in eager, that counts."""
    stage: str = ""
    """The stage of a cache in which the failure shows: the program starts the writer of the cache
    itself.
    """
    is_slow: bool = False
    """A slow compile is wanted: one that is not complete at the deadline."""
    isolation: Isolation | None = None
    """How the program is isolated from the machine; None for a program that reprokit wrote."""

    def relaxed(self) -> ProbeLimits:
        """Return the limits for a later run of a program that was found with these."""
        return dataclasses.replace(
            self,
            min_cost_s=RELAXED_COST_SHARE * self.min_cost_s,
            min_cost_ratio=self.min_cost_ratio**RELAXED_RATIO_EXPONENT,
            min_ratio=self.min_ratio**RELAXED_RATIO_EXPONENT,
        )

    @property
    def wall_s(self) -> float:
        """Wall-clock seconds after which a process is ended in any case, even on a busy machine."""
        return self.deadline_s + START_S if self.is_slow else self.deadline_s * 8 + 60


def probe_limits_for(
    kind: str, deadline_s: float, growth: Mapping[str, Any] | None = None, **more: Any
) -> ProbeLimits:
    """Return the limits of a probe for a failure of ``kind``.

    ``growth`` is the content of ``growth.json``, for a superlinear compile. ``more`` are further
    fields of the limits.
    """
    most_breaks = 0 if kind == "graph-break" else None
    if kind == "slow-compile":
        deadline_s, more = SLOW_COMPILE_S, {**more, "is_slow": True}
    if kind in measured_kinds.KINDS:
        more = {"measures": kind, **more}
    if kind == "superlinear-compile" and growth:
        more = {**more, **_growth_limits(growth)}
    compares = kind_named(kind).compares_results
    return ProbeLimits(deadline_s, most_breaks=most_breaks, compares=compares, **more)


def _growth_limits(growth: Mapping[str, Any]) -> dict[str, Any]:
    """Return the limits for a superlinear compile: the measured sizes and the costs.

    Expensive sizes are left out if there are enough others.
    """
    rows = growth.get("sizes")
    used = (
        [r for r in rows if isinstance(r, dict) and r.get("is_used")]
        if isinstance(rows, list)
        else []
    )
    known = [
        r
        for r in used
        if isinstance(r.get("size"), int) and isinstance(r.get("cpu_s"), (int, float))
    ]
    quick = [r for r in known if r["cpu_s"] <= EXPENSIVE_S]
    rows_used = sorted(quick if len(quick) >= costs.MIN_SIZES else known, key=lambda r: r["size"])
    worst = growth.get("worst")
    limits: dict[str, Any] = {
        "knob": str(growth.get("knob")),
        "sizes": tuple(r["size"] for r in rows_used),
    }
    # growth.json may be from a pack of a stranger
    with host_log.suppress(
        TypeError, KeyError, IndexError, AttributeError, ValueError, ZeroDivisionError
    ):
        part = same_failure.compiler_part(worst["phase"] if isinstance(worst, dict) else "")
        low, high = (
            float(costs.costs_of_part(r["phases"], part)) for r in (rows_used[0], rows_used[-1])
        )
        low = max(low, costs.FLOOR_S)
        line = low * rows_used[-1]["size"] / rows_used[0]["size"]
        limits.update(
            min_cost_s=MIN_COST_SHARE * high,
            min_cost_ratio=costs.geometric_midpoint(low, line, high),
        )
    return limits


@dataclass(frozen=True)
class CandidateResult:
    """The judged run of a candidate."""

    answer: str
    verdict: Verdict
    signature: Signature
    seconds: float = 0.0
    cpu_s: float = 0.0
    healthy_s: float = 0.0
    """Seconds from its start to the last event in its journal."""
    seen: Observation = field(default_factory=Observation)
    phases: Mapping[str, float] = field(default_factory=dict)
    """CPU seconds of the compile by phase, if the growth of the cost is wanted."""
    has_failed_eager: bool = False
    """The program also fails without torch.compile."""
    stderr: str = ""
    """The end of what the program wrote to its standard error."""
    unmet: str = ""
    """What this machine lacks of what the program checks: it cannot show the failure here."""


def candidate_request(file: Path, python: str, limits: ProbeLimits) -> Request:
    """Return the request of one probe."""
    command = Target("command", command=(python, str(file)))
    return Request(
        command,
        python=python,
        deadline_s=limits.wall_s,
        stall_s=limits.deadline_s,
        on_stall=stalls.END,
        line_repeats=limits.line_repeats,
        has_trace=False,
        most_breaks=limits.most_breaks,
        stage=limits.stage,
        has_writer=bool(limits.stage),
    )


def judge_candidate(
    request: Request,
    outcome: run_outcome.RunOutcome,
    folder: Path,
    wanted: Signature,
    limits: ProbeLimits | None = None,
) -> CandidateResult:
    """Judge a run by the rules of a capture, with what ``limits`` say of its measurements."""
    journals = observation_reader.read_journals(folder)
    seen = observation_reader.read_observation(request, outcome, folder, journals)
    if limits is not None and limits.measures:
        seen = measurements.with_measurement(
            seen, folder, journals, limits.measures, limits.min_ratio
        )
    answer, verdict, signature = _compare(seen, wanted)
    healthy_s = max(0.0, max(journals.times, default=outcome.started) - outcome.started)
    by_phase = (
        costs.costs_of_journals(journals.by_pid, outcome.cpu_s, outcome.cpu_by_pid)[0]
        if limits is not None and limits.sizes
        else {}
    )
    stderr = files.read_tail(
        folder / run_names.LOGS_FOLDER / run_names.STDERR_FILE, MAX_STDERR_BYTES
    )
    unmet = unmet_need(seen.exit_status, stderr)
    return CandidateResult(
        same_failure.UNRESOLVED if unmet else answer,
        verdict,
        signature,
        outcome.seconds,
        outcome.cpu_s,
        healthy_s,
        seen,
        phases=by_phase,
        stderr=stderr,
        unmet=unmet,
    )


def _compare(seen: Observation, wanted: Signature) -> tuple[str, Verdict, Signature]:
    verdict = judge_run(seen)
    signature = sign_verdict(verdict, seen)
    answer = same_failure.compare_failures(wanted, verdict, signature)
    if answer == same_failure.OTHER and verdict.kind == "slow-compile":
        answer = same_failure.UNRESOLVED  # its end is not known
    return answer, verdict, signature


def role_variables(role: str, run_path: Path) -> dict[str, str]:
    """Return the environment variables with which a program writes its results below
    ``run_path``.
    """
    return {
        run_names.RESULTS_VARIABLE: role,
        run_names.RESULTS_DIR_VARIABLE: str(run_path / RESULTS_FOLDER),
    }


def role_overrides(role: str, limits: ProbeLimits) -> dict[str, Any]:
    """Return the overrides of a run in a role; empty for a run without a role."""
    alone = limits.alone if role in COMPILED_ROLES else {}
    return {**SAME_RANDOM_NUMBERS, **alone} if role else {}


def judge_results(run_role: Callable[[str], CandidateResult], wanted: Signature) -> CandidateResult:
    """Judge a candidate by its results: it must pass in eager mode, and be wrong when compiled."""
    eager = run_role("eager")
    if eager.unmet:
        return eager
    if eager.verdict.kind != "ok":
        answer = same_failure.UNRESOLVED if eager.verdict.kind == "unknown" else same_failure.OTHER
        return dataclasses.replace(
            eager, answer=answer, has_failed_eager=answer == same_failure.OTHER
        )
    compiled = run_role("compiled")
    for role in ("again", "float64"):
        if compiled.seen.comparison is None or not compiled.seen.comparison.suspects:
            break
        if (comparison := run_role(role).seen.comparison) is not None:
            seen = dataclasses.replace(compiled.seen, comparison=comparison)
            answer, verdict, signature = _compare(seen, wanted)
            compiled = dataclasses.replace(
                compiled, answer=answer, verdict=verdict, signature=signature, seen=seen
            )
    if compiled.answer == same_failure.OTHER and is_repeated(wanted, compiled.seen):
        return run_role("repeated")
    return compiled


def is_repeated(wanted: Signature, seen: Observation) -> bool:
    """Return whether a second compiled run decides if wrong results have the wanted signature."""
    wrong = seen.comparison.wrong if seen.comparison is not None else ()
    return bool(wrong) and wanted.parts.kind == NONDETERMINISTIC


def judge_growth(
    run_size: Callable[[str, int], CandidateResult],
    text: str,
    wanted: Signature,
    limits: ProbeLimits,
) -> CandidateResult:
    """Judge a candidate by the growth of its compile from the smallest to the largest size.

    The largest size runs first.
    """
    measured: list[costs.PhaseCost] = []
    last = CandidateResult(
        same_failure.OTHER, Verdict("unknown", None, "size", "it has no size"), wanted
    )
    part = same_failure.compiler_part(wanted.parts.phase)
    for size in (max(limits.sizes), min(limits.sizes)):
        if not (program := sized_program.at_size(text, limits.knob, size)):
            return dataclasses.replace(last, answer=same_failure.OTHER)
        last = run_size(program, size)
        if last.verdict.kind != "ok":
            answer = (
                same_failure.UNRESOLVED if last.verdict.kind == "unknown" else same_failure.OTHER
            )
            return dataclasses.replace(last, answer=answer)
        by_phase = dict(last.phases)
        measured.append(
            costs.PhaseCost(
                size, "", "ok", True, sum(by_phase.values()), by_phase, {}, last.seen.peak_rss_bytes
            )
        )
        if costs.costs_of_part(measured[0].phases, part) < limits.min_cost_s:
            return last
    growth = costs.compare_growth(
        measured[1], measured[0], limits.knob, part, limits.min_cost_ratio
    )
    seen = dataclasses.replace(last.seen, growth=growth)
    answer, verdict, signature = _compare(seen, wanted)
    seconds, cpu_s = last.seconds * len(measured), last.cpu_s * len(measured)
    return dataclasses.replace(
        last,
        answer=answer,
        verdict=verdict,
        signature=signature,
        seen=seen,
        seconds=seconds,
        cpu_s=cpu_s,
    )
