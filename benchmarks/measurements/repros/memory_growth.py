"""Measure which leaks ``reprokit capture --calls`` finds, and whether it finds one where none is.

python -m benchmarks run memory_growth [--only NAME ...] [--calls 200]

The targets are those of benchmarks/cases/known_bugs/growing_memory.py: 12 leaks and 12 healthy
programs. A leak is found if the verdict names what grows, what holds it, whether it grows in eager
too, and the line that makes it, where Python can see that line.
"""

from __future__ import annotations

import argparse
import linecache
import tempfile
from collections.abc import Iterator

from ...cases.growth_cases import HEALTHY, LEAKS
from ...harness import CASES, run_reprokit
from ...measurement import Measurement, add_only_option
from ...results import Column, Row

PROGRAMS = CASES / "known_bugs" / "growing_memory.py"
QUICK = ("--no-minimize", "--no-ablate", "--no-compare", "--no-trace")
COLUMNS = (
    Column("target", "target"),
    Column("planted", "planted"),
    Column("verdict", "verdict"),
    Column("grows", "what grows"),
    Column("slope", "with each call", 2),
    Column("low", "from", 2),
    Column("high", "to", 2),
    Column("eager_slope", "in eager", 2),
    Column("holder", "held by"),
    Column("line", "line"),
    Column("responsible", "responsible"),
    Column("right", "right"),
    Column("cpu_s", "CPU s", 0),
)


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the choice of targets and the number of calls."""
    add_only_option(parser, (*LEAKS, *HEALTHY), "target")
    parser.add_argument("--calls", type=int, default=200, help="the number of calls")


def measure_rows(options: argparse.Namespace) -> Iterator[Row]:
    """Yield a row for each target."""
    for name in options.only:
        with tempfile.TemporaryDirectory() as folder:
            words = ("--calls", str(options.calls), *QUICK, "--output-dir", folder)
            done = run_reprokit("capture", f"{PROGRAMS}:{name}", *words)
        verdict = done.answer.get("verdict") or {}
        growing = ((done.answer.get("call_growth") or {}).get("growing") or [{}])[0]
        what = f"{'objects of ' * bool(growing.get('is_type'))}{growing.get('name', '')}"
        place, _, number = (verdict.get("work") or {}).get("line", "").rpartition(":")
        line = linecache.getline(place, int(number)).strip() if number else ""
        planted, held = LEAKS.get(name), verdict.get("detail", "").partition(" at /")[0]
        if planted is None:
            has_samples = bool((done.answer.get("call_growth") or {}).get("samples"))
            is_right = has_samples and done.kind != "memory-growth"
        else:
            is_right = (
                done.kind == "memory-growth"
                and planted.grows in what
                and planted.holder in held
                and bool(planted.holder) == bool(held)
                and planted.line in line
                and planted.is_in_eager == growing.get("is_in_eager")
            )
        yield {
            "target": name,
            "planted": "leak" if planted else "healthy",
            "verdict": done.kind,
            "grows": what or None,
            **{key: growing.get(key) for key in ("slope", "low", "high", "eager_slope")},
            "holder": held.removeprefix("held by ") or None,
            "line": line or None,
            "responsible": verdict.get("responsible") or None,
            "right": "yes" if is_right else "no",
            "cpu_s": round(done.cpu_s, 1),
        }


MEASUREMENT = Measurement(COLUMNS, measure_rows, add_options)
