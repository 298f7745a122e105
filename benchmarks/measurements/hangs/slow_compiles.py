"""Measure whether healthy slow compiles are called hangs on a machine that is overloaded.

python -m benchmarks run slow_compiles [--only KIND ...] [--stall 8] [--load 6]

The kinds are those of tests/hangs/kinds.py that end by themselves. Each runs under ``reprokit
capture`` beside ``--load`` spinning processes for each CPU. None may be called a hang.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from collections.abc import Iterator

from tests.hangs.kinds import EXPECTED

from ...hang_captures import HangCapture, capture_hang_kind
from ...harness import show_progress
from ...measurement import Measurement, add_only_option, positive_int, positive_seconds
from ...results import Column, Row

DEADLINE_S = 600.0
COLUMNS = (
    Column("kinds", "kinds of slow compiles"),
    Column("load", "spinning processes for each CPU"),
    Column("stall_s", "stall, seconds", 0),
    Column("called_hangs", "called a hang"),
)


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the choice of kinds, the stall and the load."""
    add_only_option(parser, [kind for kind, (causes, _) in EXPECTED.items() if not causes], "kind")
    parser.add_argument(
        "--stall",
        type=positive_seconds,
        default=8.0,
        metavar="SECONDS",
        help="default: 8; the option of capture",
    )
    parser.add_argument(
        "--load", type=positive_int, default=6, help="spinning processes for each CPU; default: 6"
    )


def measure_rows(options: argparse.Namespace) -> Iterator[Row]:
    """Yield one row for all kinds."""
    spin = [sys.executable, "-c", "while True: pass"]
    spinners = [subprocess.Popen(spin) for _ in range(options.load * (os.cpu_count() or 1))]
    captures: list[HangCapture] = []
    try:
        for kind in options.only:
            capture = capture_hang_kind(kind, options.stall, DEADLINE_S)
            captures.append(capture)
            show_progress(
                f"{kind:<20} {capture.verdict:<13} {capture.wall_s:.0f} s  {capture.reason[:100]}"
            )
    finally:
        for spinner in spinners:
            spinner.kill()
            spinner.wait()
    yield {
        "kinds": len(captures),
        "load": options.load,
        "stall_s": options.stall,
        "called_hangs": sum(capture.verdict == "hang" for capture in captures),
    }


MEASUREMENT = Measurement(COLUMNS, measure_rows, add_options)
