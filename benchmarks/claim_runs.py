"""Run the programs of a pack without reprokit, for the checks of its claims."""

from __future__ import annotations

import ast
import functools
import json
import os
import re
import resource
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from reprokit.core.triage.known_failures import KnownFailure

RUN_LIMIT_S = 150.0
HANG_S = 25.0
"""How long a program runs that hangs, before its stacks are read, on a machine that is not busy."""
NOT_INHERITED = ("TORCH", "REPROKIT", "BUG", "PYTHONPATH")
PLAIN = Path(__file__).with_name("plain_program.py")
MARK = "plain-program: "
"""The start of the line in which it says what it found; importing it would import torch."""
HANGS = ("hang", "slow-compile")


@dataclass(frozen=True)
class PlainRun:
    """A run without reprokit."""

    status: int | None
    """None for a program that still ran when its stacks were read."""
    text: str
    """What it printed, and torch's own trace."""
    found: Mapping[str, Any]
    """What :mod:`plain_program` printed."""
    stacks: tuple[str, ...] = ()
    """Two dumps of py-spy, of a program that still ran."""
    cpu_s: float = 0.0
    peak_bytes: int = 0
    printed: str = ""
    """The output alone."""
    graphs: Mapping[str, Sequence[int]] = field(default_factory=dict)
    """Level -> the number of nodes of each graph, from torch's trace."""


