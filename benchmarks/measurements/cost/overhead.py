"""Measure what the hooks of reprokit add to the CPU seconds and the memory of a compile.

python -m benchmarks run overhead [--rounds 5] [--only NAME ...]

Each model is compiled in fresh processes in three ways, in turns: plain (no reprokit), with hooks
(no TORCH_TRACE), and in full (hooks and TORCH_TRACE). Caches are off and one thread compiles, so
that the CPU seconds are those of the compile. The table has the median of each way, and the median
of the ratios within a round. Wall-clock time is not used.

The memory is the difference of the largest resident memory of the process, in full and plain. The
record is what the process left in the run directory.
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
from typing import Literal, NamedTuple

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
_SMALL = """
import torch

for number in range({count}):
    names = {{"torch": torch}}
    exec(
        "def function(x, w):\\n"
        f"    y = torch.relu(x @ w + {{number}}.5)\\n"
        f"    return (torch.sin(y) * {{number + 1}} + x).sum(dim={{number % 2}})\\n",
        names,
    )
    torch.compile(names["function"], backend="{backend}")(torch.ones(8, 8), torch.ones(8, 8))
"""
_TAIL = """
import resource
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
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
    "50 small graphs, inductor": _SMALL.format(count=50, backend="inductor"),
    "200 small graphs, eager": _SMALL.format(count=200, backend="eager"),
    "2,000 small graphs, eager": _SMALL.format(count=2000, backend="eager"),
}
COLUMNS = (
    Column("model", "model"),
    Column("plain_cpu_s", "plain, CPU s", 2),
    Column("hooks_cpu_s", "hooks, CPU s", 2),
    Column("full_cpu_s", "full, CPU s", 2),
    Column("hooks_ratio", "hooks / plain", 2),
    Column("full_ratio", "full / plain", 2),
    Column("memory_mb", "memory, MB", 0),
    Column("record_mb", "record, MB", 1),
)


class Cost(NamedTuple):
    """What one fresh process and its children took."""

    cpu_s: float
    memory_mb: float
    record_mb: float


def cost_of(code: str, way: Way, cache: Path) -> Cost:
    """Run a program in one way, in a fresh process."""
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
            child = run_child([sys.executable, "-c", code + _TAIL], environ={**environ, **settings})
            if child.status:
                raise MeasurementFailed(f"the compile failed: {child.last_error}")
            if way != "plain" and not list((run_dir / "journal").glob("*.jsonl")):
                raise MeasurementFailed("the hooks did not reach the process")
        record = sum(path.stat().st_size for path in run_dir.rglob("*") if path.is_file())
    return Cost(child.cpu_s, int(child.out.split()[-1]) / 1000, record / 1e6)


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the number of rounds and the choice of models."""
    parser.add_argument("--rounds", type=positive_int, default=5, help="default: 5")
    add_only_option(parser, MODELS, "model")


def measure_rows(options: argparse.Namespace) -> Iterator[Row]:
    """Yield a row for each model."""
    with tempfile.TemporaryDirectory() as cache:
        for model in options.only:
            # builds the C++ that the caches keep, outside of what is counted
            cost_of(MODELS[model], "plain", Path(cache))
            costs: dict[Way, list[Cost]] = {way: [] for way in WAYS}
            for way in in_turns(WAYS, options.rounds):
                costs[way].append(cost_of(MODELS[model], way, Path(cache)))
            cpu_s = {way: [cost.cpu_s for cost in of_way] for way, of_way in costs.items()}
            row: Row = {"model": model}
            row |= {f"{way}_cpu_s": round(statistics.median(cpu_s[way]), 2) for way in WAYS}
            for way in WAYS[1:]:
                row[f"{way}_ratio"] = round(median_ratio(cpu_s[way], cpu_s["plain"]), 3)
            of_full = zip(costs["full"], costs["plain"], strict=True)
            row["memory_mb"] = round(
                statistics.median(a.memory_mb - b.memory_mb for a, b in of_full)
            )
            row["record_mb"] = round(costs["full"][-1].record_mb, 2)
            yield row


MEASUREMENT = Measurement(COLUMNS, measure_rows, add_options)
