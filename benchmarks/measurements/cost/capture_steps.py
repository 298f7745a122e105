"""Measure what each step of a capture costs, beside the plain program that fails.

python -m benchmarks run capture_steps [--only CASE ...] [--load N] [--beside FOLDER]

The cases are samples, the failures of benchmarks/cases/minimization_cases.py, and public bugs of
benchmarks/cases/known_bugs, alone and buried in a model. Each program runs once without reprokit,
with an empty compiler cache, and then as the target of ``reprokit capture``. ``--beside`` names the
source tree of an older reprokit, which captures the same program right before. ``--load`` starts
that many processes that keep a CPU busy. The recorded rows have each step with its wall-clock and
CPU seconds.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ...cases.minimization_cases import FAILURES
from ...harness import (
    ROOT,
    ChildResult,
    ReprokitResult,
    quiet_environ,
    run_child,
    run_reprokit,
    show_progress,
)
from ...measurement import Measurement, add_beside_option, add_only_option
from ...results import Column, Row

COLUMNS = (
    Column("case", "case"),
    Column("load", "busy processes"),
    Column("plain_cpu_s", "plain run, CPU s", 1),
    Column("old_ratio", "CPU ratio before", 1),
    Column("ratio", "CPU ratio", 1),
    Column("old_wall_s", "s before", 0),
    Column("wall_s", "s", 0),
    Column("first_s", "first program, s", 0),
    Column("reduction_s", "reduction, s", 0),
    Column("proof_s", "proof, s", 0),
    Column("old_probes", "probes before"),
    Column("probes", "probes"),
    Column("old_lines", "lines before"),
    Column("lines", "lines"),
    Column("proved", "proved"),
)
SAMPLES = ("exception_inductor", "wrong_result", "cpp_compile_error", "crash")
PUBLIC = {
    "raising": ("keyerror_buf", "jacfwd_half", "own_pass", "no_fake", "constraint"),
    "crashing": ("jacfwd_trace", "oob_abort"),
    "silent": ("acosh_large", "hessian_trace", "shift_clone", "dtype_view", "copy_then_mutate"),
}
"""File of known bugs -> its factories that are run alone."""
BURIED = {
    "raising": ("keyerror_buf", "jacfwd_half"),
    "crashing": ("jacfwd_trace", "kernel_segv"),
    "silent": ("acosh_large", "shift_clone", "copy_then_mutate"),
}
"""File of known bugs -> its factories that are buried in a block of a transformer."""
STALL = ("--stall", "15")
LIMIT_S = 900.0
PLAIN_LIMIT_S = 60.0
"""A program that hangs is ended after this time."""


@dataclass(frozen=True)
class Case:
    """One program that fails."""

    script: str
    target: tuple[str, ...] = ()
    """The words of ``reprokit capture`` after its options; empty for the script as a command."""
    bug: dict[str, str] = field(default_factory=dict)


def _known_bug(file: str, factory: str, host: str) -> Case:
    """Return the case of a factory of known bugs, whose plain run compiles what it returns."""
    path = ROOT / "benchmarks" / "cases" / "known_bugs" / f"{file}.py"
    script = (
        f"import sys\nsys.path.insert(0, {str(path.parent)!r})\nimport torch\n"
        f"from {file} import {factory}\n"
        f"spec = {factory}(host={host!r})\n"
        "model = torch.compile(spec['model'], **spec.get('compile', {}))\n"
        "for args, kwargs in spec['calls']:\n    model(*args, **kwargs)\n"
    )
    return Case(script, (f"{path}:{factory}", "--set", f"host={host}"))


def _cases() -> dict[str, Case]:
    cases = {}
    for name in SAMPLES:
        path = ROOT / "samples" / f"{name}.py"
        cases[f"sample {name}"] = Case(path.read_text(), (f"{path}:make",))
    for name, failure in FAILURES.items():
        cases[name] = Case(failure.script, (), failure.bug)
    for host, bugs in (("alone", PUBLIC), ("block", BURIED)):
        for file, factories in bugs.items():
            for factory in factories:
                buried = ", buried" if host != "alone" else ""
                cases[f"{factory}{buried}"] = _known_bug(file, factory, host)
    return cases


CASES = _cases()


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the choice of cases, the load, and the older reprokit."""
    add_only_option(parser, list(CASES), "case")
    parser.add_argument(
        "--load",
        type=int,
        choices=range(65),
        default=0,
        metavar="N",
        help="default: 0; processes that keep a CPU busy",
    )
    add_beside_option(parser, "captures each program")


def measure_rows(options: argparse.Namespace) -> Iterator[Row]:
    """Yield one row for each case."""
    for name in options.only:
        with _busy_processes(options.load):
            row = measure_case(CASES[name], options.beside)
            yield {"case": name, "load": options.load, **row}


