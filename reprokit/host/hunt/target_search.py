"""Run the targets of a hunt: many in one forked child of the probe server.

Key insight: the child writes what it begins before it begins. So when a child dies, its last line
names the target, which runs again alone, and the targets after it run in the next child.
"""

from __future__ import annotations

import math
import signal
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from reprokit.core.shared.contract.probe_messages import Isolation
from reprokit.core.shared.errors import BadInput
from reprokit.host.hunt import outcomes, source_places
from reprokit.host.hunt.outcomes import CRASH, HANG, LOST, HuntFolder, Outcome, read_rows
from reprokit.host.probe import isolated_runs
from reprokit.host.probe.candidate import ProbeLimits
from reprokit.host.probe.client import ProbeServer
from reprokit.host.run.run_outcome import RunOutcome
from reprokit.host.system import deletion

BATCH = 24
"""Targets of one child: its start costs less than one of them."""
ROWS_FILE = "targets.jsonl"
PROGRAM = """\
import json
import os
from _reprokit.agent.hunt.judge_programs import judge_targets

path = os.path.join(os.environ["REPROKIT_RUN_DIR"], {file!r})
with open({steering!r}) as file:
    steering = json.load(file)
judge_targets({sources}, {seed}, {numbers}, path, {limit_s}, steering)
"""
Show = Callable[[str], None]


def search_targets(
    hunt: HuntFolder, server: ProbeServer, until: float, last: int, show: Show
) -> None:
    """Run targets until the time ``until`` of the monotonic clock, or the number ``last``.

    Raises:
        BadInput: the interpreter lacks a package that a source needs.
        ServerLost: the probe server has ended.
    """
    isolation = Isolation(cwd=str(hunt.path), is_open=bool(isolated_runs.why_not_isolated()))
    while hunt.next_number < last and time.monotonic() < until:
        first = hunt.next_number
        if (
            first % BATCH == 0 or not hunt.has_steering
        ):  # so that what ends a batch early does not change the next programs
            hunt.keep_steering()
        end = first - first % BATCH + BATCH
        _run_batch(hunt, server, range(first, min(end, last)), isolation)
        show(describe_counts(hunt))


def describe_counts(hunt: HuntFolder) -> str:
    """Return how many targets had each outcome, in one line."""
    counts = ", ".join(f"{count} {kind}" for kind, count in hunt.counts.items())
    return f"{len(hunt.outcomes)} targets: {counts}"


def _run_batch(
    hunt: HuntFolder, server: ProbeServer, numbers: Sequence[int], isolation: Isolation
) -> None:
    """Run targets in one child, and add the outcomes of those that it has judged.

    A target that has ended the child runs again alone, which decides its outcome.
    """
    plan = hunt.plan
    is_alone = len(numbers) == 1  # then the host has the limit, which knows the wait for a CPU
    text = PROGRAM.format(
        sources=source_places.prepare_places(hunt.path, plan.sources),
        steering=str(hunt.path / outcomes.STEERING_FILE),
        seed=plan.seed,
        numbers=list(numbers),
        file=ROWS_FILE,
        limit_s=0 if is_alone else math.ceil(hunt.limit_s),
    )
    limits = ProbeLimits(hunt.limit_s * len(numbers), isolation=isolation)
    ended, folder = server.run_program(text, limits)
    try:
        rows = _rows_by_target(folder)
        for number in numbers:
            row = rows.get(number, {})
            if "lacks" in row:
                raise BadInput(
                    f"--source {row['source']} needs a package that {plan.python} does not have:"
                    f" {row['lacks']}"
                )
            if "kind" not in row:
                break
            hunt.add_outcome(_outcome(number, row), row)
        else:
            return
    finally:
        deletion.delete_path(folder, inside=server.folder)
    if not is_alone:
        _run_batch(hunt, server, [number], isolation)
    else:
        kind, detail = _how_it_ended(ended, row)
        source = plan.sources[number % len(plan.sources)].partition("=")[0]
        row = {"source": source, "text": "", **row, "kind": kind, "detail": detail, "group": detail}
        hunt.add_outcome(_outcome(number, {**row, "cpu_s": ended.cpu_s}), row)


def _rows_by_target(folder: Path) -> dict[int, dict[str, Any]]:
    """Return what the child has written, joined for each target."""
    found: dict[int, dict[str, Any]] = {}
    for row in read_rows(folder / ROWS_FILE):
        found.setdefault(int(row["number"]), {}).update(row)
    return found


def _outcome(number: int, row: dict[str, Any]) -> Outcome:
    words = {name: str(row[name]) for name in ("source", "kind", "detail", "group")}
    return Outcome(number, **words, cpu_s=float(row["cpu_s"]))


def _how_it_ended(ended: RunOutcome, row: dict[str, Any]) -> tuple[str, str]:
    """Return the outcome of a target that has ended its process."""
    stage = str(row.get("stage", "generate"))
    status = ended.exit_status
    if ended.is_timed_out or status == -signal.SIGALRM:
        kind, detail = HANG, f"no end in {stage}"
    elif status is not None and status < 0:
        kind, detail = CRASH, f"{signal.Signals(-status).name} in {stage}"
    else:
        kind, detail = LOST, f"its process ended with status {status} in {stage}"
    return (kind, detail) if stage == "compiled" else (LOST, detail)
