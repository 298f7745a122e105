"""What one run of a candidate came to: the rules of a capture, and a comparison with the signature that is wanted."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..core import oracle
from ..core.records import Observation, Signature, Verdict
from ..core.signature import sign
from ..core.verdict import judge
from . import observe, run
from .launch import Request
from .target import Target

SAME_RANDOM = {"configs": {"torch._inductor.config.fallback_random": True}}
"""Compiled code draws the same random numbers as eager, so that the two can be compared."""
PLAIN = ("eager", "again", "float64")
"""Roles in which nothing is compiled."""
RESULTS = "results"
"""Folder of what the runs gave, which is the user's: nothing of it is packed, and it is gone after the comparison."""


@dataclass(frozen=True)
class Limits:
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
    """Wrong results are looked for: a program is run in each role of ``core.results``."""


def limits_for(kind: str, deadline_s: float, **more: Any) -> Limits:
    """The limits under which a verdict of ``kind`` can show: what of it is silent is looked for."""
    most_breaks = 0 if kind == "graph-break" else None
    return Limits(deadline_s, most_breaks=most_breaks, compares=kind == "wrong-result", **more)


@dataclass(frozen=True)
class Judged:
    """What one run of a program came to."""

    answer: str
    verdict: Verdict
    signature: Signature
    seconds: float = 0.0
    cpu_s: float = 0.0
    healthy_s: float = 0.0
    """From its start to the last event in its journal."""
    seen: Observation = field(default_factory=Observation)
    has_failed_eager: bool = False
    """The program fails without torch.compile too."""


def request_for(file: Path, python: str, limits: Limits) -> Request:
    """The request of one probe."""
    command = Target("command", command=(python, str(file)))
    return Request(
        command, python=python, deadline_s=limits.deadline_s * 8 + 60, stall_s=limits.deadline_s,
        line_repeats=limits.line_repeats, has_trace=False, most_breaks=limits.most_breaks,
    )  # fmt: skip


def judged(request: Request, outcome: run.Outcome, folder: Path, wanted: Signature) -> Judged:
    """Judge a run with the rules of a capture."""
    journals = observe.read_journals(folder)
    seen = observe.observe(request, outcome, folder, journals)
    answer, verdict, signature = _weigh(seen, wanted)
    times = [
        float(e["t"]) for events in journals.by_pid.values() for e in events if isinstance(e.get("t"), (int, float))
    ]
    healthy_s = max(0.0, max(times, default=outcome.started) - outcome.started)
    return Judged(answer, verdict, signature, outcome.seconds, outcome.cpu_s, healthy_s, seen)


def _weigh(seen: Observation, wanted: Signature) -> tuple[str, Verdict, Signature]:
    verdict = judge(seen)
    signature = sign(verdict, seen)
    answer = oracle.compare(wanted, verdict, signature)
    if answer == oracle.OTHER and verdict.kind == "slow-compile":
        answer = oracle.UNRESOLVED  # how it would have ended is not known
    return answer, verdict, signature


def in_role(role: str, run_path: Path) -> dict[str, str]:
    """Environment variables that make a program write down its results below ``run_path``."""
    return {"REPROKIT_RESULTS": role, "REPROKIT_RESULTS_DIR": str(run_path / RESULTS)}


def ask_roles(run_role: Callable[[str], Judged], wanted: Signature) -> Judged:
    """Judge a candidate by its results: it must pass in eager, and give wrong ones compiled."""
    eager = run_role("eager")
    if eager.verdict.kind != "ok":
        answer = oracle.UNRESOLVED if eager.verdict.kind == "unknown" else oracle.OTHER
        return dataclasses.replace(eager, answer=answer, has_failed_eager=answer == oracle.OTHER)
    found = run_role("compiled")
    for role in ("again", "float64"):
        if found.seen.comparison is None or not found.seen.comparison.suspects:
            break
        if (told := run_role(role).seen.comparison) is not None:
            seen = dataclasses.replace(found.seen, comparison=told)
            answer, verdict, signature = _weigh(seen, wanted)
            found = dataclasses.replace(found, answer=answer, verdict=verdict, signature=signature, seen=seen)
    return found
