"""Measure repros of failures of AOTInductor beside those of PyTorch's minifier for it.

python -m benchmarks run minimization_exported [--only FAILURE ...] [--budget 300]

As ``minimization``, with programs that call torch.export and ``aoti_compile_and_package``. The
minifier of AOTInductor (``torch/_dynamo/repro/aoti.py``) has no mode with a process for each probe.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator

from ...cases.minimization_cases import EXPORTED_FAILURES
from ...measurement import Measurement, add_budget_option, add_only_option
from ...minimize_runs import minimize_with_each_tool
from ...results import Row
from .minimization import COLUMNS


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the choice of failures and the budget."""
    add_only_option(parser, EXPORTED_FAILURES, "failure")
    add_budget_option(parser)


def measure_rows(options: argparse.Namespace) -> Iterator[Row]:
    """Yield a row for each failure and tool."""
    for name in options.only:
        failure = EXPORTED_FAILURES[name]
        for reduction in minimize_with_each_tool(failure, options.budget, ["in-process"]):
            yield {
                "failure": name,
                "least_operators": failure.minimum,
                **{c.key: getattr(reduction, c.key) for c in COLUMNS if c.key in vars(reduction)},
            }


MEASUREMENT = Measurement(COLUMNS, measure_rows, add_options)
