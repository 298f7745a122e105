"""Check what the drafts of issues say, by a route that does not use the code that said it.

python -m benchmarks run claims [--only NUMBER ...]

Each program of the catalogue is captured as a command. Every sentence of its issue.md that states a
fact is read from the text and checked in fresh processes that do not have reprokit: the program and
the repro run with Python alone, with a different backend, setting or environment, and the settings
are compared with those of a fresh torch. A statement that no check knows is counted as unchecked,
and shown.
"""

from __future__ import annotations

import argparse
import functools
import os
import re
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from reprokit.core.triage.known_failures import KnownFailure
from reprokit.host.catalogue import catalogue_files

from ...harness import ChildResult, quiet_environ, run_child, run_reprokit, show_progress
from ...measurement import Measurement, add_only_option
from ...results import Column, Row

COLUMNS = (
    Column("issue", "issue"),
    Column("kind", "kind"),
    Column("claims", "claims"),
    Column("true", "true"),
    Column("false", "false"),
    Column("unchecked", "unchecked"),
)
LIMIT_S = 900.0
RUN_LIMIT_S = 180.0
TRUE, FALSE, UNCHECKED = "true", "false", "unchecked"
RUNS_FILE = "import runpy, sys; runpy.run_path(sys.argv[1], run_name='__main__')"
PATCHED = """
import torch
_compile = torch.compile
def compile(*words, **options):
    return _compile(*words, **{**options, **CHANGED})
torch.compile = compile
"""
NO_COMPILE = {"TORCHDYNAMO_DISABLE": "1", "TORCH_COMPILE_DISABLE": "1"}
LOGS = {"recompile-limit": "recompiles", "graph-break": "graph_breaks"}
SHOWN_IN_LOG = {"recompile-limit": "recompile_limit", "graph-break": "Graph break"}
"""Of kinds that do not end a program: the log of torch that shows them, and its words."""
CONDITIONS: dict[str, tuple[str, dict[str, str]]] = {
    "vector instructions": ("import torch._inductor.config as c; c.cpp.simdlen = 0", {}),
    "OpenMP threads": ("", {"OMP_NUM_THREADS": "2"}),
    "visible CPUs": ("import os; os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})", {}),
    "random seed": ("import torch; torch.manual_seed(12345)", {}),
    "default dtype": ("import torch; torch.set_default_dtype(torch.float64)", {}),
    "denormal numbers": ("import torch; torch.set_flush_denormal(True)", {}),
    "fast math": (
        "import torch._inductor.config as c; c.cpp.enable_unsafe_math_opt_flag = True",
        {},
    ),
    "compiler caches": ("", {"TORCHINDUCTOR_FORCE_DISABLE_CACHES": "1"}),
    "dynamic shapes": (PATCHED.replace("CHANGED", "{'dynamic': True}"), {}),
    "hash seed": ("", {"PYTHONHASHSEED": "1"}),
    "compile workers": ("", {"TORCHINDUCTOR_COMPILE_THREADS": "1"}),
    "contents of new memory": ("", {"MALLOC_PERTURB_": "165"}),
    "vector instructions of ATen and Inductor": ("", {"ATEN_CPU_CAPABILITY": "default"}),
}
"""What the repro is run with to check that it does not depend on a condition: code that begins the
program, and environment variables.
"""


