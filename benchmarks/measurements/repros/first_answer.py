"""Measure what a user reads about a failure with reprokit, and with other tools.

python -m benchmarks run first_answer [--only FAILURE ...] [--tools TOOL ...] [--keep FOLDER]

Each of the five programs of benchmarks/cases/first_answer runs with each tool and an empty compiler
cache. A script searches four facts in what the tool prints: what happened, the user's own line,
whose failure it is, and what to do now. The patterns are in benchmarks/cases/first_answer_cases.py.
A fact that is only in a file that the tool writes is marked so. A tool that is not installed, or
that does not apply, has a row that says why.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from ...cases.first_answer_cases import ACTION, CASES, FirstAnswerCase
from ...hang_captures import count_survivors, kill_marked
from ...harness import REPROKIT, quiet_environ, show_progress
from ...measurement import Measurement, add_keep_option, add_only_option, kept_folder
from ...printed_runs import PrintedRun, joined, run_printed
from ...results import Column, Row

COLUMNS = (
    Column("failure", "failure"),
    Column("tool", "tool"),
    Column("what", "what"),
    Column("line", "your line"),
    Column("party", "whose"),
    Column("action", "what to do"),
    Column("lines", "lines printed"),
    Column("place", "your line is line"),
    Column("files", "files to open"),
    Column("line_s", "s to your line", 0),
    Column("wall_s", "s in all", 0),
    Column("cpu_s", "CPU s", 0),
    Column("remark", "remark"),
    Column("command", "command", is_hidden=True),
    Column("survivors", "processes left", is_hidden=True),
)
FACTS = ("what", "line", "party", "action")
LIMIT_S = 900.0
MINIFIER_LIMIT_S = 300.0
"""The default budget of a reduction by reprokit."""
CRASH_LEVEL = "3"
QUIET_S = 20.0
"""Seconds without output after which a user takes a program for hanging."""
PYTEST_TIMEOUT_S = 60
PLAIN_HANG_S = 60.0
PAGES = frozenset((".html", ".txt", ".py", ".md", ".json"))
_TAG = re.compile(r"<[a-zA-Z/][^>]*>")


class NoAnswer(Exception):
    """A tool is not installed or does not apply; the message says so."""


@dataclass(frozen=True)
class Terminal:
    """Where the commands of one row run."""

    case: FirstAnswerCase
    folder: Path
    environ: dict[str, str]

    def run(
        self,
        *command: str | Path,
        limit_s: float = LIMIT_S,
        variables: Mapping[str, str] | None = None,
    ) -> PrintedRun:
        """Run a command, with more variables."""
        environ = {**self.environ, **(variables or {})}
        return run_printed(command, environ, self.folder, limit_s)

    def run_until_quiet(
        self, when_quiet: Callable[[int], None] | None = None, **variables: str
    ) -> PrintedRun:
        """Run the program plainly; end it when it prints nothing for ``QUIET_S``."""
        return run_printed(
            self.program,
            {**self.environ, **variables},
            self.folder,
            LIMIT_S,
            QUIET_S if self.case.is_hang else None,
            when_quiet,
        )

    @property
    def program(self) -> list[str]:
        """The command of the program."""
        return [sys.executable, self.case.program]


@dataclass(frozen=True)
class Told:
    """What a user of a tool gets."""

    printed: PrintedRun
    command: str
    files: tuple[Path, ...] = ()
    """Files in which a user can look for what is not on the terminal."""
    to_open: str = ""
    """How many of them there are, in words."""
    remark: str = ""


def ask_python(terminal: Terminal) -> Told:
    """Run the program alone."""
    limit_s = PLAIN_HANG_S if terminal.case.is_hang else LIMIT_S
    done = terminal.run(*terminal.program, limit_s=limit_s)
    remark = f"it was ended after {PLAIN_HANG_S:g} s" if done.status is None else ""
    return Told(done, f"python {terminal.case.program}", remark=remark)


def ask_py_spy(terminal: Terminal) -> Told:
    """Dump the stacks of a program that prints nothing any more."""
    if not terminal.case.is_hang:
        raise NoAnswer("does not apply: it reads a running process, and this program ends")
    py_spy, dumps = tool_path("py-spy"), []

    def dump(pid: int) -> None:
        dumps.append(terminal.run(py_spy, "dump", "--pid", str(pid)))

    waited = terminal.run_until_quiet(dump)
    return Told(_after(waited, dumps[0]), "py-spy dump --pid PID")


def ask_tlparse(terminal: Terminal) -> Told:
    """Record a trace, and make pages of it."""
    tlparse = tool_path("tlparse")
    ran = terminal.run_until_quiet(TORCH_TRACE=str(terminal.folder / "trace"))
    (log,) = sorted(terminal.folder.glob("trace/*.log"))
    parsed = terminal.run(tlparse, log, "-o", "pages", "--no-browser")
    files = _texts_below(terminal.folder / "pages")
    command = f"TORCH_TRACE=trace python {terminal.case.program}; tlparse trace/*.log -o pages"
    return Told(_after(ran, parsed), command, files, f"{len(files)} pages")


def ask_minifier(terminal: Terminal) -> Told:
    """Let the program write the launcher of PyTorch's minifier, and run the launcher."""
    if terminal.case.minifier is None:
        raise NoAnswer(
            "does not apply: it needs an exception of the compiler, a crash or a wrong result"
        )
    after, level = terminal.case.minifier
    variables = {"TORCHDYNAMO_REPRO_AFTER": after, "TORCHDYNAMO_REPRO_LEVEL": level}
    done = terminal.run(*terminal.program, variables=variables)
    settings = " ".join(f"{name}={value}" for name, value in variables.items())
    command = f"{settings} python {terminal.case.program}"
    launchers = sorted(terminal.folder.rglob("minifier_launcher.py"))
    if not launchers:
        return Told(done, command, remark="it wrote no launcher")
    # a crash needs a process for each probe; one process for all is faster
    words = ["minify", *([] if level == CRASH_LEVEL else ["--no-isolate"])]
    minified = terminal.run(sys.executable, launchers[-1], *words, limit_s=MINIFIER_LIMIT_S)
    files = tuple(terminal.folder.rglob("repro.py"))
    remark = "" if files else "it wrote no repro"
    if minified.status is None:
        remark = f"it was ended after {MINIFIER_LIMIT_S:g} s"
    command += f"; python {shlex.join(['minifier_launcher.py', *words])}"
    return Told(joined(done, minified), command, files, "repro.py", remark)


