"""What `reprokit scale` predicts from small sizes beside what a larger run costs.

python benchmarks/scale.py [--repeats N] [--json FILE] [NAME ...]

Each row is one call of the command over the probes and the full size; the laws are then fitted to
the probes alone. Costs are CPU seconds of the compile, so a busy machine changes little. The chain
grows exponentially: four times its largest probe would take longer than the universe has been
there, so one and a half times is asked, and once more from probes in which its growth shows.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from reprokit.core.growth import costs

CHAIN = str(ROOT / "samples" / "superlinear_compile.py:make")
# name -> words of the command, knob, probes, full size
ROWS = {
    "llama-tiny": (["--model", "llama-tiny"], "layers", (1, 2, 4, 8), 32),
    "convnet": (["--model", "convnet"], "layers", (1, 2, 4, 8), 32),
    "llama40b, fake weights": (
        ["--model", "llama40b", "--weights", "fake"],
        "layers",
        (1, 2, 4),
        16,
    ),
    "chain": ([CHAIN], "n", (4, 5, 6, 7, 8), 12),
    "chain, steep": ([CHAIN], "n", (6, 8, 10, 11), 12),
}


def measure(
    words: list[str], knob: str, sizes: tuple[int, ...], repeats: int
) -> list[costs.PhaseCost]:
    """All sizes in one call of the command."""
    with tempfile.TemporaryDirectory() as place:
        asked = [
            "scale",
            *words,
            "--set",
            f"{knob}={','.join(map(str, sizes))}",
            "--repeats",
            str(repeats),
            "--output-dir",
            place,
            "--json",
        ]
        done = subprocess.run(
            [sys.executable, "-m", "reprokit", *asked],
            capture_output=True,
            text=True,
            cwd=ROOT,
            check=False,
        )
    rows = json.loads(done.stdout)["growth"]["sizes"]
    return [
        costs.PhaseCost(**{k: v for k, v in row.items() if k != "cpu_s_per_node"}) for row in rows
    ]


def main() -> None:
    """Print one row a target."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", default=list(ROWS))
    parser.add_argument("--repeats", type=int, default=2)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    rows = []
    print(
        "| target | probes | full size | predicted CPU s | measured | ratio | memory MB, predicted"
        " | measured | law |"
    )
    print("| --- | --- | --- | --- | --- | --- | --- | --- | --- |", flush=True)
    for name in options.names:
        words, knob, probes, at = ROWS[name]
        *small, full = measure(words, knob, (*probes, at), options.repeats)
        told = costs.summarise_growth(small, knob, at)
        total, memory = told["total"], told["memory"]
        ratio = round(total["predicted"] / full.cpu_s, 2)
        rows.append(
            {
                "target": name,
                "growth": told,
                "full": {
                    "cpu_s": full.cpu_s,
                    "phases": full.phases,
                    "peak_rss_bytes": full.peak_rss_bytes,
                },
                "ratio": ratio,
            }
        )
        print(
            f"| {name} | {knob} {', '.join(map(str, probes))} | {at} |"
            f" {costs.amount_in_words(total, 's')} | {full.cpu_s:.1f} | {ratio:.2f} |"
            f" {costs.amount_in_words(memory, 'MB')} | {full.peak_rss_bytes / 1e6:.0f} |"
            f" {total['words']}; worst {told['worst']['phase']}, {told['worst']['words']} |",
            flush=True,
        )
        if options.json:
            options.json.write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()
