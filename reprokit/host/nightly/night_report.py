"""Make the report of a nightly run as one JSON value, for the terminal, the digest and the page."""

from __future__ import annotations

import json
import os
import sqlite3
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import cast

from reprokit.core.shared.errors import BadInput
from reprokit.core.triage import trend
from reprokit.host.nightly import night_heat_map
from reprokit.host.nightly.jobs.job_result import IN_EAGER
from reprokit.host.nightly.ledger import bugs
from reprokit.host.nightly.ledger.database import Ledger
from reprokit.host.nightly.night_report_model import (
    BugMatrix,
    BugReport,
    CostHistory,
    LastHealthyRun,
    MergeProposal,
    NightName,
    NightReport,
    RefusedFiles,
    ReportBody,
    ReportedRun,
    TargetStates,
    exit_code,
    summary_sentence,
)
from reprokit.host.nightly.suite.cells import settings_words
from reprokit.host.system import private_names

SCHEMA = 1
GROUPS = ("new", "regressed", "fixed", "flaky", "open", "muted")
"""The groups of bugs, in the order of the report."""
TREND_NIGHTS = 14
"""The number of nightly runs in a trend, and for which a fixed bug is listed."""
MAX_TARGETS = 40
"""Maximum number of rows of the matrix of one bug."""


def make_report(
    ledger: Ledger, number: int | None = None, beside: Path | None = None
) -> NightReport:
    """Return the report of nightly run ``number``, or of the last one, without private text.

    Packs are named relative to ``beside``, the folder of the report.

    Raises:
        BadInput: the ledger has no nightly run.
    """
    night = _find_night(ledger, number)
    nights = ledger.fetch_all(
        "SELECT id, name, started FROM night WHERE suite = ? AND id <= ? ORDER BY id DESC LIMIT ?",
        night["suite"],
        night["id"],
        TREND_NIGHTS,
    )[::-1]
    runs = ledger.fetch_all(
        "SELECT run.*, cell.target, cell.settings, cell.key FROM run JOIN cell ON cell.id ="
        " run.cell WHERE night = ?",
        night["id"],
    )
    environments = {json.loads(row["settings"]).get("environment") for row in runs}
    hidden = ("environment",) if len(environments) < 2 else ()
    table = _BugTable(ledger, night, nights, runs, hidden)
    groups: dict[str, list[BugReport]] = {group: [] for group in GROUPS}
    for bug in table.listed_bugs():
        groups[bug["status"]].append(bug)
    for group in groups.values():
        group.sort(key=lambda bug: (not bug["is_news"], -bug["tonight"], -bug["hits"], bug["id"]))
    lost = _runs_with_reason(runs, hidden, "")
    missing = night["planned"] - len(runs)
    if missing > 0:
        why = "not run: the nightly run was interrupted" if night["ended"] else "not run yet"
        lost.append(
            {"target": f"{missing} run{'s' if missing > 1 else ''}", "settings": "", "why": why}
        )
    if night["note"]:
        lost.append({"target": "the nightly run", "settings": "", "why": night["note"]})
    body: ReportBody = {
        "schema": SCHEMA,
        "suite": night["suite"],
        "night": {
            **_night_name(night),
            "state": night["state"],
            "planned": night["planned"],
            "runs": len(runs),
        },
        "before": nights[-2]["name"] if len(nights) > 1 else None,
        "nights": [row["name"] for row in nights],
        "torch": sorted({row["torch"] for row in runs if row["torch"]}),
        "healthy": sum(row["kind"] == "ok" for row in runs),
        "groups": groups,
        "surprises": [*_surprises(ledger, night, runs, hidden)],
        "in_eager": _runs_with_reason(runs, hidden, IN_EAGER),
        "unknown": _runs_with_reason(runs, hidden, "unknown"),
        "lost": lost,
        "proposals": _proposals(ledger),
        "costs": _costs(runs),
        "refused": refused_files(ledger, night["id"]),
    }
    told = {**body, "exit_code": exit_code(body), "sentence": summary_sentence(body)}
    cleaned = private_names.get_redactor().redact_value(told)
    cleaned["heat_map"] = night_heat_map.make_heat_map(ledger, nights, hidden, beside)
    report = cast(NightReport, cleaned)
    _link_packs(report, groups, beside)
    return report


