"""Reduce whole programs to small repros.

python -m benchmarks run programs [--only NAME ...] [--keep FOLDER] [--rows-of FILE]

Each program of benchmarks/cases/programs runs plainly, and is then captured with the default
options. The table has the lines of the proved repro, whether it needs only torch, and the CPU
seconds of the whole capture in multiples of the plain run. The repro runs once more with Python
alone in an empty folder. A program is left out if this environment lacks a package that it needs,
or its row is that of an earlier result in a different environment (``--rows-of``).
"""

from __future__ import annotations

import argparse
import ast
import importlib.metadata
import importlib.util
import shutil
import statistics
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from ...cases.program_cases import CASE, MAKE_DATA, PLACE, ProgramCase, read_cases
from ...harness import quiet_environ, run_child, run_reprokit, show_progress
from ...measurement import Measurement, add_keep_option, add_only_option, kept_folder
from ...results import Column, Row, read_result

COLUMNS = (
    Column("program", "program"),
    Column("files", "files"),
    Column("torch", "torch"),
    Column("kind", "verdict"),
    Column("lines", "lines of the repro"),
    Column("imports", "it imports"),
    Column("alone", "it fails alone"),
    Column("plain_s", "CPU s of the plain run", 0),
    Column("times", "whole capture, times that", 1),
    Column("wall_s", "s", 0),
    Column("why", "why not"),
)
LIMIT_S, REPRO_LIMIT_S = 1200.0, 120.0
HANG_S = 60.0
"""The plain run of a program that hangs."""


def measure_program(name: str, case: ProgramCase, folder: Path) -> Row:
    """Run and capture one program, and return what its repro needs."""
    home = folder / PLACE / name
    shutil.copytree(case.folder, home, ignore=shutil.ignore_patterns(CASE, "__pycache__"))
    environ = quiet_environ()
    if (home / MAKE_DATA).exists():
        run_child([sys.executable, MAKE_DATA], cwd=home, environ=environ, limit_s=120.0)
        (home / MAKE_DATA).unlink()
    factory = case.target.partition(":")[0].removesuffix(".py")
    command = (
        [sys.executable, *case.words]
        if not case.target
        else [sys.executable, "-c", _call_of(factory, case.target.partition(":")[2])]
    )
    most_s = HANG_S if case.kind == "hang" else LIMIT_S
    plain = run_child(command, cwd=home, environ=environ, limit_s=most_s)
    target = ("--", sys.executable, *case.words) if not case.target else (case.target,)
    words: tuple[str | Path, ...] = (
        "capture",
        "--output-dir",
        folder / "out",
        *case.options,
        *target,
    )
    done = run_reprokit(*words, cwd=home, environ=environ, limit_s=LIMIT_S)
    row: Row = {
        "program": name,
        "files": len(case.files),
        "torch": importlib.metadata.version("torch").partition("+")[0],
        "kind": done.kind,
        "plain_s": round(plain.cpu_s, 1),
        "times": round(done.cpu_s / max(plain.cpu_s, 0.1), 1),
        "wall_s": round(done.wall_s, 1),
    }
    repro = done.answer.get("repro")
    if not repro:
        missing = "; ".join(one["why"] for one in done.answer.get("missing", []))
        return {**row, "why": (missing or done.last_error)[:300]}
    text = Path(repro).read_text()
    alone = folder / "alone"
    alone.mkdir()
    (alone / "repro.py").write_text(text)
    ended = run_child(
        [sys.executable, "repro.py"], cwd=alone, environ=quiet_environ(), limit_s=REPRO_LIMIT_S
    )
    minimized = done.answer.get("minimized") or {}
    return {
        **row,
        "lines": minimized.get("lines"),
        "imports": ", ".join(sorted(_imports(text) - sys.stdlib_module_names)),
        "alone": ended.status != 0,
        "why": "" if done.kind == case.kind else f"the verdict is not {case.kind}",
    }


def _call_of(module: str, name: str) -> str:
    return f"import torch, {module}; model, args = {module}.{name}(); torch.compile(model)(*args)"


def _imports(text: str) -> set[str]:
    found = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            found |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            found.add((node.module or "").split(".")[0])
    return found


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the choice of programs, and the folder to keep."""
    add_only_option(parser, list(read_cases()), "program")
    add_keep_option(parser)
    parser.add_argument(
        "--rows-of", type=Path, help="a result with the rows of programs that are left out here"
    )


def measure_rows(options: argparse.Namespace) -> Iterator[Row]:
    """Yield a row for each program."""
    cases = read_cases()
    earlier = read_result(options.rows_of).rows if options.rows_of else ()
    known = {row["program"]: row for row in earlier}
    with kept_folder(options) as folder:
        for name in options.only:
            lacks = [n for n in cases[name].needs if importlib.util.find_spec(n) is None]
            if name in known:
                yield known[name]
                continue
            if lacks:
                show_progress(f"{name} is left out: it needs {', '.join(lacks)}")
                continue
            own = folder / name
            own.mkdir(parents=True)
            yield measure_program(name, cases[name], own)


def summarise_rows(rows: Sequence[Row]) -> list[str]:
    """Return how many programs have a repro, how long they are and what they cost."""
    proved = [row for row in rows if row.get("lines")]
    if not proved:
        return [f"0 of {len(rows)} programs have a proved repro."]
    lines = [int(row["lines"] or 0) for row in proved]
    torch_only = sum(row["imports"] == "torch" for row in proved)
    times = statistics.median(float(row["times"] or 0) for row in rows)
    wall = statistics.median(float(row["wall_s"] or 0) for row in rows)
    return [
        f"{len(proved)} of {len(rows)} programs have a proved repro, of {statistics.median(lines):g}"
        f" lines (median) and at most {max(lines)}; {torch_only} need only torch. A capture takes"
        f" {times:g} times the CPU seconds of the plain run and {wall:.0f} s (medians)."
    ]


MEASUREMENT = Measurement(COLUMNS, measure_rows, add_options, summarise_rows)
