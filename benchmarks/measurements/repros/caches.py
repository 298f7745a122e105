"""Measure the cost of each stage of ``reprokit capture --caches``, and which failures it finds.

python -m benchmarks run caches [--only NAME ...] [--budget 300]

The targets are those of benchmarks/cases/known_bugs/caches.py. The columns of the stages are the CPU
seconds of each stage with its imports; the last column has those of the whole capture.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Iterator

from ...cases.cache_cases import EXPECTED, OPTIONS
from ...harness import CASES, run_reprokit
from ...measurement import Measurement, add_budget_option, add_only_option
from ...results import Column, Row

PROGRAMS = CASES / "known_bugs" / "caches.py"
STAGES = ("cold", "warm", "loaded", "changed", "precompiled")
COLUMNS = (
    Column("target", "target"),
    Column("verdict", "verdict"),
    Column("expected", "expected"),
    Column("responsible", "responsible"),
    *(Column(f"{stage}_cpu_s", f"{stage} CPU s", 1) for stage in STAGES),
    Column("lines", "lines"),
    Column("proved", "proved"),
    Column("cpu_s", "CPU s", 0),
)


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the choice of targets and the budget."""
    add_only_option(parser, EXPECTED, "target")
    add_budget_option(parser)


def measure_rows(options: argparse.Namespace) -> Iterator[Row]:
    """Yield a row for each target."""
    for name in options.only:
        words = ("--caches", "--budget", str(options.budget), *OPTIONS.get(name, ()))
        with tempfile.TemporaryDirectory() as folder:
            done = run_reprokit("capture", f"{PROGRAMS}:{name}", *words, "--output-dir", folder)
            stages = (done.run_file("observation.json") or {}).get("stages", ())
        costs = {stage["name"]: stage["cpu_s"] for stage in stages}
        verdict = done.answer.get("verdict") or {}
        minimized = done.answer.get("minimized") or {}
        proof = minimized.get("proof") or {}
        proved = f"{proof['hits']} of {proof['runs']}" if proof.get("answer") == "same" else "no"
        yield {
            "target": name,
            "verdict": " ".join(filter(None, (done.kind, verdict.get("stage")))),
            "expected": " ".join(filter(None, EXPECTED[name])),
            "responsible": verdict.get("responsible") or None,
            **{f"{stage}_cpu_s": costs.get(stage) for stage in STAGES},
            "lines": minimized.get("lines"),
            "proved": proved if minimized else None,
            "cpu_s": round(done.cpu_s, 1),
        }


MEASUREMENT = Measurement(COLUMNS, measure_rows, add_options)