def _runs_with_reason(
    runs: Sequence[sqlite3.Row], hidden: tuple[str, ...], kind: str
) -> list[ReportedRun]:
    """Return the runs with a kind of verdict, each with its reason."""
    return [{**_run_row(row, hidden), "why": row["problem"]} for row in runs if row["kind"] == kind]


MAX_REFUSED_REASONS = 50


def refused_files(ledger: Ledger, night: int) -> RefusedFiles:
    """Return refused files of a nightly run, and rows removed when the ledger was opened."""
    rows = ledger.fetch_all(
        "SELECT why FROM event WHERE bug = 0 AND night = ? AND what = ?", night, bugs.REFUSED_EVENT
    )
    reasons = [*ledger.refused, *(row["why"] for row in rows)]
    return {"count": len(reasons), "reasons": reasons[:MAX_REFUSED_REASONS]}


_OF_SEVERAL = (
    "SELECT x.night, count(DISTINCT x.cell) AS cells, sum(1 - x.is_expected) AS surprises FROM"
    " sighting x JOIN signature s ON s.id = x.signature WHERE s.bug = ? AND x.night >= ? GROUP BY"
    " x.night"
)
"""Cells and surprises of a bug with several signatures, which may show in the same cell."""


class _BugTable:
    """The rows of the ledger for all bugs of the report."""

    def __init__(
        self,
        ledger: Ledger,
        night: sqlite3.Row,
        nights: list[sqlite3.Row],
        runs: list[sqlite3.Row],
        hidden: tuple[str, ...],
    ) -> None:
        self._ledger, self._night, self._nights, self._hidden = ledger, night, nights, hidden
        self._index = {row["id"]: i for i, row in enumerate(nights)}
        self._names = {
            row["id"]: _night_name(row)
            for row in ledger.fetch_all("SELECT id, name, started FROM night")
        }
        self._runs: dict[str, list[sqlite3.Row]] = {}
        for row in runs:
            self._runs.setdefault(row["target"], []).append(row)
        oldest = nights[0]["id"]
        self._bugs = ledger.fetch_all(
            "SELECT * FROM bug WHERE merged IS NULL AND (status != 'fixed' OR changed >= ?)", oldest
        )
        self._versions = self._by_bug(
            "SELECT s.bug, v.torch, sum(v.hits) AS hits, min(v.first) AS first, max(v.last) AS last"
            " FROM version v JOIN signature s ON s.id = v.signature GROUP BY s.bug, v.torch"
        )
        self._places = self._by_bug(
            "SELECT s.bug, p.cell, c.target, sum(p.hits) AS hits, sum(p.hits) + max(p.runs -"
            " p.hits) AS runs, max(p.last) AS last FROM place p JOIN signature s ON s.id ="
            " p.signature JOIN cell c ON c.id = p.cell WHERE p.hits > 0 GROUP BY s.bug, p.cell"
        )
        self._tallies = self._by_bug(
            "SELECT s.bug, t.night, sum(t.cells) AS cells, sum(t.surprises) AS surprises FROM tally"
            " t JOIN signature s ON s.id = t.signature WHERE t.night >= ? GROUP BY s.bug, t.night",
            oldest,
        )
        self._signatures = self._by_bug("SELECT * FROM signature ORDER BY id")

    def _by_bug(self, sql: str, *values: int) -> dict[int, list[sqlite3.Row]]:
        rows: dict[int, list[sqlite3.Row]] = {}
        for row in self._ledger.fetch_all(sql, *values):
            rows.setdefault(row["bug"], []).append(row)
        return rows

    def listed_bugs(self) -> Iterable[BugReport]:
        """Return the bugs of the report."""
        return (self._bug(row) for row in self._bugs)

    def _bug(self, row: sqlite3.Row) -> BugReport:
        # a bug has no status until its nightly run is closed
        number, now = row["id"], row["status"] or "new"
        places, versions = self._places.get(number, []), self._versions.get(number, [])
        tallies = {t["night"]: t for t in self._tallies.get(number, [])}
        if len(self._signatures.get(number, ())) > 1:  # which may show in the same cell
            tallies = {
                t["night"]: t
                for t in self._ledger.fetch_all(_OF_SEVERAL, number, self._nights[0]["id"])
            }
        tonight = tallies.get(self._night["id"])
        if now == "fixed" and tonight:
            now = "regressed"
        trend_of = [0] * len(self._nights)
        for night, tally in tallies.items():
            if night in self._index:
                trend_of[self._index[night]] = tally["cells"]
        seen = [v["first"] for v in versions], [v["last"] for v in versions]
        decision, known = bugs.decide_and_look_up(self._signatures.get(number, ()))
        return {
            "id": number,
            "status": now,
            "title": row["title"],
            "kind": row["kind"],
            "phase": row["phase"],
            "cause": row["cause"],
            "reason": row["reason"],
            "muted": row["muted"],
            "first": self._names.get(min(seen[0], default=0)),
            "last": self._names.get(max(seen[1], default=0)),
            "hits": sum(p["hits"] for p in places),
            "runs": sum(max(p["runs"], p["hits"]) for p in places),
            "tonight": tonight["cells"] if tonight else 0,
            "is_news": bool(tonight["surprises"] if tonight else now in ("new", "regressed")),
            "is_tonight": row["changed"] in (0, self._night["id"]),
            "torch": [
                v["torch"] for v in sorted(versions, key=lambda v: str(v["torch"])) if v["torch"]
            ],
            "signatures": [
                {"id": s["id"], "title": s["title"]} for s in self._signatures.get(number, [])
            ],
            "decision": decision,
            "known": known,
            "trend": trend_of,
            "matrix": self._matrix(places),
            "history": self._history(row["kind"], places),
            "healthy_before": (
                self._range(number) if now in ("new", "regressed") and tonight else None
            ),
            "repro": row["repro"] if row["repro_lines"] is not None else "",
            "repro_lines": row["repro_lines"],
            "pack": row["pack"],
        }

    def _range(self, bug: int) -> LastHealthyRun | None:
        """Return the last healthy run, of a cell with the bug, before the bug was first seen."""
        row = self._ledger.fetch_one(
            "SELECT r.night, r.torch, x.night AS first, x.torch AS then_torch FROM sighting x JOIN"
            " signature s ON s.id = x.signature JOIN run r ON r.cell = x.cell AND r.night < x.night"
            " AND r.ok > 0 WHERE s.bug = ? AND x.night = ? ORDER BY r.night DESC LIMIT 1",
            bug,
            self._night["id"],
        )
        if row is None:
            return None
        return {
            "night": self._names[row["night"]]["name"],
            "torch": row["torch"],
            "then_torch": row["then_torch"],
        }

    def _history(self, kind: str, places: list[sqlite3.Row]) -> CostHistory | None:
        """Return the costs by nightly run for a regression of time or memory; None for others."""
        what = next((name for name, regression in trend.KINDS.items() if regression == kind), None)
        if what is None or not places:
            return None
        sql = (
            f"SELECT {what} AS cost FROM run WHERE cell = ? AND ok AND night <= ?"  # noqa: S608
            f" ORDER BY night DESC LIMIT {TREND_NIGHTS}"
        )
        rows = self._ledger.fetch_all(sql, places[0]["cell"], self._night["id"])
        scale, unit = (
            (1.0, "CPU-seconds of compile") if what == "compile_s" else (1e-6, "MB at most")
        )
        return {
            "what": unit,
            "costs": [round((r["cost"] or 0.0) * scale, 1) for r in reversed(rows)],
        }

    def _matrix(self, places: list[sqlite3.Row]) -> BugMatrix:
        """Return the targets that showed the bug, by the settings of their cells."""
        by_cell = {p["cell"]: p for p in places}
        targets = sorted({p["target"] for p in places})
        columns: dict[str, None] = {}
        states_of: dict[str, dict[str, str]] = {}
        for target in targets[:MAX_TARGETS]:
            states: dict[str, str] = {}
            for run in self._runs.get(target, []):
                place = by_cell.get(run["cell"])
                words = (
                    " ".join(settings_words(json.loads(run["settings"]), self._hidden))
                    or "as it is"
                )
                columns[words] = None
                shown = place is not None and place["last"] == self._night["id"]
                before = "before" if place is not None else ""
                states[words] = (
                    "shows" if shown else before or ("ok" if run["kind"] == "ok" else "other")
                )
            if not states:
                states = {"": "before"}
                columns[""] = None
            states_of[target] = states
        names = [*columns]
        table: list[TargetStates] = [
            {"target": target, "states": [states.get(name, "") for name in names]}
            for target, states in states_of.items()
        ]
        return {"columns": names, "rows": table, "left_out": max(len(targets) - MAX_TARGETS, 0)}


