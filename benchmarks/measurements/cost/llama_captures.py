"""Measure what the capture of a model of 40 billion parameters costs beside a plain compile.

python -m benchmarks run llama_captures [--only JOB ...] [--beside FOLDER]

The plain program builds the model on fake weights and compiles it to the end of code generation,
without reprokit's hooks. ``--beside`` names the source tree of an older reprokit, which captures the
same model right before.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ...harness import (
    ROOT,
    MeasurementFailed,
    quiet_environ,
    run_child,
    run_reprokit,
    show_progress,
)
from ...measurement import Measurement, add_beside_option, add_only_option
from ...results import Column, Row

COLUMNS = (
    Column("job", "capture"),
    Column("plain_cpu_s", "plain compile, CPU s", 1),
    Column("goal_cpu_s", "goal, CPU s", 1),
    Column("old_cpu_s", "CPU s before", 1),
    Column("cpu_s", "CPU s", 1),
    Column("old_wall_s", "s before", 0),
    Column("wall_s", "s", 0),
    Column("old_peak_mb", "MB before", 0),
    Column("peak_mb", "MB", 0),
    Column("verdict", "verdict"),
)
PLAIN = """
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from reprokit.agent.models import llama
from reprokit.agent.torch_hooks import codegen_only
from reprokit.core.shared import zoo

knobs = {**zoo.ZOO["llama40b"].knobs, "layers": LAYERS}
dtype = getattr(torch, knobs.pop("dtype"))
codegen_only.stop_after_codegen()
with FakeTensorMode(), torch.no_grad():
    model, inputs = llama.make(**knobs)
    torch.compile(model.to(dtype).eval())(*inputs)
"""
"""Fake tensors have no addresses, so torch alone cannot load the module that Inductor writes."""
JOBS: dict[str, tuple[int, tuple[str, ...]]] = {
    "llama40b": (48, ()),
    "llama40b, 96 layers": (96, ("--layers", "96")),
    "llama40b, 8 ranks, H100": (
        0,
        ("--tensor-parallel-gpus", "8", "--gpu", "h100", "--kernels", "none"),
    ),
}
"""Name -> the layers of the plain compile (0: none is measured) and the options of the capture."""
RANKS_GOAL_CPU_S = 90.0
MAX_RATIO, MAX_EXTRA_S = 1.1, 5.0
"""The goal: at most this many times the plain compile, and this many CPU seconds more."""


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the choice of jobs, and the older reprokit."""
    add_only_option(parser, list(JOBS), "capture")
    add_beside_option(parser, "captures each model")


def measure_rows(options: argparse.Namespace) -> Iterator[Row]:
    """Yield one row for each job."""
    for name in options.only:
        layers, words = JOBS[name]
        plain_s = _plain_cpu_s(layers) if layers else None
        older = _capture(words, options.beside) if options.beside else {}
        newer = _capture(words, ROOT)
        goal = RANKS_GOAL_CPU_S if plain_s is None else MAX_RATIO * plain_s + MAX_EXTRA_S
        show_progress(f"{name}: {newer['cpu_s']:.1f} CPU s, goal {goal:.1f}")
        yield {
            "job": name,
            "plain_cpu_s": plain_s,
            "goal_cpu_s": goal,
            **{f"old_{key}": value for key, value in older.items() if key != "verdict"},
            **newer,
        }


def _plain_cpu_s(layers: int) -> float:
    program = PLAIN.replace("LAYERS", str(layers))
    done = run_child([sys.executable, "-c", program], environ=quiet_environ())
    if done.status != 0:
        raise MeasurementFailed(f"the plain compile failed: {done.last_error}")
    return done.cpu_s


def _capture(words: tuple[str, ...], tree: Path) -> dict[str, Any]:
    with tempfile.TemporaryDirectory(prefix="llama-", ignore_cleanup_errors=True) as folder:
        environ = quiet_environ()
        environ["PYTHONPATH"] = environ["PYTHONPATH"].replace(str(ROOT), str(tree))
        done = run_reprokit(
            "capture",
            "--model",
            "llama40b",
            *words,
            "--output-dir",
            Path(folder) / "out",
            environ=environ,
            cwd=Path(folder),  # python -m would import the reprokit of this folder
            tree=tree,
        )
    if done.kind != "ok":
        raise MeasurementFailed(f"the verdict is {done.kind}: {done.last_error}")
    return {
        "cpu_s": done.cpu_s,
        "wall_s": done.wall_s,
        "peak_mb": done.answer["peak_rss_bytes"] / 1e6,
        "verdict": done.kind,
    }


MEASUREMENT = Measurement(COLUMNS, measure_rows, add_options)
