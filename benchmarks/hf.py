"""How many model types of transformers build and run from their configuration alone, and do popular
ones compile?

python benchmarks/hf.py [--only llama,bert] [--limit 100] [--budget 900] [--every 2] [--json FILE]
python benchmarks/hf.py --compile [--only llama,bert] [--backend aot_eager] [--weights fake]

Run it with an interpreter that has torch and transformers. Each type is built in a forked child
with two layers, where its configuration counts layers, with real weights up to 0.6 GB and fake ones
above, and runs one forward pass in eager.
"""

from __future__ import annotations

import argparse
import collections
import dataclasses
import json
import os
import re
import select
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))
LIMIT_BYTES = 0.6e9
DEADLINE_S = 60.0
POPULAR = (
    "llama mistral qwen2 qwen3 gemma gemma2 phi3 falcon mixtral gpt2 opt bert roberta distilbert"
    " deberta-v2 t5 bart vit clip whisper wav2vec2"
).split()


def build(name: str) -> dict[str, object]:
    """Plan, build and run one type; in a child."""
    import torch
    from torch._subclasses.fake_tensor import FakeTensorMode

    from reprokit.agent.target.hf import build_model, configuration
    from reprokit.core.shared.errors import BadTarget

    library = configuration.load_transformers()
    knobs = {"layers": 2}
    told: dict[str, object] = {"type": name, "result": "ok", "why": ""}
    try:
        try:
            plan = build_model.plan_model(library, "", name, knobs)
        except BadTarget as bad:
            if "--layers cannot" not in str(bad) and "cannot be made" not in str(bad):
                raise
            plan = build_model.plan_model(
                library, "", name, {}
            )  # counts no layers, or insists on so many
        needed = build_model.needed_bytes(torch, plan, False)
        told["weights"] = "fake" if needed is None or needed > LIMIT_BYTES else "real"
        if told["weights"] == "fake":  # fake experts take no other type
            plan = dataclasses.replace(plan, dtype="bfloat16")
        with torch.no_grad():
            if told["weights"] == "real":
                target = build_model.build_model(torch, plan)
            else:
                with FakeTensorMode():
                    target = build_model.build_model(torch, plan)
                    try:
                        target.model(**target.calls[0][1])
                    except Exception as problem:
                        told |= {
                            "result": "built, fake tensors cannot run it",
                            "why": type(problem).__name__,
                        }
        told["class"] = type(target.model).__name__
        told["inputs"] = {n: list(t.shape) for n, t in target.calls[0][1].items()}
    except BadTarget as bad:
        told |= {"result": result_of(str(bad)), "why": str(bad)}
    except Exception as problem:
        told |= {"result": "error", "why": f"{type(problem).__name__}: {problem}"[:300]}
    return told


def result_of(line: str) -> str:
    """A row of the table for the line that a user would read."""
    if (
        "requires the" in line
        or "No module named" in line
        or "not found in your environment" in line
    ):
        return "needs another package"
    if "has no model for the type" in line:
        return "no model of its own"
    if "configuration of" in line and "cannot be made" in line:
        return "its configuration has no defaults"
    return "cannot be built" if " cannot be built: " in line else "inputs cannot be made"


