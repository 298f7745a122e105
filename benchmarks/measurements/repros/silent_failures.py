"""Measure whether failures that stop no program are detected, named and minimized, and at what cost.

python -m benchmarks run silent_failures [--only NAME ...] [--budget 300]

The failures are wrong results, recompiles and graph breaks of benchmarks/cases/known_bugs/silent.py.
Each is one ``reprokit capture`` with everything on. CPU seconds are those of all its processes: the
run, the comparison, the ablation, the reduction and the proof.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Iterator

from ...cases.silent_cases import EXPECTED_KINDS, OPTIONS
from ...harness import CASES, run_reprokit
from ...measurement import Measurement, add_budget_option, add_only_option
from ...results import Column, Row

PROGRAMS = CASES / "known_bugs" / "silent.py"
COLUMNS = (
    Column("failure", "failure"),
    Column("verdict", "verdict"),
    Column("expected", "expected"),
    Column("signature", "signature"),
    Column("lines", "lines"),
    Column("proved", "proved"),
    Column("cpu_s", "CPU s", 0),
)


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the choice of failures and the budget."""
    add_only_option(parser, EXPECTED_KINDS, "failure")
    add_budget_option(parser)


def measure_rows(options: argparse.Namespace) -> Iterator[Row]:
    """Yield a row for each failure."""
    for name in options.only:
        words = ("--budget", str(options.budget), *OPTIONS.get(name, ()))
        with tempfile.TemporaryDirectory() as folder:
            done = run_reprokit("capture", f"{PROGRAMS}:{name}", *words, "--output-dir", folder)
        minimized = done.answer.get("minimized") or {}
        proof = minimized.get("proof") or {}
        proved = f"{proof['hits']} of {proof['runs']}" if proof.get("answer") == "same" else "no"
        yield {
            "failure": name,
            "verdict": done.kind,
            "expected": EXPECTED_KINDS[name],
            "signature": done.answer.get("signature", {}).get("title", done.last_error),
            "lines": minimized.get("lines"),
            "proved": proved if minimized else None,
            "cpu_s": round(done.cpu_s, 1),
        }


MEASUREMENT = Measurement(COLUMNS, measure_rows, add_options)
