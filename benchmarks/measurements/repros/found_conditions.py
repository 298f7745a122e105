"""Measure whether ``reprokit capture`` finds the conditions that a failure needs, and at what cost.

python -m benchmarks run found_conditions [--only CASE ...]

Each program has its own backend, which raises under a condition that is known. The search must name
exactly this condition. Its CPU seconds are compared with those of the reduction, which are its
limit.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from ...harness import MeasurementFailed, quiet_environ, run_reprokit, show_progress
from ...measurement import Measurement, add_only_option
from ...results import Column, Row

COLUMNS = (
    Column("case", "the program fails if"),
    Column("needed", "found"),
    Column("is_right", "right"),
    Column("lines", "lines that the repro sets or checks"),
    Column("proved", "proved"),
    Column("search_s", "search, s", 1),
    Column("reduction_cpu_s", "reduction, CPU s", 1),
)
PROGRAM = """
import os
import torch
import torch._dynamo.config
import torch._inductor.config

def picky(gm, inputs):
    if CONDITION:
        raise RuntimeError("fails under a condition")
    return gm.forward

def f(x):
    y = torch.relu(x) + 1
    for _ in range(6):
        y = y * 2 + x
    return y.sum()

torch.compile(f, backend=picky)(torch.ones(8))
"""


@dataclass(frozen=True)
class Case:
    """A condition, and what the search must find."""

    condition: str
    needed: tuple[str, ...] = ()
    together: tuple[str, ...] = ()


_ATEN = "torch.backends.cpu.get_cpu_capability() != 'DEFAULT'"
_DTYPE = "torch.get_default_dtype() is torch.float32"
_MATH = "not torch._inductor.config.cpp.enable_unsafe_math_opt_flag"
CASES = {
    "nothing is changed": Case("True"),
    "there are two threads": Case("torch.get_num_threads() > 1", ("OpenMP threads",)),
    "there are two CPUs": Case("len(os.sched_getaffinity(0)) > 1", ("visible CPUs",)),
    "ATen has vector instructions": Case(_ATEN, ("vector instructions of ATen and Inductor",)),
    "Inductor has vector instructions": Case(
        "torch._inductor.config.cpp.simdlen != 0", ("vector instructions",)
    ),
    "the default dtype is float32": Case(_DTYPE, ("default dtype",)),
    "fast math is off": Case(_MATH, ("fast math",)),
    "caches are on": Case("not torch._inductor.config.force_disable_caches", ("compiler caches",)),
    "shapes are static first": Case(
        "torch._dynamo.config.assume_static_by_default", ("dynamic shapes",)
    ),
    "the hash seed is random": Case("os.environ.get('PYTHONHASHSEED') != '1'", ("hash seed",)),
    "5 GiB can be allocated": Case(
        "torch.empty(5 * 2**30, dtype=torch.uint8).numel()", ("free memory",)
    ),
    "two of them are as usual": Case(f"{_DTYPE} and {_MATH}", ("default dtype", "fast math")),
    "one of two is as usual": Case(f"{_DTYPE} or {_MATH}", (), ("default dtype", "fast math")),
}


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the choice of cases."""
    add_only_option(parser, list(CASES), "case")


def measure_rows(options: argparse.Namespace) -> Iterator[Row]:
    """Yield one row for each case."""
    for name in options.only:
        with tempfile.TemporaryDirectory(prefix="conditions-", ignore_cleanup_errors=True) as path:
            yield {"case": name, **_measure_case(CASES[name], Path(path))}


def _measure_case(case: Case, folder: Path) -> Row:
    script = folder / "script.py"
    script.write_text(PROGRAM.replace("CONDITION", case.condition))
    done = run_reprokit(
        "capture",
        "--output-dir",
        folder / "out",
        "--",
        sys.executable,
        str(script),
        environ={**quiet_environ(), "OMP_NUM_THREADS": "2"},
        cwd=folder,
    )
    minimized = done.answer.get("minimized") or {}
    found = minimized.get("conditions")
    if not found:
        raise MeasurementFailed(f"no conditions were found: {done.last_error}")
    steps = (Path(done.answer["run_dir"]) / "steps.jsonl").read_text().splitlines()
    search = next(s for s in map(json.loads, steps) if s["step"] == "conditions")
    names = [name for name, _ in found["needed"]]
    either = [name for name, _ in found["together"]]
    show_progress(found["sentence"])
    return {
        "needed": ", ".join(names) or (f"one of: {', '.join(either)}" if either else "nothing"),
        "is_right": "yes"
        if (set(names), set(either)) == (set(case.needed), set(case.together))
        else "no",
        "lines": len(found["lines"]),
        "proved": f"{minimized['proof']['hits']} of {minimized['proof']['runs']}",
        "search_s": search["wall_s"],
        "reduction_cpu_s": minimized["cpu_s"],
    }


def summarise_rows(rows: Sequence[Row]) -> list[str]:
    """Return how often the conditions are right."""
    right = sum(row["is_right"] == "yes" for row in rows)
    return [f"The conditions are right in {right} of {len(rows)} cases."]


MEASUREMENT = Measurement(COLUMNS, measure_rows, add_options, summarise_rows)
