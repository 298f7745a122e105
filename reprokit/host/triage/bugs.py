"""What becomes of bugs: their status after a night, proposals that two are one, and what people say of them."""

from __future__ import annotations

import json
import time
from typing import Any

from ...core.records import BadInput
from ...core.triage import likeness, status
from .ledger import Ledger

MOST_COMPARED = 2_000
"""A new bug is compared with so many others, those of its kind that were seen last."""


def close_night(ledger: Ledger, night: int, state: str, note: str = "") -> None:
    """End a night: every bug's status follows from what was seen, and new bugs are compared with the others."""
    with ledger.change():
        ledger.do("UPDATE night SET ended = ?, state = ?, note = ? WHERE id = ?", time.time(), state, note, night)
        decide(ledger, night)
        propose(ledger, night)


def decide(ledger: Ledger, night: int) -> None:
    """Give each bug that was seen, or that is not fixed yet, its status."""
    seen = {
        r["bug"]
        for r in ledger.all(
            "SELECT DISTINCT s.bug FROM tally t JOIN signature s ON s.id = t.signature WHERE t.night = ?", night
        )
    }
    places: dict[int, list[status.Place]] = {}
    for row in ledger.all(
        "SELECT s.bug AS bug, sum(p.hits) AS hits, max(p.runs) AS runs, min(p.since) AS since FROM place p"
        " JOIN signature s ON s.id = p.signature JOIN bug b ON b.id = s.bug WHERE p.hits > 0 AND b.merged IS NULL"
        " AND (b.status != 'fixed' OR b.returned = ?) GROUP BY s.bug, p.cell", night,
    ):  # fmt: skip
        places.setdefault(row["bug"], []).append(status.Place(row["hits"], row["runs"], row["since"]))
    for bug in ledger.all("SELECT id, status, reason, muted FROM bug WHERE merged IS NULL"):
        if bug["status"] == "fixed" and bug["id"] not in seen:
            continue
        is_seen = bug["id"] in seen
        found = status.decide(places.get(bug["id"], []), bug["status"], is_seen, bug["muted"] is not None)
        if (found.name, found.reason) == (bug["status"], bug["reason"]):
            continue
        ledger.do("UPDATE bug SET reason = ? WHERE id = ?", found.reason, bug["id"])
        if found.name != bug["status"]:
            ledger.do("UPDATE bug SET status = ?, changed = ? WHERE id = ?", found.name, night, bug["id"])
            tell(ledger, bug["id"], night, found.name, found.reason)


def propose(ledger: Ledger, night: int) -> None:
    """Compare the night's new bugs with the others of their kind; who is alike is proposed, never merged."""
    fresh = [
        r["id"] for r in ledger.all("SELECT id FROM bug WHERE status = 'new' AND changed = ? AND merged IS NULL", night)
    ]
    if not fresh:
        return
    traits = _traits(ledger)
    for new in fresh:
        others = [b for b in traits if b != new and not (b in fresh and b > new)][:MOST_COMPARED]
        for other in others:
            best = max(
                (likeness.compare(a, b) for a in traits.get(new, ()) for b in traits[other]),
                key=lambda found: found.score,
                default=None,
            )
            if best is not None and best.is_proposed:
                a, b = sorted((new, other))
                shared = json.dumps([text for text in best.shared if text])
                ledger.do(
                    "INSERT INTO proposal(a, b, score, shared) VALUES(?, ?, ?, ?) ON CONFLICT DO NOTHING",
                    a,
                    b,
                    best.score,
                    shared,
                )


def _traits(ledger: Ledger) -> dict[int, list[likeness.Traits]]:
    """Traits of every living bug's signatures, those that were seen last first."""
    found: dict[int, list[likeness.Traits]] = {}
    for row in ledger.all(
        "SELECT s.bug AS bug, s.traits AS traits, (SELECT max(last) FROM version v WHERE v.signature = s.id) AS last"
        " FROM signature s JOIN bug b ON b.id = s.bug WHERE b.merged IS NULL ORDER BY last DESC LIMIT ?", 2 * MOST_COMPARED,
    ):  # fmt: skip
        found.setdefault(row["bug"], []).append(traits_of(json.loads(row["traits"])))
    return found


def traits_of(told: dict[str, Any]) -> likeness.Traits:
    """Traits as a result tells them."""
    texts = {name: str(told.get(name) or "") for name in ("kind", "phase", "cause", "message", "rung", "operator")}
    return likeness.Traits(**texts, frames=tuple(str(f) for f in told.get("frames") or ()))


def tell(ledger: Ledger, bug: int, night: int, what: str, why: str) -> None:
    """Add a line to a bug's history."""
    ledger.do("INSERT INTO event(bug, night, at, what, why) VALUES(?, ?, ?, ?, ?)", bug, night, time.time(), what, why)


