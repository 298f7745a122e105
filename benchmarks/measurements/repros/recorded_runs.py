"""Measure from how many records of failures a proved repro of the same failure comes.

python -m benchmarks run recorded_runs [--only ISSUE ...] [--records KIND ...] [--budget 20]

The programs are those of the catalogue of known failures that raise an exception with the torch at
hand. Each runs plainly, with the variables of one kind of record, and is then deleted. ``reprokit
capture`` gets the files only. A repro is right if its title is that of the catalogue, which a
capture of the program itself gave, and if it raises an exception of that type in a process of its
own.
"""

from __future__ import annotations

import argparse
import contextlib
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from reprokit.core.records.finding import identity_of_title
from reprokit.core.triage.known_failures import KnownFailure
from reprokit.host.catalogue import catalogue_files

from ...harness import quiet_environ, run_reprokit, show_progress
from ...measurement import Measurement, add_only_option, positive_seconds
from ...results import Column, Row

COLUMNS = (
    Column("issue", "issue"),
    Column("failure", "failure", is_hidden=True),
    Column("record", "record"),
    Column("verdict", "verdict of the record", is_hidden=True),
    Column("here", "its program"),
    Column("lines", "lines of the repro"),
    Column("right", "right"),
)
RECORDS = {
    "trace": ({"TORCH_TRACE": "record"}, "record"),
    "runnable": (
        {"TORCH_COMPILE_DEBUG": "1"},
        "torch_compile_debug/*/torchinductor/*/fx_graph_runnable.py",
    ),
    "minifier": (
        {"TORCHDYNAMO_REPRO_AFTER": "aot", "TORCHDYNAMO_REPRO_LEVEL": "2"},
        "torch_compile_debug/*/minifier/minifier_launcher.py",
    ),
    "watch": ({"REPROKIT_WATCH": "record"}, "reprokit-out/torch_trace_*.log"),
}
"""Kind -> the variables that make it, and a pattern of its files."""
LIMIT_S = 900.0


def entries() -> dict[str, KnownFailure]:
    """Return the entries of the catalogue that raise an exception, by the number of the issue."""
    return {
        entry.issue.rpartition("#")[2]: entry
        for entry in catalogue_files.own_catalogue()
        if entry.kind == "exception" and entry.program
    }


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the choice of issues and of records."""
    add_only_option(parser, list(entries()), "issue")
    parser.add_argument(
        "--records",
        nargs="+",
        choices=list(RECORDS),
        default=list(RECORDS),
        metavar="KIND",
        help=f"kinds of records; default: {' '.join(RECORDS)}",
    )
    parser.add_argument(
        "--budget", type=positive_seconds, default=20.0, help="of each reduction; default: 20"
    )


def measure_rows(options: argparse.Namespace) -> Iterator[Row]:
    """Yield one row for each issue and kind of record."""
    found = entries()
    for kind in options.records:
        for issue in options.only:
            with tempfile.TemporaryDirectory(
                prefix="recorded-", ignore_cleanup_errors=True
            ) as folder:
                row = _measure_record(found[issue], kind, Path(folder), options.budget)
            show_progress(f"{issue} {kind}: {row['here']}, right: {row['right']}")
            yield {"issue": issue, "record": kind, **row}


def _measure_record(entry: KnownFailure, kind: str, folder: Path, budget_s: float) -> Row:
    variables, pattern = RECORDS[kind]
    script = folder / "program.py"
    script.write_text(entry.program)
    environ = {**quiet_environ(), **variables, "TORCHINDUCTOR_CACHE_DIR": str(folder / "cache")}
    with contextlib.suppress(subprocess.TimeoutExpired):
        subprocess.run(
            [sys.executable, script.name],
            cwd=folder,
            env=environ,
            capture_output=True,
            timeout=LIMIT_S,
            check=False,
        )
    script.unlink()
    title = _title_here(entry)
    failure = {"failure": title.partition(" @ ")[0]}
    records = sorted(folder.glob(pattern))
    if not records:
        return {
            **failure,
            "verdict": "none: torch wrote no file",
            "here": "",
            "lines": "",
            "right": "no",
        }
    done = run_reprokit(
        "capture",
        *records,
        "--yes",
        "--budget",
        f"{budget_s:g}s",
        "--output-dir",
        folder / "out",
        environ=quiet_environ(),
        cwd=folder,
        limit_s=LIMIT_S,
    )
    answer = done.answer
    repro = str(answer.get("repro") or "")
    is_same = title in str(answer.get("why")) and answer.get("answer") == "fails"
    is_right = is_same and bool(repro) and _raises(repro, title, folder)
    here = f"{answer.get('answer') or 'not run'}: {answer.get('why') or done.last_error}"
    return {
        **failure,
        "verdict": f"{answer.get('kind')}: {str(answer.get('reason')).split(chr(10))[0]}"[:120],
        "here": here[:160],
        "lines": len(repro.splitlines()) if repro else "",
        "right": "yes" if is_right else "no",
    }


def _title_here(entry: KnownFailure) -> str:
    """Return the title that the catalogue has for the torch at hand."""
    from importlib.metadata import version

    here = version("torch").partition("+")[0]
    return next((run.title for run in entry.runs if run.torch == here), entry.runs[-1].title)


def _raises(repro: str, title: str, folder: Path) -> bool:
    """Return whether a program raises an exception of the type of a title, in its own process."""
    (folder / "repro.py").write_text(repro)
    done = subprocess.run(
        [sys.executable, "repro.py"],
        cwd=folder,
        env=quiet_environ(),
        capture_output=True,
        text=True,
        check=False,
        timeout=LIMIT_S,
    )
    error = identity_of_title(title).what.partition(":")[0].rpartition(".")[2]
    return done.returncode != 0 and error in done.stderr


MEASUREMENT = Measurement(COLUMNS, measure_rows, add_options)
