"""Measure whether a repro keeps the user's own operators, kernels and classes.

python -m benchmarks run own_code [--only KIND ...] [--budget 120]

The kinds are those of benchmarks/cases/own_code_cases.py: a model of about 300 nodes, whose compile
fails for one of them. Proved means that the repro failed alone in a fresh process, and kept that it
contains the user's code. The repro is reduced from the recorded graph (``dynamo``) or the source.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from ...cases.own_code_cases import KINDS, OwnCode
from ...harness import quiet_environ, run_reprokit
from ...measurement import Measurement, add_budget_option, add_only_option
from ...minimize_runs import count_lines, count_operators
from ...results import Column, Row

COLUMNS = (
    Column("kind", "kind"),
    Column("nodes", "nodes"),
    Column("is_proved", "proved"),
    Column("is_kept", "kept"),
    Column("level", "reduced from"),
    Column("operators", "operators"),
    Column("lines", "lines"),
    Column("probes", "probes"),
    Column("cpu_s", "CPU s", 1),
)


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the choice of kinds and the budget."""
    add_only_option(parser, KINDS, "kind")
    add_budget_option(parser, 120)


def measure_rows(options: argparse.Namespace) -> Iterator[Row]:
    """Yield a row for each kind."""
    for name in options.only:
        with tempfile.TemporaryDirectory(prefix="own-code-") as folder:
            yield {"kind": name, **reduce_kind(KINDS[name], Path(folder), options.budget)}


def reduce_kind(kind: OwnCode, folder: Path, budget_s: float) -> Row:
    """Capture a failure, reduce it, and describe the repro."""
    file = folder / "target.py"
    file.write_text(kind.program())
    words = (*kind.options, f"{file}:make")
    done = run_reprokit(
        "capture",
        "--budget",
        str(budget_s),
        "--no-ablate",
        "--output-dir",
        folder / "out",
        *(words if kind.options else ("--", sys.executable, file)),
        environ=quiet_environ({}),
        cwd=folder,
        limit_s=budget_s + 360.0,
    )
    minimized = done.answer.get("minimized") or {}
    repro = done.answer.get("repro")
    text = Path(repro).read_text() if repro else ""
    return {
        "nodes": minimized.get("began_nodes"),
        "is_proved": bool(repro),
        "is_kept": kind.keeps in text,
        "level": minimized.get("level"),
        "operators": count_operators(text) if text else None,
        "lines": count_lines(text) if text else None,
        "probes": minimized.get("probes"),
        "cpu_s": minimized.get("cpu_s"),
    }


MEASUREMENT = Measurement(COLUMNS, measure_rows, add_options)