@dataclass(frozen=True)
class Drafted:
    """A capture: the user's program, and what reprokit wrote about it."""

    entry: KnownFailure
    folder: Path
    issue: str
    repro: Path | None
    environ: dict[str, str]

    def run(
        self, file: Path, before: str = "", variables: dict[str, str] | None = None
    ) -> ChildResult:
        """Run a file with Python alone, and with code before it."""
        with tempfile.TemporaryDirectory(prefix="claims-") as cache:
            logs = {"TORCH_LOGS": LOGS[self.entry.kind]} if self.entry.kind in LOGS else {}
            environ = {
                **self.environ,
                "TORCHINDUCTOR_CACHE_DIR": cache,
                **logs,
                **(variables or {}),
            }
            words = ["-c", f"{before}\n{RUNS_FILE}", str(file)] if before else [str(file)]
            return run_child(
                [sys.executable, *words], environ=environ, cwd=file.parent, limit_s=RUN_LIMIT_S
            )

    @property
    def program(self) -> Path:
        """The user's program."""
        return self.folder / "program.py"


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the choice of issues."""
    entries = catalogue_files.own_catalogue()
    add_only_option(parser, [entry.issue.rpartition("#")[2] for entry in entries], "issue")


def measure_rows(options: argparse.Namespace) -> Iterator[Row]:
    """Yield a row for each program of the catalogue that fails with this torch."""
    for entry in catalogue_files.own_catalogue():
        number = entry.issue.rpartition("#")[2]
        if entry.program and not entry.gpu and (not options.only or number in options.only):
            with tempfile.TemporaryDirectory(prefix="claims-") as folder:
                if row := _measure_entry(entry, Path(folder)):
                    yield row


def _measure_entry(entry: KnownFailure, folder: Path) -> Row | None:
    (folder / "program.py").write_text(entry.program)
    more = ("--graph-breaks", "0") if entry.kind == "graph-break" else ()
    environ = quiet_environ(PYTHONPATH="")
    done = run_reprokit(
        "capture",
        *("--output-dir", folder / "out", "--budget", "90", "--timeout", "60", *more),
        *("--", sys.executable, "program.py"),
        environ=quiet_environ(),
        cwd=folder,
        limit_s=LIMIT_S,
    )
    issue = done.answer.get("issue")
    if not issue:
        show_progress(f"{entry.issue}: no issue: {done.kind} {done.last_error}")
        return None
    repro = done.answer.get("repro")
    drafted = Drafted(
        entry, folder, Path(issue).read_text(), Path(repro) if repro else None, environ
    )
    answers = []
    for claim, check in claims_of(drafted):
        answer = check()
        answers.append(answer)
        if answer != TRUE:
            show_progress(f"{entry.issue}: {answer}: {claim}")
    return {
        "issue": entry.issue,
        "kind": done.kind,
        "claims": len(answers),
        **{answer: answers.count(answer) for answer in (TRUE, FALSE, UNCHECKED)},
    }


Check = Callable[[], str]


def claims_of(drafted: Drafted) -> Iterator[tuple[str, Check]]:
    """Yield each statement of an issue with its check."""
    text = drafted.issue
    program, repro = drafted.program, drafted.repro
    plain = drafted.run(program)
    yield "the program fails without reprokit", lambda: _answer(_fails(plain, drafted.entry))
    if "Without `torch.compile` the program passes" in text:
        yield (
            "without torch.compile the program passes",
            lambda: _answer(drafted.run(program, variables=NO_COMPILE).status == 0),
        )
    if version := re.search(r"It failed with torch (\S+?)\.?(?:\s|$)", text):
        yield (
            version.group(),
            lambda: _answer(f"\nPyTorch version: {version[1]}\n" in text and _is_torch(version[1])),
        )
    yield from _of_backends(drafted)
    yield from _of_settings(drafted)
    if avoid := re.search(r"To avoid it: `([^`]+)`", text):
        yield avoid.group(), lambda: _avoids(drafted, avoid[1])
    if repro is None:
        return
    alone = drafted.run(repro)
    yield "the repro fails without reprokit", lambda: _answer(_fails(alone, drafted.entry))
    yield "the repro is that of the pack", lambda: _answer(repro.read_text().strip() in text)
    if "eager passes" in text:
        yield (
            "without torch.compile the repro passes",
            lambda: _answer(drafted.run(repro, variables=NO_COMPILE).status == 0),
        )
    logs = re.search(r"### Error logs\s+```text\n(.*?)\n```", text, re.DOTALL)
    if logs and "Traceback" in logs[1]:
        yield (
            "the error log is that of the repro",
            lambda: _answer(_numberless(_error_of(alone.err)) in _numberless(logs[1])),
        )
    if found := re.search(r"Does not depend on: ([^.]+)\.", text):
        for condition in found[1].split(", "):
            yield f"does not depend on {condition}", _of_condition(drafted, alone, condition)


def _of_backends(drafted: Drafted) -> Iterator[tuple[str, Check]]:
    """Yield which backends fail and pass; a sentence about a part of the program is about the
    repro.
    """
    sentence = re.search(
        r"(?P<who>It|[^.]*part of it[^.]*) fails with (?P<bad>[^.;]+?) and passes with (?P<good>[^.;]+?)(?:,"
        r" so its label is `(?P<label>[^`]+)`)?[.;]",
        drafted.issue,
    )
    if not sentence:
        return
    file = drafted.program if sentence["who"] == "It" else drafted.repro
    if file is None:
        return
    ends: dict[str, bool] = {}

    def fails(backend: str) -> bool:
        if backend not in ends:
            variables = NO_COMPILE if backend == "none" else {}
            before = PATCHED.replace("CHANGED", repr({"backend": backend}))
            done = drafted.run(file, "" if backend == "none" else before, variables)
            ends[backend] = _fails(done, drafted.entry)
        return ends[backend]

    def is_as_said(backend: str, is_bad: bool) -> str:
        return _answer(fails(backend) == is_bad)

    for words, is_bad in ((sentence["bad"], True), (sentence["good"], False)):
        backends = re.findall(r'backend="(\w+)"', words)
        backends += ["none"] if "no torch.compile" in words else []
        for backend in backends:
            what = "fails" if is_bad else "passes"
            yield f"{what} with {backend}", functools.partial(is_as_said, backend, is_bad)
    if label := sentence["label"]:
        begins = {
            "oncall: pt2": "eager",
            "module: dynamo": "eager",
            "module: pt2-dispatcher": "aot_eager",
            "module: inductor": "inductor",
        }
        first = begins.get(label)
        order = ["eager", "aot_eager", "inductor"]
        yield (
            f"the label is {label}",
            lambda: (
                UNCHECKED
                if first is None
                else _answer(next((one for one in order if fails(one)), "") == first)
            ),
        )


def _of_settings(drafted: Drafted) -> Iterator[tuple[str, Check]]:
    block = re.search(
        r"that is not torch's default:\s+```text\n(.*?)\n```", drafted.issue, re.DOTALL
    )
    for line in block[1].splitlines() if block else ():
        if match := re.fullmatch(r"(torch\.[\w.]*config)\.([\w.]+) = (.*)", line):
            module, key, value = match.groups()
            yield (
                f"not the default: {line}",
                functools.partial(_is_changed, drafted, module, key, value),
            )


def _is_changed(drafted: Drafted, module: str, key: str, value: str) -> str:
    code = f"import importlib; print(repr(importlib.import_module({module!r}).{key}))"
    kept = ("PATH", "HOME")
    environ = {name: text for name, text in drafted.environ.items() if name in kept}
    done = run_child([sys.executable, "-c", code], environ=environ, limit_s=RUN_LIMIT_S)
    return _answer(done.status == 0 and done.out.strip() != value)


def _avoids(drafted: Drafted, workaround: str) -> str:
    if not re.match(r"torch\._\w+\.config", workaround):
        return UNCHECKED
    modules = sorted(set(re.findall(r"torch\._\w+\.config", workaround)))
    before = "\n".join([*(f"import {module}" for module in modules), workaround])
    return _answer(drafted.run(drafted.program, before).status == 0)


def _of_condition(drafted: Drafted, alone: ChildResult, condition: str) -> Check:
    if condition not in CONDITIONS or drafted.repro is None:
        return lambda: UNCHECKED
    before, variables = CONDITIONS[condition]
    repro = drafted.repro

    def check() -> str:
        done = drafted.run(repro, before, variables)
        is_same = _fails(done, drafted.entry)
        if drafted.entry.kind == "exception":
            is_same &= _kind_of_error(done.err) == _kind_of_error(alone.err)
        return _answer(is_same)

    return check


def _fails(done: ChildResult, entry: KnownFailure) -> bool:
    if entry.kind == "crash":
        return done.status is not None and done.status < 0
    if entry.kind in SHOWN_IN_LOG and SHOWN_IN_LOG[entry.kind] in done.err:
        return True
    return done.status not in (0, None)


def _answer(is_true: bool) -> str:
    return TRUE if is_true else FALSE


def _error_of(stderr: str) -> str:
    """Return the line of the last exception of a traceback."""
    lines = re.findall(
        r"^(?:[\w.]+(?:Error|Exception|Found\w*|Exit\w*)|[\w.]*exc\.\w+)\b.*$", stderr, re.M
    )
    return lines[-1] if lines else "no exception"


def _kind_of_error(stderr: str) -> str:
    return _error_of(stderr).partition(":")[0]


def _numberless(text: str) -> str:
    return re.sub(r"0x[0-9a-f]+|/\S+|-?\d+(?:\.\d+)?(?:e[-+]?\d+)?", "#", " ".join(text.split()))


def _is_torch(version: str) -> bool:
    code = "import torch; print(torch.__version__)"
    done = run_child([sys.executable, "-c", code], environ=dict(os.environ), limit_s=RUN_LIMIT_S)
    return done.out.strip() == version


def summarise_rows(rows: Sequence[Row]) -> list[str]:
    """Return the sums."""
    total = {
        name: sum(int(row[name] or 0) for row in rows) for name in ("claims", FALSE, UNCHECKED)
    }
    return [
        f"Of {total['claims']} statements about {len(rows)} failures, {total[FALSE]} are false and"
        f" {total[UNCHECKED]} are not checked."
    ]


MEASUREMENT = Measurement(COLUMNS, measure_rows, add_options, summarise_rows)
