"""Measure which popular model types of transformers compile as one graph, and at what cost.

python -m benchmarks run transformers_compile [--types llama bert] [--backend aot_eager]
                                              [--weights fake] [--python PYTHON]

Each type is one ``reprokit capture hf:TYPE`` with two layers. PYTHON is the interpreter that has
torch and transformers. With ``--weights fake`` the compile goes to the end of code generation, and
nothing runs.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ...harness import run_reprokit
from ...measurement import Measurement
from ...results import Column, Row

POPULAR = (
    "llama mistral qwen2 qwen3 gemma gemma2 phi3 falcon mixtral gpt2 opt bert roberta distilbert"
    " deberta-v2 t5 bart vit clip whisper wav2vec2"
).split()
COLUMNS = (
    Column("type", "type"),
    Column("verdict", "verdict"),
    Column("model_class", "class"),
    Column("weights", "weights"),
    Column("graphs", "graphs"),
    Column("dynamo_nodes", "Dynamo nodes"),
    Column("cpu_s", "CPU s", 1),
)


def journal_events(folder: Path) -> list[dict[str, Any]]:
    """Return the events of all journals of a run."""
    return [
        json.loads(line)
        for path in folder.glob("run-*/journal/*.jsonl")
        for line in path.read_text().splitlines()
    ]


def capture_type(name: str, backend: str, weights: str, python: str) -> Row:
    """Return the row of one capture."""
    words = ("--no-minimize", "--no-trace", "--timeout", "300", "--layers", "2")
    with tempfile.TemporaryDirectory() as folder:
        done = run_reprokit(
            "capture",
            f"hf:{name}",
            *words,
            "--backend",
            backend,
            "--weights",
            weights,
            "--python",
            python,
            "--output-dir",
            folder,
        )
        events = journal_events(Path(folder))
        observation = done.run_file("observation.json") or {}
    last = {event["ev"]: event for event in events}
    graphs = [e for e in events if e["ev"] == "graph" and e["level"] == "dynamo"]
    missing = [reason["why"] for reason in done.answer.get("missing") or ()]
    return {
        "type": name,
        "verdict": done.kind if done.kind != "none" else (missing or [done.last_error])[0],
        "model_class": last.get("hf", {}).get("kind"),
        "weights": last.get("weights", {}).get("kind"),
        "graphs": len(graphs),
        "dynamo_nodes": sum(graph["nodes"] for graph in graphs),
        "cpu_s": observation.get("cpu_s"),
    }


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the types, the backend, the weights and the interpreter."""
    parser.add_argument("--types", nargs="+", metavar="TYPE", default=POPULAR)
    parser.add_argument("--backend", default="inductor", help="default: inductor")
    parser.add_argument(
        "--weights", default="auto", choices=("auto", "real", "fake"), help="default: auto"
    )
    parser.add_argument("--python", default=sys.executable, help="default: the running one")


def measure_rows(options: argparse.Namespace) -> Iterator[Row]:
    """Yield a row for each type."""
    for name in options.types:
        yield capture_type(name, options.backend, options.weights, options.python)


MEASUREMENT = Measurement(COLUMNS, measure_rows, add_options)
