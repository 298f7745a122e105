"""What all measurements share: child processes with their CPU seconds, calls of reprokit, and
ratios.
"""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

ROOT = Path(__file__).resolve().parents[1]
BENCHMARKS = ROOT / "benchmarks"
CASES = BENCHMARKS / "cases"
DATA = BENCHMARKS / "data"
INJECT = CASES / "inject"
"""A folder that gives each process which has it on PYTHONPATH the bug that BUG names."""
REPROKIT = (sys.executable, "-m", "reprokit")
GRACE_S = 3.0
"""Seconds between SIGTERM and SIGKILL for a child that ran past its limit."""
_T = TypeVar("_T")
_TWO_RANKS = """
import os, subprocess, sys
ranks = [subprocess.Popen(sys.argv[1:], env={**os.environ, "RANK": rank}) for rank in "01"]
sys.exit(max(rank.wait() for rank in ranks))
"""


class BadInput(Exception):
    """The command line asks for something that cannot be measured; the message is one line."""


class MeasurementFailed(Exception):
    """A case could not be measured, such as a capture that gave no answer; the message is one
    line.
    """


@dataclass(frozen=True)
class ChildResult:
    """How a child process ended, and what it cost with all its descendants."""

    status: int | None
    """Exit status, negative for a signal; None where the child ran past its limit."""
    out: str
    err: str
    wall_s: float
    cpu_s: float
    peak_mb: float
    """The resident memory of the largest of these processes."""

    @property
    def last_error(self) -> str:
        """The last line of the standard error."""
        return (self.err.strip().splitlines() or [""])[-1]


@dataclass(frozen=True)
class ReprokitResult(ChildResult):
    """A call of reprokit with ``--json``."""

    answer: dict[str, Any]
    """The JSON that it printed; empty where it printed none."""

    @property
    def kind(self) -> str:
        """Kind of the verdict; ``none`` where there is no verdict."""
        return (self.answer.get("verdict") or {}).get("kind") or "none"

    def run_file(self, name: str) -> Any:
        """Return the content of a JSON file of the run directory; None where it is absent."""
        path = Path(self.answer.get("run_dir") or "absent") / name
        return json.loads(path.read_text()) if path.exists() else None


def run_child(
    command: Sequence[str | Path],
    *,
    environ: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    limit_s: float | None = None,
) -> ChildResult:
    """Run a child in its own process group; end the group after ``limit_s`` seconds, or when this
    process is interrupted.
    """
    ended, is_late = threading.Event(), threading.Event()

    def end_group() -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child.pid, signal.SIGTERM)
            if not ended.wait(GRACE_S):
                os.killpg(child.pid, signal.SIGKILL)

    def end_late() -> None:
        is_late.set()
        end_group()

    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        began = time.perf_counter()
        child = subprocess.Popen(
            [str(word) for word in command],
            cwd=cwd,
            env=None if environ is None else dict(environ),
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=err,
            start_new_session=True,
        )
        timer = threading.Timer(limit_s or 0, end_late)
        try:
            if limit_s is not None:
                timer.start()
            _, status, usage = os.wait4(child.pid, 0)
        except BaseException:
            end_group()
            raise
        finally:
            ended.set()
            timer.cancel()
        wall_s = time.perf_counter() - began
        child.returncode = os.waitstatus_to_exitcode(status)
        out.seek(0), err.seek(0)
        return ChildResult(
            None if is_late.is_set() else child.returncode,
            out.read().decode(errors="replace"),
            err.read().decode(errors="replace"),
            wall_s,
            usage.ru_utime + usage.ru_stime,
            usage.ru_maxrss * 1024 / 1e6,
        )


def run_reprokit(
    *words: str | Path,
    environ: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    limit_s: float | None = None,
    tree: Path = ROOT,
) -> ReprokitResult:
    """Run a command of reprokit, which gets ``--json``, with a source tree on PYTHONPATH."""
    command = [*REPROKIT, *with_json_option(words)]
    variables = {"PYTHONPATH": str(tree), **(environ or os.environ)}
    if str(tree) not in variables["PYTHONPATH"].split(os.pathsep):
        variables["PYTHONPATH"] = os.pathsep.join([str(tree), variables["PYTHONPATH"]])
    child = run_child(command, environ=variables, cwd=cwd, limit_s=limit_s)
    try:
        answer = json.loads(child.out[child.out.index("{") :])
    except ValueError:
        answer = {}
    return ReprokitResult(**vars(child), answer=answer)


def with_json_option(words: Sequence[str | Path]) -> list[str | Path]:
    """Return the words of a command of reprokit with ``--json``, before the command of a target."""
    end = words.index("--") if "--" in words else len(words)
    return [*words[:end], "--json", *words[end:]]


def quiet_environ(bug: Mapping[str, str] | None = None, **more: str) -> dict[str, str]:
    """Return an environment with one thread, without settings of torch or reprokit, and with the
    variables of an injected bug (see ``INJECT``).
    """
    environ = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("TORCH", "REPROKIT", "BUG"))
    }
    folders = [str(ROOT), *([str(INJECT)] if bug else [])]
    return {
        **environ,
        "OMP_NUM_THREADS": "1",
        "TORCHINDUCTOR_COMPILE_THREADS": "1",
        "PYTHONPATH": os.pathsep.join(folders),
        **(bug or {}),
        **more,
    }


def two_ranks(command: Sequence[str]) -> tuple[list[str], dict[str, str]]:
    """Return the command that runs ``command`` as two ranks, and the variables that they need."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = str(free.getsockname()[1])
    variables = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "WORLD_SIZE": "2"}
    return [sys.executable, "-c", _TWO_RANKS, *command], variables


def median_ratio(values: Sequence[float], base: Sequence[float]) -> float:
    """Return the median of the ratios of values that were measured in the same round."""
    return statistics.median(a / b for a, b in zip(values, base, strict=True))


def in_turns(names: Sequence[_T], rounds: int) -> list[_T]:
    """Return the order of ``rounds`` rounds: each second round runs backwards, so that a machine
    that gets busier favours no name.
    """
    return [
        name
        for number in range(rounds)
        for name in (names if number % 2 == 0 else list(reversed(names)))
    ]


def require_package(package: str) -> None:
    """Raise BadInput unless a package can be imported."""
    if importlib.util.find_spec(package) is None:
        raise BadInput(f"this measurement needs the package {package}, which is not installed")


def show_progress(text: str) -> None:
    """Write a line about a case to the standard error."""
    print(text, file=sys.stderr, flush=True)
