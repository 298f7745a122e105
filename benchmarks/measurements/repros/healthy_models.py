"""Measure whether healthy models get a false verdict when they are compared with eager mode.

python -m benchmarks run healthy_models [--targets 'llama-tiny --train' ...]

The default targets are models of reprokit at small sizes, for inference and training, and popular
types of transformers with two layers and random weights. Each is one ``reprokit capture`` without
minimization and ablation. No verdict but ok is right.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Iterator, Sequence

from ...harness import run_reprokit
from ...measurement import Measurement
from ...results import Column, Row

ZOO = (
    "llama-tiny",
    "llama-tiny --train",
    "llama-tiny --dynamic",
    "llama-tiny --dtype bfloat16",
    "llama-tiny --layers 4 --batch-size 3",
    "convnet --layers 2",
    "convnet --layers 2 --train",
    "convnet --layers 3 --dtype bfloat16",
    "llama-decode",
    "llama-decode --mode reduce-overhead",
)
LIBRARY_TYPES = (
    "llama mistral qwen2 qwen3 gemma gemma2 phi3 falcon gpt2 opt gpt_neox bloom bert roberta"
    " distilbert electra albert t5 bart vit"
).split()
SMALL = "--layers 2 --batch-size 2 --sequence-length 16 --set hidden_size=64"
HEADS = {
    "falcon": "--set num_attention_heads=4",
    "opt": "--set num_attention_heads=4",
    "bert": "--set num_attention_heads=4",
    "roberta": "--set num_attention_heads=4",
    "gpt2": "--set n_head=4",
    "distilbert": "--set n_heads=4",
}
"""Numbers of heads that divide a hidden size of 64."""
TARGETS = [*ZOO, *(f"hf:{t} {SMALL} {HEADS.get(t, '')}".rstrip() for t in LIBRARY_TYPES)]
COLUMNS = (
    Column("target", "target"),
    Column("verdict", "verdict"),
    Column("tensors", "tensors compared"),
    Column("cpu_s", "CPU s", 0),
    Column("reason", "reason, where not ok"),
)


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the targets."""
    parser.add_argument(
        "--targets",
        nargs="+",
        metavar="'TARGET OPTIONS'",
        default=TARGETS,
        help=f"targets of reprokit capture; default: {len(TARGETS)} models",
    )


def measure_rows(options: argparse.Namespace) -> Iterator[Row]:
    """Yield a row for each target."""
    for target in options.targets:
        with tempfile.TemporaryDirectory() as folder:
            done = run_reprokit(
                "capture",
                *target.split(),
                "--no-minimize",
                "--no-ablate",
                "--output-dir",
                folder,
            )
        reason = (done.answer.get("verdict") or {}).get("reason") or done.last_error
        yield {
            "target": target,
            "verdict": done.kind,
            "tensors": (done.answer.get("comparison") or {}).get("tensors", 0),
            "cpu_s": round(done.cpu_s, 1),
            "reason": "" if done.kind == "ok" else reason,
        }


def summarise_rows(rows: Sequence[Row]) -> list[str]:
    """Return how many models were compared, and how many got a false verdict."""
    compared = sum(bool(row["tensors"]) for row in rows)
    wrong = [str(row["target"]) for row in rows if row["verdict"] not in ("ok", "none")]
    return [
        f"{len(rows)} models, {compared} compared, {len(wrong)} with a false verdict"
        + (f": {', '.join(wrong)}." if wrong else ".")
    ]


MEASUREMENT = Measurement(COLUMNS, measure_rows, add_options, summarise_rows)
