"""The ledger as JSON lines: what was seen and what people said, without the sums, which are made again.

Key insight: rows are named by what they are (a night's uid, a cell's key, a signature's id), never by their number,
so that ledgers of several machines can be put together, and one that was taken in twice changes nothing.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable, Iterator
from typing import Any

from ...core.records import BadInput
from ...core.redact import Redactor
from .. import private
from .bugs import fold
from .ledger import SUMS, Ledger
from .record import count

SCHEMA = 1
NAMED = {"night": "uid", "cell": "key"}
"""What such a row is known by in every ledger."""
NIGHTS_OF_BUGS = ("changed", "tried")
JSON = {"settings": dict, "tags": list, "phases": dict, "traits": dict, "shared": list}
"""Columns that hold JSON, and what it must be."""


def export(ledger: Ledger) -> Iterator[dict[str, Any]]:
    """One object a row, redacted as a pack is, in the order in which :func:`take_in` wants them."""
    redactor = private.redactor()
    for row in _rows(ledger):
        yield {k: _hidden(redactor, k, v) if isinstance(v, str) and k != "type" else v for k, v in row.items()}


def _hidden(redactor: Redactor, column: str, text: str) -> str:
    if column not in JSON:
        return redactor.text(text)
    found = redactor.json_lines(text)
    return found if json.loads(found) != json.loads(text) else text


def _rows(ledger: Ledger) -> Iterator[dict[str, Any]]:
    yield {"type": "ledger", "schema": SCHEMA}
    nights = {r["id"]: r["uid"] for r in ledger.all("SELECT id, uid FROM night")}
    cells = {r["id"]: r["key"] for r in ledger.all("SELECT id, key FROM cell")}
    # a bug is named by its first signature
    names = {r["bug"]: r["id"] for r in ledger.all("SELECT bug, min(id) AS id FROM signature GROUP BY bug")}
    for row in ledger.all("SELECT * FROM night ORDER BY id"):
        yield {"type": "night", **_plain(row, "id")}
    for row in ledger.all("SELECT * FROM cell ORDER BY id"):
        yield {"type": "cell", **_plain(row, "id")}
    for row in ledger.all("SELECT * FROM bug ORDER BY id"):
        if row["id"] in names:
            told = {k: nights.get(row[k]) for k in NIGHTS_OF_BUGS}
            yield {"type": "bug", "name": names[row["id"]], **_plain(row, "id", "merged"), **told}
    for row in ledger.all("SELECT * FROM signature ORDER BY id"):
        yield {"type": "signature", **_plain(row), "bug": names[row["bug"]]}
    for row in ledger.all("SELECT * FROM run ORDER BY night, cell"):
        yield {"type": "run", **_plain(row), "night": nights[row["night"]], "cell": cells[row["cell"]]}
    for row in ledger.all("SELECT * FROM sighting ORDER BY night, cell, signature"):
        yield {"type": "sighting", **_plain(row), "night": nights[row["night"]], "cell": cells[row["cell"]]}
    for row in ledger.all("SELECT * FROM restart ORDER BY night, signature"):
        yield {"type": "restart", **_plain(row), "night": nights[row["night"]]}
    for row in ledger.all("SELECT * FROM event ORDER BY id"):
        if row["bug"] in names:
            yield {"type": "event", **_plain(row, "id"), "bug": names[row["bug"]], "night": nights.get(row["night"])}
    for row in ledger.all("SELECT * FROM proposal"):
        if row["a"] in names and row["b"] in names:
            yield {"type": "proposal", **_plain(row), "a": names[row["a"]], "b": names[row["b"]]}


def take_in(ledger: Ledger, lines: Iterable[str]) -> dict[str, int]:
    """Add what an export holds; gives how many rows of each kind were new. All of it, or nothing."""
    added: dict[str, int] = {}
    numbers: dict[tuple[str, str], int] = {}
    with ledger.change():
        for number, line in enumerate(lines, 1):
            if not line.strip():
                continue
            try:
                row = json.loads(line)
                kind = row.pop("type")
                if number == 1 and (kind != "ledger" or int(row["schema"]) > SCHEMA):
                    raise ValueError("it does not begin as an export of this or an older reprokit does")
                if kind != "ledger" and _take(ledger, kind, row, numbers):
                    added[kind] = added.get(kind, 0) + 1
            except (ValueError, KeyError, TypeError, AttributeError, sqlite3.Error) as problem:
                raise BadInput(f"line {number} is no line of an export ({problem}); nothing was taken in") from problem
        if added:
            make_sums(ledger)
    return added


def make_sums(ledger: Ledger) -> None:
    """Make the sums again from what was seen, night after night."""
    for table in SUMS:
        ledger.do(f"DELETE FROM {table}")  # noqa: S608 - names of our own
    for night in ledger.all("SELECT id FROM night ORDER BY id"):
        ledger.do(
            "UPDATE place SET hits = 0, runs = 0, since = 0 WHERE signature IN (SELECT signature FROM restart WHERE night = ?)",
            night["id"],
        )
        sql = "SELECT * FROM sighting WHERE night = ?"
        for row in ledger.all(sql, night["id"]):
            count(
                ledger,
                row["signature"],
                row["night"],
                row["cell"],
                row["k"],
                row["n"],
                row["torch"],
                bool(row["is_expected"]),
            )
        ledger.do(
            "UPDATE place SET since = since + (SELECT ok FROM run WHERE run.night = ?1 AND run.cell = place.cell)"
            " WHERE last < ?1 AND cell IN (SELECT cell FROM run WHERE night = ?1 AND ok > 0)",
            night["id"],
        )
        fold(ledger, night["id"])


def _take(ledger: Ledger, kind: str, row: dict[str, Any], numbers: dict[tuple[str, str], int]) -> bool:
    """Add one row under numbers of this ledger; False where it is known."""

    def number(of: str, name: str) -> int:
        return numbers[of, name]

    if kind in NAMED:
        column = NAMED[kind]
        known = ledger.one(f"SELECT id FROM {kind} WHERE {column} = ?", row[column])  # noqa: S608 - names of our own
        numbers[kind, row[column]] = int(known["id"]) if known else _insert(ledger, kind, row)
        return known is None
    if kind == "bug":
        name = row.pop("name")
        known = ledger.one("SELECT bug AS id FROM signature WHERE id = ?", name)
        for column in NIGHTS_OF_BUGS:
            row[column] = numbers.get(("night", row[column] or ""), 0)
        numbers["bug", name] = int(known["id"]) if known else _insert(ledger, kind, row)
        return known is None
    if kind == "signature":
        row["bug"] = number("bug", row["bug"])
    elif kind in ("run", "sighting"):
        row["night"], row["cell"] = number("night", row["night"]), number("cell", row["cell"])
    elif kind == "restart":
        row["night"] = number("night", row["night"])
    elif kind == "event":
        row["bug"], row["night"] = number("bug", row["bug"]), numbers.get(("night", row["night"] or ""), 0)
        same = "SELECT 1 FROM event WHERE bug = ? AND at = ? AND what = ?"
        if ledger.one(same, row["bug"], row["at"], row["what"]):
            return False
    elif kind == "proposal":
        row["a"], row["b"] = sorted((number("bug", row["a"]), number("bug", row["b"])))
    else:
        raise ValueError(f"{kind!r} is no kind of row")
    return _insert(ledger, kind, row, is_known_ok=True) > 0


_COLUMNS = {
    "night": ("uid", "name", "suite", "started", "ended", "state", "planned", "note"),
    "cell": ("key", "target", "settings", "tags"),
    "run": (
        "night", "cell", "kind", "n", "ok", "torch", "triton", "seconds", "compile_s", "peak_rss_bytes", "most_rss_bytes", "phases",
        "is_expected", "problem", "folder",
    ),
    "bug": ("title", "kind", "phase", "cause", "status", "reason", "changed", "tried", "muted", "repro", "repro_lines", "pack"),
    "signature": ("id", "algorithm", "title", "traits", "bug"),
    "sighting": ("signature", "night", "cell", "k", "n", "torch", "pack", "is_expected"),
    "restart": ("signature", "night"),
    "event": ("bug", "night", "at", "what", "why"),
    "proposal": ("a", "b", "score", "shared", "state"),
}  # fmt: skip


def _insert(ledger: Ledger, table: str, row: dict[str, Any], is_known_ok: bool = False) -> int:
    """Insert the columns that the table has and nothing else; gives 0 where the row was there."""
    columns = _COLUMNS[table]
    marks, names = ", ".join("?" * len(columns)), ", ".join(columns)
    before = ledger.changes()
    for column, shape in JSON.items():
        if column in columns and not isinstance(json.loads(row[column]), shape):
            raise ValueError(f"{column} is {row[column]!r}")
    known = " ON CONFLICT DO NOTHING" if is_known_ok else ""
    new = ledger.do(f"INSERT INTO {table}({names}) VALUES({marks}){known}", *(row[c] for c in columns))
    if ledger.changes() == before:
        return 0
    return new or 1


def _plain(row: Any, *without: str) -> dict[str, Any]:
    return {key: row[key] for key in row.keys() if key not in without}  # noqa: SIM118 - a sqlite3.Row iterates values