def _find_night(ledger: Ledger, number: int | None) -> sqlite3.Row:
    last = "SELECT * FROM night ORDER BY id DESC LIMIT 1"
    row = (
        ledger.fetch_one(last)
        if number is None
        else ledger.fetch_one("SELECT * FROM night WHERE id = ?", number)
    )
    if row is None:
        raise BadInput(
            f"the ledger {ledger.path} has no nightly run; reprokit nightly run starts the first"
        )
    return row


def _night_name(row: sqlite3.Row) -> NightName:
    day = time.strftime("%Y-%m-%d %H:%M", time.localtime(row["started"]))
    return {"name": row["name"], "started": day}


def _run_row(row: sqlite3.Row, hidden: tuple[str, ...]) -> ReportedRun:
    words = " ".join(settings_words(json.loads(row["settings"]), hidden))
    return {"target": row["target"], "settings": words, "kind": row["kind"]}


def _surprises(
    ledger: Ledger, night: sqlite3.Row, runs: list[sqlite3.Row], hidden: tuple[str, ...]
) -> Iterable[ReportedRun]:
    """Yield runs that are healthy although a failure is expected; news only the first time."""
    for row in runs:
        if row["kind"] != "ok" or row["is_expected"]:
            continue
        sql = (
            "SELECT kind FROM run WHERE cell = ? AND night < ? AND kind != '' ORDER BY night DESC"
            " LIMIT 1"
        )
        before = ledger.fetch_one(sql, row["cell"], night["id"])
        is_news = before is None or before["kind"] != "ok"
        yield {**_run_row(row, hidden), "is_news": is_news}


