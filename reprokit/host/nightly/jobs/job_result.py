"""Read and write the result of a job.

A target can write to the folder of its job too, so each file is checked by the schema.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from reprokit.core.records.verdict_kinds import KINDS
from reprokit.host.nightly.jobs import job_schema
from reprokit.host.nightly.jobs.job_schema import JobResult
from reprokit.host.system import files

SPEC_FILE, RESULT_FILE = "spec.json", "result.json"
SCHEMA: Final = 1
HEALTHY = "ok"
IN_EAGER = "error-in-eager"
NO_BUG = frozenset(
    {"", *(k.name for k in KINDS.values() if not (k.is_failure and k.is_of_compiler))}
)
"""Verdicts that are no failures of the compiler."""


def read_result(folder: Path, key: str) -> JobResult | None:
    """Return the result of a job; None if there is none.

    Raises:
        FailsSchema: the file is not a result of the cell ``key``.
    """
    result = job_schema.read_struct(folder / RESULT_FILE, JobResult)
    if result is not None and result.key != key:
        raise job_schema.FailsSchema("it is the result of a different cell")
    return result


def write_lost_result(folder: Path, key: str, why: str) -> None:
    """Write the result of a job that gave none; raises OSError if the folder is not writable."""
    result = job_schema.struct_to_json(lost_result(key, why))
    del result["refused"]
    files.write_json(folder / RESULT_FILE, {**result, "folder": str(folder)})


def lost_result(key: str, why: str) -> JobResult:
    """Return the result of a job that ended without one."""
    return JobResult(SCHEMA, key, expect=[], attempts=[], problem=why[:4_000])
