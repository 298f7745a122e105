"""Failures that stop no program: found, named, minimized, at what cost; and healthy models, none of
which may be accused.

python benchmarks/silent.py [NAME ...] [--budget 300] [--json FILE] python benchmarks/silent.py
--healthy [NAME ...]

Each failure of benchmarks/silent_cases.py goes through one ``reprokit capture`` with everything on.
CPU seconds are those of all its processes: the run, the comparison, the ladder, the reduction and
the proof. Healthy models are those of the zoo at small sizes, inference and training, and popular
ones of transformers with two layers and real random weights.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
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
LIBRARY = (
    "llama mistral qwen2 qwen3 gemma gemma2 phi3 falcon gpt2 opt gpt_neox bloom bert roberta"
    " distilbert electra albert t5 bart vit"
).split()
SMALL = "--layers 2 --batch-size 2 --sequence-length 16"
HEADS = dict.fromkeys(("falcon", "opt", "bert", "roberta"), "--set num_attention_heads=4")
HEADS |= {"gpt2": "--set n_head=4", "distilbert": "--set n_heads=4"}
"""What divides a hidden size of 64."""
EXPECTED = {
    "acosh_large": "wrong-result",
    "hessian_trace": "wrong-result",
    "shift_clone": "wrong-result",
    "dtype_view": "wrong-result",
    "copy_then_mutate": "wrong-result",
    "gelu_inf": "ok",
    "shift_buried": "wrong-result",
    "copy_buried": "wrong-result",
    "processor_identity": "recompile-limit",
    "counter": "recompile-limit",
    "local_class": "graph-break",
    "early_exit": "graph-break",
}


def run(words: list[str], folder: str) -> tuple[dict[str, Any], float, float]:
    """One capture: what it says, its processor seconds and its seconds."""
    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    command = [
        sys.executable,
        "-m",
        "reprokit",
        "capture",
        "--json",
        "--output-dir",
        folder,
        *words,
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    told = json.loads(done.stdout) if done.stdout.startswith("{") else {"error": done.stderr[-300:]}
    cpu_s = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return told, round(cpu_s, 1), round(time.monotonic() - began, 1)


def failures(names: list[str], budget: float) -> list[dict[str, Any]]:
    """Print a table row for each failure as it is done."""
    print(
        "| failure | verdict, as it should be | signature | lines | proved | CPU s |\n| --- | --- |"
        " --- | --- | --- | --- |"
    )
    rows = []
    for name in names:
        # one of the graph breaks leaves graphs on both sides of it, so that only a budget makes it
        # a failure
        words = [
            f"{HERE / 'silent_cases.py'}:{name}",
            "--budget",
            str(budget),
            *(["--graph-breaks", "0"] if name == "local_class" else []),
        ]
        with tempfile.TemporaryDirectory() as folder:
            told, cpu_s, _ = run(words, folder)
        kind, found = told.get("verdict", {}).get("kind", "none"), told.get("minimized") or {}
        proof = found.get("proof") or {}
        proved = (
            f"{proof['hits']} of {proof['runs']}"
            if proof.get("answer") == "same"
            else "no"
            if found
            else ""
        )
        is_right = "yes" if kind == EXPECTED[name] else f"no, {EXPECTED[name]}"
        title = told.get("signature", {}).get("title", told.get("error", ""))
        print(
            f"| {name} | {kind}, {is_right} | `{title}` | {found.get('lines', '')} | {proved} |"
            f" {cpu_s} |",
            flush=True,
        )
        rows.append(
            {
                "name": name,
                "kind": kind,
                "title": title,
                "lines": found.get("lines"),
                "proved": proved,
                "cpu_s": cpu_s,
            }
        )
    return rows


def healthy(names: list[str]) -> list[dict[str, Any]]:
    """Print each healthy model's verdict, and how many were accused."""
    rows = []
    for name in names:
        with tempfile.TemporaryDirectory() as folder:
            told, cpu_s, _ = run([*name.split(), "--no-minimize", "--no-ablate"], folder)
        kind = told.get("verdict", {}).get("kind") or "none"
        compared = told.get("comparison") or {}
        missing = "; ".join(m["why"] for m in told.get("missing", []))
        said = told.get("error") or told.get("verdict", {}).get("reason") or missing
        print(
            f"{name}: {kind}, {compared.get('tensors', 0)} tensors compared, {cpu_s} CPU s"
            + (f" ({said})" if kind != "ok" else ""),
            flush=True,
        )
        rows.append(
            {"name": name, "kind": kind, "tensors": compared.get("tensors", 0), "cpu_s": cpu_s}
        )
    accused = [r["name"] for r in rows if r["kind"] not in ("ok", "none")]
    compared_count = sum(r["tensors"] > 0 for r in rows)
    print(
        f"{len(rows)} models, {compared_count} compared, {len(accused)} accused:"
        f" {', '.join(accused) or 'none'}"
    )
    return rows


def main() -> None:
    """Run what the command line names."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("names", nargs="*")
    parser.add_argument("--budget", type=float, default=300.0)
    parser.add_argument("--healthy", action="store_true")
    parser.add_argument("--json", type=Path)
    asked = parser.parse_args()
    if asked.healthy:
        rows = healthy(
            asked.names
            or [
                *ZOO,
                *(
                    f"hf:{name} {SMALL} --set hidden_size=64 {HEADS.get(name, '')}"
                    for name in LIBRARY
                ),
            ]
        )
    else:
        rows = failures(asked.names or list(EXPECTED), asked.budget)
    if asked.json:
        asked.json.write_text(json.dumps(rows, indent=1))


if __name__ == "__main__":
    main()
