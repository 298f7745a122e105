"""What becomes of bugs: their status after a night, proposals that two are one, and what people say
of them.
"""

from __future__ import annotations

import json
import time
from typing import Any

from reprokit.core.shared.errors import BadInput
from reprokit.core.triage import likeness, status
from reprokit.host.nightly.ledger.add_result import kind_of
from reprokit.host.nightly.ledger.database import Ledger

REFUSED = "refused"
"""An event of a night, not of a bug: a file of a job that does not agree with the schema."""
MOST_COMPARED = 2_000
"""A new bug is compared with so many others, those of its kind that were seen last."""


def close_night(ledger: Ledger, night: int, state: str, note: str = "") -> None:
    """End a night: every bug's status follows from what was seen, and new bugs are compared with
    the others.
    """
    with ledger.change():
        ledger.do(
            "UPDATE night SET ended = ?, state = ?, note = ? WHERE id = ?",
            time.time(),
            state,
            note,
            night,
        )
        decide_bugs(ledger, night)
        propose_merges(ledger, night)


def decide_bugs(ledger: Ledger, night: int) -> None:
    """Give each bug that was seen, or that is not fixed yet, its status."""
    seen = seen_in(ledger, night)
    fold_bugs(ledger, night)
    places: dict[int, list[status.CellHistory]] = {}
    for row in ledger.all(
        "SELECT s.bug, sum(p.hits) AS hits, max(p.runs - p.hits) AS misses, min(p.since) AS since"
        " FROM place p JOIN signature s ON s.id = p.signature JOIN bug b ON b.id = s.bug WHERE"
        " p.hits > 0 AND b.status != 'fixed' GROUP BY s.bug, p.cell UNION ALL SELECT s.bug,"
        " sum(p.hits), max(p.runs - p.hits), min(p.since) FROM place p JOIN signature s ON s.id ="
        " p.signature JOIN bug b ON b.id = s.bug WHERE p.hits > 0 AND b.status = 'fixed' AND p.last"
        " = ? GROUP BY s.bug, p.cell",
        night,
    ):
        place = status.CellHistory(row["hits"], row["hits"] + max(row["misses"], 0), row["since"])
        places.setdefault(row["bug"], []).append(place)
    unread = {r["id"] for r in ledger.all("SELECT id FROM night WHERE state = 'incomplete'")}
    for bug in ledger.all(
        "SELECT id, status, reason, changed, muted FROM bug WHERE merged IS NULL"
    ):
        number, was = bug["id"], bug["status"]
        if was == "fixed" and number not in seen:
            continue
        is_news = (
            was in ("new", "regressed") and bug["changed"] in unread
        )  # of a night that was never reported whole
        before = {"new": "", "regressed": "fixed"}[was] if is_news and number in seen else was
        found = status.decide_status(
            places.get(number, []), before, number in seen, bug["muted"] is not None
        )
        if is_news and number not in seen and found.name in ("open", "flaky"):
            found = status.Status(was, f"seen in a night that was cut short; {found.reason}")
        if found.reason != bug["reason"]:
            ledger.do("UPDATE bug SET reason = ? WHERE id = ?", found.reason, number)
        if found.name != was or is_news:
            ledger.do(
                "UPDATE bug SET status = ?, changed = ? WHERE id = ?", found.name, night, number
            )
        if found.name != was:
            bug_event(ledger, number, night, found.name, found.reason)


def seen_in(ledger: Ledger, night: int) -> set[int]:
    """The bugs that a night showed."""
    sql = (
        "SELECT DISTINCT s.bug FROM tally t JOIN signature s ON s.id = t.signature WHERE"
        " t.night = ?"
    )
    return {row["bug"] for row in ledger.all(sql, night)}


def fold_bugs(ledger: Ledger, night: int) -> None:
    """A bug that shows anywhere is there: its absence elsewhere was chance, and lowers the rate of
    those cells.
    """
    ledger.do(
        "UPDATE place SET runs = runs + since, since = 0 WHERE hits > 0 AND since > 0 AND signature"
        " IN (SELECT o.id FROM tally t JOIN signature s ON s.id = t.signature JOIN signature o ON"
        " o.bug = s.bug WHERE t.night = ?)",
        night,
    )


