"""Measure from how many compiles that hang in Python code ``attach --graphs`` gets the graphs.

python -m benchmarks run attached_graphs [--only PLACE ...]

A function of the compiler that a place names runs a loop in Python without end, in a program that
was started without reprokit, with static and with symbolic sizes, and in backward with static ones.
``reprokit attach --graphs`` reads the program once.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from ...hang_captures import KINDS_PROGRAM, wait_until_it_hangs
from ...harness import quiet_environ, run_reprokit, show_progress
from ...measurement import Measurement, add_only_option
from ...results import Column, Row

COLUMNS = (
    Column("programs", "programs that hang"),
    Column("recorded", "graphs recorded"),
    Column("symbolic", "of them: with symbolic sizes"),
    Column("alive", "programs that went on"),
)
PLACES = (
    "guards",
    "aot",
    "partition",
    "lowering",
    "scheduler",
    "codegen",
    "joint",
    "pre_grad",
    "backend",
    "bw_pass",
    "bw_lowering",
)
"""Of the phases of tests/hangs/kinds.py, those in which there is a graph."""
PROGRAM = """
import sys, types

folder, place, is_dynamic = sys.argv[1:]
sys.path.insert(0, folder)
import kinds

def loop(seconds):
    n = 0
    while True:
        n = hash(n) + 1

kinds.time = types.SimpleNamespace(sleep=loop)
if is_dynamic == "True":
    import torch._dynamo
    torch._dynamo.config.assume_static_by_default = False
kinds.in_phase(place)
"""
WARM_UP_CPU_S = 12.0


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the choice of places."""
    add_only_option(parser, PLACES, "place")


def measure_rows(options: argparse.Namespace) -> Iterator[Row]:
    """Yield one row for all programs."""
    recorded, symbolic, alive, count = 0, 0, 0, 0
    for place in options.only:
        # with symbolic sizes the backward is compiled together with the forward
        for is_dynamic in (False,) if place.startswith("bw_") else (False, True):
            graphs, has_symbols, is_alive = attach_once(place, is_dynamic)
            count, alive = count + 1, alive + is_alive
            recorded, symbolic = recorded + (graphs > 0), symbolic + has_symbols
            sizes = "symbolic" if is_dynamic else "static"
            show_progress(f"{place}, {sizes} sizes: {graphs} graphs{', ENDED' * (not is_alive)}")
    yield {"programs": count, "recorded": recorded, "symbolic": symbolic, "alive": alive}


def attach_once(place: str, is_dynamic: bool) -> tuple[int, bool, bool]:
    """Return the number of recorded graphs, whether one has symbolic sizes, and whether the program
    goes on.
    """
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        process = subprocess.Popen(
            [sys.executable, "-c", PROGRAM, str(KINDS_PROGRAM.parent), place, str(is_dynamic)],
            env=quiet_environ(TORCHINDUCTOR_CACHE_DIR=f"{folder}/cache", OMP_NUM_THREADS="1"),
            cwd=folder,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        try:
            wait_until_it_hangs(process.pid, WARM_UP_CPU_S)
            words = ["--graphs", "--yes", "--stall", "1", "--budget", "0.1"]
            done = run_reprokit("attach", str(process.pid), *words, "--output-dir", f"{folder}/out")
            is_alive = process.poll() is None
        finally:
            process.kill()
            process.wait()
        folders = list(Path(folder).glob("out/run-*/graphs/[0-9]*"))
        inputs = [(one / "inputs.json").read_text() for one in folders]
    if "verdict" not in done.answer:
        show_progress(f"{place}: {done.last_error}")
    return len(folders), any('"symbol"' in text for text in inputs), is_alive


MEASUREMENT = Measurement(COLUMNS, measure_rows, add_options)
