"""What the instrumentation costs: CPU seconds of a compile, plain and instrumented, in turns.

python benchmarks/overhead.py [--rounds 5] [--json FILE]

Three ways, each a fresh process with caches off and one compile thread, so that CPU seconds are
those of the compile: ``plain`` (no reprokit at all), ``agent`` (our hooks, no TORCH_TRACE),
``default`` (hooks and TORCH_TRACE). Prints the median of each and the median of the ratios within a
round; wall-clock time is never used.

Then the watchdog's own processor seconds, its tools included, while it watches a compile of about a
minute, as a share of what the target used: sampling, looking at stacks, following journals.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import uuid
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from reprokit.host.request import run_request
from reprokit.host.request.target import Target
from reprokit.host.run import launch, run_directory

MODELS = {
    "llama, 4 layers, inductor": (
        """
import torch, sys
sys.path.insert(0, {models!r})
import llama
model, args = llama.make(layers=4, hidden=64, heads=4, kv_heads=2, intermediate=176, vocab=256, batch_size=2, sequence_length=32)
with torch.no_grad():
    torch.compile(model)(*args)
"""
    ),
    "convnet, training, inductor": (
        """
import torch, sys
sys.path.insert(0, {models!r})
import convnet
model, args = convnet.make(layers=4, channels=16, image=16, classes=10, batch_size=2)
torch.compile(model)(*args).sum().backward()
"""
    ),
    "llama, 24 layers, aot_eager": (
        """
import torch, sys
sys.path.insert(0, {models!r})
import llama
model, args = llama.make(layers=24, hidden=64, heads=4, kv_heads=2, intermediate=176, vocab=256, batch_size=2, sequence_length=32)
with torch.no_grad():
    torch.compile(model, backend="aot_eager")(*args)
"""
    ),
}
WAYS = ("plain", "agent", "default")


def cpu_seconds(code: str, way: str, cache: Path) -> float:
    """User and system seconds of one fresh process and its children."""
    environ = {
        **os.environ,
        "TORCHINDUCTOR_CACHE_DIR": str(cache),
        "TORCHINDUCTOR_FORCE_DISABLE_CACHES": "1",
        "TORCHINDUCTOR_COMPILE_THREADS": "1",
        "OMP_NUM_THREADS": "1",
    }
    with tempfile.TemporaryDirectory() as name:
        run = Path(name)
        run_directory.make_folders(run)
        with launch.agent_folder(run, frozenset()) as agent:
            if way != "plain":
                request = run_request.Request(
                    Target("command", command=("python",)), has_trace=way == "default"
                )
                ours, _ = launch.target_environment(request, run, agent, uuid.uuid4().hex)
                environ = {
                    **ours,
                    **{k: v for k, v in environ.items() if k not in ("PYTHONPATH",)},
                    "PYTHONPATH": ours["PYTHONPATH"],
                }
            environ.pop("PYTHONUNBUFFERED", None)
            before = resource.getrusage(resource.RUSAGE_CHILDREN)
            subprocess.run(
                [sys.executable, "-c", code],
                env=environ,
                check=True,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )
            after = resource.getrusage(resource.RUSAGE_CHILDREN)
            if way != "plain":
                assert list((run / "journal").glob("*.jsonl")), (
                    "the instrumentation did not reach the process"
                )
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def watching(place: Path) -> float:
    """Processor seconds of reprokit over those of the target, for one capture of llama40b."""
    words = ["capture", "--json", "--no-trace", "--model", "llama40b", "--output-dir", str(place)]
    done = subprocess.run(
        [sys.executable, "-m", "reprokit", *words], capture_output=True, text=True, check=False
    )
    run = json.loads((Path(json.loads(done.stdout)["run_dir"]) / "run.json").read_text())
    print(
        f"watching llama40b: {run['watch_cpu_s']:.2f} s beside {run['cpu_s']:.1f} s of the target",
        flush=True,
    )
    return float(run["watch_cpu_s"] / run["cpu_s"])


def main() -> None:
    """Print one row a model."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    models = str(Path(__file__).resolve().parents[1] / "reprokit" / "agent" / "models")
    rows = []
    with tempfile.TemporaryDirectory() as name:
        for title, template in MODELS.items():
            code = template.format(models=models)
            cpu_seconds(
                code, "plain", Path(name)
            )  # the C++ that the caches keep is built once, outside of the count
            seen: dict[str, list[float]] = {way: [] for way in WAYS}
            for turn in range(options.rounds):
                for way in WAYS if turn % 2 == 0 else reversed(WAYS):
                    seen[way].append(cpu_seconds(code, way, Path(name)))
            ratio = {
                w: statistics.median(a / b for a, b in zip(seen[w], seen["plain"], strict=True))
                for w in WAYS[1:]
            }
            rows.append(
                {
                    "model": title,
                    "cpu_s": {w: round(statistics.median(seen[w]), 2) for w in WAYS},
                    "ratio": {w: round(r, 3) for w, r in ratio.items()},
                }
            )
            cost = ", ".join(f"{w} {statistics.median(seen[w]):.2f} s" for w in WAYS)
            print(
                f"{title:<32} {cost}; agent/plain {ratio['agent']:.3f}, default/plain"
                f" {ratio['default']:.3f}",
                flush=True,
            )
    with tempfile.TemporaryDirectory() as name:
        share = statistics.median(watching(Path(name)) for _ in range(options.rounds))
    rows.append(
        {"model": "llama40b, the watchdog's own share", "ratio": {"watching": round(share, 4)}}
    )
    print(f"watching costs {share:.1%} of the target's processor seconds")
    if options.json:
        options.json.write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()
