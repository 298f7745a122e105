"""Measure what attach says about real servers and jobs that hang, beside py-spy and pystack.

python -m benchmarks run server_faults [--only NAME ...] [--python PATH] [--stall 30] [--keep FOLDER]

The programs are in benchmarks/cases/servers: for each of 12 kinds of servers and jobs two faults of
public issues, and a healthy one that is idle or works slowly. Each runs in the interpreter of
``--python``, gets its requests, and is read with py-spy dump and pystack remote of each of its Python
processes, and with reprokit attach. A script searches the lines that a right answer names, and the
words of its cause, in what each tool prints. A program whose packages are missing is not run.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from ...cases.server_cases import ServerCase, load_cases
from ...harness import REPROKIT, ROOT, show_progress
from ...measurement import (
    Measurement,
    add_keep_option,
    add_only_option,
    existing_file,
    kept_folder,
    positive_seconds,
)
from ...printed_runs import run_printed
from ...results import Column, Row
from ...server_drivers import NotReady, RunningServer, has_module, running_server

COLUMNS = (
    Column("program", "program"),
    Column("said", "reprokit says"),
    Column("right", "right"),
    Column("lines", "lines"),
    Column("words", "words"),
    Column("place", "at"),
    Column("printed", "of"),
    Column("s", "s", 0),
    Column("py_spy", "py-spy"),
    Column("py_spy_place", "at"),
    Column("py_spy_printed", "of"),
    Column("pystack", "pystack"),
    Column("pystack_place", "at"),
    Column("pystack_printed", "of"),
    Column("py_spy_s", "s of py-spy", 1, is_hidden=True),
    Column("pystack_s", "s of pystack", 1, is_hidden=True),
    Column("command", "command", is_hidden=True),
)
CASES = load_cases()
LIMIT_S = 600.0
_VERDICT = re.compile(r"^([a-z-]+)(?: in [a-z -]+)?: (?:Process|Rank) .*$", re.MULTILINE)
_CAUSE = re.compile(r"^waits +([a-z-]+):", re.MULTILINE)
_PLACE = re.compile(r"\S*/\S+|\S+\.py\b(?::\d+)?")
_UNSAID = re.compile(r"^(?:your line|report|next|capture|no repro) .*$", re.MULTILINE)
"""Lines without a sentence about the cause. They have names of files, which are no answer."""


@dataclass(frozen=True)
class Told:
    """What one tool printed about a program."""

    rows: list[str]
    wall_s: float
    status: int | None = 0

    @property
    def text(self) -> str:
        """All lines as one text."""
        return "\n".join(self.rows)

    def places(self, case: ServerCase) -> list[int]:
        """Return the line of the output at which each marked line is named for the first time."""
        found = []
        for pattern in case.line_patterns().values():
            found += [n for n, row in enumerate(self.rows, 1) if pattern.search(row)][:1]
        return found


def ask_tool(command: Sequence[str], keep: Path) -> Told:
    """Run a tool as in a terminal with 120 columns, and keep what it prints."""
    environ = {**os.environ, "PYTHONPATH": str(ROOT), "COLUMNS": "120", "NO_COLOR": "1"}
    done = run_printed(command, environ, keep.parent, LIMIT_S)
    with keep.open("a") as file:
        file.write(done.text + "\n")
    return Told([line.text for line in done.lines], done.wall_s, done.status)


def dump_all(tool: str, words: Sequence[str], pids: Sequence[int], keep: Path) -> Told:
    """Run a tool for each process, in the order of the process tree."""
    told = [ask_tool([tool, *words, str(pid)], keep) for pid in pids]
    return Told([row for one in told for row in one.rows], sum(one.wall_s for one in told))


def verdict_of(text: str) -> str:
    """Return what reprokit says in a word or two: the verdict, and the cause or "idle"."""
    verdict = _VERDICT.search(text)
    if verdict is None:
        return "no verdict"
    if cause := _CAUSE.search(text):
        return f"{verdict[1]}, {cause[1]}"
    return f"{verdict[1]}, idle" if "is idle" in verdict[0] else verdict[1]


def has_words(case: ServerCase, text: str) -> bool:
    """Return whether the answer has all words of the cause, apart from names of files."""
    answer = _PLACE.sub("", _UNSAID.sub("", text))
    return all(re.search(word, answer, re.IGNORECASE) for word in case.words)


def tool_path(name: str, python: str) -> str:
    """Return the path of a tool in an environment of this run or on PATH; empty without it."""
    for folder in (Path(sys.executable).parent, Path(python).parent):
        if (folder / name).exists():
            return str(folder / name)
    return shutil.which(name) or ""


def examine(server: RunningServer, stall_s: float, folder: Path) -> Row:
    """Read a program that hangs, or is healthy, with each tool."""
    case, row = server.case, Row(program=server.case.name)
    pids = server.python_pids()
    tools = (("py_spy", "py-spy", ("dump", "--pid")), ("pystack", "pystack", ("remote",)))
    for key, name, words in tools:
        tool = tool_path(name, server.python)
        if not tool:
            row[key] = "not installed"
            continue
        told = dump_all(tool, words, pids, folder / f"{name}.txt")
        row |= _facts(case, told, key, f"{key}_")
    command = [*map(str, REPROKIT), "attach", str(server.attached_pid()), "--stall", f"{stall_s:g}"]
    if case.fields.get("Attach") == "port":
        command += ["--port", str(server.port)]
    command += case.options
    command += ["--output-dir", str(folder / "pack")]
    told = ask_tool(command, folder / "reprokit.txt")
    said = verdict_of(told.text)
    row |= _facts(case, told, "lines", "")
    is_named = len(told.places(case)) == len(case.hang_lines())
    if case.mode:
        row |= {"said": said, "right": not said.startswith("hang"), "words": None}
    else:
        is_explained = has_words(case, told.text)
        right = said.startswith("hang") and is_named and is_explained
        row |= {"said": said, "right": right, "words": is_explained}
    return row | {"command": "reprokit " + " ".join(command[len(REPROKIT) : -2])}


def _facts(case: ServerCase, told: Told, key: str, prefix: str) -> Row:
    places = told.places(case)
    return {
        key: "" if case.mode else f"{len(places)} of {len(case.hang_lines())}",
        f"{prefix}place": min(places, default=None),
        f"{prefix}printed": len(told.rows),
        f"{prefix}s": round(told.wall_s, 1),
    }


def measure_case(case: ServerCase, options: argparse.Namespace, folder: Path) -> Row:
    """Start one program, make it hang or keep it busy, and read it."""
    if missing := [name for name in case.needs if not has_module(options.python, name)]:
        return {"program": case.name, "said": f"not run: {missing[0]}"}
    if "Redis" in case.fields and not shutil.which("redis-server"):
        return {"program": case.name, "said": "not run: redis-server"}
    folder.mkdir()
    try:
        with running_server(case, options.python) as server:
            server.wait_until_ready()
            if case.busy_steps:
                threading.Thread(target=server.keep_busy, daemon=True).start()
            server.do_steps()
            if case.mode:
                time.sleep(case.settle_s)
            return examine(server, options.stall, folder)
    except NotReady as failed:
        return {"program": case.name, "said": f"not run: {failed}"[:200]}


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the choice of programs, their interpreter and the limit of attach."""
    add_only_option(parser, list(CASES), "program")
    parser.add_argument(
        "--python",
        type=lambda text: str(existing_file(text)),
        default=sys.executable,
        metavar="PATH",
        help="the interpreter with the packages of the programs; default: this one",
    )
    parser.add_argument(
        "--stall",
        type=positive_seconds,
        default=30.0,
        metavar="SECONDS",
        help="default: 30, as in attach",
    )
    add_keep_option(parser)


