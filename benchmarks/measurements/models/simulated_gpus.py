"""Measure what a compile for a simulated GPU costs, and how many of its kernel programs compile.

python -m benchmarks run simulated_gpus [--gpus h100 b200] [--layers 2 8 24 48] [--train]
                                        [--only MODEL ...]

Each row is one ``reprokit capture --gpu GPU --kernels all`` without minimization and ablation. The
CPU seconds of the target count up to the end of code generation. A kernel program is one
configuration of one Triton kernel; each is then compiled to a cubin. ``--layers`` are the sizes of
llama40b on the first GPU. The notes have the exponent with which the CPU seconds grow over these
sizes.
"""

from __future__ import annotations

import argparse
import math
import tempfile
from collections.abc import Iterator, Sequence

from ...harness import run_reprokit
from ...measurement import Measurement, add_only_option, positive_int
from ...results import Column, Row

MODELS = (
    "llama-tiny",
    "llama-tiny --train",
    "llama-tiny --dynamic",
    "llama-decode",
    "convnet --layers 3",
)
COLUMNS = (
    Column("model", "model"),
    Column("gpu", "GPU"),
    Column("verdict", "verdict"),
    Column("cpu_s", "target, CPU s", 1),
    Column("peak_mb", "target, MB"),
    Column("dynamo_nodes", "Dynamo nodes"),
    Column("aten_nodes", "ATen nodes"),
    Column("kernel_programs", "kernel programs"),
    Column("compiled_programs", "compiled"),
    Column("kernel_cpu_s", "kernels, CPU s", 1),
    Column("kernel_peak_mb", "largest kernel, MB"),
)


def capture_for_gpu(model: str, gpu: str) -> Row:
    """Return the row of one capture."""
    words = ("--no-minimize", "--no-ablate", "--kernels", "all")
    with tempfile.TemporaryDirectory() as folder:
        done = run_reprokit(
            "capture", *words, "--output-dir", folder, "--model", *model.split(), "--gpu", gpu
        )
        observation = done.run_file("observation.json")
        kernels = done.run_file("kernels.json") or []
    if observation is None:
        return {"model": model, "gpu": gpu, "verdict": done.last_error[-200:]}

    def nodes_of(level: str) -> int:
        return sum(graph["nodes"] for graph in observation["graphs"] if graph["level"] == level)

    return {
        "model": model,
        "gpu": gpu,
        "verdict": done.kind,
        "cpu_s": round(observation["cpu_s"], 1),
        "peak_mb": round(observation["peak_rss_bytes"] / 1e6),
        "dynamo_nodes": nodes_of("dynamo"),
        "aten_nodes": nodes_of("aten"),
        "kernel_programs": len(kernels),
        "compiled_programs": sum(kernel["answer"] == "compiled" for kernel in kernels),
        "kernel_cpu_s": round(sum(kernel["cpu_s"] for kernel in kernels), 1),
        "kernel_peak_mb": round(max((k["peak_rss_bytes"] for k in kernels), default=0) / 1e6),
    }


def growth_exponents(layers: Sequence[int], cpu_s: Sequence[float]) -> tuple[float, float]:
    """Return the exponent of growth over all sizes, and over the last two."""

    def exponent(first: int) -> float:
        return math.log(cpu_s[-1] / cpu_s[first]) / math.log(layers[-1] / layers[first])

    return exponent(0), exponent(-2)


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the GPUs, the sizes of llama40b and the choice of models."""
    parser.add_argument("--gpus", nargs="+", default=["h100", "b200"], help="default: h100 b200")
    parser.add_argument(
        "--layers", nargs="*", type=positive_int, default=[2, 8, 24, 48], help="default: 2 8 24 48"
    )
    parser.add_argument("--train", action="store_true", help="llama40b is trained")
    add_only_option(parser, MODELS, "model")


def measure_rows(options: argparse.Namespace) -> Iterator[Row]:
    """Yield a row for each model and GPU, then one for each size of llama40b."""
    for model in options.only:
        for gpu in options.gpus:
            yield capture_for_gpu(model, gpu)
    for layers in options.layers:
        train = " --train" if options.train else ""
        yield capture_for_gpu(f"llama40b --layers {layers}{train}", options.gpus[0])


def summarise_rows(rows: Sequence[Row]) -> list[str]:
    """Return a sentence about growth with the layers of llama40b."""
    costs: dict[int, float] = {}
    for row in rows:
        words = str(row["model"]).split()
        if words[0] == "llama40b" and isinstance(cpu_s := row.get("cpu_s"), float):
            costs[int(words[2])] = cpu_s
    if len(costs) < 2:
        return []
    over_all, over_last = growth_exponents(list(costs), list(costs.values()))
    return [
        f"CPU seconds of llama40b grow with an exponent of {over_all:.2f} over all sizes and of"
        f" {over_last:.2f} over the last two."
    ]


MEASUREMENT = Measurement(COLUMNS, measure_rows, add_options, summarise_rows)
