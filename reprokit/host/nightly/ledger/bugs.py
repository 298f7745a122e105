"""The bugs of a ledger: their status, proposals to merge them, and decisions of users."""

from __future__ import annotations

import dataclasses
import json
import sqlite3
import time
from collections.abc import Iterable, Mapping
from typing import Any

from reprokit.core.records.finding import Signature, Verdict, identity_of_title
from reprokit.core.shared.errors import BadInput
from reprokit.core.triage import known_failures, likeness, status
from reprokit.core.triage.decision import COMMENT, NOTHING, decide
from reprokit.host.catalogue import catalogue_files
from reprokit.host.nightly.ledger.database import Ledger

REFUSED_EVENT = "refused"
"""The event of a nightly run for a file of a job that does not agree with the schema."""
MAX_COMPARED_BUGS = 2_000
"""The number of other bugs with which a new bug is compared: those that were seen last."""
MAX_KNOWN = 2
"""Limit of the known failures that are named for one bug."""


def close_night(ledger: Ledger, night: int, state: str, note: str = "") -> None:
    """End a nightly run: decide the status of each bug, and compare new bugs with the others."""
    with ledger.transaction():
        ledger.execute(
            "UPDATE night SET ended = ?, state = ?, note = ? WHERE id = ?",
            time.time(),
            state,
            note,
            night,
        )
        decide_bugs(ledger, night)
        propose_merges(ledger, night)


def decide_bugs(ledger: Ledger, night: int) -> None:
    """Decide the status of each bug that was seen, or that is not fixed yet."""
    seen = bugs_seen_in(ledger, night)
    fold_absences(ledger, night)
    histories: dict[int, list[status.CellHistory]] = {}
    for row in ledger.fetch_all(
        "SELECT s.bug, sum(p.hits) AS hits, max(p.runs - p.hits) AS misses, min(p.since) AS since"
        " FROM place p JOIN signature s ON s.id = p.signature JOIN bug b ON b.id = s.bug WHERE"
        " p.hits > 0 AND b.status != 'fixed' GROUP BY s.bug, p.cell UNION ALL SELECT s.bug,"
        " sum(p.hits), max(p.runs - p.hits), min(p.since) FROM place p JOIN signature s ON s.id ="
        " p.signature JOIN bug b ON b.id = s.bug WHERE p.hits > 0 AND b.status = 'fixed' AND p.last"
        " = ? GROUP BY s.bug, p.cell",
        night,
    ):
        history = status.CellHistory(row["hits"], row["hits"] + max(row["misses"], 0), row["since"])
        histories.setdefault(row["bug"], []).append(history)
    unread = {r["id"] for r in ledger.fetch_all("SELECT id FROM night WHERE state = 'incomplete'")}
    for bug in ledger.fetch_all(
        "SELECT id, status, reason, changed, muted FROM bug WHERE merged IS NULL"
    ):
        number, was = bug["id"], bug["status"]
        if was == "fixed" and number not in seen:
            continue
        # the news of an incomplete nightly run, which was not fully reported
        is_news = was in ("new", "regressed") and bug["changed"] in unread
        before = {"new": "", "regressed": "fixed"}[was] if is_news and number in seen else was
        decided = status.decide_status(
            histories.get(number, []), before, number in seen, bug["muted"] is not None
        )
        if is_news and number not in seen and decided.name in ("open", "flaky"):
            decided = status.Status(was, f"seen in an interrupted nightly run; {decided.reason}")
        if decided.reason != bug["reason"]:
            ledger.execute("UPDATE bug SET reason = ? WHERE id = ?", decided.reason, number)
        if decided.name != was or is_news:
            ledger.execute(
                "UPDATE bug SET status = ?, changed = ? WHERE id = ?", decided.name, night, number
            )
        if decided.name != was:
            add_event(ledger, number, night, decided.name, decided.reason)


