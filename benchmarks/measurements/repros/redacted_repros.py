"""Measure whether repros fail in the same way after redaction, where the code looks private.

python -m benchmarks run redacted_repros [--only NAME ...] [--jobs 1] [--keep FOLDER]

Each program of benchmarks/cases/redaction_cases.py is captured and minimized in the environment that
it names. ``repro.py`` is taken out of the pack, and the program under the heading "Repro" out of
issue.md. Each runs with Python alone, in an empty folder and a bare environment. It fails in the
same way when the last exception of its traceback has the type and the message of the program's own;
numbers and what the redactor replaces do not count. Where a pack has no repro, the table says how
the smallest program fails. Python files of packs that do not compile are listed too.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import re
import sys
import tarfile
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from reprokit.core.redaction.redactor import Redactor

from ...cases.redaction_cases import PROGRAMS, PrivateLookingProgram
from ...harness import ReprokitResult, run_child, run_reprokit
from ...measurement import Measurement, add_keep_option, add_only_option, kept_folder, positive_int
from ...redaction_environments import bare_environ, redactor_in
from ...results import Column, Row

OPTIONS = ("--minimize", "--no-ablate", "--proofs", "1", "--budget", "30")
CAPTURE_LIMIT_S, REPRO_LIMIT_S = 180.0, 60.0
COLUMNS = (
    Column("program", "program"),
    Column("looks_private", "what looks private"),
    Column("is_same", "fails in the same way"),
    Column("wall_s", "s", 0),
    Column("why", "why not"),
    Column("broken", "files that do not compile"),
)
_EXCEPTION = re.compile(
    r"^(?P<type>[A-Za-z_][\w.]*(?:Error|Exception|Failed|Unsupported|Interrupt|Exit))(?::"
    r" (?P<message>.*))?$"
)
_INLINE_REPRO = re.compile(
    r"^Repro \(.*?\):\n\n(?P<fence>`{3,})python\n(?P<text>.*?)^(?P=fence)$",
    re.DOTALL | re.MULTILINE,
)


@dataclass(frozen=True)
class Failure:
    """Type and message of the last exception of a traceback; both are empty where there is none."""

    type: str = ""
    message: str = ""

    def is_like(self, wanted: Failure, redactor: Redactor) -> bool:
        """Compare without numbers and without what the redactor replaces."""

        def blank(text: str) -> str:
            return re.sub(
                r"\d+", "#", re.sub(r"<[a-z]+(?:-\d+)?>", "<>", redactor.redact_text(text))
            )

        return self.type == wanted.type and blank(self.message) == blank(wanted.message)


def last_failure(text: str) -> Failure:
    """Return the last exception of a traceback, with its cause."""
    rows = text.splitlines()
    for number in range(len(rows) - 1, -1, -1):
        if match := _EXCEPTION.match(rows[number]):
            if number and _EXCEPTION.match(rows[number - 1]):
                continue  # this row is the cause that the row above it names
            cause = [row for row in rows[number + 1 : number + 2] if _EXCEPTION.match(row)]
            return Failure(match["type"], "\n".join([match["message"] or "", *cause]))
    return Failure()


def failure_alone(text: str) -> Failure:
    """Return how a program fails with Python alone in an empty folder."""
    with tempfile.TemporaryDirectory(prefix="alone-") as name:
        folder = Path(name)
        (folder / "repro.py").write_text(text)
        done = run_child(
            [sys.executable, "repro.py"],
            cwd=folder,
            environ=bare_environ(folder),
            limit_s=REPRO_LIMIT_S,
        )
    if done.status is None:
        return Failure(message="it does not end")
    return last_failure(done.err) if done.status else Failure(message="it passes")


def is_python(text: str) -> bool:
    """Return whether a text compiles as Python."""
    try:
        compile(text, "program", "exec")
    except (SyntaxError, ValueError):
        return False
    return True


def pack_texts(done: ReprokitResult) -> dict[str, str]:
    """Return the Python and Markdown files of a pack."""
    with tarfile.open(done.answer["pack"]) as pack:
        files = {
            member.name: pack.extractfile(member)
            for member in pack.getmembers()
            if member.name.endswith((".py", ".md"))
        }
        return {n: f.read().decode(errors="replace") for n, f in files.items() if f}


def measure_program(name: str, program: PrivateLookingProgram, folder: Path) -> Row:
    """Capture one program, and return how the repros of its pack fail."""
    folder.mkdir()
    (folder / "program.py").write_text(program.script)
    variables = {"PWD": str(folder), "USER": "sam", "HOSTNAME": "box17", **program.environ}
    environ = bare_environ(folder, **variables)
    done = run_reprokit(
        "capture",
        *OPTIONS,
        "--output-dir",
        folder / "out",
        "--",
        sys.executable,
        "program.py",
        cwd=folder,
        environ=environ,
        limit_s=CAPTURE_LIMIT_S,
    )
    row: Row = {"program": name, "looks_private": program.looks_private, "is_same": False}
    row["wall_s"] = round(done.wall_s, 1)
    if not done.answer.get("pack"):
        return {**row, "why": f"no capture: {done.last_error}"}
    run_dir = Path(done.answer["run_dir"])
    wanted = last_failure((run_dir / "logs" / "stderr.txt").read_text())
    if not wanted.type:
        return {**row, "why": "the program itself does not fail"}
    redactor, texts = redactor_in(variables), pack_texts(done)

    def difference(text: str) -> str:
        failure = failure_alone(text)
        if failure.is_like(wanted, redactor):
            return ""
        return f"{failure.type or 'no exception'}: {failure.message[:120]}"

    repro = texts.get("repro.py", "")
    if repro:
        why = difference(repro)
        shown = _INLINE_REPRO.search(texts.get("issue.md", ""))
        if not why and (shown["text"].strip() if shown else "") != repro.strip():
            inline_why = difference(shown["text"]) if shown else "no program"
            why = f"in issue.md: {inline_why}" if inline_why else ""
    else:
        smallest = run_dir / "minimize" / "best.py"
        how = difference(smallest.read_text()) if smallest.exists() else "there is none"
        why = f"no repro; the smallest program: {how or 'fails in the same way'}"
    broken = [file for file, text in texts.items() if file.endswith(".py") and not is_python(text)]
    return {**row, "is_same": not why, "why": why, "broken": ", ".join(broken)}


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the choice of programs, how many run at once, and the folder to keep."""
    add_only_option(parser, PROGRAMS, "program")
    parser.add_argument("--jobs", type=positive_int, default=1, help="at once; default: 1")
    add_keep_option(parser)


def measure_rows(options: argparse.Namespace) -> Iterator[Row]:
    """Yield a row for each program."""
    with (
        kept_folder(options) as folder,
        concurrent.futures.ThreadPoolExecutor(options.jobs) as pool,
    ):
        yield from pool.map(
            lambda name: measure_program(name, PROGRAMS[name], folder / name), options.only
        )


def summarise_rows(rows: Sequence[Row]) -> list[str]:
    """Return how many repros fail in the same way, and how many files do not compile."""
    same = sum(bool(row["is_same"]) for row in rows)
    broken = sum(bool(row.get("broken")) for row in rows)
    return [
        f"{same} of {len(rows)} repros fail in the same way; {broken} packs have Python files that"
        " do not compile."
    ]


MEASUREMENT = Measurement(COLUMNS, measure_rows, add_options, summarise_rows)
