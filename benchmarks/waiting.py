"""Run every healthy waiting program of tests/waits/kinds.py under capture, with all defaults but a
short ``--stall``.

python benchmarks/waiting.py [KIND ...] [--stall 6] [--seconds 20] [--jobs 3] [--json FILE]

Each kind is run after each of the ways to compile. A program is *ended* when it did not finish by
itself with status 0, and *called a hang* when the verdict says so. Both counts must be 0.
``kernel`` needs the package ipykernel.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import socket
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from tests.waits.kinds import COMPILED, KINDS

PROGRAM = ROOT / "tests" / "waits" / "kinds.py"
RANKS = (
    "import os, subprocess, sys\nranks = [subprocess.Popen(sys.argv[1:], env={**os.environ, 'RANK':"
    " r}) for r in '01']\nsys.exit(max(r.wait() for r in ranks))"
)


def check(kind: str, how: str, stall_s: float, seconds: float) -> dict[str, Any]:
    """Run one program under capture."""
    target = [sys.executable, str(PROGRAM), kind, how, str(seconds)]
    environ = {**os.environ, "OMP_NUM_THREADS": "1"}
    if kind == "barrier":
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = str(free.getsockname()[1])
        environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "WORLD_SIZE": "2"}
        target = [sys.executable, "-c", RANKS, *target]
    with tempfile.TemporaryDirectory() as place:
        words = ["capture", "--json", "--stall", str(stall_s), "--output-dir", place, "--", *target]
        done = subprocess.run(
            [sys.executable, "-m", "reprokit", *words],
            env=environ,
            capture_output=True,
            text=True,
            check=False,
        )
        if not done.stdout:
            raise SystemExit(f"{kind} {how}: {done.stderr}")
        found = json.loads(done.stdout)
        run = json.loads((Path(found["run_dir"]) / "run.json").read_text())
        printed = (Path(found["run_dir"]) / "logs" / "stdout.txt").read_text()
    return {
        "kind": kind,
        "compiled": how,
        "verdict": found["verdict"]["kind"],
        "is_ended": run["exit_status"] != 0 or "done" not in printed,
        "is_hang": found["verdict"]["kind"] == "hang",
        "states": [stall["state"] for stall in run["stalls"]],
        "waited": [stall["seconds"] for stall in run["stalls"]],
        "detail": "; ".join(stall["detail"] for stall in run["stalls"])[:160],
        "reason": found["verdict"]["reason"],
    }


def main() -> None:
    """Print a row for each program and a summary."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("kinds", nargs="*", help="only these")
    parser.add_argument("--stall", type=float, default=6.0)
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--jobs", type=int, default=3)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    chosen = list(options.kinds or KINDS)
    if "kernel" in chosen and importlib.util.find_spec("ipykernel") is None:
        print("kernel is left out: ipykernel is not installed")
        chosen.remove("kernel")
    rows = []
    with ThreadPoolExecutor(options.jobs) as pool:
        jobs = [
            pool.submit(check, kind, how, options.stall, options.seconds)
            for kind in chosen
            for how in COMPILED
        ]
        for job in jobs:
            row = job.result()
            rows.append(row)
            mark = "BAD" if row["is_ended"] or row["is_hang"] else "ok "
            states = ", ".join(row["states"]) or "no stall"
            print(
                f"{mark} {row['kind']:<11} {row['compiled']:<12} {row['verdict']:<8} {states:<18}"
                f" {row['detail'][:90]}",
                flush=True,
            )
    ended, hangs = sum(row["is_ended"] for row in rows), sum(row["is_hang"] for row in rows)
    idle = sum("idle" in row["states"] for row in rows)
    outside = sum("outside" in row["states"] and "idle" not in row["states"] for row in rows)
    print(
        f"{len(rows)} healthy waiting programs: {ended} ended, {hangs} called a hang; {idle}"
        f" reported as idle, {outside} as outside the compiler"
    )
    if options.json:
        options.json.write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()