def bugs_seen_in(ledger: Ledger, night: int) -> set[int]:
    """Return the bugs that a nightly run showed."""
    sql = (
        "SELECT DISTINCT s.bug FROM tally t JOIN signature s ON s.id = t.signature WHERE"
        " t.night = ?"
    )
    return {row["bug"] for row in ledger.fetch_all(sql, night)}


def fold_absences(ledger: Ledger, night: int) -> None:
    """Count the healthy runs of cells of the bugs that a nightly run showed as misses.

    A bug that shows in any cell is not fixed, so its absence in other cells was chance.
    """
    ledger.execute(
        "UPDATE place SET runs = runs + since, since = 0 WHERE hits > 0 AND since > 0 AND signature"
        " IN (SELECT o.id FROM tally t JOIN signature s ON s.id = t.signature JOIN signature o ON"
        " o.bug = s.bug WHERE t.night = ?)",
        night,
    )


def propose_merges(ledger: Ledger, night: int) -> None:
    """Compare the new bugs of a nightly run with other bugs, and propose to merge like ones."""
    fresh = [
        r["id"]
        for r in ledger.fetch_all(
            "SELECT id FROM bug WHERE status = 'new' AND changed = ? AND merged IS NULL", night
        )
    ]
    if not fresh:
        return
    traits = _traits(ledger)
    for new in fresh:
        others = [b for b in traits if b != new and not (b in fresh and b > new)][
            :MAX_COMPARED_BUGS
        ]
        for other in others:
            best = max(
                (likeness.compare_traits(a, b) for a in traits.get(new, ()) for b in traits[other]),
                key=lambda compared: compared.score,
                default=None,
            )
            if best is not None and best.is_proposed:
                a, b = sorted((new, other))
                shared = json.dumps([text for text in best.shared if text])
                ledger.execute(
                    "INSERT INTO proposal(a, b, score, shared) VALUES(?, ?, ?, ?) ON CONFLICT DO"
                    " NOTHING",
                    a,
                    b,
                    best.score,
                    shared,
                )


def _traits(ledger: Ledger) -> dict[int, list[likeness.Traits]]:
    """Return the traits of the signatures of all bugs; bugs that were seen last are first."""
    traits: dict[int, list[likeness.Traits]] = {}
    for row in ledger.fetch_all(
        "SELECT s.bug AS bug, s.traits AS traits, (SELECT max(last) FROM version v WHERE"
        " v.signature = s.id) AS last FROM signature s JOIN bug b ON b.id = s.bug WHERE b.merged IS"
        " NULL ORDER BY last DESC LIMIT ?",
        2 * MAX_COMPARED_BUGS,
    ):
        traits.setdefault(row["bug"], []).append(traits_from_json(json.loads(row["traits"])))
    return traits


def traits_from_json(fields: Mapping[str, Any]) -> likeness.Traits:
    """Return the traits in the JSON of a signature."""
    names = [field.name for field in dataclasses.fields(likeness.Traits) if field.name != "frames"]
    texts = {name: str(fields.get(name) or "") for name in names}
    return likeness.Traits(**texts, frames=tuple(str(f) for f in fields.get("frames") or ()))


def add_event(ledger: Ledger, bug: int, night: int, what: str, why: str) -> None:
    """Add a line to the history of a bug."""
    ledger.execute(
        "INSERT INTO event(bug, night, at, what, why) VALUES(?, ?, ?, ?, ?)",
        bug,
        night,
        time.time(),
        what,
        why,
    )


def find_bug(ledger: Ledger, name: str) -> int:
    """Return the bug with a number, or with a signature of this id.

    Raises:
        BadInput: there is no such bug.
    """
    bare = name.removeprefix("#")
    row = ledger.fetch_one("SELECT bug AS id FROM signature WHERE id = ?", bare)
    if row is None and _is_number(bare):
        row = ledger.fetch_one("SELECT id FROM bug WHERE id = ?", int(bare))
    if row is None:
        raise BadInput(
            f"the ledger {ledger.path} has no bug {name!r}; reprokit nightly report lists their"
            " numbers"
        )
    bug = int(row["id"])
    while (into := ledger.fetch_one("SELECT merged FROM bug WHERE id = ?", bug)) and into[
        "merged"
    ] is not None:
        bug = int(into["merged"])
    return bug


