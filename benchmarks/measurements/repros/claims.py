"""Check what the drafts of issues state, by a route that does not use the code that stated it.

python -m benchmarks run claims [--only NUMBER ...] [--runs FOLDER ...]

Each program of the catalogue is captured as a command; with --runs, the run directories in a folder
are taken as they are. Every statement of ``issue/claims.json`` is checked in fresh processes that
do not import reprokit: the program and the repro run with Python alone, with a different backend,
setting or environment, py-spy reads the stack of a hang, and the settings are compared with those
of a fresh torch. A statement that no check fits is counted as unchecked, and shown.
"""

from __future__ import annotations

import argparse
import ast
import functools
import hashlib
import json
import os
import re
import resource
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from reprokit.core.triage.known_failures import KnownFailure
from reprokit.host.catalogue import catalogue_files

from ... import plain_program
from ...harness import quiet_environ, run_reprokit, show_progress
from ...measurement import Measurement, add_only_option
from ...results import Column, Row

COLUMNS = (
    Column("failure", "failure"),
    Column("kind", "kind"),
    Column("claims", "claims"),
    Column("true", "true"),
    Column("false", "false"),
    Column("unchecked", "unchecked"),
)
LIMIT_S = 900.0
RUN_LIMIT_S = 150.0
HANG_S = 25.0
"""How long a program runs that hangs, before its stacks are read."""
UNMET_STATUS, UNMET_WORDS = 77, "cannot show the failure"
"""How a repro ends on a machine that does not have what the failure needs."""
NOT_INHERITED = ("TORCH", "REPROKIT", "BUG", "PYTHONPATH")
TRUE, FALSE, UNCHECKED = "true", "false", "unchecked"
PLAIN = Path(plain_program.__file__)
NO_COMPILE = {"TORCHDYNAMO_DISABLE": "1", "TORCH_COMPILE_DISABLE": "1"}
HANGS = ("hang", "slow-compile")
SHOWN_IN_LOG = {
    "recompile-limit": "recompile_limit",
    "graph-break": "Graph break",
    "cudagraph-skip": "skipping cudagraphs",
}
"""Of kinds that do not end a program: the words of torch's log that show them."""
CONDITIONS: dict[str, tuple[dict[str, Any], dict[str, str]]] = {
    "vector instructions": ({"configs": {"torch._inductor.config.cpp.simdlen": 0}}, {}),
    "OpenMP threads": ({}, {"OMP_NUM_THREADS": "2"}),
    "visible CPUs": (
        {"lines": "import os; os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})"},
        {},
    ),
    "random seed": ({"lines": "torch.manual_seed(12345)"}, {}),
    "default dtype": ({"lines": "torch.set_default_dtype(torch.float64)"}, {}),
    "denormal numbers": ({"lines": "torch.set_flush_denormal(True)"}, {}),
    "fast math": ({"configs": {"torch._inductor.config.cpp.enable_unsafe_math_opt_flag": True}}, {}),
    "compiler caches": ({}, {"TORCHINDUCTOR_FORCE_DISABLE_CACHES": "1"}),
    "dynamic shapes": ({"compile": {"dynamic": True}}, {}),
    "hash seed": ({}, {"PYTHONHASHSEED": "1"}),
    "compile workers": ({}, {"TORCHINDUCTOR_COMPILE_THREADS": "1"}),
    "contents of new memory": ({}, {"MALLOC_PERTURB_": "165"}),
    "vector instructions of ATen and Inductor": ({}, {"ATEN_CPU_CAPABILITY": "default"}),
    "free memory": (
        {"lines": "import resource; resource.setrlimit(resource.RLIMIT_AS, (8 << 30, 8 << 30))"},
        {},
    ),
}  # fmt: skip
"""What the repro runs with to check that it does not depend on a condition: changes and variables."""


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
    graphs: Mapping[str, Sequence[int]] = field(default_factory=dict)
    """Level -> the number of nodes of each graph, from torch's trace."""