def ask_pytest(terminal: Terminal) -> Told:
    """Run the program as a test."""
    name = terminal.case.path.stem
    body = terminal.case.test.format(name=name)
    test = terminal.folder / f"test_{name}.py"
    test.write_text(f"import {name}\n\n\ndef test_{name}():\n    {body}\n")
    words = ["-p", "pytest_timeout", "--timeout", str(PYTEST_TIMEOUT_S)]
    words = words if terminal.case.is_hang else []
    done = terminal.run(
        *(sys.executable, "-m", "pytest", *words, test.name),
        variables={"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
    )
    remark = "the test passes" if done.status == 0 else ""
    return Told(done, shlex.join(["pytest", *words[2:], test.name]), remark=remark)


def ask_reprokit(terminal: Terminal) -> Told:
    """Capture the program, reduce it and prove the repro."""
    words = ["capture", *terminal.case.options]
    done = terminal.run(*REPROKIT, *words, "--output-dir", "out", "--", *terminal.program)
    command = shlex.join(["reprokit", *words, "--", "python", terminal.case.program])
    remark = f"it was ended after {LIMIT_S:g} s" if done.status is None else ""
    return Told(done, command, _texts_of_pack(terminal.folder), "report.html", remark)


def ask_attach(terminal: Terminal) -> Told:
    """Attach to a program that prints nothing any more."""
    if not terminal.case.is_hang:
        raise NoAnswer("does not apply: it reads a running process, and this program ends")
    told = []

    def attach(pid: int) -> None:
        told.append(terminal.run(*REPROKIT, "attach", str(pid), "--output-dir", "out"))

    waited = terminal.run_until_quiet(attach)
    files = _texts_of_pack(terminal.folder)
    return Told(_after(waited, told[0]), "reprokit attach PID", files, "report.html")


TOOLS = {
    "Python alone": ask_python,
    "py-spy": ask_py_spy,
    "tlparse": ask_tlparse,
    "minifier": ask_minifier,
    "pytest": ask_pytest,
    "reprokit": ask_reprokit,
    "reprokit attach": ask_attach,
}


def _after(waited: PrintedRun, asked: PrintedRun) -> PrintedRun:
    """Return a command that a user types after a program has run, without what that printed. A
    program that was ended after the command has the seconds of both.
    """
    before_s = max(0.0, waited.wall_s - asked.wall_s) if waited.status is None else waited.wall_s
    silent = PrintedRun((), waited.status, before_s, waited.cpu_s)
    return joined(silent, asked)


def _texts_below(folder: Path) -> tuple[Path, ...]:
    return tuple(p for p in sorted(folder.rglob("*")) if p.is_file() and p.suffix in PAGES)


def _texts_of_pack(folder: Path) -> tuple[Path, ...]:
    return tuple(folder.glob("out/run-*/pack/report.html"))


def tool_path(name: str) -> str:
    """Return the path of a tool, on PATH or beside the interpreter; raise NoAnswer if there is
    none.
    """
    beside = str(Path(sys.executable).parent)
    path = shutil.which(name, path=os.pathsep.join([beside, os.environ.get("PATH", "")]))
    if path is None:
        raise NoAnswer("not installed")
    return path


def facts_of(case: FirstAnswerCase, text: str) -> dict[str, bool]:
    """Return which of the four facts a text has."""
    return {
        "what": bool(re.search(case.what, text)),
        "line": all(pattern.search(text) for pattern in case.line_patterns()),
        "party": bool(re.search(case.party, text)),
        "action": bool(re.search(ACTION, text)),
    }


def place_of_line(case: FirstAnswerCase, printed: PrintedRun) -> int | None:
    """Return the number of the printed line in which the user's line is for the first time; the
    last one, where several lines are needed.
    """
    places = []
    for pattern in case.line_patterns():
        found = [n for n, one in enumerate(printed.lines, 1) if pattern.search(one.text)]
        if not found:
            return None
        places.append(found[0])
    return max(places)


def row_of(case: FirstAnswerCase, told: Told) -> Row:
    """Return the facts and the costs of what a tool printed."""
    printed = told.printed
    on_terminal = facts_of(case, printed.text)
    texts = (_TAG.sub(" ", file.read_text(errors="replace")) for file in told.files)
    in_files = facts_of(case, "\n".join(texts))
    row: Row = {
        name: "yes" if on_terminal[name] else "in a file" if in_files[name] else "no"
        for name in FACTS
    }
    place = place_of_line(case, printed)
    return {
        **row,
        "lines": len(printed.lines),
        "place": place,
        "files": told.to_open if told.files else "",
        "line_s": round(printed.lines[place - 1].after_s, 1) if place else None,
        "wall_s": round(printed.wall_s, 1),
        "cpu_s": round(printed.cpu_s, 1),
        "remark": told.remark,
        "command": told.command,
    }


def measure_tool(name: str, tool: str, folder: Path) -> Row:
    """Return the row of one tool and one failure; end all processes of it."""
    case, mark = CASES[name], uuid.uuid4().hex
    folder.mkdir(parents=True)
    shutil.copy(case.path, folder)
    environ = quiet_environ(
        TORCHINDUCTOR_CACHE_DIR=str(folder / "cache"), HANGS_MARK=mark, NO_COLOR="1"
    )
    row: Row = {"failure": name, "tool": tool}
    try:
        told = TOOLS[tool](Terminal(case, folder, environ))
        (folder / "printed.txt").write_text(told.printed.text)
        return {**row, **row_of(case, told), "survivors": count_survivors(mark)}
    except NoAnswer as why:
        return {**row, "remark": str(why)}
    finally:
        kill_marked(mark)


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the choice of failures and tools, and the folder to keep."""
    add_only_option(parser, list(CASES), "failure")
    parser.add_argument(
        "--tools", nargs="+", choices=list(TOOLS), default=list(TOOLS), help="default: all"
    )
    add_keep_option(parser)


def measure_rows(options: argparse.Namespace) -> Iterator[Row]:
    """Yield a row for each failure and tool."""
    # SIGTERM ends the processes of a row, as Ctrl+C does
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    with kept_folder(options) as folder:
        for name in options.only:
            for number, tool in enumerate(options.tools):
                if tool == "reprokit attach" and not CASES[name].is_hang:
                    continue  # the row of py-spy says why
                show_progress(f"{name}: {tool}")
                # no pattern of a fact may be in a path
                yield measure_tool(
                    name, tool, folder.resolve() / CASES[name].path.stem / f"{number}"
                )


def summarise_rows(rows: Sequence[Row]) -> list[str]:
    """Return how many facts each tool prints, and the versions of the tools."""
    counts = []
    for tool in dict.fromkeys(row["tool"] for row in rows):
        mine = [row for row in rows if row["tool"] == tool and row.get("lines") is not None]
        facts = [row[fact] for row in mine for fact in FACTS]
        files = f" and {facts.count('in a file')} in files" if "in a file" in facts else ""
        counts.append(f"{tool} {facts.count('yes')} of {len(facts)}{files}")
    return [
        f"Facts on the terminal, of the failures to which a tool applies: {'; '.join(counts)}.",
        f"Versions: {', '.join(_versions())}.",
    ]


def _versions() -> list[str]:
    """Return the versions of the tools that are installed."""
    found = []
    for tool in ("py-spy", "tlparse"):
        try:
            words = [tool_path(tool), "--version"]
            found.append(subprocess.run(words, capture_output=True, text=True).stdout.strip())
        except NoAnswer:
            found.append(f"{tool} not installed")
    for package in ("pytest", "pytest-timeout"):
        found.append(f"{package} {importlib.metadata.version(package)}")
    return found


MEASUREMENT = Measurement(COLUMNS, measure_rows, add_options, summarise_rows)
