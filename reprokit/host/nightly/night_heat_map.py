"""Collect the kinds and the reports of all runs of the last nightly runs, by cell."""

from __future__ import annotations

import json
import os
import sqlite3
import stat
from pathlib import Path

from reprokit.core.records.verdict_kinds import KINDS
from reprokit.core.shared.contract import run_names
from reprokit.core.triage import trend
from reprokit.host.nightly.jobs.job_result import HEALTHY
from reprokit.host.nightly.ledger.database import Ledger
from reprokit.host.nightly.night_report_model import HeatMap, HeatRow, HeatState
from reprokit.host.nightly.suite.cells import settings_words
from reprokit.host.system import host_log, private_names

MAX_HEAT_ROWS = 1000
LOST, OTHER = "lost", "other"
_REPORT = os.path.join(run_names.PACK_FOLDER, run_names.REPORT_FILE)
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
    finder = _ReportFinder(beside)
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
                    "reports": finder.reports_of(found["folder"], names[number]),
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


class _ReportFinder:
    """Finds the reports of jobs below the output folder, without following links.

    The path in a result may be any file, so only its last part is used.
    """

    def __init__(self, beside: Path | None) -> None:
        self._root = os.path.realpath(beside) if beside is not None else ""
        self._jobs: dict[str, frozenset[str]] = {}

    def reports_of(self, folder: str, night: str) -> list[str]:
        """Return the reports of the captures of a job, relative to the output folder."""
        name = Path(folder).name
        if not self._root or not name or name not in self._jobs_of(night):
            return []
        job = os.path.join("nights", night, "jobs", name)
        return [
            report
            for run in sorted(self._folders(job))
            if run.startswith("run-")
            and run_names.PACK_FOLDER in self._folders(os.path.join(job, run))
            and self._is_file(report := os.path.join(job, run, _REPORT))
        ]

    def _jobs_of(self, night: str) -> frozenset[str]:
        if night not in self._jobs:
            path = os.path.join("nights", night, "jobs")
            real = os.path.realpath(os.path.join(self._root, path))
            is_inside = real == os.path.join(self._root, path)
            self._jobs[night] = self._folders(path) if is_inside else frozenset()
        return self._jobs[night]

    def _folders(self, path: str) -> frozenset[str]:
        with host_log.suppress(OSError), os.scandir(os.path.join(self._root, path)) as entries:
            return frozenset(e.name for e in entries if e.is_dir(follow_symlinks=False))
        return frozenset()

    def _is_file(self, path: str) -> bool:
        with host_log.suppress(OSError):
            return stat.S_ISREG(os.lstat(os.path.join(self._root, path)).st_mode)
        return False
