"""Measure how the cost of ``reprokit minimize`` grows with the size of the graph.

python -m benchmarks run minimization_growth [--sizes 100 300 1000 3000 5000]

Three different operators are scattered in a chain, and the failure needs all three of them.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator

from ...cases.minimization_cases import scattered_failure
from ...measurement import Measurement, positive_int
from ...minimize_runs import minimize_with_each_tool
from ...results import Column, Row

BUDGET_S = 3600.0
COLUMNS = (
    Column("nodes", "nodes"),
    Column("probes", "probes"),
    Column("wall_s", "seconds", 1),
    Column("cpu_s", "CPU s", 1),
    Column("operators", "operators left"),
)


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the sizes."""
    parser.add_argument(
        "--sizes",
        nargs="+",
        type=positive_int,
        default=[100, 300, 1000, 3000, 5000],
        metavar="NODES",
        help="default: 100 300 1000 3000 5000",
    )


def measure_rows(options: argparse.Namespace) -> Iterator[Row]:
    """Yield a row for each size."""
    for size in options.sizes:
        (reduction,) = minimize_with_each_tool(scattered_failure(size), BUDGET_S, ())
        yield {
            "nodes": size,
            "probes": reduction.probes,
            "wall_s": reduction.wall_s,
            "cpu_s": reduction.cpu_s,
            "operators": reduction.operators,
        }


MEASUREMENT = Measurement(COLUMNS, measure_rows, add_options)
