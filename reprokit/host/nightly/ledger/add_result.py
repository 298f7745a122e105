"""Add one result to the ledger, once: its run, its sightings, and the sums over them."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass

from reprokit.core.records.finding import identity_of_title
from reprokit.core.triage import trend
from reprokit.host.nightly.jobs.job_result import HEALTHY, NO_BUG
from reprokit.host.nightly.jobs.job_schema import JobAttempt, JobRepro, JobResult
from reprokit.host.nightly.ledger.database import Ledger
from reprokit.host.nightly.suite.cells import settings_words


@dataclass(frozen=True)
class Sighting:
    """One signature in one cell of one nightly run."""

    signature: str
    algorithm: int
    title: str
    traits: Mapping[str, object]
    k: int
    """The number of runs of this cell that showed it."""
    pack: str = ""

    @property
    def kind(self) -> str:
        """The kind with which its title begins."""
        return identity_of_title(self.title).kind


def add_result(ledger: Ledger, night: int, cell: int, result: JobResult, folder: str = "") -> bool:
    """Add the result of the job in ``folder``; return False where the cell has one already."""
    answers = [a for a in result.attempts if a.verdict.kind]
    healthy = [a for a in answers if a.verdict.kind == HEALTHY]
    failed = [a for a in answers if a.verdict.kind not in NO_BUG]
    worst = next(iter([*failed, *healthy, *answers]), None)
    costs = {what: _lowest_cost(healthy, what) for what in trend.KINDS}
    peak = max((a.peak_rss_bytes for a in answers if a.peak_rss_bytes), default=None)
    kind, expected = (worst.verdict.kind or "") if worst else "", result.expect or [HEALTHY]
    torch = (worst.torch or "") if worst else ""
    with ledger.transaction():
        if ledger.fetch_one("SELECT 1 FROM run WHERE night = ? AND cell = ?", night, cell):
            return False
        seen = _sightings(failed) + slower_than_usual(ledger, cell, costs, _phases(healthy))
        ledger.execute(
            "INSERT INTO run(night, cell, kind, n, ok, torch, triton, seconds, compile_s,"
            " peak_rss_bytes, most_rss_bytes, phases, is_expected, problem, folder) VALUES(?, ?, ?,"
            " ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            night,
            cell,
            kind,
            len(answers),
            len(healthy),
            torch,
            (worst.triton or "") if worst else "",
            result.seconds,
            costs["compile_s"],
            costs["peak_rss_bytes"],
            peak,
            json.dumps(_phases(healthy)),
            int(kind in expected or not kind),
            result.problem or _why_not_judged(worst),
            folder,
        )
        for sighting in seen:
            is_slower = sighting.kind in trend.KINDS.values()
            n = sighting.k if is_slower else len(healthy) + sighting.k
            is_expected = not is_slower and sighting.kind in expected
            add_sighting(ledger, night, cell, sighting, n, torch, is_expected)
        if result.minimized is not None:
            _keep_repro(ledger, night, result.minimized)
        if healthy:
            ledger.execute(
                "UPDATE place SET since = since + ? WHERE cell = ? AND last < ?",
                len(healthy),
                cell,
                night,
            )
    return True


def _why_not_judged(worst: JobAttempt | None) -> str:
    """Return the reason of a verdict that is neither healthy nor a bug."""
    kind = worst.verdict.kind if worst else HEALTHY
    return (worst.verdict.reason or "") if worst and kind in NO_BUG - {HEALTHY} else ""


def add_sighting(
    ledger: Ledger,
    night: int,
    cell: int,
    sighting: Sighting,
    n: int,
    torch: str,
    is_expected: bool,
) -> None:
    """Add a sighting in ``k`` of the ``n`` runs of a cell that could have shown the signature."""
    bug = _bug_of(ledger, sighting)
    _restart(ledger, bug, night)
    ledger.execute(
        "INSERT INTO sighting(signature, night, cell, k, n, torch, pack, is_expected) VALUES(?, ?,"
        " ?, ?, ?, ?, ?, ?)",
        sighting.signature,
        night,
        cell,
        sighting.k,
        n,
        torch,
        sighting.pack,
        int(is_expected),
    )
    if sighting.pack:
        ledger.execute("UPDATE bug SET pack = ? WHERE id = ? AND pack = ''", sighting.pack, bug)
    add_to_sums(ledger, sighting.signature, night, cell, sighting.k, n, torch, is_expected)


def add_to_sums(
    ledger: Ledger,
    signature: str,
    night: int,
    cell: int,
    k: int,
    n: int,
    torch: str,
    is_expected: bool,
) -> None:
    """Add one sighting to the sums."""
    ledger.execute(
        "INSERT INTO place(signature, cell, hits, runs, since, first, last) VALUES(?, ?, ?, ?, 0,"
        " ?, ?) ON CONFLICT DO UPDATE SET runs = CASE hits WHEN 0 THEN excluded.runs ELSE runs +"
        " since + excluded.runs END, hits = hits + excluded.hits, since = 0, last = excluded.last",
        signature,
        cell,
        k,
        n,
        night,
        night,
    )
    ledger.execute(
        "INSERT INTO tally(signature, night, hits, cells, surprises) VALUES(?, ?, ?, 1, ?) ON"
        " CONFLICT DO UPDATE SET hits = hits + excluded.hits, cells = cells + 1, surprises ="
        " surprises + excluded.surprises",
        signature,
        night,
        k,
        int(not is_expected),
    )
    ledger.execute(
        "INSERT INTO version(signature, torch, hits, first, last) VALUES(?, ?, ?, ?, ?)"
        " ON CONFLICT DO UPDATE SET hits = hits + excluded.hits, last = excluded.last",
        signature,
        torch,
        k,
        night,
        night,
    )


def slower_than_usual(
    ledger: Ledger, cell: int, costs: dict[str, float | None], phases: dict[str, float]
) -> list[Sighting]:
    """Return a sighting for each cost of a healthy run that is above the usual variation."""
    sightings = []
    for what, kind in trend.KINDS.items():
        cost, before = costs.get(what), usual_cost_of_cell(ledger, cell, what)
        if cost is None or before is None or cost <= before.limit:
            continue
        row = ledger.fetch_one("SELECT target, settings FROM cell WHERE id = ?", cell)
        where = (
            f"{row['target']} {' '.join(settings_words(json.loads(row['settings'])))}".strip()
            if row
            else ""
        )
        title = f"{kind}: {where}"  # without the phase, which may differ between nightly runs
        digest = hashlib.sha256(f"nightly-1\n{title}".encode()).hexdigest()[:12]
        last = ledger.fetch_one(
            f"SELECT phases FROM run WHERE {_USUAL} ORDER BY night DESC LIMIT 1",  # noqa: S608
            cell,
            f"{kind}:%",
        )
        phase = (
            trend.grown_most(json.loads(last["phases"]) if last else {}, phases)
            if what == "compile_s"
            else ""
        )
        cause = (
            f"{_amount(cost, what)}, usually {_amount(before.median, what)} (median of"
            f" {before.runs} nights, spread"
            f" {_amount(before.spread, what)}){', most in ' + phase if phase else ''}"
        )
        traits = {"kind": kind, "phase": phase, "cause": cause, "message": where}
        sightings.append(Sighting(digest, 1, title, traits, 1))
    return sightings


def _amount(value: float, what: str) -> str:
    return f"{value:.1f} CPU-seconds" if what == "compile_s" else f"{value / 1e6:.0f} MB"


_USUAL = (
    "cell = ? AND ok AND NOT EXISTS(SELECT 1 FROM sighting JOIN signature ON signature.id ="
    " sighting.signature JOIN bug ON bug.id = signature.bug WHERE sighting.night = run.night AND"
    " sighting.cell = run.cell AND bug.muted IS NULL AND signature.title LIKE ?)"
)
"""Healthy runs of a cell without a regression of this kind, or with a muted one."""


def usual_cost_of_cell(ledger: Ledger, cell: int, what: str) -> trend.UsualCost | None:
    """Return the usual cost of a cell, without nightly runs with a regression that is not muted."""
    assert what in trend.KINDS
    sql = (
        f"SELECT {what} AS cost FROM run WHERE {_USUAL} AND {what} IS NOT NULL"  # noqa: S608
        f" ORDER BY night DESC LIMIT {trend.MAX_RUNS}"
    )
    rows = ledger.fetch_all(sql, cell, f"{trend.KINDS[what]}:%")
    return trend.usual_cost([row["cost"] for row in reversed(rows)], what)


def _bug_of(ledger: Ledger, sighting: Sighting) -> int:
    """Return the bug of a signature; an unknown signature gets a new bug, and none is merged."""
    row = ledger.fetch_one("SELECT bug FROM signature WHERE id = ?", sighting.signature)
    if row is not None:
        return int(row["bug"])
    kind = sighting.kind
    phase, cause = (str(sighting.traits.get(name) or "") for name in ("phase", "cause"))
    bug = ledger.execute(
        "INSERT INTO bug(title, kind, phase, cause) VALUES(?, ?, ?, ?)",
        sighting.title,
        kind,
        phase,
        cause,
    )
    ledger.execute(
        "INSERT INTO signature(id, algorithm, title, traits, bug) VALUES(?, ?, ?, ?, ?)",
        sighting.signature,
        sighting.algorithm,
        sighting.title,
        json.dumps(sighting.traits),
        bug,
    )
    return bug


def _restart(ledger: Ledger, bug: int, night: int) -> None:
    """Count a bug anew that comes back after it was fixed.

    The nightly runs without it do not make it flaky.
    """
    row = ledger.fetch_one("SELECT status FROM bug WHERE id = ?", bug)
    own = "signature IN (SELECT id FROM signature WHERE bug = ?)"
    if (
        row is None
        or row["status"] != "fixed"
        or ledger.fetch_one(f"SELECT 1 FROM restart WHERE {own} AND night = ?", bug, night)  # noqa: S608
    ):
        return
    ledger.execute(
        "INSERT INTO restart(signature, night) SELECT id, ? FROM signature WHERE bug = ?",
        night,
        bug,
    )
    ledger.execute(f"UPDATE place SET hits = 0, runs = 0, since = 0 WHERE {own}", bug)  # noqa: S608
    ledger.execute("UPDATE bug SET pack = '' WHERE id = ?", bug)  # the old one may be gone


def _keep_repro(ledger: Ledger, night: int, repro: JobRepro) -> None:
    """Keep the smallest program of all nightly runs, and the number of the last attempt."""
    own = "id = (SELECT bug FROM signature WHERE id = ?)"
    ledger.execute(f"UPDATE bug SET tried = ? WHERE {own}", night, repro.signature)  # noqa: S608
    if repro.text and repro.lines is not None:
        ledger.execute(
            "UPDATE bug SET repro = ?, repro_lines = ?, pack = coalesce(?, pack)"  # noqa: S608
            f" WHERE {own}"
            " AND (repro_lines IS NULL OR repro_lines > ?)",
            repro.text,
            repro.lines,
            repro.pack,
            repro.signature,
            repro.lines,
        )


def _sightings(failed: list[JobAttempt]) -> list[Sighting]:
    """Return one sighting for each signature, with the traits of the first attempt that has it."""
    sightings: dict[str, Sighting] = {}
    for attempt in failed:
        signature, pack = attempt.signature, attempt.pack or ""
        name = signature.id or ""
        if before := sightings.get(name):
            sightings[name] = dataclasses.replace(before, k=before.k + 1, pack=before.pack or pack)
        elif name:
            traits = attempt.traits or {"kind": attempt.verdict.kind}
            algorithm = signature.algorithm or 0
            sightings[name] = Sighting(name, algorithm, signature.title, traits, 1, pack)
    return list(sightings.values())


def _phases(healthy: list[JobAttempt]) -> dict[str, float]:
    """Return the costs by phase of the cheapest of several runs."""
    cheapest = min(healthy, key=lambda a: a.compile_s or 0.0, default=None)
    return cheapest.phases if cheapest else {}


def _lowest_cost(attempts: list[JobAttempt], what: str) -> float | None:
    """Return the lowest cost of several runs, because other work on the machine only adds to it."""
    costs = (a.compile_s if what == "compile_s" else a.peak_rss_bytes for a in attempts)
    return min((cost for cost in costs if cost is not None), default=None)