@dataclass
class DraftedIssue:
    """The pack of a run, and the runs that check it."""

    name: str
    run_dir: Path
    folder: Path
    entry: KnownFailure | None
    cache: Path
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
        words = list(target["command"])
        if len(words) > 1 and "python" in Path(words[0]).name:
            if words[1] == "-c":
                script = self.cache / "command.py"
                script.write_text(words[2])
                return {"file": str(script), "words": words[3:]}
            if words[1].endswith(".py"):
                return {"file": str(self.folder / words[1]), "words": words[2:]}
        return None

    @property
    def command(self) -> list[str]:
        """The captured command, with the interpreter of this benchmark."""
        words = list(self.request["target"]["command"])
        return [sys.executable, *words[1:]] if words and "python" in Path(words[0]).name else words

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
        elif spec is None or not Path(str(spec["file"])).exists():
            return None
        spec = {**spec, "changes": dict(changes or {}), "compares": compares}
        key = json.dumps([spec, dict(variables or {})], sort_keys=True)
        if key not in self.runs:
            hangs = self.verdict["kind"] in HANGS or bool(self.request["is_timed_out"])
            self.runs[key] = _run(spec, self.folder, self.cache, variables or {}, hangs)
        return self.runs[key]


def _run(
    spec: dict[str, Any], folder: Path, cache: Path, variables: Mapping[str, str], hangs: bool
) -> PlainRun:
    with tempfile.TemporaryDirectory(prefix="claims-trace-", dir=cache) as trace:
        environ = {
            **{k: v for k, v in os.environ.items() if not k.startswith(NOT_INHERITED)},
            "TORCHINDUCTOR_CACHE_DIR": str(cache / "inductor"),
            "TORCHINDUCTOR_FX_GRAPH_CACHE": "0",
            "TORCHINDUCTOR_AUTOGRAD_CACHE": "0",
            "TORCHDYNAMO_VERBOSE": "1",
            "TORCH_LOGS": "recompiles,graph_breaks,perf_hints,cudagraphs",
            "TORCH_TRACE": trace,
            **variables,
        }
        words = spec.get("command") or [sys.executable, str(PLAIN), json.dumps(spec)]
        out = cache / f"output-{time.monotonic_ns()}.txt"
        with out.open("wb") as file:
            child = subprocess.Popen(
                words, cwd=folder, env=environ, stdin=subprocess.DEVNULL, stdout=file, stderr=file,
                start_new_session=True,
            )  # fmt: skip
            status, usage, stacks = _wait(child, HANG_S if hangs else RUN_LIMIT_S)
        printed = out.read_text(errors="replace")
        logs = [path.read_text(errors="replace") for path in Path(trace).rglob("*.log")]
    lines = [row for row in printed.splitlines() if row.startswith(plain_program.MARK)]
    found = json.loads(lines[-1].removeprefix(plain_program.MARK)) if lines else {}
    peak = usage.ru_maxrss * 1024 if usage else 0
    cpu_s = usage.ru_utime + usage.ru_stime if usage else 0.0
    text = "\n".join([printed, *logs])
    return PlainRun(status, text, found, stacks, cpu_s, peak, _graphs_of(logs))


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
        command = ["py-spy", "dump", "--nonblocking", "--subprocesses", "--pid", str(child.pid)]
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


Check = Mapping[str, Any]
Checker = Callable[[DraftedIssue, Mapping[str, Any], Check], str]


def _answer(is_true: bool | None) -> str:
    return UNCHECKED if is_true is None else TRUE if is_true else FALSE


def _is_failure(drafted: DraftedIssue, done: PlainRun | None) -> bool | None:
    """Return whether a run failed as the verdict says, by its end and its output."""
    if done is None:
        return None
    if done.status == UNMET_STATUS and UNMET_WORDS in done.text:
        return False
    verdict = drafted.verdict
    kind, cause = verdict["kind"], verdict["cause"] or ""
    if kind in HANGS:
        return done.status is None
    if kind == "crash":
        return done.status is not None and done.status < 0
    if kind in SHOWN_IN_LOG and SHOWN_IN_LOG[kind] in done.text:
        return True
    if kind in ("wrong-result", "nondeterministic") and done.status == 0:
        return bool(done.found.get("differences"))
    if kind == "unknown" and cause == "exit":
        return not done.found  # it ended the process before its end
    if kind == "unknown":
        return None
    if done.status == 0 and kind == "exception":
        return cause in done.text  # the program caught it
    return done.status not in (0, None)


def _check_fails(drafted: DraftedIssue, claim: Mapping[str, Any], check: Check) -> str:
    is_repro = claim["about"] == "the program of the pack"
    changes = {
        k: check[k] for k in ("compile", "configs", "without_compile", "lines") if k in check
    }
    changes.update({"compile": {"backend": check["backend"]}} if check.get("backend") else {})
    variables: Mapping[str, str] = NO_COMPILE if changes.get("without_compile") else {}
    if check.get("with") == "no torch.compile":
        changes, variables = {"without_compile": True}, NO_COMPILE
    elif (
        check.get("entry")
        or check.get("without_passes")
        or (check.get("of") == "issue" and not check.get("lines"))
    ):
        return UNCHECKED
    if check.get("of") == "issue" and "torch." not in str(check.get("lines")):
        return UNCHECKED  # words, not code
    if name := check.get("condition"):
        if name not in CONDITIONS:
            return UNCHECKED
        changes, variables = CONDITIONS[name]
    compares = drafted.verdict["kind"] in ("wrong-result", "nondeterministic") and not is_repro
    done = drafted.run(is_repro, changes, variables, compares and not variables)
    return _answer(_is_failure(drafted, done))


