"""Measure repros of ``reprokit minimize`` beside those of PyTorch's own minifier.

python -m benchmarks run minimization [--only FAILURE ...] [--budget 300]
                                      [--modes isolate in-process]

The failures are those of benchmarks/cases/minimization_cases.py. Each is captured; then ``reprokit
minimize`` and the minifier, in each of its modes, get the same wall-clock budget. Solved means that
``reprokit check`` finds the signature of the capture when the repro runs alone in a fresh process.

CPU seconds are those of the reduction and of all its children, without the capture and without the
first run of the minifier, which writes its launcher. The last column has what packing and proving
the repro add to the CPU seconds of reprokit; the minifier does neither.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator

from ...cases.minimization_cases import FAILURES
from ...measurement import Measurement, add_budget_option, add_only_option
from ...minimize_runs import MODES, minimize_with_each_tool
from ...results import Column, Row

COLUMNS = (
    Column("failure", "failure"),
    Column("tool", "tool"),
    Column("solved", "solved"),
    Column("operators", "operators"),
    Column("least_operators", "least known"),
    Column("lines", "lines"),
    Column("probes", "probes"),
    Column("cpu_s", "CPU s", 1),
    Column("remark", "remark"),
)


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the choice of failures, the budget and the modes of the minifier."""
    add_only_option(parser, FAILURES, "failure")
    add_budget_option(parser)
    parser.add_argument(
        "--modes", nargs="*", choices=MODES, default=list(MODES), help="default: both"
    )


def measure_rows(options: argparse.Namespace) -> Iterator[Row]:
    """Yield a row for each failure and tool."""
    for name in options.only:
        failure = FAILURES[name]
        for reduction in minimize_with_each_tool(failure, options.budget, options.modes):
            yield {
                "failure": name,
                "least_operators": failure.minimum,
                **{c.key: getattr(reduction, c.key) for c in COLUMNS if c.key in vars(reduction)},
            }


MEASUREMENT = Measurement(COLUMNS, measure_rows, add_options)
