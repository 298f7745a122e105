"""Measure whether healthy programs that wait are ended or called hangs.

python -m benchmarks run waiting [--only KIND ...] [--stall 6] [--seconds 20] [--jobs 3]

The programs are those of tests/waits/kinds.py. Each runs under ``reprokit capture`` with all
defaults except ``--stall``, once for each way to compile. A program is ended when it does not finish
by itself with status 0. No program may be ended or called a hang. The kind ``kernel`` needs the
package ipykernel, and is left out without it.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import sys
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from tests.waits.kinds import COMPILED, KINDS

from ...harness import ROOT, MeasurementFailed, run_reprokit, show_progress, two_ranks
from ...measurement import Measurement, add_only_option, positive_int, positive_seconds
from ...results import Column, Row

PROGRAM = ROOT / "tests" / "waits" / "kinds.py"
COLUMNS = (
    Column("programs", "programs"),
    Column("ended", "ended"),
    Column("called_hangs", "called a hang"),
    Column("idle", "reported as idle"),
    Column("outside", "reported as waiting outside the compiler"),
)


@dataclass(frozen=True)
class WaitCapture:
    """How a capture judged one program that waits."""

    verdict: str
    is_ended: bool
    states: frozenset[str]
    """States of the stalls that were reported."""
    detail: str


def capture_waiting_kind(kind: str, compiled: str, stall_s: float, seconds: float) -> WaitCapture:
    """Capture one program that waits for ``seconds``."""
    target = [sys.executable, str(PROGRAM), kind, compiled, str(seconds)]
    environ = {**os.environ, "OMP_NUM_THREADS": "1"}
    if kind == "barrier":
        target, variables = two_ranks(target)
        environ |= variables
    with tempfile.TemporaryDirectory() as folder:
        options = ("--stall", str(stall_s), "--output-dir", folder)
        done = run_reprokit("capture", *options, "--", *target, environ=environ)
        run = done.run_file("run.json")
        if run is None:
            raise MeasurementFailed(f"the capture of {kind} {compiled} failed: {done.last_error}")
        printed = (Path(done.answer["run_dir"]) / "logs" / "stdout.txt").read_text()
    return WaitCapture(
        done.kind,
        run["exit_status"] != 0 or "done" not in printed,
        frozenset(stall["state"] for stall in run["stalls"]),
        "; ".join(stall["detail"] for stall in run["stalls"])[:160],
    )


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the choice of kinds, the stall, how long a program waits, and how many run at once."""
    add_only_option(parser, KINDS, "kind")
    parser.add_argument(
        "--stall",
        type=positive_seconds,
        default=6.0,
        metavar="SECONDS",
        help="default: 6; the option of capture",
    )
    parser.add_argument(
        "--seconds", type=positive_seconds, default=20.0, help="how long each waits; default: 20"
    )
    parser.add_argument("--jobs", type=positive_int, default=3, help="at once; default: 3")


def measure_rows(options: argparse.Namespace) -> Iterator[Row]:
    """Yield one row for all programs."""
    kinds = list(options.only)
    if "kernel" in kinds and importlib.util.find_spec("ipykernel") is None:
        show_progress("kernel is left out: ipykernel is not installed")
        kinds.remove("kernel")
    captures: list[WaitCapture] = []
    with ThreadPoolExecutor(options.jobs) as pool:
        jobs = {
            (kind, compiled): pool.submit(
                capture_waiting_kind, kind, compiled, options.stall, options.seconds
            )
            for kind in kinds
            for compiled in COMPILED
        }
        for (kind, compiled), job in jobs.items():
            capture = job.result()
            captures.append(capture)
            mark = "BAD" if capture.is_ended or capture.verdict == "hang" else "ok "
            states = ", ".join(sorted(capture.states)) or "no stall"
            show_progress(
                f"{mark} {kind:<11} {compiled:<12} {capture.verdict:<8} {states:<18}"
                f" {capture.detail[:90]}"
            )
    yield {
        "programs": len(captures),
        "ended": sum(capture.is_ended for capture in captures),
        "called_hangs": sum(capture.verdict == "hang" for capture in captures),
        "idle": sum("idle" in capture.states for capture in captures),
        "outside": sum(
            "outside" in capture.states and "idle" not in capture.states for capture in captures
        ),
    }


MEASUREMENT = Measurement(COLUMNS, measure_rows, add_options)
