"""Measure whether hangs made to order get the right cause and phase, and leave no process behind.

python -m benchmarks run hangs [--only KIND ...] [--stall 8]

The kinds are those of tests/hangs/kinds.py that hang. Each runs under ``reprokit capture``. The
progress has a line for each kind, and the table has one row for all of them.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator

from tests.hangs.kinds import EXPECTED

from ...hang_captures import HangCapture, capture_hang_kind
from ...harness import show_progress
from ...measurement import Measurement, add_only_option, positive_seconds
from ...results import Column, Row

DEADLINE_S = 300.0
COLUMNS = (
    Column("kinds", "kinds of hangs"),
    Column("right_causes", "right cause"),
    Column("right_phases", "right phase"),
    Column("stacks_s", "seconds to the first stacks, at most", 2),
    Column("evidence_s", "seconds to all evidence, at most", 1),
    Column("survivors", "processes left"),
)


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the choice of kinds and the stall."""
    add_only_option(parser, [kind for kind, (causes, _) in EXPECTED.items() if causes], "kind")
    parser.add_argument(
        "--stall",
        type=positive_seconds,
        default=8.0,
        metavar="SECONDS",
        help="default: 8; the option of capture",
    )


def measure_rows(options: argparse.Namespace) -> Iterator[Row]:
    """Yield one row for all kinds. Seconds count from the decision to end the run."""
    captures: list[HangCapture] = []
    for kind in options.only:
        capture = capture_hang_kind(kind, options.stall, DEADLINE_S)
        captures.append(capture)
        show_progress(
            f"{kind:<20} {capture.verdict:<13} cause {capture.cause} ({_mark(capture.is_cause_right)}),"
            f" phase {capture.phase} ({_mark(capture.is_phase_right)}), stacks after"
            f" {capture.stacks_s:.2f} s, verdict after {capture.evidence_s:.2f} s,"
            f" {capture.survivors} processes left"
            + ("" if capture.is_cause_right and capture.is_phase_right else f"; {capture.reason}")
        )
    yield {
        "kinds": len(captures),
        "right_causes": sum(capture.is_cause_right for capture in captures),
        "right_phases": sum(capture.is_phase_right for capture in captures),
        "stacks_s": max(capture.stacks_s for capture in captures),
        "evidence_s": max(capture.evidence_s for capture in captures),
        "survivors": sum(capture.survivors for capture in captures),
    }


def _mark(is_right: bool) -> str:
    return "right" if is_right else "WRONG"


MEASUREMENT = Measurement(COLUMNS, measure_rows, add_options)
