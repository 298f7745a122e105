"""Read the request and the outcome of a run directory back."""

from __future__ import annotations

import contextlib
import dataclasses
from pathlib import Path
from typing import Any

from reprokit.core.records.observation import Missing
from reprokit.core.records.process_state import evidence_from_json
from reprokit.core.records.stalls import Stall
from reprokit.core.shared.contract import run_names, serialize
from reprokit.core.shared.errors import BadInput
from reprokit.host.request import run_request
from reprokit.host.request.run_request import Request
from reprokit.host.run.run_outcome import RunOutcome
from reprokit.host.system import files
from reprokit.host.watch import stacks
from reprokit.host.watch.hang_evidence import EVIDENCE, HangStacks


def read_run(run_path: Path) -> dict[str, Any]:
    """Read ``run.json`` back; empty when it is missing or broken."""
    return files.read_object(run_path / run_names.RUN_FILE)


def restore_run(run_path: Path) -> tuple[Request, RunOutcome]:
    """Make request and outcome again from a run directory.

    A run whose watchdog was killed has no end: it counts as interrupted when its last file was
    written.
    """
    told = read_run(run_path)
    if not isinstance(told.get("target"), dict) or not told.get("argv"):
        raise BadInput(f"{run_path} is no run directory: it has no run.json that says what was run")
    request = run_request.request_from_json(told)
    was_cut = "ended" not in told
    times = [p.lstat().st_mtime for p in (run_path / run_names.JOURNAL_FOLDER).glob("*")] or [
        run_path.stat().st_mtime
    ]
    began = told["started"] if isinstance(told.get("started"), (int, float)) else min(times)
    end = told.get("end") if was_cut else ""
    blank = RunOutcome(
        exit_status=None,
        is_timed_out=end in ("deadline", "stalled"),
        is_stalled=end == "stalled",
        is_interrupted=was_cut and end not in ("deadline", "stalled"),
        quiet_s=0.0,
        last_progress="",
        seconds=round(max(max(times) - began, 0.0), 3),
        cpu_s=0.0,
        cpu_by_pid={},
        peak_rss_bytes=0,
        ended=max(began, *times),
        started=began,
        main_pid=0,
        stacks=HangStacks(),
        oom_evidence="",
        last_output=0.0,
        watch_cpu_s=0.0,
        missing=(
            (
                Missing(
                    "clean end", "reprokit ended before the target did; this is what was on disk"
                ),
            )
            if was_cut
            else ()
        ),
    )
    kept: dict[str, Any] = {}
    for field in dataclasses.fields(RunOutcome):
        value, usual = told.get(field.name), getattr(blank, field.name)
        if isinstance(value, type(usual)) or (
            isinstance(value, int) and isinstance(usual, (float, type(None)))
        ):
            kept[field.name] = value
    if isinstance(told.get("missing"), list):
        rows = [m for m in told["missing"] if isinstance(m, dict)]
        kept["missing"] = tuple(Missing(str(m.get("what")), str(m.get("why"))) for m in rows)
    with contextlib.suppress(ValueError, RecursionError):
        kept["stalls"] = serialize.from_json(tuple[Stall, ...], told.get("stalls"))
    outcome = dataclasses.replace(blank, **kept)
    if (
        outcome.is_timed_out or outcome.is_interrupted
    ):  # else there were looks at the stacks, and no end to explain
        evidence = evidence_from_json(files.read_object(run_path / EVIDENCE))
        outcome = dataclasses.replace(
            outcome, stacks=HangStacks(tuple(stacks.read_dumps(run_path)), evidence)
        )
    return request, outcome
