"""Measure the CPU seconds that watching a run costs, beside those of the target.

python -m benchmarks run watching [--rounds 5] [--model llama40b]

Watching is what reprokit does while the target runs: it samples processes, takes stacks and follows
journals. Its tools are included. The compile of llama40b takes about a minute.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Iterator

from ...harness import MeasurementFailed, run_reprokit
from ...measurement import Measurement, positive_int
from ...results import Column, Row

COLUMNS = (
    Column("model", "model"),
    Column("round", "round"),
    Column("watching_cpu_s", "watching, CPU s", 1),
    Column("target_cpu_s", "target, CPU s", 0),
    Column("percent", "percent", 1),
)


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the model and the number of rounds."""
    parser.add_argument("--rounds", type=positive_int, default=5, help="default: 5")
    parser.add_argument("--model", default="llama40b", help="default: llama40b")


def measure_rows(options: argparse.Namespace) -> Iterator[Row]:
    """Yield a row for each round."""
    for number in range(1, options.rounds + 1):
        with tempfile.TemporaryDirectory() as folder:
            done = run_reprokit(
                "capture", "--no-trace", "--model", options.model, "--output-dir", folder
            )
            run = done.run_file("run.json")
        if run is None:
            raise MeasurementFailed(f"the capture failed: {done.last_error}")
        yield {
            "model": options.model,
            "round": number,
            "watching_cpu_s": round(run["watch_cpu_s"], 2),
            "target_cpu_s": round(run["cpu_s"], 1),
            "percent": round(100 * run["watch_cpu_s"] / run["cpu_s"], 2),
        }


MEASUREMENT = Measurement(COLUMNS, measure_rows, add_options)
