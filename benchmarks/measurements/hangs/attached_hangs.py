"""Measure whether hangs of plain processes get the right cause and phase from outside.

python -m benchmarks run attached_hangs [--only KIND ...] [--warm-up 20] [--stall 4] [--native]
    [--prepared]

The kinds are those of tests/hangs/kinds.py that hang. Each runs without reprokit, or with
``--prepared`` and REPROKIT_WATCH=1. ``reprokit attach`` reads it once, when it no longer uses the
CPU or has used it for ``--warm-up`` seconds. The progress has a line for each kind, and the table
has one row for all of them.
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Iterator

from tests.hangs.kinds import EXPECTED

from ...hang_captures import HangAttachment, attach_to_hang_kind
from ...harness import show_progress
from ...measurement import Measurement, add_only_option, positive_seconds
from ...results import Column, Row

COLUMNS = (
    Column("kinds", "kinds of hangs"),
    Column("right_causes", "right cause"),
    Column("right_phases", "right phase"),
    Column("first_answer_s", "seconds to the first answer, median", 2),
    Column("deaths", "processes that ended"),
)


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the choice of kinds, and the seconds before and during the observation."""
    add_only_option(parser, [kind for kind, (causes, _) in EXPECTED.items() if causes], "kind")
    parser.add_argument(
        "--warm-up",
        type=positive_seconds,
        default=20.0,
        metavar="SECONDS",
        help="default: 20; CPU seconds after which a program that uses the CPU hangs",
    )
    parser.add_argument(
        "--stall",
        type=positive_seconds,
        default=4.0,
        metavar="SECONDS",
        help="default: 4; the option of attach",
    )
    parser.add_argument("--native", action="store_true", help="the option of attach")
    parser.add_argument("--prepared", action="store_true", help="with REPROKIT_WATCH=1")


def measure_rows(options: argparse.Namespace) -> Iterator[Row]:
    """Yield one row for all kinds."""
    seen: list[HangAttachment] = []
    for kind in options.only:
        one = attach_to_hang_kind(
            kind, options.warm_up, options.stall, ["--native"] * options.native, options.prepared
        )
        seen.append(one)
        wrong = [
            word
            for word, is_right in (("CAUSE", one.is_cause_right), ("PHASE", one.is_phase_right))
            if not is_right
        ]
        show_progress(
            f"{kind:<20} {one.verdict:<8} cause {one.cause}, phase {one.phase}, first answer after"
            f" {one.first_answer_s:.2f} s{'' if one.is_alive else ', ENDED'}"
            + (f"; WRONG {' and '.join(wrong)}: {one.reason}" if wrong else "")
        )
    yield {
        "kinds": len(seen),
        "right_causes": sum(one.is_cause_right for one in seen),
        "right_phases": sum(one.is_phase_right for one in seen),
        "first_answer_s": statistics.median(one.first_answer_s for one in seen),
        "deaths": sum(not one.is_alive for one in seen),
    }


MEASUREMENT = Measurement(COLUMNS, measure_rows, add_options)
