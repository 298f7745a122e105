"""Export and import a ledger as JSON lines: sightings and decisions, but not the sums over them.

Key insight: a row is named by its identity (the uid of a nightly run, the key of a cell, the id of
a signature), never by its number. So the ledgers of several machines can be joined, and a second
import of the same export changes nothing. Lines that do not agree with the schema go to the
quarantine, and the others are imported.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import IO, Annotated, Any, Literal

from msgspec import Meta, Struct

from reprokit.core.judge.stacks.location import plural
from reprokit.core.redaction.redactor import Redactor
from reprokit.core.shared.errors import BadInput
from reprokit.host.nightly.jobs import job_schema, quarantine
from reprokit.host.nightly.ledger import rows
from reprokit.host.nightly.ledger.add_result import add_to_sums
from reprokit.host.nightly.ledger.bugs import fold_absences
from reprokit.host.nightly.ledger.database import SUM_TABLES, Ledger
from reprokit.host.system import private_names

SCHEMA = 1
NAMED = {"night": "uid", "cell": "key"}
"""The column that identifies a row of these tables in every ledger."""
NIGHTS_OF_BUGS = ("changed", "tried")
MAX_LINE_BYTES = 24 << 20
"""Maximum length of a line; the largest repro needs less."""
MAX_KEPT_LINES = 1_000
"""Refused lines that the quarantine keeps; the others are counted."""


class Header(Struct):
    """The first line of an export."""

    type: Literal["ledger"]
    schema: Annotated[int, Meta(ge=1, le=SCHEMA)]


def export_ledger(ledger: Ledger) -> Iterator[dict[str, Any]]:
    """Yield one object for each row, redacted like a pack, in the order of :func:`import_rows`."""
    redactor = private_names.get_redactor()
    for row in _rows(ledger):
        yield {
            k: _hidden(redactor, k, v) if isinstance(v, str) and k != "type" else v
            for k, v in row.items()
        }


def _hidden(redactor: Redactor, column: str, text: str) -> str:
    if column not in rows.JSON_COLUMNS:
        return redactor.redact_text(text)
    redacted = redactor.redact_json_lines(text)
    return redacted if json.loads(redacted) != json.loads(text) else text


def _rows(ledger: Ledger) -> Iterator[dict[str, Any]]:
    yield {"type": "ledger", "schema": SCHEMA}
    nights = {r["id"]: r["uid"] for r in ledger.fetch_all("SELECT id, uid FROM night")}
    cells = {r["id"]: r["key"] for r in ledger.fetch_all("SELECT id, key FROM cell")}
    # a bug is named by its first signature
    names = {
        r["bug"]: r["id"]
        for r in ledger.fetch_all("SELECT bug, min(id) AS id FROM signature GROUP BY bug")
    }
    for row in ledger.fetch_all("SELECT * FROM night ORDER BY id"):
        yield {"type": "night", **_plain(row, "id")}
    for row in ledger.fetch_all("SELECT * FROM cell ORDER BY id"):
        yield {"type": "cell", **_plain(row, "id")}
    for row in ledger.fetch_all("SELECT * FROM bug ORDER BY id"):
        if row["id"] in names:
            uids = {k: nights.get(row[k]) for k in NIGHTS_OF_BUGS}
            yield {"type": "bug", "name": names[row["id"]], **_plain(row, "id", "merged"), **uids}
    for row in ledger.fetch_all("SELECT * FROM signature ORDER BY id"):
        yield {"type": "signature", **_plain(row), "bug": names[row["bug"]]}
    for row in ledger.fetch_all("SELECT * FROM run ORDER BY night, cell"):
        yield {
            "type": "run",
            **_plain(row),
            "night": nights[row["night"]],
            "cell": cells[row["cell"]],
        }
    for row in ledger.fetch_all("SELECT * FROM sighting ORDER BY night, cell, signature"):
        yield {
            "type": "sighting",
            **_plain(row),
            "night": nights[row["night"]],
            "cell": cells[row["cell"]],
        }
    for row in ledger.fetch_all("SELECT * FROM restart ORDER BY night, signature"):
        yield {"type": "restart", **_plain(row), "night": nights[row["night"]]}
    for row in ledger.fetch_all("SELECT * FROM event ORDER BY id"):
        if row["bug"] in names:
            yield {
                "type": "event",
                **_plain(row, "id"),
                "bug": names[row["bug"]],
                "night": nights.get(row["night"]),
            }
    for row in ledger.fetch_all("SELECT * FROM proposal"):
        if row["a"] in names and row["b"] in names:
            yield {"type": "proposal", **_plain(row), "a": names[row["a"]], "b": names[row["b"]]}


def read_export_lines(file: IO[bytes]) -> Iterator[bytes]:
    """Yield the lines of a file; a line that is too long is cut, so that it is refused."""
    while line := file.readline(MAX_LINE_BYTES + 1):
        rest = line
        while not rest.endswith(b"\n") and (rest := file.readline(MAX_LINE_BYTES)):
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
        """Return the number of a row.

        Raises:
            FailsSchema: the export does not have the row, or its line was refused.
        """
        number = self.numbers.get((of, name)) if isinstance(name, str) else None
        if number is None:
            raise job_schema.FailsSchema(f"it refers to a {of} that is not in the export")
        return number

    def refuse(self, number: int, line: str | bytes, why: str) -> None:
        """Count and keep a refused line."""
        self.refused += 1
        self.first = self.first or f"line {number}: {why}"
        if len(self.kept) < MAX_KEPT_LINES:
            text = (
                line[:20_000].decode("utf-8", "replace")
                if isinstance(line, bytes)
                else line[:20_000]
            )
            self.kept.append(f"{number}: {why}: {text.rstrip()}")


def import_rows(ledger: Ledger, lines: Iterable[str | bytes]) -> dict[str, int]:
    """Add the rows of an export, and return the number of new rows of each kind.

    Lines that do not agree with the schema are skipped, and ``ledger.refused`` counts them.

    Raises:
        BadInput: the first line is not that of an export; nothing was added.
    """
    work = _Import()
    is_first = True
    with ledger.transaction():
        for number, line in enumerate(lines, 1):
            if not line.strip():
                continue
            try:
                row = job_schema.parse_strict_json(line, MAX_LINE_BYTES)
                if is_first:
                    job_schema.convert_to_struct(row, Header)
                    is_first = False
                elif row == {
                    "type": "ledger",
                    "schema": SCHEMA,
                }:
                    # a file may contain several exports
                    continue
                else:
                    kind = row.pop("type", None) if isinstance(row, dict) else None
                    if not isinstance(kind, str) or kind not in _COLUMNS:
                        raise job_schema.FailsSchema("its type is not a kind of row of an export")
                    if _take(ledger, kind, row, work):
                        work.added[kind] = work.added.get(kind, 0) + 1
            except (job_schema.FailsSchema, sqlite3.IntegrityError) as problem:
                if is_first:
                    why = "the first line is not that of an export of this or an older reprokit"
                    raise BadInput(
                        f"line {number} is not a line of an export ({why}: {problem}); nothing was"
                        " imported"
                    ) from problem
                work.refuse(number, line, str(problem))
        _drop_empty(ledger, work)
        if work.added:
            recompute_sums(ledger)
    if work.refused:
        kept = quarantine.quarantine_text(work.kept, ledger.path.parent, "import.txt")
        what = plural(work.refused, "line")
        ledger.refused.append(f"{what} of the import ({work.first}); see {kept}")
    return {kind: count for kind, count in work.added.items() if count}


def _drop_empty(ledger: Ledger, work: _Import) -> None:
    """Delete new bugs whose signatures were all refused, because they can have no sightings."""
    for bug in work.bugs:
        if ledger.fetch_one("SELECT 1 FROM signature WHERE bug = ?", bug) is None:
            ledger.execute("DELETE FROM event WHERE bug = ?", bug)
            ledger.execute("DELETE FROM proposal WHERE a = ?1 OR b = ?1", bug)
            ledger.execute("DELETE FROM bug WHERE id = ?", bug)
            work.added["bug"] -= 1


def recompute_sums(ledger: Ledger) -> None:
    """Compute the sums again from the sightings, in the order of the nightly runs."""
    for table in SUM_TABLES:
        ledger.execute(f"DELETE FROM {table}")  # noqa: S608 - constant names
    for night in ledger.fetch_all("SELECT id FROM night ORDER BY id"):
        ledger.execute(
            "UPDATE place SET hits = 0, runs = 0, since = 0 WHERE signature IN (SELECT signature"
            " FROM restart WHERE night = ?)",
            night["id"],
        )
        sql = "SELECT * FROM sighting WHERE night = ?"
        for row in ledger.fetch_all(sql, night["id"]):
            add_to_sums(
                ledger,
                row["signature"],
                row["night"],
                row["cell"],
                row["k"],
                row["n"],
                row["torch"],
                bool(row["is_expected"]),
            )
        ledger.execute(
            "UPDATE place SET since = since + (SELECT ok FROM run WHERE run.night = ?1 AND run.cell"
            " = place.cell) WHERE last < ?1 AND cell IN (SELECT cell FROM run WHERE night = ?1 AND"
            " ok > 0)",
            night["id"],
        )
        fold_absences(ledger, night["id"])


def _take(ledger: Ledger, kind: str, row: dict[str, Any], work: _Import) -> bool:
    """Add one row with the numbers of this ledger; return False if it is known.

    Raises:
        FailsSchema: the row does not agree with the schema.
    """
    columns = rows.check_row(kind, row)
    number = work.number
    if kind in NAMED:
        name = columns[NAMED[kind]]
        sql = f"SELECT id FROM {kind} WHERE {NAMED[kind]} = ?"  # noqa: S608
        known = ledger.fetch_one(sql, name)
        work.numbers[kind, name] = int(known["id"]) if known else _insert(ledger, kind, columns)
        return known is None
    if kind == "bug":
        name = job_schema.convert_to_struct(row, _Named).name
        known = ledger.fetch_one("SELECT bug AS id FROM signature WHERE id = ?", name)
        for column in NIGHTS_OF_BUGS:
            columns[column] = number("night", row[column]) if row.get(column) else 0
        work.numbers["bug", name] = int(known["id"]) if known else _insert(ledger, kind, columns)
        if known is None:
            work.bugs.append(work.numbers["bug", name])
        return known is None
    if kind == "signature":
        columns["bug"] = number("bug", row.get("bug"))
    if kind in ("run", "sighting", "restart"):
        columns["night"] = number("night", row.get("night"))
    if kind in ("run", "sighting"):
        columns["cell"] = number("cell", row.get("cell"))
    if kind in ("sighting", "restart"):
        columns["signature"] = _known_signature(ledger, row.get("signature"))
    if kind == "event":
        columns["bug"] = number("bug", row.get("bug"))
        columns["night"] = number("night", row["night"]) if row.get("night") else 0
        same = "SELECT 1 FROM event WHERE bug = ? AND at = ? AND what = ?"
        if ledger.fetch_one(same, columns["bug"], columns["at"], columns["what"]):
            return False
    if kind == "proposal":
        columns["a"], columns["b"] = sorted(
            (number("bug", row.get("a")), number("bug", row.get("b")))
        )
    return _insert(ledger, kind, columns, is_known_ok=True) > 0


class _Named(Struct):
    name: Annotated[str, Meta(min_length=1, max_length=64)]


def _known_signature(ledger: Ledger, name: Any) -> str:
    if (
        not isinstance(name, str)
        or ledger.fetch_one("SELECT 1 FROM signature WHERE id = ?", name) is None
    ):
        raise job_schema.FailsSchema("it refers to a signature that is not known")
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
    """Insert the columns of the table, and return the new id; return 0 where the row existed."""
    columns = _COLUMNS[table]
    marks, names = ", ".join("?" * len(columns)), ", ".join(columns)
    before = ledger.count_changes()
    known = " ON CONFLICT DO NOTHING" if is_known_ok else ""
    new = ledger.execute(
        f"INSERT INTO {table}({names}) VALUES({marks}){known}", *(row[c] for c in columns)
    )
    if ledger.count_changes() == before:
        return 0
    return new or 1


def _plain(row: sqlite3.Row, *without: str) -> dict[str, Any]:
    # a sqlite3.Row iterates values
    return {key: row[key] for key in row.keys() if key not in without}  # noqa: SIM118
