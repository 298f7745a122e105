"""Read the request and the outcome of a run from its run directory."""

from __future__ import annotations

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
from reprokit.host.system import files, host_log
from reprokit.host.watch import stacks
from reprokit.host.watch.hang_evidence import HangStacks


def read_run_file(run_path: Path) -> dict[str, Any]:
    """Read ``run.json``; return an empty object if it is missing or damaged."""
    return files.read_json_object(run_path / run_names.RUN_FILE)


def restore_run(run_path: Path) -> tuple[Request, RunOutcome]:
    """Return the request and the outcome of the run in a run directory.

    If reprokit was killed, ``run.json`` has no end of the run. Such a run counts as interrupted at
    the time of its last file. Raises BadInput if there is no run.
    """
    document = read_run_file(run_path)
    if not isinstance(document.get("target"), dict) or not document.get("argv"):
        raise BadInput(f"{run_path} is not a run directory: it has no run.json with a target")
    request = run_request.request_from_json(document)
    was_cut = "ended" not in document
    times = [p.lstat().st_mtime for p in (run_path / run_names.JOURNAL_FOLDER).glob("*")] or [
        run_path.stat().st_mtime
    ]
    started = document.get("started")
    began = started if isinstance(started, (int, float)) else min(times)
    end = document.get("end") if was_cut else ""
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
    fields: dict[str, Any] = {}
    for field in dataclasses.fields(RunOutcome):
        value, default = document.get(field.name), getattr(blank, field.name)
        if isinstance(value, type(default)) or (
            isinstance(value, int) and isinstance(default, (float, type(None)))
        ):
            fields[field.name] = value
    if isinstance(document.get("missing"), list):
        rows = [m for m in document["missing"] if isinstance(m, dict)]
        fields["missing"] = tuple(Missing(str(m.get("what")), str(m.get("why"))) for m in rows)
    with host_log.suppress(ValueError, RecursionError):
        fields["stalls"] = serialize.from_json(tuple[Stall, ...], document.get("stalls"))
    outcome = dataclasses.replace(blank, **fields)
    # the dumps of a run that ended by itself do not explain its end
    if outcome.is_timed_out or outcome.is_interrupted:
        evidence = evidence_from_json(files.read_json_object(run_path / run_names.EVIDENCE_FILE))
        outcome = dataclasses.replace(
            outcome, stacks=HangStacks(tuple(stacks.read_dumps(run_path)), evidence)
        )
    return request, outcome