def _check_passes(drafted: DraftedIssue, claim: Mapping[str, Any], check: Check) -> str:
    answer = _check_fails(drafted, claim, check)
    return {TRUE: FALSE, FALSE: TRUE}.get(answer, UNCHECKED)


def _check_failure(drafted: DraftedIssue, claim: Mapping[str, Any], check: Check) -> str:
    compares = check["kind"] in ("wrong-result", "nondeterministic")
    done = drafted.run(compares=compares)
    is_same = _is_failure(drafted, done)
    cause = check["cause"] or ""
    if is_same and done is not None and cause.startswith("SIG"):
        is_same = done.status == -getattr(signal, cause, 0)
    elif is_same and done is not None and check["kind"] in ("exception", "error-in-eager"):
        is_same = cause in done.text
    return _answer(is_same)


def _pieces(text: str) -> list[str]:
    """Return the words of a text that do not depend on a run: no numbers, no hidden parts."""
    text = re.sub(r"<[\w-]+>|'[^']*/[^']*'|/\S+", " \0 ", text)
    text = re.sub(r"0x[0-9a-f]+|-?\d+(?:\.\d+)?(?:e[-+]?\d+)?", " \0 ", text.replace("...", "\0"))
    return [piece.strip() for piece in text.split("\0") if re.search(r"\w{3}", piece)]


def _check_output(drafted: DraftedIssue, claim: Mapping[str, Any], check: Check) -> str:
    done = drafted.run()
    if done is None:
        return UNCHECKED
    if check.get("status") is not None:
        return _answer(done.status == int(check["status"]))
    if check.get("signal"):
        return _answer(done.status == -getattr(signal, check["signal"], 0))
    if check.get("is_empty"):
        return UNCHECKED
    output = re.sub(r"\s+", " ", done.text.replace("\\n", " ").replace('\\"', '"'))
    if check.get("names"):
        names = [name.rpartition(".")[2] for name in check["names"].split(" > ")]
        return _answer(all(name in output for name in names))
    return _answer(all(" ".join(piece.split()) in output for piece in _pieces(check["words"])))


def _check_stack(drafted: DraftedIssue, claim: Mapping[str, Any], check: Check) -> str:
    done = drafted.run()
    if done is None:
        return UNCHECKED
    if check.get("frame"):
        file, _, function = check["frame"].partition(":")
        name = function.rpartition(".")[2]
        text = "\n".join([done.text, *done.stacks])
        if name not in text:
            # the innermost frame of a loop is a different one in each dump
            is_loop = len(set(done.stacks)) > 1 and f"{file.rpartition('/')[0]}/" in text
            return _answer(is_loop)
        return _answer(file.startswith("<") or file in text or Path(file).name in text)
    if not done.stacks:
        return UNCHECKED if done.status is not None else FALSE
    if check.get("direction"):
        is_backward = bool(re.search(r"backward", done.stacks[-1]))
        return _answer(is_backward == (check["direction"] == "backward"))
    if check.get("no_compiler") is not None:
        return _answer(not re.search(r"torch/_(dynamo|inductor|functorch)/", done.stacks[-1]))
    if check.get("quiet_s"):
        return TRUE  # it still runs
    first, second = (re.findall(r"^ {4}(\S+)", stack, re.M) for stack in done.stacks)
    if check.get("moved"):
        names = re.findall(r"[\w<>]+$", check["moved"].replace(", ", "\n"), re.M)
        return _answer(first != second or any(name in first for name in names))
    return _answer(first == second)


