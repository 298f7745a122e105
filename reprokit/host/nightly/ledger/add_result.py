"""Take one result into the ledger: its run, what it showed, and the sums that follow. Once, however
often it is asked.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
from dataclasses import dataclass
from typing import Any

from reprokit.core.triage import trend
from reprokit.host.nightly.jobs.job_result import HEALTHY, NO_BUG
from reprokit.host.nightly.ledger.database import Ledger
from reprokit.host.nightly.suite.cells import settings_words


@dataclass(frozen=True)
class Sighting:
    """One signature in one cell in one night."""

    signature: str
    algorithm: int
    title: str
    traits: dict[str, Any]
    k: int
    """Runs of this night that showed it."""
    pack: str = ""


def add_result(ledger: Ledger, night: int, cell: int, result: dict[str, Any]) -> bool:
    """Take a result of :mod:`.job` in; False where it was there already."""
    attempts = [a for a in result.get("attempts", ()) if isinstance(a, dict)]
    told = [a for a in attempts if _kind(a)]
    healthy = [a for a in told if _kind(a) == HEALTHY]
    failed = [a for a in told if _kind(a) not in NO_BUG]
    worst = next(iter([*failed, *healthy, *told]), {})
    costs = {what: _least(healthy, what) for what in trend.KINDS}
    most = max((float(a["peak_rss_bytes"]) for a in told if a.get("peak_rss_bytes")), default=None)
    kind, expected = _kind(worst), list(result.get("expect") or [HEALTHY])
    torch = str(worst.get("torch") or "")
    with ledger.change():
        if ledger.one("SELECT 1 FROM run WHERE night = ? AND cell = ?", night, cell):
            return False
        seen = _sightings(failed) + slower_than_usual(ledger, cell, costs, _phases(healthy))
        ledger.do(
            "INSERT INTO run(night, cell, kind, n, ok, torch, triton, seconds, compile_s,"
            " peak_rss_bytes, most_rss_bytes, phases, is_expected, problem, folder) VALUES(?, ?, ?,"
            " ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            night,
            cell,
            kind,
            len(told),
            len(healthy),
            torch,
            str(worst.get("triton") or ""),
            result.get("seconds"),
            costs["compile_s"],
            costs["peak_rss_bytes"],
            most,
            json.dumps(_phases(healthy)),
            int(kind in expected or not kind),
            str(result.get("problem") or ""),
            str(result.get("folder") or ""),
        )
        for one in seen:
            is_slower = kind_of(one.title) in trend.KINDS.values()
            n = one.k if is_slower else len(healthy) + one.k
            add_sighting(
                ledger, night, cell, one, n, torch, not is_slower and kind_of(one.title) in expected
            )
        if isinstance(found := result.get("minimized"), dict):
            _keep_repro(ledger, night, found)
        if healthy:
            ledger.do(
                "UPDATE place SET since = since + ? WHERE cell = ? AND last < ?",
                len(healthy),
                cell,
                night,
            )
    return True


def kind_of(title: str) -> str:
    """The kind that a title begins with."""
    return title.partition(":")[0]


def add_sighting(
    ledger: Ledger, night: int, cell: int, one: Sighting, n: int, torch: str, is_expected: bool
) -> None:
    """Note that a signature was seen in a cell in ``k`` of the ``n`` runs that could have shown
    it.
    """
    bug = _bug_of(ledger, one)
    _restart(ledger, bug, night)
    ledger.do(
        "INSERT INTO sighting(signature, night, cell, k, n, torch, pack, is_expected) VALUES(?, ?,"
        " ?, ?, ?, ?, ?, ?)",
        one.signature,
        night,
        cell,
        one.k,
        n,
        torch,
        one.pack,
        int(is_expected),
    )
    if one.pack:
        ledger.do("UPDATE bug SET pack = ? WHERE id = ? AND pack = ''", one.pack, bug)
    count_hits(ledger, one.signature, night, cell, one.k, n, torch, is_expected)


def count_hits(
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
    ledger.do(
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
    ledger.do(
        "INSERT INTO tally(signature, night, hits, cells, surprises) VALUES(?, ?, ?, 1, ?) ON"
        " CONFLICT DO UPDATE SET hits = hits + excluded.hits, cells = cells + 1, surprises ="
        " surprises + excluded.surprises",
        signature,
        night,
        k,
        int(not is_expected),
    )
    ledger.do(
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
    """What of a healthy run's costs is beyond the noise of the nights before."""
    found = []
    for what, kind in trend.KINDS.items():
        cost, before = costs.get(what), usual_costs(ledger, cell, what)
        if cost is None or before is None or cost <= before.limit:
            continue
        row = ledger.one("SELECT target, settings FROM cell WHERE id = ?", cell)
        where = (
            f"{row['target']} {' '.join(settings_words(json.loads(row['settings'])))}".strip()
            if row
            else ""
        )
        title = f"{kind}: {where}"  # which phase has grown most may change from night to night
        digest = hashlib.sha256(f"nightly-1\n{title}".encode()).hexdigest()[:12]
        last = ledger.one(
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
        found.append(Sighting(digest, 1, title, traits, 1))
    return found


def _amount(value: float, what: str) -> str:
    return f"{value:.1f} CPU-seconds" if what == "compile_s" else f"{value / 1e6:.0f} MB"


_USUAL = (
    "cell = ? AND ok AND NOT EXISTS(SELECT 1 FROM sighting JOIN signature ON signature.id ="
    " sighting.signature JOIN bug ON bug.id = signature.bug WHERE sighting.night = run.night AND"
    " sighting.cell = run.cell AND bug.muted IS NULL AND signature.title LIKE ?)"
)
"""Healthy runs of a cell that were no regression of this kind, or one that was muted."""


def usual_costs(ledger: Ledger, cell: int, what: str) -> trend.UsualCost | None:
    """What a cell usually costs; nights of a regression that nobody has accepted, by muting it, are
    left out.
    """
    assert what in trend.KINDS
    sql = (
        f"SELECT {what} AS cost FROM run WHERE {_USUAL} AND {what} IS NOT NULL"  # noqa: S608
        f" ORDER BY night DESC LIMIT {trend.NIGHTS}"
    )
    rows = ledger.all(sql, cell, f"{trend.KINDS[what]}:%")
    return trend.usual_cost([row["cost"] for row in reversed(rows)], what)


def _bug_of(ledger: Ledger, one: Sighting) -> int:
    """The bug of a signature; an unknown signature is a bug of its own: nothing is merged
    silently.
    """
    row = ledger.one("SELECT bug FROM signature WHERE id = ?", one.signature)
    if row is not None:
        return int(row["bug"])
    kind = kind_of(one.title)
    phase, cause = (str(one.traits.get(name) or "") for name in ("phase", "cause"))
    bug = ledger.do(
        "INSERT INTO bug(title, kind, phase, cause) VALUES(?, ?, ?, ?)",
        one.title,
        kind,
        phase,
        cause,
    )
    ledger.do(
        "INSERT INTO signature(id, algorithm, title, traits, bug) VALUES(?, ?, ?, ?, ?)",
        one.signature,
        one.algorithm,
        one.title,
        json.dumps(one.traits),
        bug,
    )
    return bug


def _restart(ledger: Ledger, bug: int, night: int) -> None:
    """A bug that comes back after it was fixed is counted anew: the nights without it are no sign
    of flakiness.
    """
    row = ledger.one("SELECT status FROM bug WHERE id = ?", bug)
    own = "signature IN (SELECT id FROM signature WHERE bug = ?)"
    if (
        row is None
        or row["status"] != "fixed"
        or ledger.one(f"SELECT 1 FROM restart WHERE {own} AND night = ?", bug, night)  # noqa: S608
    ):
        return
    ledger.do(
        "INSERT INTO restart(signature, night) SELECT id, ? FROM signature WHERE bug = ?",
        night,
        bug,
    )
    ledger.do(f"UPDATE place SET hits = 0, runs = 0, since = 0 WHERE {own}", bug)  # noqa: S608
    ledger.do("UPDATE bug SET pack = '' WHERE id = ?", bug)  # the old one may be gone


def _keep_repro(ledger: Ledger, night: int, found: dict[str, Any]) -> None:
    """Keep the smallest program that any night has found, or that there was none to find."""
    signature, text, lines, pack = (
        found.get(name) for name in ("signature", "text", "lines", "pack")
    )
    own = "id = (SELECT bug FROM signature WHERE id = ?)"
    ledger.do(f"UPDATE bug SET tried = ? WHERE {own}", night, signature)  # noqa: S608
    if text and isinstance(lines, int):
        ledger.do(
            "UPDATE bug SET repro = ?, repro_lines = ?, pack = coalesce(?, pack)"  # noqa: S608
            f" WHERE {own}"
            " AND (repro_lines IS NULL OR repro_lines > ?)",
            str(text),
            lines,
            pack,
            signature,
            lines,
        )


def _sightings(failed: list[dict[str, Any]]) -> list[Sighting]:
    """One for each signature; the first attempt that showed it is the one that was studied."""
    found: dict[str, Sighting] = {}
    for attempt in failed:
        signature = attempt.get("signature") or {}
        name = str(signature.get("id") or "")
        if before := found.get(name):
            found[name] = dataclasses.replace(
                before, k=before.k + 1, pack=before.pack or str(attempt.get("pack") or "")
            )
        elif name:
            traits = attempt.get("traits") or {"kind": _kind(attempt)}
            algorithm, title = int(signature.get("algorithm") or 0), str(signature.get("title"))
            found[name] = Sighting(
                name, algorithm, title, traits, 1, str(attempt.get("pack") or "")
            )
    return list(found.values())


def _kind(attempt: dict[str, Any]) -> str:
    return str((attempt.get("verdict") or {}).get("kind") or "")


def _phases(healthy: list[dict[str, Any]]) -> dict[str, float]:
    least = min(healthy, key=lambda a: float(a.get("compile_s") or 0.0), default={})
    return dict(least.get("phases") or {})


def _least(attempts: list[dict[str, Any]], what: str) -> float | None:
    """Of several runs the least: other work on the machine only adds."""
    return min(
        (float(a[what]) for a in attempts if isinstance(a.get(what), (int, float))), default=None
    )
