"""Capture a failure, and reduce it with reprokit and with PyTorch's minifier."""

from __future__ import annotations

import ast
import re
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from reprokit.core.records.process_state import describe_exit

from .cases.minimization_cases import Failure
from .harness import (
    MeasurementFailed,
    ReprokitResult,
    quiet_environ,
    run_child,
    run_reprokit,
)

MODES = ("isolate", "in-process")
"""Of the minifier: a process for each probe, or one process for all."""
STAGE_LIMIT_S = 180.0
HANGING_SCRIPT_LIMIT_S = 60.0
STALL = ("--stall", "15")
MAX_CAPTURES = 8
"""A failure that shows in some of the runs is captured again when it did not show."""
_COMPILED_FUNCTIONS = ("repro", "forward", "f")


@dataclass(frozen=True)
class Reduction:
    """What one tool made of one failure."""

    tool: str
    solved: bool = False
    operators: int | None = None
    lines: int | None = None
    probes: int | None = None
    wall_s: float | None = None
    cpu_s: float | None = None
    remark: str = ""


def minimize_with_each_tool(
    failure: Failure, budget_s: float, modes: Sequence[str]
) -> list[Reduction]:
    """Return the reductions of reprokit and of the minifier in each mode."""
    environ = quiet_environ(failure.bug)
    with tempfile.TemporaryDirectory(prefix="minimize-") as name:
        folder = Path(name)
        script = folder / "script.py"
        script.write_text(failure.script)
        capture = capture_failure(script, folder, environ)
        reductions = [reduce_with_reprokit(capture, failure, environ, folder, budget_s)]
        for mode in modes:
            reductions.append(
                reduce_with_minifier(
                    script, capture, failure, environ, folder / mode, budget_s, mode
                )
            )
    return reductions


def capture_failure(script: Path, folder: Path, environ: Mapping[str, str]) -> ReprokitResult:
    """Return the first capture whose verdict is not ok."""
    for _ in range(MAX_CAPTURES):
        done = run_reprokit(
            "capture",
            "--no-minimize",
            *STALL,
            "--output-dir",
            folder / "out",
            "--",
            sys.executable,
            script,
            environ=environ,
            cwd=folder,
            limit_s=2 * STAGE_LIMIT_S,
        )
        if done.kind not in ("ok", "none"):
            return done
    raise MeasurementFailed(
        f"the failure did not show in {MAX_CAPTURES} captures: {done.last_error}"
    )


def reduce_with_reprokit(
    capture: ReprokitResult,
    failure: Failure,
    environ: Mapping[str, str],
    folder: Path,
    budget_s: float,
) -> Reduction:
    """Run ``reprokit minimize`` on the run directory of a capture."""
    done = run_reprokit(
        "minimize",
        capture.answer["run_dir"],
        "--budget",
        str(budget_s),
        environ=environ,
        cwd=folder,
        limit_s=budget_s + 2 * STAGE_LIMIT_S,
    )
    minimized = done.answer.get("minimized") or {}
    fresh_runs = (minimized.get("proof") or {}).get("runs", 0) + 2
    reduction = Reduction(
        "reprokit",
        probes=minimized.get("probes"),
        wall_s=round(done.wall_s, 1),
        cpu_s=round(minimized.get("cpu_s") or done.cpu_s, 1),
        remark=(
            f"with packing and {fresh_runs} fresh runs: {done.cpu_s:.1f} CPU s"
            if minimized
            else done.last_error
        ),
    )
    repro = done.answer.get("repro")
    if not repro or not minimized.get("lines"):
        return reduction
    return with_repro(reduction, Path(repro), capture, failure, environ, folder)


def reduce_with_minifier(
    script: Path,
    capture: ReprokitResult,
    failure: Failure,
    environ: Mapping[str, str],
    folder: Path,
    budget_s: float,
    mode: str,
) -> Reduction:
    """Let the failing script write the launcher of the minifier, and run the launcher."""
    folder.mkdir()
    environ = {**environ, "TORCHINDUCTOR_CACHE_DIR": str(folder / "cache")}
    recording = {
        **environ,
        "TORCHDYNAMO_REPRO_AFTER": failure.after,
        "TORCHDYNAMO_REPRO_LEVEL": str(failure.level),
    }
    if failure.is_exported:
        level = str(failure.level)
        recording = {**environ, "DUMP_AOTI_MINIFIER": "1", "AOTINDUCTOR_REPRO_LEVEL": level}
    limit_s = HANGING_SCRIPT_LIMIT_S if failure.is_hang else STAGE_LIMIT_S
    run_child([sys.executable, script], environ=recording, cwd=folder, limit_s=limit_s)
    reduction = Reduction(f"minifier, {mode}")
    launchers = sorted(folder.rglob("minifier_launcher.py"))
    if not launchers:
        return replace(reduction, remark="no launcher")
    launcher = launchers[-1]
    done = run_child(
        [
            sys.executable,
            launcher,
            "minify",
            *(["--no-isolate"] if mode == "in-process" and not failure.is_exported else []),
        ],
        environ=environ,
        cwd=launcher.parent,
        limit_s=budget_s,
    )
    remark = "the budget ended" if done.status is None else describe_exit(done.status)
    probes = re.search(r"Made (\d+) queries", done.out + done.err)
    reduction = replace(
        reduction,
        probes=int(probes[1]) if probes else None,
        wall_s=round(done.wall_s, 1),
        cpu_s=round(done.cpu_s, 1),
        remark="" if probes else remark,
    )
    repro = launcher.parent / "repro.py"
    if not repro.exists():
        return reduction
    return with_repro(reduction, repro, capture, failure, environ, folder)


def with_repro(
    reduction: Reduction,
    repro: Path,
    capture: ReprokitResult,
    failure: Failure,
    environ: Mapping[str, str],
    folder: Path,
) -> Reduction:
    """Return the reduction with the size of its repro, and whether the repro is solved."""
    done = run_reprokit(
        "check",
        repro,
        "--same-as",
        capture.answer["pack"],
        "--exit-zero-if",
        "bug",
        "-n",
        "6" if failure.is_flaky else "1",
        *(STALL if failure.is_hang else ()),
        environ=environ,
        cwd=folder,
        limit_s=STAGE_LIMIT_S,
    )
    text = repro.read_text()
    return replace(
        reduction,
        solved=done.status == 0,
        operators=count_operators(text),
        lines=count_lines(text),
    )


def count_lines(text: str) -> int:
    """Return the number of lines that are neither blank nor comments."""
    return sum(1 for row in text.splitlines() if row.strip() and not row.lstrip().startswith("#"))


def count_operators(text: str) -> int:
    """Return the number of calls and arithmetic operations inside the compiled function; 1 where
    an operator itself is compiled, as in ``torch.compile(torch.erf)``.

    A repro of the minifier of AOTInductor has its graph only in comments.
    """
    if "torch._dynamo.repro.aoti" in text:
        return len(re.findall(r"^#.* = torch\.ops\.", text, re.MULTILINE))
    functions = [
        node
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.FunctionDef) and node.name in _COMPILED_FUNCTIONS
    ]
    operations = (ast.Call, ast.BinOp, ast.Compare, ast.AugAssign)
    return sum(isinstance(n, operations) for f in functions for n in ast.walk(f)) or 1