def merge_bugs(ledger: Ledger, into: int, others: list[int], why: str) -> None:
    """Merge bugs: their signatures become aliases of ``into``."""
    with ledger.transaction():
        for other in others:
            if other == into:
                raise BadInput(f"bug {into} is the same bug already")
            row = ledger.fetch_one("SELECT * FROM bug WHERE id = ?", other)
            assert row is not None
            ledger.execute(
                "INSERT INTO alias(signature, bug) SELECT id, bug FROM signature WHERE bug = ? ON"
                " CONFLICT DO NOTHING",
                other,
            )
            ledger.execute("UPDATE signature SET bug = ? WHERE bug = ?", into, other)
            ledger.execute(
                "UPDATE bug SET merged = ?, status = '', changed = 0 WHERE id = ?", into, other
            )
            ledger.execute(
                "UPDATE proposal SET state = 'merged' WHERE (a = ? AND b = ?) OR (a = ? AND b = ?)",
                into,
                other,
                other,
                into,
            )
            if row["repro_lines"] is not None:
                ledger.execute(
                    "UPDATE bug SET repro = ?, repro_lines = ?, pack = ? WHERE id = ? AND"
                    " (repro_lines IS NULL OR repro_lines > ?)",
                    row["repro"],
                    row["repro_lines"],
                    row["pack"],
                    into,
                    row["repro_lines"],
                )
            if row["status"] not in ("fixed", ""):  # if one of them is open, both are
                ledger.execute(
                    "UPDATE bug SET status = 'open' WHERE id = ? AND status = 'fixed'", into
                )
            add_event(
                ledger,
                into,
                last_night(ledger),
                "merged",
                f"with {other}: {why}" if why else f"with {other}",
            )
            add_event(ledger, other, last_night(ledger), "merged", f"into {into}")


def split_bug(ledger: Ledger, bug: int, name: str, why: str) -> int:
    """Split a bug, and return the other bug.

    ``name`` is a signature of the bug, a bug that was merged into it, or a bug that was proposed as
    the same.
    """
    bare = name.removeprefix("#")
    signature = ledger.fetch_one("SELECT id, bug, title FROM signature WHERE id = ?", bare)
    merged = (
        ledger.fetch_one("SELECT id FROM bug WHERE id = ? AND merged = ?", int(bare), bug)
        if _is_number(bare)
        else None
    )
    with ledger.transaction():
        if merged is not None:  # undo the merge
            history = "SELECT signature FROM alias WHERE bug = ?"
            other = int(merged["id"])
            ledger.execute(
                f"UPDATE signature SET bug = ? WHERE bug = ? AND id IN ({history})",  # noqa: S608
                other,
                bug,
                other,
            )
        elif signature is None:
            other = find_bug(ledger, name)
            if other == bug:
                raise BadInput(
                    f"{name} is bug {bug} itself; name a different bug, or one of its signatures"
                )
        else:
            other = _split_off(ledger, bug, signature)
        refuse_proposal(ledger, bug, other)
        if merged is not None or signature is not None:
            row = ledger.fetch_one("SELECT status, muted FROM bug WHERE id = ?", bug)
            assert row is not None
            sql = "UPDATE bug SET merged = NULL, status = ?, muted = ?, changed = ? WHERE id = ?"
            ledger.execute(sql, row["status"], row["muted"], last_night(ledger), other)
            ledger.execute(
                "UPDATE bug SET title = (SELECT min(title) FROM signature WHERE bug = bug.id) WHERE"
                " id = ? AND title NOT IN (SELECT title FROM signature WHERE bug = ?)",
                bug,
                bug,
            )
        add_event(
            ledger,
            bug,
            last_night(ledger),
            "split",
            f"{other} is a different bug{': ' + why if why else ''}",
        )
        add_event(
            ledger,
            other,
            last_night(ledger),
            "split",
            f"{bug} is a different bug{': ' + why if why else ''}",
        )
    return other