class ForkServer:
    """A process that has imported torch and nothing else, and runs each program in a fork."""

    def __init__(self, cache: Path) -> None:
        environ = _environ(cache, "")
        del environ["TORCH_TRACE"]
        self._child = subprocess.Popen(
            [sys.executable, str(PLAIN), "--serve"],
            env=environ,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self._lock = threading.Lock()

    def run(self, spec: Mapping[str, Any], folder: Path, cache: Path) -> PlainRun:
        """Run a program to its end, or for ``RUN_LIMIT_S``."""
        with tempfile.TemporaryDirectory(prefix="claims-trace-", dir=cache) as trace, self._lock:
            out = cache / f"output-{time.monotonic_ns()}.txt"
            out.touch()
            asked = {
                "spec": spec,
                "folder": str(folder),
                "variables": {"TORCH_TRACE": trace},
                "out": str(out),
                "limit_s": RUN_LIMIT_S,
            }
            assert self._child.stdin is not None and self._child.stdout is not None
            self._child.stdin.write(json.dumps(asked) + "\n")
            self._child.stdin.flush()
            ended = json.loads(self._child.stdout.readline())
            return _read_run(ended["status"], out, trace, (), ended["cpu_s"], ended["peak_bytes"])

    def close(self) -> None:
        """End the process."""
        assert self._child.stdin is not None
        self._child.stdin.close()
        self._child.wait()


@dataclass
class DraftedIssue:
    """The pack of a run, and the runs that check it."""

    name: str
    run_dir: Path
    folder: Path
    entry: KnownFailure | None
    cache: Path
    server: ForkServer | None = None
    """Where programs run that no variable changes and that do not hang; None: a fresh process for
    each of them.
    """
    runs: dict[str, PlainRun] = field(default_factory=dict)

    @functools.cached_property
    def request(self) -> dict[str, Any]:
        """The options of the captured run."""
        document: dict[str, Any] = json.loads((self.run_dir / "run.json").read_text())
        return document

    @functools.cached_property
    def verdict(self) -> dict[str, Any]:
        """The verdict of the captured run."""
        document: dict[str, Any] = json.loads((self.run_dir / "pack" / "verdict.json").read_text())
        return document

    @property
    def repro(self) -> Path | None:
        """The proved program."""
        path = self.run_dir / "pack" / "repro.py"
        return path if path.exists() else None

    def spec_of(self, is_repro: bool) -> dict[str, Any] | None:
        """Return what plain_program runs; None for a command that it cannot run."""
        if is_repro:
            return {"file": str(self.repro)} if self.repro else None
        target = self.request["target"]
        if target["kind"] in ("file", "module"):
            options = self.request.get("compile") or {}
            return {
                "file": target["place"],
                "factory": target["name"],
                "options": {
                    k: v
                    for k, v in options.items()
                    if k in ("backend", "mode", "dynamic", "fullgraph")
                },
                "train": self.request.get("train"),
            }
        words = self.command
        if len(words) > 1 and "python" in Path(words[0]).name:
            if words[1] == "-c":
                script = self.cache / "command.py"
                script.write_text(words[2])
                return {"file": str(script), "words": words[3:]}
            if words[1].endswith(".py"):
                return {"file": str(self.folder / words[1]), "words": words[2:]}
            if words[1] == "-m" and words[2] != "torch.distributed.run":
                return {"file": "", "module": words[2], "words": words[3:]}
        return None

    @property
    def program_text(self) -> str:
        """The file of the user's program; empty if it is not one file."""
        path = Path(str((self.spec_of(False) or {}).get("file", "")))
        return path.read_text() if path.is_file() else ""

    def has_lines(self, lines: Collection[str]) -> bool:
        """Whether the user's program is one file that has all of these lines."""
        return bool(self.program_text) and {*lines} <= {*self.program_text.splitlines()}

    @property
    def command(self) -> list[str]:
        """The captured command, with the interpreter of this benchmark."""
        words = self.request["target"]["command"]
        return [sys.executable if word.endswith("/bin/python") else word for word in words]

    def run(
        self,
        is_repro: bool = False,
        changes: Mapping[str, Any] | None = None,
        variables: Mapping[str, str] | None = None,
        compares: bool = False,
    ) -> PlainRun | None:
        """Run the program, or the repro, without reprokit; None where that is not possible."""
        spec = self.spec_of(is_repro)
        if self.verdict["stage"] and not is_repro:
            return None  # it needs a cache that an earlier process wrote
        request = self.request
        if not is_repro and (request.get("tensor_parallel") or request.get("gpu")):
            return None  # it needs the simulation
        if spec is None and self.command and not (is_repro or changes or compares):
            spec = {"command": self.command}
        elif spec is None or not (spec.get("module") or Path(str(spec["file"])).exists()):
            return None
        spec = {**spec, "changes": dict(changes or {}), "compares": compares}
        return self._run_once(spec, variables or {})

    def run_file(self, path: Path) -> PlainRun:
        """Run a changed copy of the repro."""
        return self._run_once({"file": str(path), "changes": {}}, {})

    def _run_once(self, spec: dict[str, Any], variables: Mapping[str, str]) -> PlainRun:
        key = json.dumps([spec, dict(variables)], sort_keys=True)
        if key not in self.runs:
            hangs = self.verdict["kind"] in HANGS or bool(self.request["is_timed_out"])
            if self.server and not (hangs or variables or spec.get("command")):
                self.runs[key] = self.server.run(spec, self.folder, self.cache)
                return self.runs[key]
            self.runs[key] = _run(spec, self.folder, self.cache, variables, hangs)
        return self.runs[key]


def _run(
    spec: dict[str, Any], folder: Path, cache: Path, variables: Mapping[str, str], hangs: bool
) -> PlainRun:
    with tempfile.TemporaryDirectory(prefix="claims-trace-", dir=cache) as trace:
        environ = {**_environ(cache, trace), **variables}
        words = spec.get("command") or [sys.executable, str(PLAIN), json.dumps(spec)]
        out = cache / f"output-{time.monotonic_ns()}.txt"
        with out.open("wb") as file:
            child = subprocess.Popen(
                words, cwd=folder, env=environ, stdin=subprocess.DEVNULL, stdout=file, stderr=file,
                start_new_session=True,
            )  # fmt: skip
            busy = max(1.0, os.getloadavg()[0] / (os.cpu_count() or 1))
            limit_s = min(HANG_S * busy, RUN_LIMIT_S) if hangs else RUN_LIMIT_S * busy
            status, usage, stacks = _wait(child, limit_s)
        peak = usage.ru_maxrss * 1024 if usage else 0
        cpu_s = usage.ru_utime + usage.ru_stime if usage else 0.0
        return _read_run(status, out, trace, stacks, cpu_s, peak)


def _environ(cache: Path, trace: str) -> dict[str, str]:
    """Return the environment of a plain run."""
    return {
        **{k: v for k, v in os.environ.items() if not k.startswith(NOT_INHERITED)},
        "TORCHINDUCTOR_CACHE_DIR": str(cache / "inductor"),
        "TORCHINDUCTOR_FX_GRAPH_CACHE": "0",
        "TORCHINDUCTOR_AUTOGRAD_CACHE": "0",
        "TORCHDYNAMO_VERBOSE": "1",
        "TORCH_LOGS": "recompiles,graph_breaks,perf_hints,cudagraphs",
        "TORCH_TRACE": trace,
    }


def _read_run(
    status: int | None, out: Path, trace: str, stacks: tuple[str, ...], cpu_s: float, peak: int
) -> PlainRun:
    printed = out.read_text(errors="replace")
    logs = [path.read_text(errors="replace") for path in Path(trace).rglob("*.log")]
    lines = [row for row in printed.splitlines() if row.startswith(MARK)]
    found = json.loads(lines[-1].removeprefix(MARK)) if lines else {}
    text = "\n".join([printed, *logs])
    return PlainRun(status, text, found, stacks, cpu_s, peak, printed, _graphs_of(logs))


def _wait(
    child: subprocess.Popen[bytes], limit_s: float
) -> tuple[int | None, resource.struct_rusage | None, tuple[str, ...]]:
    """Wait for a child. After the limit, read its stacks twice and end it."""
    end = time.monotonic() + limit_s
    while time.monotonic() < end:
        pid, status, usage = os.wait4(child.pid, os.WNOHANG)
        if pid:
            child.returncode = os.waitstatus_to_exitcode(status)
            _end_group(child.pid)
            return child.returncode, usage, ()
        time.sleep(0.1)
    stacks = []
    for _ in range(2):
        # it stops the process while it reads; otherwise it fails for one that runs
        command = ["py-spy", "dump", "--subprocesses", "--pid", str(child.pid)]
        path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
        done = subprocess.run(
            command, capture_output=True, text=True, env={**os.environ, "PATH": path}
        )
        stacks.append(done.stdout)
        time.sleep(2.0)
    _end_group(child.pid)
    _, _, usage = os.wait4(child.pid, 0)
    child.returncode = -9
    return None, usage, tuple(stacks)


def _end_group(pid: int) -> None:
    try:
        os.killpg(pid, signal.SIGKILL)
    except ProcessLookupError:
        return


def _graphs_of(logs: Sequence[str]) -> dict[str, list[int]]:
    """Count the graphs in torch's trace, and the nodes of their code."""
    levels = {"dynamo": ("dynamo_output_graph",), "aten": ("aot_forward_graph", "aot_backward_graph", "aot_inference_graph")}  # fmt: skip
    counts: dict[str, list[int]] = {level: [] for level in levels}
    for log in logs:
        rows = log.splitlines()
        for place, row in enumerate(rows):
            for level, names in levels.items():
                if any(f'"{name}"' in row for name in names) and "has_payload" in row:
                    code = []
                    for line in rows[place + 1 :]:
                        if not line.startswith("\t"):
                            break
                        code.append(line[1:])
                    counts[level].append(_nodes_of("\n".join(code)))
    return counts


def _nodes_of(code: str) -> int:
    """Return the number of nodes of a printed graph: inputs, assigned names and the result."""
    function = re.search(r"( *)def forward\(.*", code, re.DOTALL)
    if function is None:
        return 0
    text = re.sub(rf"(?m)^{function[1]}", "", function.group())
    try:
        (node,) = [n for n in ast.walk(ast.parse(text)) if isinstance(n, ast.FunctionDef)][:1]
    except (SyntaxError, ValueError):
        return 0
    inputs = {argument.arg for argument in node.args.args}
    names = [
        row
        for row in ast.walk(node)
        if isinstance(row, (ast.Assign, ast.AnnAssign))
        and not (isinstance(row.value, ast.Name) and row.value.id in inputs)
        and not (isinstance(row.value, ast.Constant) and row.value.value is None)
        and isinstance(row.targets[0] if isinstance(row, ast.Assign) else row.target, ast.Name)
    ]
    return len(node.args.args) - 1 + len(names) + 1