def measure_rows(options: argparse.Namespace) -> Iterator[Row]:
    """Yield one row for each program."""
    with kept_folder(options) as folder:
        for name in options.only:
            row = measure_case(CASES[name], options, folder / name)
            show_progress(f"{name}: {row['said']}")
            yield row


def summarise_rows(rows: Sequence[Row]) -> list[str]:
    """Return how many faults are named with all lines and words, and the false alarms."""
    run = [row for row in rows if "right" in row]
    faults = [row for row in run if not CASES[str(row["program"])].mode]
    healthy = [row for row in run if CASES[str(row["program"])].mode]
    whole = {
        name: f"{len(case.hang_lines())} of {len(case.hang_lines())}"
        for name, case in CASES.items()
    }
    counts = {
        key: sum(row.get(key) == whole[str(row["program"])] for row in faults)
        for key in ("lines", "py_spy", "pystack")
    }
    return [
        f"reprokit names the lines and the cause of {sum(bool(row['right']) for row in faults)} of"
        f" {len(faults)} faults, and calls {sum(not row['right'] for row in healthy)} of"
        f" {len(healthy)} healthy programs a hang.",
        f"All marked lines are printed for {counts['lines']} faults by reprokit,"
        f" {counts['py_spy']} by py-spy and {counts['pystack']} by pystack.",
    ]


MEASUREMENT = Measurement(COLUMNS, measure_rows, add_options, summarise_rows)