def _split_off(ledger: Ledger, bug: int, signature: sqlite3.Row) -> int:
    if signature["bug"] != bug:
        raise BadInput(f"{signature['id']} is a signature of bug {signature['bug']}, not of {bug}")
    if len(ledger.fetch_all("SELECT id FROM signature WHERE bug = ?", bug)) == 1:
        raise BadInput(
            f"{signature['id']} is the only signature of bug {bug}: there is nothing to split"
        )
    old = ledger.fetch_one(
        "SELECT bug AS id FROM alias WHERE signature = ? AND bug != ? ORDER BY bug",
        signature["id"],
        bug,
    )
    sql = "INSERT INTO bug(title, kind) VALUES(?, ?)"
    title = signature["title"]
    other = int(old["id"]) if old else ledger.execute(sql, title, identity_of_title(title).kind)
    ledger.execute("UPDATE signature SET bug = ? WHERE id = ?", other, signature["id"])
    return other


def refuse_proposal(ledger: Ledger, first: int, second: int) -> None:
    """Record that two bugs differ, so that their merge is never proposed again."""
    a, b = sorted((first, second))
    sql = (
        "INSERT INTO proposal(a, b, score, shared, state) VALUES(?, ?, 0, '[]', 'refused') ON"
        " CONFLICT DO UPDATE SET state = 'refused'"
    )
    ledger.execute(sql, a, b)


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) < 12


def mute_bug(ledger: Ledger, bug: int, why: str | None) -> None:
    """Mute a bug, so that it is not reported as news; unmute it where ``why`` is None."""
    with ledger.transaction():
        row = ledger.fetch_one("SELECT muted FROM bug WHERE id = ?", bug)
        assert row is not None
        if why is None and row["muted"] is None:
            raise BadInput(f"bug {bug} is not muted")
        night = last_night(ledger)
        status_now = "muted" if why is not None else "open"
        ledger.execute(
            "UPDATE bug SET muted = ?, status = ?, changed = ? WHERE id = ?",
            why,
            status_now,
            night,
            bug,
        )
        add_event(ledger, bug, night, "muted" if why is not None else "unmuted", why or "")


def last_night(ledger: Ledger) -> int:
    """Return the number of the last nightly run; 0 before the first."""
    row = ledger.fetch_one("SELECT max(id) AS id FROM night")
    return int(row["id"] or 0) if row else 0


def decide_and_look_up(signatures: Iterable[sqlite3.Row]) -> tuple[str, list[str]]:
    """Return what to do with a bug, as a clause that is empty for a new issue, and what the
    catalogue of known failures says about its signatures.
    """
    sentences: dict[str, None] = {}
    actions: dict[str, None] = {}
    for row in signatures:
        signature = Signature(row["id"], row["title"], row["algorithm"])
        traits = traits_from_json(json.loads(row["traits"]))
        entries = catalogue_files.own_catalogue()
        matches = known_failures.find_known_failures(signature, traits, entries)
        sentences |= dict.fromkeys(match.sentence for match in matches)
        if traits.responsible:
            verdict = Verdict(
                traits.kind, traits.phase, traits.cause, "", responsible=traits.responsible
            )
            decision = decide(verdict, matches)
            if decision.action == COMMENT:
                actions[f"comment on {decision.url} instead of a new issue"] = None
            elif decision.action == NOTHING:
                actions[f"nothing to file: {decision.why}"] = None
    return next(iter(actions), ""), [*sentences][:MAX_KNOWN]
