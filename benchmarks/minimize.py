"""reprokit minimize beside PyTorch's own minifier, on the same failures, in one run.

python benchmarks/minimize.py [NAME ...] [--budget 300] [--modes isolate,in-process] [--json FILE]
python benchmarks/minimize.py --table FILE.json ... prints the table of results that were kept with
--json.

For each failure of benchmarks/failures.py: the capture's signature; then ``reprokit minimize``, and
the minifier that TORCHDYNAMO_REPRO_AFTER leaves, each in its modes, under the same wall-clock
budget. Solved means that the repro, run alone in a fresh process, has the same signature
(``reprokit check``). Processor seconds are those of the reduction and all its children, without the
capture and without the minifier's first run, which writes its launcher; what reprokit's proof and
packing cost, which the minifier has not, is told beside it. ``--growth`` prints probes and
processor seconds over graphs of 100 to 5,000 nodes instead.
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import json
import os
import re
import resource
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(Path(__file__).resolve().parent))

from failures import FAILURES, MODELS, Failure

REPROKIT = [sys.executable, "-m", "reprokit"]
STAGE_S = 180.0


def timed(command: list[str], environ: dict[str, str], cwd: Path, limit_s: float) -> dict[str, Any]:
    """Run in a process group of its own: status (None when it was ended), output, seconds,
    processor seconds.
    """
    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    with (cwd / "said.txt").open("wb") as said:
        child = subprocess.Popen(
            command,
            cwd=cwd,
            env=environ,
            stdout=said,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        status: int | None
        try:
            status = child.wait(limit_s)
        except subprocess.TimeoutExpired:
            status = None
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(child.pid, signal.SIGKILL)
            child.wait()
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu_s = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    text = (cwd / "said.txt").read_text(errors="replace")
    return {
        "status": status,
        "text": text,
        "seconds": round(time.monotonic() - began, 1),
        "cpu_s": round(cpu_s, 1),
    }


def environment(failure: Failure, place: Path) -> dict[str, str]:
    """One thread, a private cache, the injected bug."""
    environ = {k: v for k, v in os.environ.items() if not k.startswith(("TORCH", "REPROKIT"))}
    environ.update(OMP_NUM_THREADS="1", TORCHINDUCTOR_COMPILE_THREADS="1", **failure.bug)
    environ["PYTHONPATH"] = os.pathsep.join(
        [str(ROOT), *([str(ROOT / "benchmarks" / "inject")] if failure.bug else [])]
    )
    return environ


def lines_of(text: str) -> int:
    return sum(1 for row in text.splitlines() if row.strip() and not row.lstrip().startswith("#"))


def operators(text: str) -> int:
    """Calls and arithmetic inside the function or forward that is compiled."""
    tree = ast.parse(text)
    functions = [
        n
        for n in ast.walk(tree)
        if isinstance(n, ast.FunctionDef) and n.name in ("repro", "forward", "f")
    ]
    kinds = (ast.Call, ast.BinOp, ast.Compare, ast.AugAssign)
    return (
        sum(isinstance(n, kinds) for f in functions for n in ast.walk(f)) or 1
    )  # torch.compile(torch.erf)


def is_same(file: Path, pack: str, environ: dict[str, str], cwd: Path, failure: Failure) -> bool:
    """The file, run alone, shows the failure of the pack."""
    words = [
        "check",
        str(file),
        "--same-as",
        pack,
        "--exit-zero-if",
        "bug",
        "-n",
        "6" if "half" in str(failure.bug) else "1",
    ]
    words += ["--stall", "15"] if failure.is_hang else []
    return timed([*REPROKIT, *words], environ, cwd, STAGE_S)["status"] == 0


def ours(
    run_dir: str, pack: str, failure: Failure, environ: dict[str, str], cwd: Path, budget_s: float
) -> dict[str, Any]:
    done = timed(
        [*REPROKIT, "minimize", run_dir, "--json", "--budget", str(budget_s)],
        environ,
        cwd,
        budget_s + 2 * STAGE_S,
    )
    row: dict[str, Any] = {
        "tool": "reprokit",
        "solved": False,
        "cpu_s": done["cpu_s"],
        "seconds": done["seconds"],
    }
    try:
        told = json.loads(done["text"][done["text"].index("{\n") :])
    except ValueError:
        return {**row, "said": done["text"][-300:]}
    found = told.get("minimized") or {}
    if told.get("repro") and found.get("lines"):
        text = Path(told["repro"]).read_text()
        row |= {
            "operators": operators(text),
            "lines": lines_of(text),
            "solved": is_same(Path(told["repro"]), pack, environ, cwd, failure),
        }
    whole = (
        f"with packing and {(found.get('proof') or {}).get('runs', 0) + 2} fresh runs as proof"
        f" {done['cpu_s']} CPU s"
    )
    row["cpu_s"] = round(found.get("cpu_s") or done["cpu_s"], 1)
    return {**row, "probes": found.get("probes"), "notes": found.get("notes"), "said": whole}


def theirs(
    script: Path,
    pack: str,
    failure: Failure,
    environ: dict[str, str],
    cwd: Path,
    budget_s: float,
    mode: str,
) -> dict[str, Any]:
    asked = {
        **environ,
        "TORCHDYNAMO_REPRO_AFTER": failure.after,
        "TORCHDYNAMO_REPRO_LEVEL": str(failure.level),
    }
    asked["TORCHINDUCTOR_CACHE_DIR"] = str(cwd / "cache")
    row: dict[str, Any] = {"tool": f"minifier, {mode}", "solved": False}
    timed([sys.executable, str(script)], asked, cwd, 60 if failure.is_hang else STAGE_S)
    launchers = sorted(cwd.rglob("minifier_launcher.py"))
    if not launchers:
        return {**row, "said": "no launcher"}
    environ = {**environ, "TORCHINDUCTOR_CACHE_DIR": str(cwd / "cache")}
    words = [
        sys.executable,
        str(launchers[-1]),
        "minify",
        *(["--no-isolate"] if mode == "in-process" else []),
    ]
    done = timed(words, environ, launchers[-1].parent, budget_s)
    probes = re.search(r"Made (\d+) queries", done["text"])
    row |= {
        "cpu_s": done["cpu_s"],
        "seconds": done["seconds"],
        "probes": int(probes[1]) if probes else None,
    }
    row["said"] = (
        ""
        if probes
        else ("budget ended" if done["status"] is None else f"exit status {done['status']}")
    )
    repro = launchers[-1].parent / "repro.py"
    if repro.exists():
        text = repro.read_text()
        row |= {
            "operators": operators(text),
            "lines": lines_of(text),
            "solved": is_same(repro, pack, environ, cwd, failure),
        }
    return row


def compare(name: str, budget_s: float, modes: list[str]) -> list[dict[str, Any]]:
    """One failure, all tools."""
    failure = FAILURES[name]
    with tempfile.TemporaryDirectory(prefix="minimize-") as folder:
        place = Path(folder)
        script = place / "script.py"
        script.write_text(failure.script)
        environ = environment(failure, place)
        words = [
            "capture",
            "--json",
            "--no-minimize",
            "--stall",
            "15",
            "--output-dir",
            str(place / "out"),
            "--",
        ]
        for _ in range(8):  # a flaky one may pass
            captured = timed(
                [*REPROKIT, *words, sys.executable, str(script)], environ, place, 2 * STAGE_S
            )
            told = json.loads(captured["text"][captured["text"].index("{\n") :])
            if told["verdict"]["kind"] != "ok":
                break
        rows = [ours(told["run_dir"], told["pack"], failure, environ, place, budget_s)]
        for mode in modes:
            own = place / mode
            own.mkdir()
            rows.append(theirs(script, told["pack"], failure, environ, own, budget_s, mode))
    return [{"case": name, "minimum": failure.minimum, **row} for row in rows]


def growth(sizes: list[int]) -> None:
    """Three scattered operators in ever larger graphs: questions grow with the logarithm, seconds
    with the size.
    """
    print("nodes probes seconds cpu_s operators")
    for size in sizes:
        rows = f"""