def _check_count(drafted: DraftedIssue, claim: Mapping[str, Any], check: Check) -> str:
    compares = drafted.verdict["kind"] in ("wrong-result", "nondeterministic")
    done = drafted.run(compares=compares)
    if done is None or drafted.verdict["stage"] or "export" in check:
        return UNCHECKED
    if graph := check.get("graph"):
        match = re.match(r"(Dynamo|ATen) graph .*with (\d+) nodes", graph)
        nodes = done.graphs[match[1].lower()] if match else []
        return _answer(int(match[2]) in nodes if match else None)
    told = {level: tuple(check.get(level, (0, 0))) for level in ("dynamo", "aten")}
    # torch traces ATen graphs before the joint passes, and backward graphs that are not compiled
    count, nodes = told["aten"]
    dynamo = done.graphs["dynamo"]
    return _answer(
        (len(dynamo), sum(dynamo)) == told["dynamo"]
        and count <= len(done.graphs["aten"])
        and nodes <= sum(done.graphs["aten"])
    )


def _check_cost(drafted: DraftedIssue, claim: Mapping[str, Any], check: Check) -> str:
    compares = drafted.verdict["kind"] in ("wrong-result", "nondeterministic")
    done = drafted.run(compares=compares)
    if done is None or not done.peak_bytes:
        return UNCHECKED
    is_peak = done.status is None or check["peak_rss_bytes"] <= 3 * done.peak_bytes
    is_cpu = done.status is None or check["cpu_s"] <= 5 * done.cpu_s + 5
    request = drafted.request
    is_time = abs(request["ended"] - request["started"] - check["seconds"]) < 2
    return _answer(is_peak and is_cpu and is_time)


def _check_settings(drafted: DraftedIssue, claim: Mapping[str, Any], check: Check) -> str:
    code = f"import importlib; print(repr(importlib.import_module({check['module']!r}).{check['key']}))"
    environ = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}
    done = subprocess.run([sys.executable, "-c", code], env=environ, capture_output=True, text=True)
    return _answer(done.returncode == 0 and done.stdout.strip() != check["value"])


@functools.cache
def _torch_version() -> str:
    code = "import torch; print(torch.__version__)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    return done.stdout.strip()


def _check_version(drafted: DraftedIssue, claim: Mapping[str, Any], check: Check) -> str:
    return _answer(check["torch"] == _torch_version())


def _check_issue(drafted: DraftedIssue, claim: Mapping[str, Any], check: Check) -> str:
    if drafted.entry is not None:
        return _answer(check["issue"] == drafted.entry.issue)
    spec = drafted.spec_of(False)
    number = check["issue"].rpartition("#")[2]
    text = Path(str(spec["file"])).read_text() if spec else ""
    return TRUE if number in text else UNCHECKED


def _check_own_code(drafted: DraftedIssue, claim: Mapping[str, Any], check: Check) -> str:
    match = re.match(r"(?P<file>.+?):(?P<line>\d+)(?: in (?P<function>\S+))?", check["place"])
    if match is None:
        return UNCHECKED
    path = drafted.folder / match["file"]
    if match["file"].startswith("<") or not path.is_file():
        return UNCHECKED
    rows = path.read_text(errors="replace").splitlines()
    is_there = 0 < int(match["line"]) <= len(rows) and "site-packages" not in str(path)
    name = (match["function"] or "").rpartition(".")[2]
    if name and not name.startswith("<"):
        is_there &= any(name in row for row in rows[: int(match["line"])])
    return _answer(is_there)


def _check_digest(drafted: DraftedIssue, claim: Mapping[str, Any], check: Check) -> str:
    text = f"{check['algorithm']}\n{check['title']}"
    return _answer(f"`{hashlib.sha256(text.encode()).hexdigest()[:12]}`" in claim["text"])


def _check_values(drafted: DraftedIssue, claim: Mapping[str, Any], check: Check) -> str:
    done = drafted.run(compares=True)
    return _answer(None if done is None else _is_failure(drafted, done))


def _check_lines(drafted: DraftedIssue, claim: Mapping[str, Any], check: Check) -> str:
    text = drafted.repro.read_text() if drafted.repro else ""
    return _answer(len(text.splitlines()) == check["lines"])


def _check_logs(drafted: DraftedIssue, claim: Mapping[str, Any], check: Check) -> str:
    done = drafted.run()
    if done is None or not check.get("words"):
        return UNCHECKED
    output = "\n".join([done.text, *done.stacks])
    pieces = [piece for word in check["words"] for piece in _pieces(word)]
    return TRUE if all(piece in output for piece in pieces) else UNCHECKED


