"""What one run of a candidate came to: the rules of a capture, and a comparison with the signature
that is wanted.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from reprokit.core.growth import costs
from reprokit.core.judge import same_failure
from reprokit.core.judge.signature import sign
from reprokit.core.judge.verdict import judge
from reprokit.core.records import stalls
from reprokit.core.records.finding import Signature, Verdict
from reprokit.core.records.observation import Observation
from reprokit.core.reduce import sized_program
from reprokit.core.shared.contract import run_names
from reprokit.host.request.run_request import Request
from reprokit.host.request.target import Target
from reprokit.host.run import observation_reader, run_outcome
from reprokit.host.run.run_directory import RESULTS as RESULTS

SAME_RANDOM = {"configs": {"torch._inductor.config.fallback_random": True}}
"""Compiled code draws the same random numbers as eager, so that the two can be compared."""
PLAIN = ("eager", "again", "float64")
"""Roles in which nothing is compiled."""


SLOW_S = 12.0
"""Served seconds after which a compile that goes on is slow: a single operator takes two or three,
C++ and all.
"""
START_S = 5.0
"""To start a process and import torch."""
KEPT_SHARE = 0.5
"""A smaller program whose compile grows must cost so much of what the whole cost."""
EASE_S, EASE_RATIO = 0.3, 0.9
"""A reduction goes to the edge of what must grow, and what it found runs again where it is quiet,
or on a machine three times as fast: the seconds are a share of what they were, the ratio's
logarithm is.
"""
DEAR_S = 15.0
"""A size that costs more is asked only where too few others are known."""


@dataclass(frozen=True)
class ProbeLimits:
    """When a program is ended, and where its compile may stop."""

    deadline_s: float
    """Served seconds: those in which it had the processor that it wanted, or wanted none."""
    stop: str | None = None
    """The phase behind which nothing is of interest; only forked children are stopped."""
    is_backward: bool = False
    wants_stacks: bool = False
    """A hang is looked for: the stacks of a program that met its deadline say which."""
    line_repeats: int = Request.line_repeats
    most_breaks: int | None = None
    """More graph breaks are a failure."""
    compares: bool = False
    """Wrong results are looked for: a program is run in each role of
    ``core.shared.result_comparison``.
    """
    knob: str = ""
    """Growth is looked for: a program is run at each of ``sizes`` of this name in it."""
    sizes: tuple[int, ...] = ()
    least_s: float = 0.0
    """CPU seconds that the part of the compiler which grows must take at the largest of them: less
    is lost in noise.
    """
    least_ratio: float = 1.0
    """So many times what it takes at the smallest: half way, in logarithms, from a line to what was
    measured.
    """
    gpu: Mapping[str, Any] | None = None
    """A GPU is simulated."""
    is_kernel: bool = False
    """The program compiles a Triton kernel and nothing else: it has no eager run."""
    alone: Mapping[str, Any] = field(default_factory=dict)
    """Overrides of a compiled run under which only what the signature names can make results
    wrong.
    """
    is_slow: bool = False
    """A slow compile is looked for: one that goes on at the deadline."""

    def eased(self) -> ProbeLimits:
        """For another run of a program that kept to these."""
        return dataclasses.replace(
            self, least_s=EASE_S * self.least_s, least_ratio=self.least_ratio**EASE_RATIO
        )

    @property
    def wall_s(self) -> float:
        """The deadline on the wall of a process that nobody else ends, on a machine that may be
        busy.
        """
        return self.deadline_s + START_S if self.is_slow else self.deadline_s * 8 + 60


def limits_for(
    kind: str, deadline_s: float, growth: Mapping[str, Any] | None = None, **more: Any
) -> ProbeLimits:
    """The limits under which a verdict of ``kind`` can show: what of it is silent is looked for.

    ``growth`` is that of a superlinear compile, as ``growth.json`` has it.
    """
    most_breaks = 0 if kind == "graph-break" else None
    if kind == "slow-compile":
        deadline_s, more = SLOW_S, {**more, "is_slow": True}
    if kind == "superlinear-compile" and growth:
        more = {**more, **_sizes(growth)}
    return ProbeLimits(deadline_s, most_breaks=most_breaks, compares=kind == "wrong-result", **more)


def _sizes(growth: Mapping[str, Any]) -> dict[str, Any]:
    """The sizes at which it was measured, but for those that cost much where the others can tell,
    and what they cost.
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
    quick = [r for r in known if r["cpu_s"] <= DEAR_S]
    asked = sorted(quick if len(quick) >= costs.LEAST_SIZES else known, key=lambda r: r["size"])
    worst = growth.get("worst")
    limits: dict[str, Any] = {
        "knob": str(growth.get("knob")),
        "sizes": tuple(r["size"] for r in asked),
    }
    with contextlib.suppress(
        TypeError, KeyError, IndexError, AttributeError, ValueError, ZeroDivisionError
    ):  # it may come from anywhere
        part = same_failure.compiler_part(worst["phase"] if isinstance(worst, dict) else "")
        low, high = (float(costs.costs_of_part(r["phases"], part)) for r in (asked[0], asked[-1]))
        low = max(low, costs.FLOOR_S)
        line = low * asked[-1]["size"] / asked[0]["size"]
        limits.update(
            least_s=KEPT_SHARE * high, least_ratio=costs.geometric_midpoint(low, line, high)
        )
    return limits


