"""The ledger as JSON lines: sightings and decisions of people, without the sums, which are computed
again.

Key insight: rows are named by their identity (a night's uid, a cell's key, a signature's id), never
by their number. So ledgers of several machines can be joined, and a second import of one changes
nothing. Lines that do not agree with the schema go to the quarantine, and the others count.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import IO, Annotated, Any, Literal

from msgspec import Meta, Struct

from reprokit.core.redaction.redactor import Redactor
from reprokit.core.shared.errors import BadInput
from reprokit.host.nightly.jobs import quarantine, schema
from reprokit.host.nightly.ledger import rows
from reprokit.host.nightly.ledger.add_result import count_hits
from reprokit.host.nightly.ledger.bugs import fold_bugs
from reprokit.host.nightly.ledger.database import SUMS, Ledger
from reprokit.host.system import private_names

SCHEMA = 1
NAMED = {"night": "uid", "cell": "key"}
"""What such a row is known by in every ledger."""
NIGHTS_OF_BUGS = ("changed", "tried")
MOST_LINE = 24 << 20
"""Bytes of a line: more than a repro needs."""
MOST_KEPT = 1_000
"""Refused lines that the quarantine keeps; the others are counted."""


class Header(Struct):
    """The first line."""

    type: Literal["ledger"]
    schema: Annotated[int, Meta(ge=1, le=SCHEMA)]


def export_ledger(ledger: Ledger) -> Iterator[dict[str, Any]]:
    """One object for each row, redacted like a pack, in the order that :func:`take_in` needs."""
    redactor = private_names.redactor()
    for row in _rows(ledger):
        yield {
            k: _hidden(redactor, k, v) if isinstance(v, str) and k != "type" else v
            for k, v in row.items()
        }


def _hidden(redactor: Redactor, column: str, text: str) -> str:
    if column not in rows.HOLDS:
        return redactor.text(text)
    found = redactor.json_lines(text)
    return found if json.loads(found) != json.loads(text) else text


def _rows(ledger: Ledger) -> Iterator[dict[str, Any]]:
    yield {"type": "ledger", "schema": SCHEMA}
    nights = {r["id"]: r["uid"] for r in ledger.all("SELECT id, uid FROM night")}
    cells = {r["id"]: r["key"] for r in ledger.all("SELECT id, key FROM cell")}
    # a bug is named by its first signature
    names = {
        r["bug"]: r["id"]
        for r in ledger.all("SELECT bug, min(id) AS id FROM signature GROUP BY bug")
    }
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
        yield {
            "type": "run",
            **_plain(row),
            "night": nights[row["night"]],
            "cell": cells[row["cell"]],
        }
    for row in ledger.all("SELECT * FROM sighting ORDER BY night, cell, signature"):
        yield {
            "type": "sighting",
            **_plain(row),
            "night": nights[row["night"]],
            "cell": cells[row["cell"]],
        }
    for row in ledger.all("SELECT * FROM restart ORDER BY night, signature"):
        yield {"type": "restart", **_plain(row), "night": nights[row["night"]]}
    for row in ledger.all("SELECT * FROM event ORDER BY id"):
        if row["bug"] in names:
            yield {
                "type": "event",
                **_plain(row, "id"),
                "bug": names[row["bug"]],
                "night": nights.get(row["night"]),
            }
    for row in ledger.all("SELECT * FROM proposal"):
        if row["a"] in names and row["b"] in names:
            yield {"type": "proposal", **_plain(row), "a": names[row["a"]], "b": names[row["b"]]}


def read_lines(file: IO[bytes]) -> Iterator[bytes]:
    """Lines of a file. Of a line that is too long, only the start is kept, so that it is
    refused.
    """
    while line := file.readline(MOST_LINE + 1):
        rest = line
        while not rest.endswith(b"\n") and (rest := file.readline(MOST_LINE)):
            pass
        yield line


@dataclass
class _Import:
    """The state of an import."""

    numbers: dict[tuple[str, str], int] = field(default_factory=dict)
    """Numbers of rows of this ledger, by their names in the export."""
    bugs: list[int] = field(default_factory=list)
    """The new bugs."""
    added: dict[str, int] = field(default_factory=dict)
    refused: int = 0
    first: str = ""
    kept: list[str] = field(default_factory=list)

    def number(self, of: str, name: Any) -> int:
        """The number of a row; raises Refused if the export does not contain it, or its line was
        refused.
        """
        found = self.numbers.get((of, name)) if isinstance(name, str) else None
        if found is None:
            raise schema.FailsSchema(f"it refers to a {of} that is not in the export")
        return found

    def refuse(self, number: int, line: str | bytes, why: str) -> None:
        """Note a refused line."""
        self.refused += 1
        self.first = self.first or f"line {number}: {why}"
        if len(self.kept) < MOST_KEPT:
            text = (
                line[:20_000].decode("utf-8", "replace")
                if isinstance(line, bytes)
                else line[:20_000]
            )
            self.kept.append(f"{number}: {why}: {text.rstrip()}")


def import_rows(ledger: Ledger, lines: Iterable[str | bytes]) -> dict[str, int]:
    """Add the rows of an export; gives the number of new rows of each kind.

    Lines that do not agree with the schema are skipped, and ``ledger.refused`` says so. Raises
    BadInput, and adds nothing, if the first line is not that of an export.
    """
    work = _Import()
    is_first = True
    with ledger.change():
        for number, line in enumerate(lines, 1):
            if not line.strip():
                continue
            try:
                row = schema.parse_as(line, MOST_LINE)
                if is_first:
                    schema.convert_as(row, Header)
                    is_first = False
                elif row == {
                    "type": "ledger",
                    "schema": SCHEMA,
                }:  # a file may contain several exports
                    continue
                else:
                    kind = row.pop("type", None) if isinstance(row, dict) else None
                    if not isinstance(kind, str) or kind not in _COLUMNS:
                        raise schema.FailsSchema("it is no kind of row of an export")
                    if _take(ledger, kind, row, work):
                        work.added[kind] = work.added.get(kind, 0) + 1
            except (schema.FailsSchema, sqlite3.IntegrityError) as problem:
                if is_first:
                    why = "it does not begin as an export of this or an older reprokit does"
                    raise BadInput(
                        f"line {number} is no line of an export ({why}: {problem}); nothing was"
                        " taken in"
                    ) from problem
                work.refuse(number, line, str(problem))
        _drop_empty(ledger, work)
        if work.added:
            make_sums(ledger)
    if work.refused:
        place = quarantine.quarantine_text(work.kept, ledger.path.parent, "import.txt")
        what = f"{work.refused} line{'s' if work.refused > 1 else ''} of the import"
        ledger.refused.append(f"{what} ({work.first}); see {place}")
    return {kind: count for kind, count in work.added.items() if count}


def _drop_empty(ledger: Ledger, work: _Import) -> None:
    """Remove new bugs whose signatures were all refused: they can have no sightings."""
    for bug in work.bugs:
        if ledger.one("SELECT 1 FROM signature WHERE bug = ?", bug) is None:
            ledger.do("DELETE FROM event WHERE bug = ?", bug)
            ledger.do("DELETE FROM proposal WHERE a = ?1 OR b = ?1", bug)
            ledger.do("DELETE FROM bug WHERE id = ?", bug)
            work.added["bug"] -= 1


def make_sums(ledger: Ledger) -> None:
    """Make the sums again from what was seen, night after night."""
    for table in SUMS:
        ledger.do(f"DELETE FROM {table}")  # noqa: S608 - names of our own
    for night in ledger.all("SELECT id FROM night ORDER BY id"):
        ledger.do(
            "UPDATE place SET hits = 0, runs = 0, since = 0 WHERE signature IN (SELECT signature"
            " FROM restart WHERE night = ?)",
            night["id"],
        )
        sql = "SELECT * FROM sighting WHERE night = ?"
        for row in ledger.all(sql, night["id"]):
            count_hits(
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
            "UPDATE place SET since = since + (SELECT ok FROM run WHERE run.night = ?1 AND run.cell"
            " = place.cell) WHERE last < ?1 AND cell IN (SELECT cell FROM run WHERE night = ?1 AND"
            " ok > 0)",
            night["id"],
        )
        fold_bugs(ledger, night["id"])


def _take(ledger: Ledger, kind: str, row: dict[str, Any], work: _Import) -> bool:
    """Add one row with numbers of this ledger; False if it is known. Raises Refused."""
    told = rows.check_row(kind, row)
    number = work.number
    if kind in NAMED:
        name = told[NAMED[kind]]
        sql = f"SELECT id FROM {kind} WHERE {NAMED[kind]} = ?"  # noqa: S608
        known = ledger.one(sql, name)
        work.numbers[kind, name] = int(known["id"]) if known else _insert(ledger, kind, told)
        return known is None
    if kind == "bug":
        name = schema.convert_as(row, _Named).name
        known = ledger.one("SELECT bug AS id FROM signature WHERE id = ?", name)
        for column in NIGHTS_OF_BUGS:
            told[column] = number("night", row[column]) if row.get(column) else 0
        work.numbers["bug", name] = int(known["id"]) if known else _insert(ledger, kind, told)
        if known is None:
            work.bugs.append(work.numbers["bug", name])
        return known is None
    if kind == "signature":
        told["bug"] = number("bug", row.get("bug"))
    if kind in ("run", "sighting", "restart"):
        told["night"] = number("night", row.get("night"))
    if kind in ("run", "sighting"):
        told["cell"] = number("cell", row.get("cell"))
    if kind in ("sighting", "restart"):
        told["signature"] = _known_signature(ledger, row.get("signature"))
    if kind == "event":
        told["bug"] = number("bug", row.get("bug"))
        told["night"] = number("night", row["night"]) if row.get("night") else 0
        same = "SELECT 1 FROM event WHERE bug = ? AND at = ? AND what = ?"
        if ledger.one(same, told["bug"], told["at"], told["what"]):
            return False
    if kind == "proposal":
        told["a"], told["b"] = sorted((number("bug", row.get("a")), number("bug", row.get("b"))))
    return _insert(ledger, kind, told, is_known_ok=True) > 0


class _Named(Struct):
    name: Annotated[str, Meta(min_length=1, max_length=64)]


def _known_signature(ledger: Ledger, name: Any) -> str:
    if (
        not isinstance(name, str)
        or ledger.one("SELECT 1 FROM signature WHERE id = ?", name) is None
    ):
        raise schema.FailsSchema("it refers to a signature that is not known")
    return name


_COLUMNS = {
    "night": ("uid", "name", "suite", "started", "ended", "state", "planned", "note"),
    "cell": ("key", "target", "settings", "tags"),
    "run": (
        "night",
        "cell",
        "kind",
        "n",
        "ok",
        "torch",
        "triton",
        "seconds",
        "compile_s",
        "peak_rss_bytes",
        "most_rss_bytes",
        "phases",
        "is_expected",
        "problem",
        "folder",
    ),
    "bug": (
        "title",
        "kind",
        "phase",
        "cause",
        "status",
        "reason",
        "changed",
        "tried",
        "muted",
        "repro",
        "repro_lines",
        "pack",
    ),
    "signature": ("id", "algorithm", "title", "traits", "bug"),
    "sighting": ("signature", "night", "cell", "k", "n", "torch", "pack", "is_expected"),
    "restart": ("signature", "night"),
    "event": ("bug", "night", "at", "what", "why"),
    "proposal": ("a", "b", "score", "shared", "state"),
}


def _insert(ledger: Ledger, table: str, row: dict[str, Any], is_known_ok: bool = False) -> int:
    """Insert the columns that the table has and nothing else; gives 0 where the row was there."""
    columns = _COLUMNS[table]
    marks, names = ", ".join("?" * len(columns)), ", ".join(columns)
    before = ledger.changes()
    known = " ON CONFLICT DO NOTHING" if is_known_ok else ""
    new = ledger.do(
        f"INSERT INTO {table}({names}) VALUES({marks}){known}", *(row[c] for c in columns)
    )
    if ledger.changes() == before:
        return 0
    return new or 1


def _plain(row: Any, *without: str) -> dict[str, Any]:
    # a sqlite3.Row iterates values
    return {key: row[key] for key in row.keys() if key not in without}  # noqa: SIM118
