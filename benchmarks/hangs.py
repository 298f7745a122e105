"""Run every hang of tests/hangs/kinds.py under capture, and the healthy slow compiles under
overload.

python benchmarks/hangs.py [KIND ...] [--stall 8] [--load 6] [--json FILE]

For each kind: cause right, phase right, seconds from the decision to the first stacks and to the
verdict, and the processes that survived. Then each healthy compile beside ``--load`` times as many
spinning processes as there are processors: none may be called a hang. Seconds are of this machine;
only the answers are to be compared.
"""

from __future__ import annotations

import argparse
import json
import os
import socket
import subprocess
import sys
import tempfile
import time
import uuid
from pathlib import Path
from typing import Any

import psutil

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from tests.hangs.kinds import EXPECTED

KINDS = ROOT / "tests" / "hangs" / "kinds.py"
OUTSIDE = ("gloo_eager", "gloo_mismatch")
"""Kinds that wait outside the compiler, where a stall of a command is only reported unless the user
asks for more.
"""
RANKS = (
    "import os, subprocess, sys\nranks = [subprocess.Popen(sys.argv[1:], env={**os.environ, 'RANK':"
    " r}) for r in '01']\nsys.exit(max(r.wait() for r in ranks))"
)


def capture(kind: str, stall_s: float, deadline_s: float, place: Path, mark: str) -> dict[str, Any]:
    """Capture one kind in a fresh process and give what ``--json`` printed."""
    target = [sys.executable, str(KINDS), kind]
    environ = {**os.environ, "OMP_NUM_THREADS": "1", "HANGS_MARK": mark}
    if kind.startswith("gloo_"):
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = str(free.getsockname()[1])
        environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "WORLD_SIZE": "2"}
        target = [sys.executable, "-c", RANKS, *target]
    words = [
        "capture",
        "--json",
        "--no-trace",
        "--stall",
        str(stall_s),
        "--timeout",
        str(deadline_s),
    ]
    words += ["--on-stall", "end"] * (kind in OUTSIDE)
    command = [sys.executable, "-m", "reprokit", *words, "--output-dir", str(place), "--", *target]
    done = subprocess.run(command, env=environ, capture_output=True, text=True, check=False)
    if not done.stdout:
        raise SystemExit(f"{kind}: {done.stderr}")
    return dict(json.loads(done.stdout))


def survivors(mark: str) -> int:
    """Living processes of a run that is over."""
    found = 0
    for process in psutil.process_iter():
        try:
            found += (
                process.environ().get("HANGS_MARK") == mark
                and process.status() != psutil.STATUS_ZOMBIE
            )
        except psutil.Error:
            continue
    return found


def check(kind: str, stall_s: float, deadline_s: float) -> dict[str, Any]:
    """One row of the table."""
    causes, phases = EXPECTED[kind]
    mark = uuid.uuid4().hex
    with tempfile.TemporaryDirectory() as place:
        began = time.monotonic()
        found = capture(kind, stall_s, deadline_s, Path(place), mark)
        whole_s = time.monotonic() - began
        verdict, run = (
            found["verdict"],
            json.loads((Path(found["run_dir"]) / "run.json").read_text()),
        )
        return {
            "kind": kind,
            "verdict": verdict["kind"],
            "cause": verdict["cause"],
            "also": verdict["also"],
            "phase": verdict["phase"],
            "is_cause_right": verdict["cause"] in causes,
            "is_phase_right": verdict["phase"] in phases,
            "to_stacks_s": run["seconds_to_stacks"],
            "to_verdict_s": run["seconds_to_verdict"],
            "whole_s": round(whole_s, 1),
            "survivors": survivors(mark),
            "reason": verdict["reason"],
        }


def main() -> None:
    """Print one row a kind and a summary."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("kinds", nargs="*", help="only these")
    parser.add_argument("--stall", type=float, default=8.0)
    parser.add_argument("--load", type=int, default=6)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    chosen = options.kinds or list(EXPECTED)
    rows = []
    for kind in (k for k in chosen if EXPECTED[k][0]):
        row = check(kind, options.stall, 300)
        rows.append(row)
        marks = ["ok " if row[k] else "BAD" for k in ("is_cause_right", "is_phase_right")]
        print(
            f"{kind:<20} {row['verdict']:<13} cause {marks[0]} {row['cause']!s:<28} phase"
            f" {marks[1]} {row['phase']!s:<13} stacks {row['to_stacks_s']:.2f} s, verdict"
            f" {row['to_verdict_s']:.2f} s, {row['survivors']} left",
            flush=True,
        )
        if "BAD" in marks:
            print(f"    {row['reason']}", flush=True)
    healthy = [k for k in chosen if not EXPECTED[k][0]]
    if healthy:
        rows += under_load(healthy, options)
    if options.json:
        options.json.write_text(json.dumps(rows, indent=1) + "\n")
    hangs = [r for r in rows if EXPECTED[r["kind"]][0]]
    if hangs:
        right = [sum(r[k] for r in hangs) for k in ("is_cause_right", "is_phase_right")]
        stacks, verdicts = (
            max(r["to_stacks_s"] for r in hangs),
            max(r["to_verdict_s"] for r in hangs),
        )
        print(
            f"{len(hangs)} hangs: {right[0]} causes right, {right[1]} phases right, stacks within"
            f" {stacks:.2f} s, verdict within {verdicts:.2f} s,"
            f" {sum(r['survivors'] for r in hangs)} processes left"
        )


def under_load(kinds: list[str], options: argparse.Namespace) -> list[dict[str, Any]]:
    """The healthy compiles beside spinning processes: ``--load`` of them for each processor."""
    spin = [sys.executable, "-c", "while True: pass"]
    load = [subprocess.Popen(spin) for _ in range(options.load * (os.cpu_count() or 1))]
    rows, false = [], 0
    try:
        for kind in kinds:
            row = check(kind, options.stall, 600)
            rows.append(row)
            false += row["verdict"] == "hang"
            print(
                f"{kind:<20} {row['verdict']:<13} {row['whole_s']:.0f} s  {row['reason'][:100]}",
                flush=True,
            )
    finally:
        for process in load:
            process.kill()
    print(
        f"{len(rows)} healthy compiles under {options.load} times the load: {false} called a hang"
    )
    return rows


if __name__ == "__main__":
    main()
