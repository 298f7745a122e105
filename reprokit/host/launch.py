"""What a target is started with: its command line, its environment, and the folder that holds the agent."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..core.records import Missing
from . import files, tree
from .target import Target


@dataclass(frozen=True)
class Request:
    """What to run and how; everything that the user may choose."""

    target: Target
    python: str = sys.executable
    """Interpreter for a factory target; a command names its own."""
    deadline_s: float = 600.0
    knobs: dict[str, Any] = field(default_factory=dict)
    compile: dict[str, Any] = field(default_factory=dict)
    train: bool = False
    device: str | None = None
    weights: str = "auto"
    logs: tuple[str, ...] = ()
    has_trace: bool = True
    compile_it: bool = True
    """False runs the same target without torch.compile."""


def describe(request: Request) -> dict[str, Any]:
    """The request as JSON values."""
    target = request.target
    return {
        "target": {"kind": target.kind, "place": target.place, "name": target.name, "command": list(target.command)},
        "python": request.python,
        "deadline_s": request.deadline_s,
        "knobs": {k: v for k, v in request.knobs.items() if v is not None},
        "compile": request.compile,
        "train": request.train,
        "device": request.device,
        "weights": request.weights,
        "compile_it": request.compile_it,
        "trace": request.has_trace,
    }


def agent_folder(place: Path) -> Path:
    """Copy core and agent, and nothing else of reprokit, into a folder for the target's path alone."""
    folder = place / "agent"
    package = folder / "_reprokit"
    source = Path(__file__).resolve().parent.parent
    if not package.exists():
        package.mkdir(parents=True)
        (package / "__init__.py").write_text("")
        for name in ("core", "agent"):
            shutil.copytree(source / name, package / name, ignore=shutil.ignore_patterns("__pycache__"))
        (package / "agent" / "sitecustomize.py").rename(folder / "sitecustomize.py")
    return folder


def command(request: Request, run_path: Path) -> list[str]:
    if request.target.kind == "command":
        return list(request.target.command)
    target = request.target
    spec = {**describe(request), "kind": target.kind, "place": target.place, "name": target.name, "cwd": os.getcwd()}
    files.write_json(run_path / "spec.json", spec)
    return [request.python, "-m", "_reprokit.agent", "run", str(run_path / "spec.json")]


def environment(request: Request, run_path: Path, run_id: str) -> tuple[dict[str, str], list[Missing]]:
    """The target's environment: the user's own, plus our folder on PYTHONPATH and where to write."""
    missing: list[Missing] = []
    environ = dict(os.environ)
    path = [str(agent_folder(run_path)), *(p for p in (environ.get("PYTHONPATH"),) if p)]
    environ["PYTHONPATH"] = os.pathsep.join(path)
    environ["REPROKIT_RUN_DIR"] = str(run_path)
    environ["REPROKIT_WATCHDOG_PID"] = str(os.getpid())
    environ[tree.RUN_ID] = run_id
    environ["REPROKIT_LOGS"] = ",".join(request.logs)
    environ.setdefault("PYTHONUNBUFFERED", "1")  # output that a crash would lose is evidence
    # A warm cache hides the compile that fails, and a killed compile poisons the cache it wrote to.
    environ.setdefault("TORCHINDUCTOR_CACHE_DIR", str(run_path / "cache"))
    if not request.has_trace:
        missing.append(Missing("TORCH_TRACE", "left out by --no-trace"))
    elif environ.get("TORCH_TRACE"):
        missing.append(Missing("TORCH_TRACE", f"the target's environment already sends it to {environ['TORCH_TRACE']}"))
    else:
        environ["TORCH_TRACE"] = str(run_path / "trace")
    if not request.compile_it:
        environ.pop("TORCH_TRACE", None)
    if environ.get("TORCH_TRACE") == "":
        del environ["TORCH_TRACE"]  # an empty one is an error to torch
    return environ, missing


def start_guardian(run_id: str, group: int) -> subprocess.Popen[bytes] | None:
    script = Path(__file__).with_name("guardian.py")
    try:
        return subprocess.Popen(
            [sys.executable, "-I", "-S", str(script), run_id, str(group)],
            stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True,
        )  # fmt: skip
    except OSError:
        return None


def dismiss(guardian: subprocess.Popen[bytes] | None) -> None:
    if guardian is None or guardian.stdin is None:
        return
    with contextlib.suppress(OSError):
        guardian.stdin.write(b"x")
        guardian.stdin.close()
    with contextlib.suppress(subprocess.TimeoutExpired):
        guardian.wait(2)