def measure_case(case: Case, beside: Path | None) -> dict[str, Any]:
    """Run a program without and with reprokit, and return the cells of its row."""
    with tempfile.TemporaryDirectory(prefix="steps-", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        script = folder / "script.py"
        script.write_text(case.script)
        environ = quiet_environ(case.bug, TORCHINDUCTOR_CACHE_DIR=str(folder / "cache"))
        plain = run_child(
            [sys.executable, script], environ=environ, cwd=folder, limit_s=PLAIN_LIMIT_S
        )
        older = _capture(case, script, folder / "older", beside) if beside else {}
        newer = _capture(case, script, folder / "newer", ROOT)
    for captured in (older, newer):
        if captured:
            captured["ratio"] = round(captured["cpu_s"] / plain.cpu_s, 2)
    show_progress(
        f"{newer['verdict']}: plain {plain.cpu_s:.1f} CPU s; capture {newer['cpu_s']:.1f} CPU s in"
        f" {newer['wall_s']:.0f} s, {newer['probes']} probes, {newer['lines']} lines; before:"
        f" {older.get('cpu_s')} CPU s in {older.get('wall_s')} s, {older.get('probes')} probes,"
        f" {older.get('lines')} lines"
    )
    return _row(plain, older, newer)


def _row(plain: ChildResult, older: dict[str, Any], newer: dict[str, Any]) -> dict[str, Any]:
    """Return the cells of the table, and in ``steps`` everything that was measured."""
    cells = {f"old_{key}": value for key, value in older.items()} | newer
    return {
        "plain_cpu_s": round(plain.cpu_s, 2),
        **{column.key: cells[column.key] for column in COLUMNS if column.key in cells},
        "steps": {"plain_s": round(plain.wall_s, 2), "before": older, "now": newer},
    }


def _capture(case: Case, script: Path, output: Path, tree: Path) -> dict[str, Any]:
    """Capture a program with the reprokit of a source tree, and return the cells about it."""
    environ = quiet_environ(case.bug)
    environ["PYTHONPATH"] = environ["PYTHONPATH"].replace(str(ROOT), str(tree))
    done = run_reprokit(
        "capture",
        *STALL,
        "--output-dir",
        output,
        *(case.target or ("--", sys.executable, str(script))),
        environ=environ,
        cwd=script.parent,
        limit_s=LIMIT_S,
        tree=tree,
    )
    steps = _read_steps(done)
    minimized = done.answer.get("minimized") or {}
    wall = {step["step"]: step["wall_s"] for step in steps}
    names = list(wall)
    before = names[: names.index("minimization")] if "minimization" in wall else []
    proof = minimized.get("proof") or {}
    proof_s = minimized.get("proof_s") or 0.0
    first_s = minimized.get("first_s")
    return {
        "cpu_s": round(done.cpu_s, 2),
        "wall_s": round(done.wall_s, 2),
        "run_s": wall.get("run", 0.0),
        "reduction_s": round(wall.get("minimization", 0.0) - proof_s, 2),
        "proof_s": round(proof_s + wall.get("proof of the recorded program", 0.0), 2),
        "first_s": None
        if first_s is None
        else round(sum(wall[step] for step in before) + first_s, 1),
        "probes": minimized.get("probes"),
        "lines": minimized.get("lines"),
        "proved": f"{proof.get('hits', 0)} of {proof.get('runs', 0)}",
        "verdict": done.kind,
        "steps": steps,
    }


def _read_steps(done: ReprokitResult) -> list[dict[str, Any]]:
    path = Path(done.answer.get("run_dir") or "absent", "steps.jsonl")
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


@contextlib.contextmanager
def _busy_processes(count: int) -> Iterator[None]:
    busy = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(count)]
    try:
        yield
    finally:
        for process in busy:
            process.kill()
            process.wait()


def summarise_rows(rows: Sequence[Row]) -> list[str]:
    """Return the medians, and the cases whose repro became larger."""

    def median(key: str) -> float | None:
        values = [float(row[key]) for row in rows if row.get(key) is not None]  # type: ignore[arg-type]
        return statistics.median(values) if values else None

    notes = []
    for words, key, unit in (
        ("CPU seconds of the capture over those of the plain run", "ratio", ""),
        ("wall-clock seconds of the capture", "wall_s", " s"),
        ("seconds to the first program", "first_s", " s"),
        ("probes", "probes", ""),
    ):
        if (now := median(key)) is None:
            continue
        old = median(f"old_{key}")
        before = f", before: {old:.1f}{unit}" if old is not None else ""
        notes.append(f"Median of {words}: {now:.1f}{unit}{before}.")
    both = [row for row in rows if row.get("lines") and row.get("old_lines")]
    larger = [str(row["case"]) for row in both if _number(row["lines"]) > _number(row["old_lines"])]
    if both:
        notes.append(
            f"The repro has more lines than before in {len(larger)} of {len(both)} cases"
            + (f": {', '.join(larger)}." if larger else ".")
        )
    return notes


def _number(value: object) -> float:
    return float(str(value))


MEASUREMENT = Measurement(COLUMNS, measure_rows, add_options, summarise_rows)
