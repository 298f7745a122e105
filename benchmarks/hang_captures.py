"""Capture one program of tests/hangs/kinds.py, and compare the verdict with what is right."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import psutil

from tests.hangs.kinds import EXPECTED

from .harness import ROOT, MeasurementFailed, run_reprokit, two_ranks

POLL_S, FLAT_S, MOVED_CPU_S = 0.5, 6.0, 0.1
"""A program that used less CPU than this for ``FLAT_S`` seconds hangs."""
WARM_UP_LIMIT_S = 120.0
KINDS_PROGRAM = ROOT / "tests" / "hangs" / "kinds.py"
OUTSIDE_COMPILER = ("gloo_eager", "gloo_mismatch")
"""Kinds that wait outside the compiler. There a command's stall is reported and nothing is ended,
unless ``--on-stall end`` is given.
"""


@dataclass(frozen=True)
class HangCapture:
    """How a capture judged one kind."""

    kind: str
    verdict: str
    cause: str | None
    phase: str | None
    is_cause_right: bool
    is_phase_right: bool
    stacks_s: float
    """Seconds from the decision to end the run to the first stacks."""
    evidence_s: float
    """Seconds from the decision to the verdict."""
    wall_s: float
    survivors: int
    """Processes of the run that live after the capture."""
    reason: str


def capture_hang_kind(
    kind: str,
    stall_s: float,
    deadline_s: float,
    python: str = sys.executable,
    more_options: Sequence[str] = (),
) -> HangCapture:
    """Capture one kind in a fresh process of the interpreter ``python``."""
    causes, phases = EXPECTED[kind]
    mark = uuid.uuid4().hex
    target, environ = _program_of_kind(kind, python, mark)
    options = ["--no-trace", "--stall", str(stall_s), "--timeout", str(deadline_s), *more_options]
    options += ["--on-stall", "end"] if kind in OUTSIDE_COMPILER else []
    with tempfile.TemporaryDirectory() as folder:
        done = run_reprokit(
            "capture", *options, "--output-dir", folder, "--", *target, environ=environ
        )
        run = done.run_file("run.json")
    if run is None:
        raise MeasurementFailed(f"the capture of {kind} failed: {done.last_error}")
    verdict = done.answer["verdict"]
    return HangCapture(
        kind,
        verdict["kind"],
        verdict["cause"],
        verdict["phase"],
        verdict["cause"] in causes,
        verdict["phase"] in phases,
        run["seconds_to_stacks"] or 0.0,
        run["seconds_to_verdict"] or 0.0,
        round(done.wall_s, 1),
        count_survivors(mark),
        verdict["reason"],
    )


@dataclass(frozen=True)
class HangAttachment:
    """How an attachment from outside judged one kind."""

    kind: str
    verdict: str
    cause: str | None
    phase: str | None
    is_cause_right: bool
    is_phase_right: bool
    first_answer_s: float
    """Seconds from the start of reprokit to its first answer."""
    is_alive: bool
    """The process runs after the attachment."""
    reason: str


def attach_to_hang_kind(
    kind: str,
    warm_up_s: float,
    stall_s: float,
    more_options: Sequence[str] = (),
    is_prepared: bool = False,
) -> HangAttachment:
    """Start one kind plainly, attach to it when it hangs, and end it.

    It hangs when it no longer uses the CPU, or has used it for ``warm_up_s``.
    """
    causes, phases = EXPECTED[kind]
    with (
        tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder,
        hanging_process(kind, folder, warm_up_s, is_prepared) as process,
    ):
        options = ["--stall", str(stall_s), "--output-dir", f"{folder}/out", *more_options]
        done = run_reprokit("attach", str(process.pid), *options)
        is_alive = process.poll() is None
    if "verdict" not in done.answer:
        raise MeasurementFailed(f"attaching to {kind} failed: {done.last_error}")
    verdict = done.answer["verdict"]
    return HangAttachment(
        kind,
        verdict["kind"],
        verdict["cause"],
        verdict["phase"],
        verdict["cause"] in causes,
        verdict["phase"] in phases,
        done.answer["process"]["first_answer_s"],
        is_alive,
        verdict["reason"],
    )


@contextlib.contextmanager
def hanging_process(
    kind: str, folder: str, warm_up_s: float, is_prepared: bool = False
) -> Iterator[subprocess.Popen[bytes]]:
    """Start one kind plainly in a folder, wait until it hangs, and end it afterwards."""
    mark = uuid.uuid4().hex
    target, environ = _program_of_kind(kind, sys.executable, mark)
    # with a graph from a cache, a kind that hangs in the compiler ends
    environ["TORCHINDUCTOR_CACHE_DIR"] = f"{folder}/cache"
    environ["REPROKIT_WATCH"] = str(int(is_prepared))
    process = subprocess.Popen(
        target, env=environ, cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        wait_until_it_hangs(process.pid, warm_up_s)
        yield process
    finally:
        kill_marked(mark)
        process.wait()


def wait_until_it_hangs(pid: int, warm_up_s: float) -> None:
    """Wait until a program no longer uses the CPU, or has used it for ``warm_up_s``."""
    deadline, used, changed = time.monotonic() + WARM_UP_LIMIT_S, 0.0, time.monotonic()
    while time.monotonic() < deadline and used < warm_up_s:
        time.sleep(POLL_S)
        if (now := _tree_cpu_s(pid)) > used + MOVED_CPU_S:
            used, changed = now, time.monotonic()
        elif time.monotonic() - changed > FLAT_S:
            return


def _tree_cpu_s(pid: int) -> float:
    """Return the CPU seconds of a process and of all below it, also of those that have ended."""
    total = 0.0
    with contextlib.suppress(psutil.Error):
        root = psutil.Process(pid)
        for process in (root, *root.children(recursive=True)):
            with contextlib.suppress(psutil.Error):
                times = process.cpu_times()
                total += times.user + times.system + times.children_user + times.children_system
    return total


def _program_of_kind(kind: str, python: str, mark: str) -> tuple[list[str], dict[str, str]]:
    """Return the command and the environment of a program that hangs, in which ``mark`` is."""
    target = [python, str(KINDS_PROGRAM), kind]
    environ = {**os.environ, "OMP_NUM_THREADS": "1", "HANGS_MARK": mark}
    if kind.startswith("gloo_"):
        target, variables = two_ranks(target)
        environ |= variables
    return target, environ


def kill_marked(mark: str) -> None:
    """Kill the processes that have the mark of a run in their environment."""
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            if process.environ().get("HANGS_MARK") == mark:
                process.kill()


def count_survivors(mark: str) -> int:
    """Return how many living processes have the mark of a run in their environment."""
    count = 0
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            count += (
                process.environ().get("HANGS_MARK") == mark
                and process.status() != psutil.STATUS_ZOMBIE
            )
    return count