def _proposals(ledger: Ledger) -> list[MergeProposal]:
    """Return pairs of bugs that may be the same, the most similar first."""
    rows = ledger.fetch_all(
        "SELECT p.a, p.b, p.score, p.shared, x.title AS one, y.title AS other FROM proposal p JOIN"
        " bug x ON x.id = p.a JOIN bug y ON y.id = p.b WHERE p.state = 'open' AND x.merged IS NULL"
        " AND y.merged IS NULL AND (x.status != 'fixed' OR y.status != 'fixed') ORDER BY p.score"
        " DESC LIMIT 50"
    )
    return [
        {
            "bugs": [r["a"], r["b"]],
            "titles": [r["one"], r["other"]],
            "score": r["score"],
            "shared": json.loads(r["shared"]),
        }
        for r in rows
    ]


def _costs(runs: list[sqlite3.Row]) -> dict[str, float]:
    """Return the time of all runs, and the total costs of healthy compiles."""
    healthy = [row for row in runs if row["ok"]]
    return {
        "seconds": round(sum(row["seconds"] or 0.0 for row in runs), 1),
        **{what: round(sum(row[what] or 0.0 for row in healthy), 1) for what in trend.KINDS},
    }


def _link_packs(
    report: NightReport, before: dict[str, list[BugReport]], beside: Path | None
) -> None:
    """Name packs relative to the folder of the report, so that no path of the machine is in it."""
    for group, listed in report["groups"].items():
        for bug, real in zip(listed, before[group], strict=True):
            bug["pack"] = ""
            if real["pack"] and beside is not None and _is_inside(Path(real["pack"]), beside):
                bug["pack"] = os.path.relpath(real["pack"], beside)


def _is_inside(pack: Path, beside: Path) -> bool:
    """Return whether a pack is in the output folder; the path in a result may be any file."""
    real = Path(os.path.realpath(pack))
    return real.is_file() and Path(os.path.realpath(beside)) in real.parents