def find(ledger: Ledger, name: str) -> int:
    """The bug that a number, or the id of one of its signatures, names; raises BadInput."""
    bare = name.removeprefix("#")
    row = ledger.one("SELECT bug AS id FROM signature WHERE id = ?", bare)
    if row is None and bare.isdigit() and len(bare) < 12:
        row = ledger.one("SELECT id FROM bug WHERE id = ?", int(bare))
    if row is None:
        raise BadInput(f"the ledger {ledger.path} knows no bug {name!r}; reprokit nightly report lists their numbers")
    found = int(row["id"])
    while (into := ledger.one("SELECT merged FROM bug WHERE id = ?", found)) and into["merged"] is not None:
        found = int(into["merged"])
    return found


def merge(ledger: Ledger, into: int, others: list[int], why: str) -> None:
    """Say that bugs are one: their signatures become aliases of ``into``."""
    with ledger.change():
        for other in others:
            if other == into:
                raise BadInput(f"bug {into} is the same bug already")
            row = ledger.one("SELECT * FROM bug WHERE id = ?", other)
            assert row is not None
            ledger.do("UPDATE signature SET bug = ? WHERE bug = ?", into, other)
            ledger.do("UPDATE bug SET merged = ?, status = '', changed = 0 WHERE id = ?", into, other)
            ledger.do(
                "UPDATE proposal SET state = 'merged' WHERE (a = ? AND b = ?) OR (a = ? AND b = ?)",
                into,
                other,
                other,
                into,
            )
            if row["repro_lines"] is not None:
                ledger.do(
                    "UPDATE bug SET repro = ?, repro_lines = ?, pack = ? WHERE id = ? AND (repro_lines IS NULL OR repro_lines > ?)",
                    row["repro"], row["repro_lines"], row["pack"], into, row["repro_lines"],
                )  # fmt: skip
            if row["status"] not in ("fixed", ""):  # what one of them is, both are
                ledger.do("UPDATE bug SET status = 'open' WHERE id = ? AND status = 'fixed'", into)
            tell(ledger, into, last_night(ledger), "merged", f"with {other}: {why}" if why else f"with {other}")
            tell(ledger, other, last_night(ledger), "merged", f"into {into}")


def split(ledger: Ledger, bug: int, name: str, why: str) -> int:
    """Say that a signature is a bug of its own, or that two bugs that were proposed as one are not; gives the bug."""
    bare = name.removeprefix("#")
    signature = ledger.one("SELECT id, bug, title FROM signature WHERE id = ?", bare)
    with ledger.change():
        if signature is None:
            other = find(ledger, name)
            a, b = sorted((bug, other))
            ledger.do(
                "INSERT INTO proposal(a, b, score, shared, state) VALUES(?, ?, 0, '[]', 'refused') ON CONFLICT DO UPDATE SET state = 'refused'",
                a, b,
            )  # fmt: skip
            tell(ledger, bug, last_night(ledger), "distinct", f"from {other}{': ' + why if why else ''}")
            return other
        if signature["bug"] != bug:
            raise BadInput(f"{name} is a signature of bug {signature['bug']}, not of {bug}")
        if len(ledger.all("SELECT id FROM signature WHERE bug = ?", bug)) == 1:
            raise BadInput(f"bug {bug} has no other signature than {name}: there is nothing to split")
        old = ledger.one("SELECT id FROM bug WHERE title = ? AND merged = ?", signature["title"], bug)
        row = ledger.one("SELECT * FROM bug WHERE id = ?", bug)
        assert row is not None
        if old is None:
            kind = signature["title"].partition(":")[0]
            new = ledger.do(
                "INSERT INTO bug(title, kind, phase, status) VALUES(?, ?, ?, ?)",
                signature["title"],
                kind,
                row["phase"],
                row["status"],
            )
        else:
            new = int(old["id"])
            ledger.do("UPDATE bug SET merged = NULL, status = ? WHERE id = ?", row["status"], new)
        ledger.do("UPDATE signature SET bug = ? WHERE id = ?", new, signature["id"])
        a, b = sorted((bug, new))
        ledger.do(
            "INSERT INTO proposal(a, b, score, shared, state) VALUES(?, ?, 0, '[]', 'refused') ON CONFLICT DO UPDATE SET state = 'refused'",
            a, b,
        )  # fmt: skip
        tell(ledger, bug, last_night(ledger), "split", f"{signature['id']} is bug {new}{': ' + why if why else ''}")
        tell(ledger, new, last_night(ledger), "split", f"off bug {bug}")
        return new


def mute(ledger: Ledger, bug: int, why: str | None) -> None:
    """Say that a bug is known and is no news; with ``why`` None, that it is news again."""
    with ledger.change():
        row = ledger.one("SELECT muted FROM bug WHERE id = ?", bug)
        assert row is not None
        if why is None and row["muted"] is None:
            raise BadInput(f"bug {bug} is not muted")
        night = last_night(ledger)
        status_now = "muted" if why is not None else "open"
        ledger.do("UPDATE bug SET muted = ?, status = ?, changed = ? WHERE id = ?", why, status_now, night, bug)
        tell(ledger, bug, night, "muted" if why is not None else "unmuted", why or "")


def last_night(ledger: Ledger) -> int:
    """The number of the last night; 0 before the first."""
    row = ledger.one("SELECT max(id) AS id FROM night")
    return int(row["id"] or 0) if row else 0
