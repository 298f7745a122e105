"""Measure how fast commands of reprokit start, beside ``python -c "import click"``.

python -m benchmarks run startup [--rounds 30]

Each command is a whole process. The commands run in turns; the first two rounds are not counted.
The table has medians, and ratios of the medians.
"""

from __future__ import annotations

import argparse
import statistics
import sys
from collections.abc import Iterator

from ...harness import REPROKIT, MeasurementFailed, in_turns, run_child
from ...measurement import Measurement, positive_int
from ...results import Column, Row

BASE = "python -c 'import click'"
COMMANDS: dict[str, tuple[str, ...]] = {
    BASE: (sys.executable, "-c", "import click"),
    "reprokit --help": (*REPROKIT, "--help"),
    "reprokit models --json": (*REPROKIT, "models", "--json"),
    "reprokit capture --help": (*REPROKIT, "capture", "--help"),
}
WARM_UP_ROUNDS = 2
COLUMNS = (
    Column("command", "command"),
    Column("cpu_ms", "CPU ms", 0),
    Column("cpu_ratio", "CPU, ratio", 2),
    Column("wall_ms", "wall ms", 0),
    Column("wall_ratio", "wall, ratio", 2),
)


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the number of rounds."""
    parser.add_argument("--rounds", type=positive_int, default=30, help="default: 30")


def measure_rows(options: argparse.Namespace) -> Iterator[Row]:
    """Yield a row for each command."""
    cpu_s: dict[str, list[float]] = {name: [] for name in COMMANDS}
    wall_s: dict[str, list[float]] = {name: [] for name in COMMANDS}
    for name in in_turns(list(COMMANDS), options.rounds + WARM_UP_ROUNDS):
        child = run_child(COMMANDS[name])
        if child.status:
            raise MeasurementFailed(f"{name} ended with status {child.status}: {child.last_error}")
        cpu_s[name].append(child.cpu_s)
        wall_s[name].append(child.wall_s)
    for name in COMMANDS:
        (cpu, base_cpu), (wall, base_wall) = (
            [statistics.median(seconds[n][WARM_UP_ROUNDS:]) for n in (name, BASE)]
            for seconds in (cpu_s, wall_s)
        )
        yield {
            "command": name,
            "cpu_ms": round(cpu * 1e3, 1),
            "cpu_ratio": round(cpu / base_cpu, 3),
            "wall_ms": round(wall * 1e3, 1),
            "wall_ratio": round(wall / base_wall, 3),
        }


MEASUREMENT = Measurement(COLUMNS, measure_rows, add_options)