def propose_merges(ledger: Ledger, night: int) -> None:
    """Compare the night's new bugs with the others of their kind; who is alike is proposed, never
    merged.
    """
    fresh = [
        r["id"]
        for r in ledger.all(
            "SELECT id FROM bug WHERE status = 'new' AND changed = ? AND merged IS NULL", night
        )
    ]
    if not fresh:
        return
    traits = _traits(ledger)
    for new in fresh:
        others = [b for b in traits if b != new and not (b in fresh and b > new)][:MOST_COMPARED]
        for other in others:
            best = max(
                (likeness.compare_traits(a, b) for a in traits.get(new, ()) for b in traits[other]),
                key=lambda found: found.score,
                default=None,
            )
            if best is not None and best.is_proposed:
                a, b = sorted((new, other))
                shared = json.dumps([text for text in best.shared if text])
                ledger.do(
                    "INSERT INTO proposal(a, b, score, shared) VALUES(?, ?, ?, ?) ON CONFLICT DO"
                    " NOTHING",
                    a,
                    b,
                    best.score,
                    shared,
                )


def _traits(ledger: Ledger) -> dict[int, list[likeness.Traits]]:
    """Traits of every living bug's signatures, those that were seen last first."""
    found: dict[int, list[likeness.Traits]] = {}
    for row in ledger.all(
        "SELECT s.bug AS bug, s.traits AS traits, (SELECT max(last) FROM version v WHERE"
        " v.signature = s.id) AS last FROM signature s JOIN bug b ON b.id = s.bug WHERE b.merged IS"
        " NULL ORDER BY last DESC LIMIT ?",
        2 * MOST_COMPARED,
    ):
        found.setdefault(row["bug"], []).append(traits_of(json.loads(row["traits"])))
    return found


def traits_of(told: dict[str, Any]) -> likeness.Traits:
    """Traits as a result tells them."""
    texts = {
        name: str(told.get(name) or "")
        for name in ("kind", "phase", "cause", "message", "rung", "operator")
    }
    return likeness.Traits(**texts, frames=tuple(str(f) for f in told.get("frames") or ()))


def bug_event(ledger: Ledger, bug: int, night: int, what: str, why: str) -> None:
    """Add a line to a bug's history."""
    ledger.do(
        "INSERT INTO event(bug, night, at, what, why) VALUES(?, ?, ?, ?, ?)",
        bug,
        night,
        time.time(),
        what,
        why,
    )


def find_bug(ledger: Ledger, name: str) -> int:
    """The bug that a number, or the id of one of its signatures, names; raises BadInput."""
    bare = name.removeprefix("#")
    row = ledger.one("SELECT bug AS id FROM signature WHERE id = ?", bare)
    if row is None and _is_number(bare):
        row = ledger.one("SELECT id FROM bug WHERE id = ?", int(bare))
    if row is None:
        raise BadInput(
            f"the ledger {ledger.path} knows no bug {name!r}; reprokit nightly report lists their"
            " numbers"
        )
    found = int(row["id"])
    while (into := ledger.one("SELECT merged FROM bug WHERE id = ?", found)) and into[
        "merged"
    ] is not None:
        found = int(into["merged"])
    return found


def merge_bugs(ledger: Ledger, into: int, others: list[int], why: str) -> None:
    """Say that bugs are one: their signatures become aliases of ``into``."""
    with ledger.change():
        for other in others:
            if other == into:
                raise BadInput(f"bug {into} is the same bug already")
            row = ledger.one("SELECT * FROM bug WHERE id = ?", other)
            assert row is not None
            ledger.do(
                "INSERT INTO alias(signature, bug) SELECT id, bug FROM signature WHERE bug = ? ON"
                " CONFLICT DO NOTHING",
                other,
            )
            ledger.do("UPDATE signature SET bug = ? WHERE bug = ?", into, other)
            ledger.do(
                "UPDATE bug SET merged = ?, status = '', changed = 0 WHERE id = ?", into, other
            )
            ledger.do(
                "UPDATE proposal SET state = 'merged' WHERE (a = ? AND b = ?) OR (a = ? AND b = ?)",
                into,
                other,
                other,
                into,
            )
            if row["repro_lines"] is not None:
                ledger.do(
                    "UPDATE bug SET repro = ?, repro_lines = ?, pack = ? WHERE id = ? AND"
                    " (repro_lines IS NULL OR repro_lines > ?)",
                    row["repro"],
                    row["repro_lines"],
                    row["pack"],
                    into,
                    row["repro_lines"],
                )
            if row["status"] not in ("fixed", ""):  # what one of them is, both are
                ledger.do("UPDATE bug SET status = 'open' WHERE id = ? AND status = 'fixed'", into)
            bug_event(
                ledger,
                into,
                last_night(ledger),
                "merged",
                f"with {other}: {why}" if why else f"with {other}",
            )
            bug_event(ledger, other, last_night(ledger), "merged", f"into {into}")


