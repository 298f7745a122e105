"""Measure what a healthy program of a hunt costs beside a bare loop that compiles and compares.

python -m benchmarks run hunt_speed [--targets 60] [--only SOURCE ...]

The bare loop runs the same programs in one process: by eager, compiled, and a comparison of what
both return. Programs that are not healthy are left out on both sides.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ...harness import MeasurementFailed, quiet_environ, run_child, run_reprokit
from ...measurement import Measurement, add_only_option, positive_int
from ...results import Column, Row

COLUMNS = (
    Column("source", "source"),
    Column("programs", "healthy programs"),
    Column("bare_s", "bare loop, CPU s each", 3),
    Column("hunt_s", "hunt, CPU s each", 3),
    Column("ratio", "ratio", 2),
    Column("per_hour", "programs a CPU-hour, with the start"),
)
SOURCES = ("opinfo", "python")
LIMIT_S = 3000.0
BARE_LOOP = """
import json, os, sys, types
import torch

texts = [json.loads(line)["text"] for line in open(sys.argv[1])]
torch._inductor.config.compile_threads = 1
torch.set_num_threads(1)
torch.compile(lambda x: x.sin() + 1)(torch.ones(4))

def run(text, compiles):
    module = sys.modules["bare"] = types.ModuleType("bare")
    exec(text, module.__dict__)
    torch.manual_seed(0)
    made, out = module.make(), []
    model = torch.compile(made["model"], **made["compile"]) if compiles else made["model"]
    for args, kwargs in made["calls"]:
        with torch.set_grad_enabled(made.get("train", False)):
            out.append(model(*args, **kwargs))
        leaves = [t for t in torch.utils._pytree.tree_leaves(out[-1]) if torch.is_tensor(t)]
        if made.get("train") and (need := [t for t in leaves if t.requires_grad]):
            sum(t.abs().float().pow(2).mean() for t in need).backward()
    return out

for number, text in enumerate(texts):
    torch._dynamo.reset()
    began = sum(os.times()[:4])
    try:
        torch.testing.assert_close(run(text, True), run(text, False), equal_nan=True)
    except Exception:
        pass
    print(json.dumps([number, sum(os.times()[:4]) - began]), flush=True)
"""


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the number of programs and the choice of sources."""
    parser.add_argument("--targets", type=positive_int, default=60, help="programs of each source")
    add_only_option(parser, SOURCES, "source")


def measure_rows(options: argparse.Namespace) -> Iterator[Row]:
    """Yield one row for each source."""
    for source in options.only:
        with tempfile.TemporaryDirectory() as folder:
            rows, whole_s = _hunt(source, options.targets, Path(folder) / "hunt")
            bare = _bare_loop(source, Path(folder))
        healthy = [r for r in rows if r["kind"] == "ok" and r["number"] in bare]
        if not healthy:
            raise MeasurementFailed(f"no program of {source} is healthy")
        bare_s = sum(bare[row["number"]] for row in healthy) / len(healthy)
        hunt_s = sum(row["cpu_s"] for row in healthy) / len(healthy)
        yield {
            "source": source,
            "programs": len(healthy),
            "bare_s": bare_s,
            "hunt_s": hunt_s,
            "ratio": hunt_s / bare_s,
            "per_hour": round(3600 * len(rows) / whole_s),
        }


def _bare_loop(source: str, folder: Path) -> dict[int, float]:
    """Return the CPU seconds of each program of a hunt in the bare loop."""
    environ = quiet_environ(TORCHINDUCTOR_CACHE_DIR=str(folder / "cache"))
    words = [sys.executable, "-W", "ignore", "-c", BARE_LOOP, str(folder / "hunt" / "texts.jsonl")]
    done = run_child(words, environ=environ, limit_s=LIMIT_S)
    if done.status != 0:
        raise MeasurementFailed(f"the bare loop of {source} ended with status {done.status}")
    return dict(json.loads(line) for line in done.out.splitlines() if line.startswith("["))


def _hunt(source: str, count: int, folder: Path) -> tuple[list[dict[str, Any]], float]:
    """Return the outcomes of a hunt without captures, and its CPU seconds."""
    words = [
        "hunt",
        "--source",
        source,
        "--targets",
        str(count),
        "--for",
        "149s",
    ]  # too short for a capture
    rows: list[dict[str, Any]] = []
    whole_s = 0.0
    while len(rows) < count:
        before = len(rows)
        done = run_reprokit(*words, "--output-dir", str(folder), limit_s=LIMIT_S)
        whole_s += done.cpu_s
        rows = [json.loads(row) for row in (folder / "outcomes.jsonl").read_text().splitlines()]
        if len(rows) == before:
            raise MeasurementFailed(f"the hunt of {source} does not go on")
    return rows, whole_s


MEASUREMENT = Measurement(COLUMNS, measure_rows, add_options)
