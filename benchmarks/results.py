"""The record of one measurement: its command, its environment and the rows of its table."""

from __future__ import annotations

import datetime
import importlib.metadata
import json
import os
import platform
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

from .harness import BENCHMARKS, ROOT

RESULTS = BENCHMARKS / "results"
Cell = str | int | float | bool | None
Row = dict[str, Cell]


@dataclass(frozen=True)
class Column:
    """One column of a table: the key of its cells, its heading, and the decimals of its numbers."""

    key: str
    heading: str
    digits: int | None = None
    is_hidden: bool | None = None
    """The cells are in the record and not in the table."""


@dataclass(frozen=True)
class Result:
    """What one run of a measurement gave."""

    measurement: str | None
    """Name of the measurement; None for a table that was recorded by hand."""
    command: str
    columns: tuple[Column, ...]
    rows: Sequence[Row]
    environment: Mapping[str, str | int] = field(default_factory=dict)
    date: str | None = None
    """Day of the run, as YYYY-MM-DD, where it is known."""
    notes: tuple[str, ...] = ()
    """Summaries and caveats, one sentence or more each."""
    is_complete: bool = True
    """The run was neither interrupted nor ended by a case that could not be measured."""


def current_environment() -> dict[str, str | int]:
    """Return the versions and the CPU count that a result is recorded with."""
    versions: dict[str, str | int] = {}
    for package in ("torch", "triton", "transformers"):
        try:
            versions[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            continue
    versions["python"] = platform.python_version()
    if compiler := _first_line("g++", "-dumpfullversion"):
        versions["g++"] = compiler
    versions["system"] = platform.system()
    versions["cpu_count"] = os.cpu_count() or 1
    if revision := revision_of(ROOT):
        versions["revision"] = revision
    return versions


def revision_of(tree: Path) -> str:
    """Return the revision of a source tree; "" for one that is no Git repository."""
    return _first_line("git", "-C", str(tree), "rev-parse", "--short", "HEAD")


def today() -> str:
    """Return the current day (UTC) as YYYY-MM-DD."""
    return datetime.datetime.now(datetime.timezone.utc).date().isoformat()


def read_result(path: Path) -> Result:
    """Read the record that ``write_result`` wrote."""
    fields = json.loads(path.read_text())
    return Result(
        **{
            **fields,
            "columns": tuple(Column(**column) for column in fields["columns"]),
            "notes": tuple(fields["notes"]),
        }
    )


def write_result(result: Result, path: Path) -> None:
    """Write a record as JSON, one row a line."""
    fields = asdict(result)
    fields["columns"] = [
        {key: value for key, value in column.items() if value is not None}
        for column in fields["columns"]
    ]
    lists = {key: fields.pop(key) for key in ("columns", "rows", "notes")}
    text = json.dumps(fields, indent=1, ensure_ascii=False).removesuffix("\n}")
    for key, values in lists.items():
        inside = ",\n".join("  " + json.dumps(value, ensure_ascii=False) for value in values)
        text += f',\n "{key}": [\n{inside}\n ]' if values else f',\n "{key}": []'
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text + "\n}\n")


def recorded_results() -> dict[str, Path]:
    """Return the files of the recorded results by name."""
    return {path.stem: path for path in sorted(RESULTS.glob("*.json"))}


def _first_line(*command: str) -> str:
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except OSError:
        return ""
    return done.stdout.split("\n")[0].strip()
