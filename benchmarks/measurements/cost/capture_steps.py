"""Measure what each step of a capture costs, beside the plain program that fails.

python -m benchmarks run capture_steps [--only CASE ...] [--load N]

The cases are samples, and the failures of benchmarks/cases/minimization_cases.py. Each program runs
once without reprokit, with an empty compiler cache, and then as the target of ``reprokit capture``.
``--load`` starts that many processes that keep a CPU busy. The recorded rows have each step with
its wall-clock and CPU seconds, and the table has the steps that take most of them.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ...cases.minimization_cases import FAILURES
from ...harness import (
    ROOT,
    ReprokitResult,
    quiet_environ,
    run_child,
    run_reprokit,
    show_progress,
)
from ...measurement import Measurement, add_only_option
from ...results import Column, Row

COLUMNS = (
    Column("case", "case"),
    Column("load", "busy processes"),
    Column("plain_cpu_s", "plain run, CPU s", 1),
    Column("cpu_s", "capture, CPU s", 1),
    Column("ratio", "ratio", 1),
    Column("wall_s", "capture, s", 0),
    Column("run_s", "run, s", 1),
    Column("eager_s", "eager, s", 1),
    Column("reduction_s", "reduction, s", 1),
    Column("proof_s", "proof, s", 1),
    Column("ablation_s", "ablation, s", 1),
    Column("rest_s", "rest, s", 1),
    Column("probes", "probes"),
    Column("lines", "lines"),
)
SAMPLES = ("exception_inductor", "wrong_result", "cpp_compile_error", "crash")
STALL = ("--stall", "15")
LIMIT_S = 900.0
PLAIN_LIMIT_S = 60.0
"""A program that hangs is ended after this time."""


@dataclass(frozen=True)
class Case:
    """One program that fails."""

    script: str
    target: tuple[str, ...]
    """The words of ``reprokit capture`` after its options; empty for the script as a command."""
    bug: dict[str, str]


def _cases() -> dict[str, Case]:
    cases = {}
    for name in SAMPLES:
        path = ROOT / "samples" / f"{name}.py"
        cases[f"sample {name}"] = Case(path.read_text(), (f"{path}:make",), {})
    for name, failure in FAILURES.items():
        cases[name] = Case(failure.script, (), failure.bug)
    return cases


CASES = _cases()


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the choice of cases, and the load."""
    add_only_option(parser, list(CASES), "case")
    parser.add_argument(
        "--load",
        type=int,
        choices=range(65),
        default=0,
        metavar="N",
        help="default: 0; processes that keep a CPU busy",
    )


def measure_rows(options: argparse.Namespace) -> Iterator[Row]:
    """Yield one row for each case."""
    for name in options.only:
        with _busy_processes(options.load):
            yield {"case": name, "load": options.load, **measure_case(CASES[name])}


def measure_case(case: Case) -> dict[str, Any]:
    """Run a program without and with reprokit, and return the cells of its row."""
    with tempfile.TemporaryDirectory(prefix="steps-", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        script = folder / "script.py"
        script.write_text(case.script)
        environ = quiet_environ(case.bug, TORCHINDUCTOR_CACHE_DIR=str(folder / "cache"))
        plain = run_child(
            [sys.executable, script], environ=environ, cwd=folder, limit_s=PLAIN_LIMIT_S
        )
        target = case.target or ("--", sys.executable, str(script))
        done = run_reprokit(
            "capture",
            *STALL,
            "--output-dir",
            folder / "out",
            *target,
            environ=quiet_environ(case.bug),
            cwd=folder,
            limit_s=LIMIT_S,
        )
        steps = _read_steps(done)
        repro = done.answer.get("repro")
        lines = len(Path(repro).read_text().splitlines()) if repro else None
    minimized = done.answer.get("minimized") or {}
    wall = {step["step"]: step["wall_s"] for step in steps}
    proof_s = minimized.get("proof_s") or 0.0
    parts = {
        "run_s": wall.get("run", 0.0),
        "eager_s": wall.get("eager run", 0.0) + wall.get("comparison with eager", 0.0),
        "reduction_s": wall.get("minimization", 0.0) - proof_s,
        "proof_s": proof_s + wall.get("proof of the recorded program", 0.0),
        "ablation_s": wall.get("ablation", 0.0),
    }
    show_progress(
        f"{done.kind}: plain {plain.cpu_s:.1f} CPU s in {plain.wall_s:.1f} s; capture"
        f" {done.cpu_s:.1f} CPU s in {done.wall_s:.1f} s; {lines} lines"
    )
    return {
        "plain_cpu_s": round(plain.cpu_s, 2),
        "plain_wall_s": round(plain.wall_s, 2),
        "cpu_s": round(done.cpu_s, 2),
        "ratio": round(done.cpu_s / plain.cpu_s, 2),
        "wall_s": round(done.wall_s, 2),
        **{key: round(value, 2) for key, value in parts.items()},
        "rest_s": round(done.wall_s - sum(parts.values()), 2),
        "probes": minimized.get("probes"),
        "lines": lines,
        "verdict": done.kind,
        "steps": steps,
    }


def _read_steps(done: ReprokitResult) -> list[dict[str, Any]]:
    path = Path(done.answer.get("run_dir") or "absent", "steps.jsonl")
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


@contextlib.contextmanager
def _busy_processes(count: int) -> Iterator[None]:
    busy = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(count)]
    try:
        yield
    finally:
        for process in busy:
            process.kill()
            process.wait()


MEASUREMENT = Measurement(COLUMNS, measure_rows, add_options)
