"""Compile for GPUs that are not there: at what cost, how many kernels, and how it grows with the
number of layers.

python benchmarks/simulate.py [--gpus h100,b200] [--layers 2,8,24,48] [--train] [--json FILE]

Each row is one ``reprokit capture --gpu`` with everything on but minimization. CPU seconds of the
target are those to the end of code generation; the kernels are then compiled one by one
(``--kernels all``).
"""

from __future__ import annotations

import argparse
import json
import math
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

MODELS = (
    "llama-tiny",
    "llama-tiny --train",
    "llama-tiny --dynamic",
    "llama-decode",
    "convnet --layers 3",
)


def measure(words: list[str]) -> dict[str, Any]:
    """One capture."""
    with tempfile.TemporaryDirectory() as place:
        command = [
            sys.executable,
            "-m",
            "reprokit",
            "capture",
            "--json",
            "--no-minimize",
            "--no-ablate",
        ]
        done = subprocess.run(
            [*command, "--kernels", "all", "--output-dir", place, *words],
            capture_output=True,
            text=True,
            check=False,
        )
        if not done.stdout.startswith("{") or not (told := json.loads(done.stdout))["run_dir"]:
            return {"verdict": done.stderr.strip()[-200:]}
        run = Path(told["run_dir"])
        seen = json.loads((run / "observation.json").read_text())
        compiled = (
            json.loads((run / "kernels.json").read_text())
            if (run / "kernels.json").exists()
            else []
        )
        return {
            "verdict": told["verdict"]["kind"],
            "cpu_s": round(seen["cpu_s"], 1),
            "peak_mb": round(seen["peak_rss_bytes"] / 1e6),
            "dynamo": sum(g["nodes"] for g in seen["graphs"] if g["level"] == "dynamo"),
            "aten": sum(g["nodes"] for g in seen["graphs"] if g["level"] == "aten"),
            "programs": len(compiled),
            "compiled": sum(row["answer"] == "compiled" for row in compiled),
            "kernel_cpu_s": round(sum(row["cpu_s"] for row in compiled), 1),
            "kernel_peak_mb": round(
                max((row["peak_rss_bytes"] for row in compiled), default=0) / 1e6
            ),
        }


def main() -> None:
    """Print a row for each model and GPU, then the growth."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--gpus", default="h100,b200")
    parser.add_argument("--layers", default="2,8,24,48")
    parser.add_argument(
        "--train", action="store_true", help="the growth of training instead of inference"
    )
    parser.add_argument("--json", type=Path)
    asked = parser.parse_args()
    train = ["--train"] * asked.train
    rows = []
    print(
        "| model | GPU | verdict | CPU s | MB | Dynamo, ATen nodes | kernel programs, compiled |"
        " CPU s | MB |"
    )
    print("| --- | --- | --- | --- | --- | --- | --- | --- | --- |")
    layers = [int(n) for n in asked.layers.split(",")]
    wanted = [(m.split(), g) for m in MODELS for g in asked.gpus.split(",")]
    wanted += [(["llama40b", "--layers", str(n), *train], asked.gpus.split(",")[0]) for n in layers]
    for words, gpu in wanted:
        row = measure(["--model", *words, "--gpu", gpu])
        rows.append({"model": " ".join(words), "gpu": gpu, **row})
        cells = [row.get(k, "") for k in ("verdict", "cpu_s", "peak_mb")]
        nodes = f"{row.get('dynamo')}, {row.get('aten')}"
        kernels = f"{row.get('programs')}, {row.get('compiled')}"
        cells += [nodes, kernels, row.get("kernel_cpu_s", ""), row.get("kernel_peak_mb", "")]
        print(f"| {' '.join(words)} | {gpu} | {' | '.join(map(str, cells))} |", flush=True)
    costs = [r["cpu_s"] for r in rows[-len(layers) :] if "cpu_s" in r]
    if len(costs) == len(layers) > 1:
        slope = math.log(costs[-1] / costs[0]) / math.log(layers[-1] / layers[0])
        last = math.log(costs[-1] / costs[-2]) / math.log(layers[-1] / layers[-2])
        print(f"exponent of growth with layers: {slope:.2f} over all, {last:.2f} over the last two")
    if asked.json:
        asked.json.write_text(json.dumps(rows, indent=1))


if __name__ == "__main__":
    main()
