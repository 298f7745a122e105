"""Plan one job of a nightly run: its command, its resources, and the history of its cell."""

from __future__ import annotations

import re
from pathlib import Path

from reprokit.core.shared import target_options
from reprokit.core.triage import trend
from reprokit.host.nightly.jobs import job, job_result, job_schema
from reprokit.host.nightly.jobs.job_schema import JobSpec, PlannedJob
from reprokit.host.nightly.ledger import add_result, database
from reprokit.host.nightly.suite.cells import Suite, SuiteCell, SuiteEnvironment
from reprokit.host.system import files, private_names

RETRY_AFTER_NIGHTS = 7
"""A failure that could not be minimized is tried again after this number of nightly runs."""
DEFAULT_MEMORY_BYTES = 2e9
"""The memory for a cell that never ran."""


def plan_job(
    suite: Suite,
    cell: SuiteCell,
    number: int,
    path: Path,
    pythons: dict[str, str],
    problems: dict[str, str],
    store: database.Ledger,
) -> PlannedJob:
    """Write the spec of one job, and return its row of the plan."""
    plain = private_names.get_redactor().redact_file_name(
        cell.target.replace(".py:", "-").rpartition("/")[2]
    )
    name = re.sub(r"[^A-Za-z0-9._]+", "-", plain).strip("-.")[:40]
    folder = path / "jobs" / f"{number:04d}-{name or 'target'}"
    folder.mkdir()
    cell_row = store.fetch_one("SELECT id FROM cell WHERE key = ?", cell.key)
    before = int(cell_row["id"]) if cell_row else 0
    environment: SuiteEnvironment = suite.environments[cell.settings["environment"]]
    python, limits = pythons.get(environment.name, ""), cell.limits
    words, target = capture_words(cell, python)
    limit_s = 4 * limits.timeout_s + limits.budget_s * 3 + job.SLACK_S
    usual = (
        {what: add_result.usual_cost_of_cell(store, before, what) for what in trend.KINDS}
        if before
        else {}
    )
    spec = JobSpec(
        schema=job_result.SCHEMA,
        key=cell.key,
        words=words,
        target=target,
        python=python,
        cwd=str(suite.path.resolve().parent),
        retries=limits.retries,
        budget_s=limits.budget_s,
        limit_s=limit_s,
        expect=list(cell.expect),
        warms=not cell.command,
        environment={},
        known=[],
        settled=_settled(store, before),
        limits={what: cost.limit for what, cost in usual.items() if cost},
    )
    files.write_json(folder / job_result.SPEC_FILE, job_schema.struct_to_json(spec))
    row = store.fetch_one(
        "SELECT seconds FROM run WHERE cell = ? AND kind != '' ORDER BY night DESC LIMIT 1", before
    )
    peak = store.fetch_one(
        "SELECT max(most_rss_bytes) AS most FROM (SELECT most_rss_bytes FROM run WHERE cell = ?"
        " ORDER BY night DESC LIMIT 5)",
        before,
    )
    memory = limits.memory_gb * 1e9 or (
        1.25 * peak["most"] + 3e8 if peak and peak["most"] else DEFAULT_MEMORY_BYTES
    )
    hidden = () if len(suite.environments) > 1 else ("environment",)
    planned = PlannedJob(
        folder=folder.name,
        key=cell.key,
        target=cell.target,
        settings={
            **cell.settings,
            **cell.knobs,
            **({"device": cell.device} if cell.device else {}),
        },
        tags=list(cell.tags),
        label=cell.label(hidden),
        cores=limits.cores,
        memory_bytes=memory,
        gpus=limits.gpus,
        limit_s=limit_s * (1 + limits.retries),
        expected_s=row["seconds"] if row else None,
    )
    if why := problems.get(environment.name):
        job_result.write_lost_result(folder, cell.key, f"environment {environment.name}: {why}")
    return planned


def capture_words(cell: SuiteCell, python: str) -> tuple[list[str], list[str]]:
    """Return the arguments of ``reprokit capture`` for a cell, and those that name the target.

    The latter are the last arguments of the command line.
    """
    limits = cell.limits
    words = [
        "capture",
        "--json",
        "--no-minimize",
        "--no-ablate",
        "--timeout",
        f"{limits.timeout_s:g}",
        "--stall",
        f"{limits.stall_s:g}",
    ]
    for name, value in cell.settings.items():
        if name == "environment":
            words += [] if cell.command else ["--python", python]
        elif value is True:
            words.append("--" + name)
        elif value is False:
            words += ["--no-dynamic"] if name == "dynamic" else []
        else:
            words += ["--" + name, str(value)]
    if cell.command:
        words += ["--on-stall", "end"]  # a job must end
        return words, ["--", *(python if word == "{python}" else word for word in cell.command)]
    for name, value in cell.knobs.items():
        words += target_options.option_words(name, value)
    if cell.device:
        words += ["--device", cell.device]
    return words, ["--model", cell.target]


def known_signatures(store: database.Ledger) -> list[str]:
    """Return signatures that are not minimized.

    Their bug has a proved repro, was tried lately without one, or is muted.
    """
    rows = store.fetch_all(
        "SELECT s.id FROM signature s JOIN bug b ON b.id = s.bug WHERE b.repro_lines IS NOT NULL OR"
        " b.muted IS NOT NULL OR (b.tried > 0 AND b.tried > (SELECT max(id) FROM night) - ?)",
        RETRY_AFTER_NIGHTS,
    )
    return [r["id"] for r in rows]


def _settled(store: database.Ledger, cell: int) -> list[str]:
    """Return signatures that this cell showed in each of at least three runs."""
    return [
        r["signature"]
        for r in store.fetch_all(
            "SELECT signature FROM place WHERE cell = ? AND hits >= 3 AND hits >= runs", cell
        )
    ]