@dataclass(frozen=True)
class CandidateResult:
    """What one run of a program came to."""

    answer: str
    verdict: Verdict
    signature: Signature
    seconds: float = 0.0
    cpu_s: float = 0.0
    healthy_s: float = 0.0
    """From its start to the last event in its journal."""
    seen: Observation = field(default_factory=Observation)
    phases: Mapping[str, float] = field(default_factory=dict)
    """CPU seconds of the compile, by phase; where growth is looked for."""
    has_failed_eager: bool = False
    """The program fails without torch.compile too."""


def request_for(file: Path, python: str, limits: ProbeLimits) -> Request:
    """The request of one probe."""
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
    )


def judge_candidate(
    request: Request,
    outcome: run_outcome.RunOutcome,
    folder: Path,
    wanted: Signature,
    is_measured: bool = False,
) -> CandidateResult:
    """Judge a run with the rules of a capture; with what each phase of the compile cost, where that
    is asked.
    """
    journals = observation_reader.read_journals(folder)
    seen = observation_reader.read_observation_of(request, outcome, folder, journals)
    answer, verdict, signature = _weigh(seen, wanted)
    healthy_s = max(0.0, max(journals.times, default=outcome.started) - outcome.started)
    by_phase = (
        costs.costs_of_journals(journals.by_pid, outcome.cpu_s, outcome.cpu_by_pid)[0]
        if is_measured
        else {}
    )
    return CandidateResult(
        answer, verdict, signature, outcome.seconds, outcome.cpu_s, healthy_s, seen, phases=by_phase
    )


def _weigh(seen: Observation, wanted: Signature) -> tuple[str, Verdict, Signature]:
    verdict = judge(seen)
    signature = sign(verdict, seen)
    answer = same_failure.compare_failures(wanted, verdict, signature)
    if answer == same_failure.OTHER and verdict.kind == "slow-compile":
        answer = same_failure.UNRESOLVED  # how it would have ended is not known
    return answer, verdict, signature


def in_role(role: str, run_path: Path) -> dict[str, str]:
    """Environment variables that make a program write down its results below ``run_path``."""
    return {
        run_names.RESULTS_VARIABLE: role,
        run_names.RESULTS_DIR_VARIABLE: str(run_path / RESULTS),
    }


def overrides_for(role: str, limits: ProbeLimits) -> dict[str, Any]:
    """What is changed in a run of a role; in none, nothing is."""
    return {**SAME_RANDOM, **(limits.alone if role == "compiled" else {})} if role else {}


def ask_roles(run_role: Callable[[str], CandidateResult], wanted: Signature) -> CandidateResult:
    """Judge a candidate by its results: it must pass in eager, and give wrong ones compiled."""
    eager = run_role("eager")
    if eager.verdict.kind != "ok":
        answer = same_failure.UNRESOLVED if eager.verdict.kind == "unknown" else same_failure.OTHER
        return dataclasses.replace(
            eager, answer=answer, has_failed_eager=answer == same_failure.OTHER
        )
    found = run_role("compiled")
    for role in ("again", "float64"):
        if found.seen.comparison is None or not found.seen.comparison.suspects:
            break
        if (told := run_role(role).seen.comparison) is not None:
            seen = dataclasses.replace(found.seen, comparison=told)
            answer, verdict, signature = _weigh(seen, wanted)
            found = dataclasses.replace(
                found, answer=answer, verdict=verdict, signature=signature, seen=seen
            )
    return found


def ask_sizes(
    run_size: Callable[[str, int], CandidateResult],
    text: str,
    wanted: Signature,
    limits: ProbeLimits,
) -> CandidateResult:
    """Judge a candidate by how its compile grows from the smallest size to the largest, which is
    run first.
    """
    found: list[costs.PhaseCost] = []
    last = CandidateResult(
        same_failure.OTHER, Verdict("unknown", None, "size", "it has no size"), wanted
    )
    part = same_failure.compiler_part(same_failure.kind_and_phase(wanted)[1])
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
        found.append(
            costs.PhaseCost(
                size, "", "ok", True, sum(by_phase.values()), by_phase, {}, last.seen.peak_rss_bytes
            )
        )
        if costs.costs_of_part(found[0].phases, part) < limits.least_s:
            return last
    told = costs.compare_growth(found[1], found[0], limits.knob, part, limits.least_ratio)
    seen = dataclasses.replace(last.seen, growth=told)
    answer, verdict, signature = _weigh(seen, wanted)
    seconds, cpu_s = last.seconds * len(found), last.cpu_s * len(found)
    return dataclasses.replace(
        last,
        answer=answer,
        verdict=verdict,
        signature=signature,
        seen=seen,
        seconds=seconds,
        cpu_s=cpu_s,
    )
