"""Make up the results of nightly jobs, and add them to a real ledger."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

from reprokit.host.nightly.jobs import job_schema
from reprokit.host.nightly.ledger import add_result, bugs, ledger_file
from reprokit.host.nightly.ledger.database import Ledger


def new_ledger(folder: Path) -> Ledger:
    return ledger_file.open_ledger(folder / "ledger.sqlite", is_new_ok=True)


def healthy(compile_s: float = 10.0, peak: float = 1e9, **phases: float) -> dict[str, Any]:
    """Return the attempt of a capture without a failure."""
    return attempt(
        "ok", "", compile_s=compile_s, peak_rss_bytes=peak, phases=phases or {"codegen": compile_s}
    )


def failing(what: str, kind: str = "exception", **more: Any) -> dict[str, Any]:
    """Return the attempt of a capture that failed with the message ``what``."""
    frames = more.pop("frames", [f"torch/_inductor/{what}.py:f", "torch/_inductor/graph.py:run"])
    traits = {"kind": kind, "phase": "codegen", "message": what, "frames": frames, **more}
    return attempt(kind, f"{kind}: codegen | {what}", traits=traits)


def attempt(kind: str, title: str, **more: Any) -> dict[str, Any]:
    signature = {
        "id": hashlib.sha256(title.encode()).hexdigest()[:12],
        "title": title,
        "algorithm": 6,
    }
    return {
        "verdict": {"kind": kind, "phase": None, "cause": None, "reason": ""},
        "signature": signature,
        "traits": {},
        "seconds": 1.0,
        "compile_s": None,
        "phases": {},
        "peak_rss_bytes": None,
        "run_dir": None,
        "pack": None,
        "torch": "2.13.0",
        "triton": None,
        "problem": "",
        **more,
    }


def cell_result(
    *attempts: dict[str, Any], expect: tuple[str, ...] = ("ok",), **more: Any
) -> dict[str, Any]:
    return {
        "schema": 1,
        "key": "k",
        "expect": [*expect],
        "attempts": [*attempts],
        "seconds": 2.0,
        "problem": "",
        "folder": "",
        **more,
    }


def add_cell_result(store: Ledger, night: int, cell: int, result: dict[str, Any]) -> bool:
    """Add a result to the ledger, converted by the schema as the result of a job is."""
    struct = job_schema.convert_to_struct(result, job_schema.JobResult)
    return add_result.add_result(store, night, cell, struct, str(result["folder"]))


def add_night(store: Ledger, **cells: dict[str, Any]) -> int:
    """Add a whole nightly run with a result for each target, and return its number."""
    index = len(store.fetch_all("SELECT id FROM night")) + 1
    number = ledger_file.begin_night(
        store, f"uid {index}", f"2026-11-{index:03d}", "main", len(cells), 1e9 + index
    )
    for target, answer in cells.items():
        with store.transaction():
            cell = ledger_file.cell_id(store, target, target, {"environment": "here"}, [])
        assert add_cell_result(store, number, cell, answer)
    bugs.close_night(store, number, "done")
    return number


def bug_status(store: Ledger, what: str) -> str:
    """Return the status of the bug whose title ends with ``what``."""
    row = store.fetch_one(
        "SELECT b.status FROM bug b JOIN signature s ON s.bug = b.id WHERE s.title LIKE ?",
        f"%{what}",
    )
    return str(row["status"]) if row else ""