def in_child(name: str) -> dict[str, object]:
    """Build one type in a fork, so that neither a crash nor a hang nor its memory outlives it."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        quiet = os.open(os.devnull, os.O_WRONLY)
        os.dup2(quiet, 1)
        os.dup2(quiet, 2)
        os.write(writer, json.dumps(build(name)).encode()[:60_000])
        os._exit(0)
    os.close(writer)
    began, text = time.monotonic(), b""
    while time.monotonic() - began < DEADLINE_S:
        if select.select([reader], [], [], 1.0)[0]:
            piece = os.read(reader, 65_536)
            if not piece:
                break
            text += piece
    os.close(reader)
    os.kill(child, signal.SIGKILL)
    status = os.waitpid(child, 0)[1]
    try:
        told = json.loads(text)
    except ValueError:
        why = f"signal {os.WTERMSIG(status)}" if os.WIFSIGNALED(status) else f"status {status}"
        late = time.monotonic() - began >= DEADLINE_S
        told = {"type": name, "result": "too slow" if late else "crash", "why": "" if late else why}
    return {**told, "seconds": round(time.monotonic() - began, 1)}


def survey(names: list[str], budget_s: float, out: Path | None) -> None:
    """Build them all, as far as the budget reaches, and print the table."""
    began, rows = time.monotonic(), []
    for number, name in enumerate(names, 1):
        if time.monotonic() - began > budget_s:
            print(f"the budget of {budget_s:.0f} s ended after {number - 1} of {len(names)}")
            break
        row = in_child(name)
        rows.append(row)
        print(
            f"{number:4}/{len(names)} {row['seconds']:5} s  {name:<32} {row['result']}: {row.get('class', row['why'])}"[
                :200
            ]
        )
        sys.stdout.flush()
    if out:
        out.write_text(json.dumps(rows, indent=1))
    print(f"\n| result | types of {len(rows)} |\n| --- | --- |")
    for result, count in collections.Counter(str(r["result"]) for r in rows).most_common():
        print(f"| {result} | {count} |")
    for row in rows:
        if row["result"] != "ok":
            print(
                f"{row['result']}: {row['type']}:"
                f" {re.sub(r'^.*?tried: ', '', str(row['why']))[:220]}"
            )


def compile_them(names: list[str], backend: str, weights: str) -> None:
    """Capture each with two layers and small sizes; print verdict, graphs and cost."""
    sys.stdout.write(
        "| type | verdict | class | weights | graphs | Dynamo nodes | CPU s |\n| --- | --- | --- |"
        " --- | --- | --- | --- |\n"
    )
    for name in names:
        with tempfile.TemporaryDirectory() as folder:
            words = [
                "capture",
                f"hf:{name}",
                "--layers",
                "2",
                "--backend",
                backend,
                "--weights",
                weights,
                "--no-minimize",
                "--no-trace",
            ]
            words += [
                "--python",
                sys.executable,
                "--output-dir",
                folder,
                "--json",
                "--timeout",
                "300",
            ]
            host = os.environ.get("REPROKIT_PYTHON", sys.executable)
            done = subprocess.run(
                [host, "-m", "reprokit", *words],
                capture_output=True,
                text=True,
                check=False,
                env={**os.environ, "PYTHONPATH": str(ROOT)},
            )
            try:
                told = json.loads(done.stdout)
            except ValueError:
                told = {"verdict": {"kind": "no answer"}, "missing": [{"why": done.stderr[-200:]}]}
            kind = told["verdict"]["kind"] or told["missing"][0]["why"]
            events = [
                json.loads(r)
                for p in Path(folder).glob("run-*/journal/*.jsonl")
                for r in p.read_text().splitlines()
            ]
            last = {e["ev"]: e for e in events}
            graphs = [e for e in events if e["ev"] == "graph" and e["level"] == "dynamo"]
            observed = Path(folder) / "run-001" / "observation.json"
            seen = json.loads(observed.read_text()) if observed.exists() else {}
            nodes = sum(g["nodes"] for g in graphs)
            print(
                f"| {name} | {kind} | {last.get('hf', {}).get('kind', '')} |"
                f" {last.get('weights', {}).get('kind', '')} | {len(graphs)} | {nodes} |"
                f" {seen.get('cpu_s', '')} |",
                flush=True,
            )


def main() -> None:
    """Survey all types, or compile the popular ones."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", help="types, separated by commas")
    parser.add_argument("--limit", type=int, help="at most so many types")
    parser.add_argument("--every", type=int, default=1, help="each so many-th type of the list")
    parser.add_argument("--budget", type=float, default=900.0, help="seconds")
    parser.add_argument("--json", type=Path, help="write all rows there")
    parser.add_argument("--compile", action="store_true", help="capture popular ones instead")
    parser.add_argument("--backend", default="inductor")
    parser.add_argument(
        "--weights",
        default="auto",
        help="fake: compile to the end of code generation and run nothing",
    )
    given = parser.parse_args()
    if given.compile:
        compile_them(given.only.split(",") if given.only else POPULAR, given.backend, given.weights)
        return
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    import torch
    import torch._dynamo

    torch.set_num_threads(1)
    from reprokit.agent.target.hf import build_model, configuration

    names = (
        given.only.split(",")
        if given.only
        else build_model.model_types_of(configuration.load_transformers())[:: given.every]
    )
    survey(names[: given.limit], given.budget, given.json)


if __name__ == "__main__":
    main()
