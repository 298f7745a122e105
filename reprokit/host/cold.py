"""Run a program in a process of its own, as a capture would, and compare its signature with the one that is wanted."""

from __future__ import annotations

import dataclasses
import shutil
from dataclasses import dataclass
from pathlib import Path

from ..core import eager, oracle
from ..core.records import Signature, Verdict
from ..core.signature import sign
from ..core.verdict import judge
from . import files, observe, run, rundir, warmth
from .launch import Request
from .target import Target

LEAST_STALL_S = 15.0
"""A fresh process imports torch and asks the C++ compiler first, in silence."""


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


def run_cold(
    text: str, python: str, folder: Path, wanted: Signature, limits: Limits, is_eager: bool = False,
    file: Path | None = None,
) -> Judged:  # fmt: skip
    """Run it below ``folder``, which is emptied first and kept; raises KeyboardInterrupt when interrupted.

    ``file`` is run where it lies, instead of a copy of ``text``.
    """
    shutil.rmtree(folder, ignore_errors=True)
    rundir.make_folders(folder)
    place = None if file else folder  # what stands alone reads nothing that lies about
    file = file or files.write_whole(folder / "repro.py", text)
    request = request_for(file, python, limits)
    own = {"TORCHINDUCTOR_CACHE_DIR": str(folder / "cache")}
    request = dataclasses.replace(request, stall_s=max(request.stall_s, LEAST_STALL_S), cwd=place, variables=own)
    if is_eager:
        command = Target("command", command=(python, "-c", eager.PRELUDE, str(file)))
        request = dataclasses.replace(request, target=command, variables={**own, **eager.VARIABLES})
    warmth.copy(warmth.kept(python), folder / "cache")
    outcome = run.run(request, folder)
    if outcome.is_interrupted:
        raise KeyboardInterrupt
    return judged(request, outcome, folder, wanted)


def request_for(file: Path, python: str, limits: Limits) -> Request:
    """The request of one probe."""
    command = Target("command", command=(python, str(file)))
    return Request(
        command, python=python, deadline_s=limits.deadline_s * 8 + 60, stall_s=limits.deadline_s,
        line_repeats=limits.line_repeats, has_trace=False,
    )  # fmt: skip


def judged(request: Request, outcome: run.Outcome, folder: Path, wanted: Signature) -> Judged:
    """Judge a run with the rules of a capture."""
    journals = observe.read_journals(folder)
    seen = observe.observe(request, outcome, folder, journals)
    verdict = judge(seen)
    signature = sign(verdict, seen)
    answer = oracle.compare(wanted, verdict, signature)
    if answer == oracle.OTHER and verdict.kind == "slow-compile":
        answer = oracle.UNRESOLVED  # how it would have ended is not known
    times = [
        float(e["t"]) for events in journals.by_pid.values() for e in events if isinstance(e.get("t"), (int, float))
    ]
    healthy_s = max(0.0, max(times, default=outcome.started) - outcome.started)
    return Judged(answer, verdict, signature, outcome.seconds, outcome.cpu_s, healthy_s)