CHECKS: Mapping[str, Checker] = {
    "fails": _check_fails,
    "passes": _check_passes,
    "failure": _check_failure,
    "output": _check_output,
    "stack": _check_stack,
    "count": _check_count,
    "cost": _check_cost,
    "settings": _check_settings,
    "version": _check_version,
    "issue": _check_issue,
    "own code": _check_own_code,
    "digest": _check_digest,
    "values": _check_values,
    "lines": _check_lines,
    "logs": _check_logs,
}


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the choice of issues, and folders with run directories."""
    entries = catalogue_files.own_catalogue()
    add_only_option(parser, [entry.issue.rpartition("#")[2] for entry in entries], "issue")
    parser.add_argument(
        "--runs",
        type=Path,
        nargs="+",
        default=[],
        metavar="FOLDER",
        help="check the run directories in these folders instead of capturing programs",
    )
    parser.add_argument("--at-once", type=int, default=1, help="failures at once; default: 1")


def measure_rows(options: argparse.Namespace) -> Iterator[Row]:
    """Yield a row for each failure."""
    with tempfile.TemporaryDirectory(prefix="claims-") as folder:
        cases = (
            [functools.partial(_measure_run, path, Path(folder)) for path in _runs_in(options.runs)]
            if options.runs
            else list(_entries(options, Path(folder)))
        )
        with ThreadPoolExecutor(options.at_once) as pool:
            yield from filter(None, pool.map(lambda case: case(), cases))


def _runs_in(folders: Sequence[Path]) -> list[Path]:
    found = (path for folder in folders for path in folder.rglob("pack/issue/claims.json"))
    return sorted(path.parents[2] for path in found)


def _entries(options: argparse.Namespace, folder: Path) -> Iterator[Callable[[], Row | None]]:
    for entry in catalogue_files.own_catalogue():
        number = entry.issue.rpartition("#")[2]
        if entry.program and not entry.gpu and (not options.only or number in options.only):
            yield functools.partial(_measure_entry, entry, folder / number)


def _measure_run(run_dir: Path, cache: Path) -> Row | None:
    """Check the claims of one run directory, whose target is beside its output folder."""
    own = Path(tempfile.mkdtemp(prefix="claims-", dir=cache))
    (own / "inductor").symlink_to(cache / "inductor")
    (cache / "inductor").mkdir(exist_ok=True)
    drafted = DraftedIssue("/".join(run_dir.parts[-3:-1]), run_dir, run_dir.parents[1], None, own)
    return check_claims(drafted)


def _measure_entry(entry: KnownFailure, folder: Path) -> Row | None:
    folder.mkdir()
    (folder / "program.py").write_text(entry.program)
    more = ("--graph-breaks", "0") if entry.kind == "graph-break" else ()
    done = run_reprokit(
        "capture",
        *("--output-dir", folder / "out", "--budget", "60", "--timeout", "60", *more),
        *("--", sys.executable, "program.py"),
        environ=quiet_environ(),
        cwd=folder,
        limit_s=LIMIT_S,
    )
    if not done.answer.get("issue"):
        show_progress(f"{entry.issue}: no issue: {done.kind} {done.last_error}")
        return None
    cache = folder / "cache"
    cache.mkdir()
    inductor = folder.parent / "inductor"
    inductor.mkdir(exist_ok=True)
    (cache / "inductor").symlink_to(inductor)
    run_dir = Path(done.answer["run_dir"])
    return check_claims(DraftedIssue(entry.issue, run_dir, folder, entry, cache))


def check_claims(drafted: DraftedIssue) -> Row:
    """Check each statement of an issue, and return how many are true."""
    claims = json.loads((drafted.run_dir / "pack" / "issue" / "claims.json").read_text())
    answers: list[str] = []
    for claim in claims:
        results = [
            (check, CHECKS[check["how"]](drafted, claim, check)) for check in claim["checks"]
        ]
        for check, answer in results or [({"how": "none"}, UNCHECKED)]:
            answers.append(answer)
            if answer != TRUE:
                what = {k: v for k, v in check.items() if k != "words" or check["how"] == "output"}
                show_progress(f"{drafted.name}: {answer}: {claim['text'][:160]} {what}"[:420])
    return {
        "failure": drafted.name,
        "kind": drafted.verdict["kind"],
        "claims": len(answers),
        **{answer: answers.count(answer) for answer in (TRUE, FALSE, UNCHECKED)},
    }


def summarise_rows(rows: Sequence[Row]) -> list[str]:
    """Return the sums."""
    names = ("claims", FALSE, UNCHECKED)
    total = {name: sum(int(row[name] or 0) for row in rows) for name in names}
    return [
        f"Of {total['claims']} checks of statements about {len(rows)} failures, {total[FALSE]} are"
        f" false and {total[UNCHECKED]} could not be made."
    ]


MEASUREMENT = Measurement(COLUMNS, measure_rows, add_options, summarise_rows)
