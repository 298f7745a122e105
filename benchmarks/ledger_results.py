"""Results of invented cells, for measurements of the ledger."""

from __future__ import annotations

from typing import Any

from reprokit.host.nightly.jobs.job_schema import JobResult, convert_to_struct


def invented_result(bug: int, night: int) -> JobResult:
    """Return the result of a cell: a healthy one where ``bug`` is 0, else one that shows this
    bug.
    """
    if not bug:
        attempt: dict[str, Any] = {
            "verdict": {"kind": "ok"},
            "signature": {},
            "compile_s": 10.0 + night % 3 / 10,
            "peak_rss_bytes": 1e9,
            "phases": {"codegen": 4.0, "lowering": 2.0},
        }
    else:
        frames = [f"torch/_inductor/{bug % 37}.py:f{bug}", "torch/_inductor/graph.py:run"]
        message = f"Error{bug % 97}: bug {bug}"
        attempt = {
            "verdict": {"kind": "exception"},
            "signature": {
                "id": f"{bug:012x}",
                "title": f"exception: codegen | {message} @ {frames[0]}",
                "algorithm": 6,
            },
            "traits": {
                "kind": "exception",
                "phase": "codegen",
                "message": message,
                "frames": frames,
            },
            "pack": f"packs/{bug}.tar.gz",
        }
    result = {
        "schema": 1,
        "key": "invented",
        "expect": ["ok"],
        "attempts": [
            {
                "traits": {},
                "phases": {},
                "torch": f"2.{11 + night % 3}.0",
                "seconds": 10.0,
                **attempt,
            }
        ],
        "problem": "",
        "seconds": 12.0,
    }
    return convert_to_struct(result, JobResult)