def scattered(x):
    for i in range({size}):
        if i in ({size // 15}, {size // 2}, {size - 10}):
            x = torch.erf(x) if i == {size // 15} else torch.erfc(x) if i == {size // 2} else torch.digamma(x)
        else:
            x = torch.sin(x)
    return x
"""
        failure = Failure(
            MODELS + rows + "torch.compile(scattered)(torch.randn(8))\n", 3, {"BUG": "raise-three"}
        )
        FAILURES["growth"] = failure
        (row,) = compare("growth", 3600, [])
        print(size, row["probes"], row["seconds"], row["cpu_s"], row.get("operators"), flush=True)


HEAD = """\
| failure | tool | solved | operators (least) | lines | probes | CPU s | |
| --- | --- | --- | --- | --- | --- | --- | --- |"""


def line(row: dict[str, Any]) -> str:
    """One row of the table."""
    size = f"{row.get('operators', '')} ({row['minimum']})"
    cells = [row["case"], row["tool"], "yes" if row["solved"] else "no", size, row.get("lines", "")]
    cells += [row.get("probes") or "", row.get("cpu_s", ""), row.get("said") or ""]
    return "| " + " | ".join(str(c) for c in cells) + " |"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("names", nargs="*")
    parser.add_argument("--budget", type=float, default=300)
    parser.add_argument("--modes", default="isolate,in-process")
    parser.add_argument("--growth", action="store_true")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--table", type=Path, nargs="+")
    args = parser.parse_args()
    if args.growth:
        growth([100, 300, 1000, 3000, 5000])
        return
    print(HEAD, flush=True)
    if args.table:
        kept = [row for path in args.table for row in json.loads(path.read_text())]
        kept.sort(key=lambda row: list(FAILURES).index(row["case"]))
        print("\n".join(map(line, kept)))
        return
    rows: list[dict[str, Any]] = []
    for name in args.names or list(FAILURES):
        for row in compare(name, args.budget, [m for m in args.modes.split(",") if m]):
            rows.append(row)
            print(line(row), flush=True)
            if args.json:
                args.json.write_text(json.dumps(rows, indent=1))


if __name__ == "__main__":
    main()