def split_bug(ledger: Ledger, bug: int, name: str, why: str) -> int:
    """Say that a signature, or a bug that was merged, is a bug of its own, or that two that were
    proposed as one are two.

    Gives the other bug.
    """
    bare = name.removeprefix("#")
    signature = ledger.one("SELECT id, bug, title FROM signature WHERE id = ?", bare)
    merged = (
        ledger.one("SELECT id FROM bug WHERE id = ? AND merged = ?", int(bare), bug)
        if _is_number(bare)
        else None
    )
    with ledger.change():
        if merged is not None:  # what was merged by mistake
            history = "SELECT signature FROM alias WHERE bug = ?"
            other = int(merged["id"])
            ledger.do(
                f"UPDATE signature SET bug = ? WHERE bug = ? AND id IN ({history})",  # noqa: S608
                other,
                bug,
                other,
            )
        elif signature is None:
            other = find_bug(ledger, name)
            if other == bug:
                raise BadInput(
                    f"{name} is bug {bug} itself; name another bug, or one of its signatures"
                )
        else:
            other = _split_off(ledger, bug, signature)
        refuse_proposal(ledger, bug, other)
        if merged is not None or signature is not None:
            row = ledger.one("SELECT status, muted FROM bug WHERE id = ?", bug)
            assert row is not None
            sql = "UPDATE bug SET merged = NULL, status = ?, muted = ?, changed = ? WHERE id = ?"
            ledger.do(sql, row["status"], row["muted"], last_night(ledger), other)
            ledger.do(
                "UPDATE bug SET title = (SELECT min(title) FROM signature WHERE bug = bug.id) WHERE"
                " id = ? AND title NOT IN (SELECT title FROM signature WHERE bug = ?)",
                bug,
                bug,
            )
        bug_event(
            ledger,
            bug,
            last_night(ledger),
            "split",
            f"{other} is another bug{': ' + why if why else ''}",
        )
        bug_event(
            ledger,
            other,
            last_night(ledger),
            "split",
            f"{bug} is another bug{': ' + why if why else ''}",
        )
    return other


def _split_off(ledger: Ledger, bug: int, signature: Any) -> int:
    if signature["bug"] != bug:
        raise BadInput(f"{signature['id']} is a signature of bug {signature['bug']}, not of {bug}")
    if len(ledger.all("SELECT id FROM signature WHERE bug = ?", bug)) == 1:
        raise BadInput(
            f"bug {bug} has no other signature than {signature['id']}: there is nothing to split"
        )
    old = ledger.one(
        "SELECT bug AS id FROM alias WHERE signature = ? AND bug != ? ORDER BY bug",
        signature["id"],
        bug,
    )
    sql = "INSERT INTO bug(title, kind) VALUES(?, ?)"
    other = (
        int(old["id"]) if old else ledger.do(sql, signature["title"], kind_of(signature["title"]))
    )
    ledger.do("UPDATE signature SET bug = ? WHERE id = ?", other, signature["id"])
    return other


def refuse_proposal(ledger: Ledger, one: int, other: int) -> None:
    """Never propose again that two bugs are one."""
    a, b = sorted((one, other))
    sql = (
        "INSERT INTO proposal(a, b, score, shared, state) VALUES(?, ?, 0, '[]', 'refused') ON"
        " CONFLICT DO UPDATE SET state = 'refused'"
    )
    ledger.do(sql, a, b)


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) < 12


def mute_bug(ledger: Ledger, bug: int, why: str | None) -> None:
    """Say that a bug is known and is no news; with ``why`` None, that it is news again."""
    with ledger.change():
        row = ledger.one("SELECT muted FROM bug WHERE id = ?", bug)
        assert row is not None
        if why is None and row["muted"] is None:
            raise BadInput(f"bug {bug} is not muted")
        night = last_night(ledger)
        status_now = "muted" if why is not None else "open"
        ledger.do(
            "UPDATE bug SET muted = ?, status = ?, changed = ? WHERE id = ?",
            why,
            status_now,
            night,
            bug,
        )
        bug_event(ledger, bug, night, "muted" if why is not None else "unmuted", why or "")


def last_night(ledger: Ledger) -> int:
    """The number of the last night; 0 before the first."""
    row = ledger.one("SELECT max(id) AS id FROM night")
    return int(row["id"] or 0) if row else 0
