"""Measure what a nightly run costs beside a bare loop of the same captures.

python -m benchmarks run nightly_throughput [--runs 6] [--turns 2] [--cores]

The suite has ``--runs`` cells that compile something small, and none of them fails. The loop and
the nightly run take turns, on one core. With ``--cores``, a nightly run on one core and one on two
follow.
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

from reprokit.host.system import compiler_cache

from ...harness import ROOT, MeasurementFailed, ReprokitResult, in_turns, run_reprokit
from ...measurement import Measurement, positive_int
from ...results import Column, Row

LOOP, NIGHTLY = "bare loop", "nightly run"
COLUMNS = (
    Column("what", "what"),
    Column("runs", "cells"),
    Column("cores", "cores"),
    Column("turn", "turn"),
    Column("wall_s", "wall s"),
    Column("cpu_s", "CPU s"),
)


def write_suite(folder: Path, runs: int) -> None:
    """Write a suite of ``runs`` cells that compile something small."""
    text = (
        f'[suite]\nname = "bench"\nretries = 0\n[environments.here]\npython = "{sys.executable}"\n'
    )
    for number in range(runs):
        shutil.copy(ROOT / "samples" / "healthy.py", folder / f"healthy{number}.py")
        text += f'[[targets]]\ntarget = "healthy{number}.py:make"\n'
    (folder / "suite.toml").write_text(text)


def run_nightly(folder: Path, cores: int) -> tuple[float, float]:
    """Return the wall and CPU seconds of one nightly run that begins without recorded results."""
    shutil.rmtree(folder / "out", ignore_errors=True)
    done = run_reprokit(
        "nightly",
        "run",
        "suite.toml",
        "--output-dir",
        "out",
        "--cores",
        str(cores),
        cwd=folder,
    )
    _require_success(done)
    return done.wall_s, done.cpu_s


def run_loop(folder: Path, runs: int) -> tuple[float, float]:
    """Return the wall and CPU seconds of the same captures, one after the other. Each gets a copy
    of the kept compiler cache, as a cell of a nightly run does.
    """
    shutil.rmtree(folder / "loop", ignore_errors=True)
    captures = []
    for number in range(runs):
        cache = folder / "loop" / f"cache{number}"
        cache.mkdir(parents=True)
        compiler_cache.copy_cache(compiler_cache.kept_cache_folder(sys.executable), cache)
        done = run_reprokit(
            "capture",
            "--no-minimize",
            "--no-ablate",
            "--output-dir",
            f"loop/{number}",
            "--python",
            sys.executable,
            "--model",
            f"healthy{number}.py:make",
            cwd=folder,
            environ={**os.environ, "TORCHINDUCTOR_CACHE_DIR": str(cache)},
        )
        _require_success(done)
        shutil.rmtree(cache)
        captures.append(done)
    return sum(c.wall_s for c in captures), sum(c.cpu_s for c in captures)


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the number of cells and of turns, and the comparison of cores."""
    parser.add_argument("--runs", type=positive_int, default=6, help="cells; default: 6")
    parser.add_argument("--turns", type=positive_int, default=2, help="default: 2")
    parser.add_argument("--cores", action="store_true", help="compare one core with two")


def measure_rows(options: argparse.Namespace) -> Iterator[Row]:
    """Yield a row for each turn, then the ratio of the medians, then the rows of the cores."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_suite(folder, options.runs)
        run_loop(folder, 1)  # fills the compiler cache and the lists of packages
        ways: dict[str, Callable[[], tuple[float, float]]] = {
            LOOP: lambda: run_loop(folder, options.runs),
            NIGHTLY: lambda: run_nightly(folder, 1),
        }
        seconds: dict[str, list[tuple[float, float]]] = {LOOP: [], NIGHTLY: []}
        for what in in_turns(list(ways), options.turns):
            wall_s, cpu_s = ways[what]()
            seconds[what].append((wall_s, cpu_s))
            yield _row(what, options.runs, 1, len(seconds[what]), wall_s, cpu_s)
        wall_ratio, cpu_ratio = (
            statistics.median(s[i] for s in seconds[NIGHTLY])
            / statistics.median(s[i] for s in seconds[LOOP])
            for i in (0, 1)
        )
        yield {
            "what": f"{NIGHTLY} / {LOOP}",
            "runs": options.runs,
            "cores": 1,
            "wall_s": round(wall_ratio, 2),
            "cpu_s": round(cpu_ratio, 2),
        }
        for cores in (1, 2) if options.cores else ():
            yield _row(NIGHTLY, options.runs, cores, None, *run_nightly(folder, cores))


def _row(what: str, runs: int, cores: int, turn: int | None, wall_s: float, cpu_s: float) -> Row:
    return {
        "what": what,
        "runs": runs,
        "cores": cores,
        "turn": turn,
        "wall_s": round(wall_s, 1),
        "cpu_s": round(cpu_s, 1),
    }


def _require_success(done: ReprokitResult) -> None:
    if done.status:
        raise MeasurementFailed(f"reprokit ended with status {done.status}: {done.last_error}")


MEASUREMENT = Measurement(COLUMNS, measure_rows, add_options)
