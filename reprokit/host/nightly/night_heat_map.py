"""Collect the kinds and the reports of all runs of the last nightly runs, by cell."""

from __future__ import annotations

import json
import os
import sqlite3
from collections.abc import Iterable
from pathlib import Path

from reprokit.core.records.verdict_kinds import KINDS
from reprokit.core.shared.contract import run_names
from reprokit.core.triage import trend
from reprokit.host.nightly.jobs.job_result import HEALTHY
from reprokit.host.nightly.ledger.database import Ledger
from reprokit.host.nightly.night_report_model import HeatMap, HeatRow, HeatState
from reprokit.host.nightly.suite.cells import settings_words
from reprokit.host.system import private_names

MAX_HEAT_ROWS = 1000
LOST, OTHER = "lost", "other"
_KNOWN_KINDS = frozenset((*KINDS, *trend.KINDS.values(), LOST))


def make_heat_map(
    ledger: Ledger, nights: list[sqlite3.Row], hidden: tuple[str, ...], beside: Path | None
) -> HeatMap:
    """Return the runs of ``nights``, the oldest first, by cell. Cells that fail now come first.

    Reports are named relative to ``beside``, the folder of the page, where they exist. Names are
    redacted. Settings in ``hidden`` are left out.
    """
    numbers = [row["id"] for row in nights]
    marks = ", ".join("?" * len(numbers))
    runs = ledger.fetch_all(
        f"SELECT run.*, cell.target, cell.settings FROM run JOIN cell ON cell.id = run.cell"  # noqa: S608
        f" WHERE night IN ({marks})",
        *numbers,
    )
    slower = {
        (row["night"], row["cell"]): str(row["title"]).partition(":")[0]
        for row in ledger.fetch_all(
            "SELECT x.night, x.cell, s.title FROM sighting x JOIN signature s ON s.id ="  # noqa: S608
            f" x.signature WHERE x.is_expected = 0 AND x.night IN ({marks})",
            *numbers,
        )
    }
    by_cell: dict[int, dict[int, sqlite3.Row]] = {}
    for run in runs:
        by_cell.setdefault(run["cell"], {})[run["night"]] = run

    def order(cell: int) -> tuple[bool, str, str]:
        of_night = by_cell[cell]
        last = of_night[max(of_night)]
        is_quiet = last["night"] != numbers[-1] or _kind(last, slower) == HEALTHY
        return is_quiet, last["target"], last["settings"]

    names = {row["id"]: str(row["name"]) for row in nights}
    rows: list[HeatRow] = []
    for cell in sorted(by_cell, key=order)[:MAX_HEAT_ROWS]:
        some = by_cell[cell][max(by_cell[cell])]
        states: list[HeatState | None] = []
        for number in numbers:
            found = by_cell[cell].get(number)
            states.append(
                None
                if found is None
                else {
                    "night": number,
                    "kind": _kind(found, slower),
                    "is_expected": bool(found["is_expected"]),
                    "reports": [*_reports(found["folder"], names[number], beside)],
                }
            )
        rows.append(
            {
                "cell": cell,
                "target": some["target"],
                "settings": " ".join(settings_words(json.loads(some["settings"]), hidden)),
                "states": states,
            }
        )
    redactor = private_names.get_redactor()
    for row in rows:
        row["target"] = redactor.redact_text(row["target"])
        row["settings"] = redactor.redact_text(row["settings"])
    return {
        "nights": [redactor.redact_text(name) for name in names.values()],
        "rows": rows,
        "left_out": max(0, len(by_cell) - MAX_HEAT_ROWS),
    }


def _kind(run: sqlite3.Row, slower: dict[tuple[int, int], str]) -> str:
    """Return the kind of a run; that of a healthy but slower run is the kind of the regression."""
    kind = run["kind"] or LOST
    if kind == HEALTHY:
        kind = slower.get((run["night"], run["cell"]), kind)
    return kind if kind in _KNOWN_KINDS else OTHER


def _reports(folder: str, night: str, beside: Path | None) -> Iterable[str]:
    """Yield the reports of the captures of a job, relative to ``beside``.

    The path in a result may be any file, so only its last part is used.
    """
    if not folder or beside is None:
        return
    real = os.path.realpath(beside)
    jobs = Path(real) / "nights" / night / "jobs" / Path(folder).name
    for run in sorted(jobs.glob("run-[0-9]*")):
        report = run / run_names.PACK_FOLDER / run_names.REPORT_FILE
        if report.is_file() and os.path.realpath(report) == str(report):
            yield os.path.relpath(report, real)
