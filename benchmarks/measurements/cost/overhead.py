"""Measure what the hooks of reprokit add to the CPU seconds of a compile.

python -m benchmarks run overhead [--rounds 5] [--only NAME ...]

Each model is compiled in fresh processes in three ways, in turns: plain (no reprokit), with hooks
(no TORCH_TRACE), and in full (hooks and TORCH_TRACE). Caches are off and one thread compiles, so
that the CPU seconds are those of the compile. The table has the median of each way, and the median
of the ratios within a round. Wall-clock time is not used.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import tempfile
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

from reprokit.host.request import run_request
from reprokit.host.request.target import Target
from reprokit.host.run import launch, run_directory

from ...harness import ROOT, MeasurementFailed, in_turns, median_ratio, run_child
from ...measurement import Measurement, add_only_option, positive_int
from ...results import Column, Row

Way = Literal["plain", "hooks", "full"]
WAYS: tuple[Way, ...] = ("plain", "hooks", "full")
_HEAD = f"""
import sys, torch
sys.path.insert(0, {str(ROOT / "reprokit" / "agent" / "models")!r})
import convnet, llama
llama_sizes = dict(
    hidden=64, heads=4, kv_heads=2, intermediate=176, vocab=256, batch_size=2, sequence_length=32
)
"""
MODELS = {
    "llama, 4 layers, inductor": _HEAD
    + """
model, args = llama.make(layers=4, **llama_sizes)
with torch.no_grad():
    torch.compile(model)(*args)
""",
    "convnet, training, inductor": _HEAD
    + """
model, args = convnet.make(layers=4, channels=16, image=16, classes=10, batch_size=2)
torch.compile(model)(*args).sum().backward()
""",
    "llama, 24 layers, aot_eager": _HEAD
    + """
model, args = llama.make(layers=24, **llama_sizes)
with torch.no_grad():
    torch.compile(model, backend="aot_eager")(*args)
""",
}
COLUMNS = (
    Column("model", "model"),
    Column("plain_cpu_s", "plain, CPU s", 2),
    Column("hooks_cpu_s", "hooks, CPU s", 2),
    Column("full_cpu_s", "full, CPU s", 2),
    Column("hooks_ratio", "hooks / plain", 2),
    Column("full_ratio", "full / plain", 2),
)


def cpu_seconds_of(code: str, way: Way, cache: Path) -> float:
    """Return the CPU seconds of one fresh process and its children."""
    settings = {
        "TORCHINDUCTOR_CACHE_DIR": str(cache),
        "TORCHINDUCTOR_FORCE_DISABLE_CACHES": "1",
        "TORCHINDUCTOR_COMPILE_THREADS": "1",
        "OMP_NUM_THREADS": "1",
    }
    with tempfile.TemporaryDirectory() as folder:
        run_dir = Path(folder)
        run_directory.make_folders(run_dir)
        with launch.copied_agent(run_dir, frozenset()) as agent:
            environ = dict(os.environ)
            if way != "plain":
                request = run_request.Request(
                    Target("command", command=("python",)), has_trace=way == "full"
                )
                environ, _ = launch.target_environment(request, run_dir, agent, uuid.uuid4().hex)
            environ.pop("PYTHONUNBUFFERED", None)
            child = run_child([sys.executable, "-c", code], environ={**environ, **settings})
            if child.status:
                raise MeasurementFailed(f"the compile failed: {child.last_error}")
            if way != "plain" and not list((run_dir / "journal").glob("*.jsonl")):
                raise MeasurementFailed("the hooks did not reach the process")
    return child.cpu_s


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the number of rounds and the choice of models."""
    parser.add_argument("--rounds", type=positive_int, default=5, help="default: 5")
    add_only_option(parser, MODELS, "model")


def measure_rows(options: argparse.Namespace) -> Iterator[Row]:
    """Yield a row for each model."""
    with tempfile.TemporaryDirectory() as cache:
        for model in options.only:
            # builds the C++ that the caches keep, outside of what is counted
            cpu_seconds_of(MODELS[model], "plain", Path(cache))
            cpu_s: dict[Way, list[float]] = {way: [] for way in WAYS}
            for way in in_turns(WAYS, options.rounds):
                cpu_s[way].append(cpu_seconds_of(MODELS[model], way, Path(cache)))
            row: Row = {"model": model}
            row |= {f"{way}_cpu_s": round(statistics.median(cpu_s[way]), 2) for way in WAYS}
            for way in WAYS[1:]:
                row[f"{way}_ratio"] = round(median_ratio(cpu_s[way], cpu_s["plain"]), 3)
            yield row


MEASUREMENT = Measurement(COLUMNS, measure_rows, add_options)
