"""What a job leaves, as files that are there whole or not at all; a target can write there too, so
nothing is believed.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from reprokit.core.records.kinds import KINDS
from reprokit.host.nightly.jobs import schema
from reprokit.host.system import files

SPEC, RESULT = "spec.json", "result.json"
SCHEMA = 1
HEALTHY = "ok"
NO_BUG = frozenset({"", *(kind.name for kind in KINDS.values() if not kind.is_failure)})
"""Verdicts that sight nothing."""


def read_result(folder: Path, key: str) -> dict[str, Any]:
    """The result of a job; empty if there is none. Raises :exc:`schema.Refused` if it is no result
    of this cell.
    """
    told = schema.read_as(folder / RESULT, schema.JobResult)
    if told is None:
        return {}
    if told.key != key:
        raise schema.FailsSchema("it is the result of another cell")
    return {**schema.plain_value(told), "folder": str(folder)}


def give_up(folder: Path, key: str, why: str) -> None:
    """Write a result for a job that will get none; raises OSError if the folder is not writable."""
    files.write_json(folder / RESULT, lost_result(folder, key, why))


def lost_result(folder: Path, key: str, why: str) -> dict[str, Any]:
    """The result of a job that ended without one."""
    return {
        "schema": SCHEMA,
        "key": key,
        "expect": [],
        "folder": str(folder),
        "attempts": [],
        "minimized": None,
        "seconds": None,
        "problem": why[:4_000],
    }
