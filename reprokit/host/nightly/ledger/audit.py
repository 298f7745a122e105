"""Check a ledger when it is opened: refuse foreign tables, and remove rows that do not agree with
the schema.

Refused rows go to the quarantine beside the ledger, with all rows that refer to them, and the sums
are computed again. A ledger that cannot be written is read from a copy in memory.
"""

from __future__ import annotations

import sqlite3
from functools import lru_cache

from reprokit.core.shared.errors import BadInput
from reprokit.host.nightly.jobs import quarantine
from reprokit.host.nightly.ledger import rows
from reprokit.host.nightly.ledger.database import Ledger
from reprokit.host.nightly.ledger.exchange import make_sums

MOST_KEPT = 1_000
"""Rows of one table that the quarantine keeps; the others are counted."""


def check_tables(ledger: Ledger, scripts: tuple[str, ...]) -> None:
    """Raise BadInput if the file has triggers or views, or tables that the migrations do not
    make.
    """
    found = {row["name"]: row for row in ledger.all("SELECT type, name, sql FROM sqlite_master")}
    for name, row in found.items():
        if row["type"] in ("trigger", "view"):
            raise BadInput(_not_ours(ledger, f"it has a {row['type']}, {str(name)[:40]!r}"))
    for name, sql in _ours(scripts).items():
        if name not in found or _plain(str(found[name]["sql"])) != sql:
            raise BadInput(
                _not_ours(ledger, f"its {name} is missing or is not as reprokit makes it")
            )


@lru_cache
def _ours(scripts: tuple[str, ...]) -> dict[str, str]:
    empty = sqlite3.connect(":memory:")
    for script in scripts:
        empty.executescript(script)
    found = {
        name: _plain(sql)
        for name, sql in empty.execute("SELECT name, sql FROM sqlite_master WHERE sql IS NOT NULL")
    }
    empty.close()
    return found


def _plain(sql: str) -> str:
    return " ".join(sql.split())


def _not_ours(ledger: Ledger, why: str) -> str:
    return (
        f"the ledger {ledger.path} was not made by reprokit ({why}); name another --ledger; nothing"
        " was changed"
    )


def refuse_rows(ledger: Ledger) -> None:
    """Remove rows that do not agree with the schema; ``ledger.refused`` lists them."""
    if not any(_has_bad(ledger, table) for table in rows.TABLES) and not _circles(ledger):
        return
    try:
        with ledger.change():
            _clean(ledger)
    except sqlite3.OperationalError:  # no permission to write, or a full disk
        ledger.refused.clear()
        ledger.copy_into_memory()
        with ledger.change():
            _clean(ledger)
        ledger.do("PRAGMA query_only = 1")


def _has_bad(ledger: Ledger, table: str) -> bool:
    return (
        ledger.one(
            f"SELECT 1 FROM {table}"  # noqa: S608
            f" WHERE ({rows.column_condition(table)}) IS NOT 1 LIMIT 1"
        )
        is not None
    )


def _clean(ledger: Ledger) -> None:
    for table in rows.TABLES:
        bad = f"({rows.column_condition(table)}) IS NOT 1"
        count = ledger.all(f"SELECT count(*) AS n FROM {table} WHERE {bad}")[0]["n"]  # noqa: S608
        if count:
            kept = ledger.all(f"SELECT * FROM {table} WHERE {bad} LIMIT {MOST_KEPT}")  # noqa: S608
            place = quarantine.quarantine_text(
                [rows.as_line(dict(row)) for row in kept], ledger.path.parent, f"{table}.jsonl"
            )
            ledger.do(f"DELETE FROM {table} WHERE {bad}")  # noqa: S608
            what = f"{count} row{'s' if count > 1 else ''} of {table}"
            ledger.refused.append(
                f"{what} in the ledger, which do not agree with the schema; see {place}"
            )
        if table == "bug":
            ledger.do("UPDATE bug SET merged = NULL WHERE merged NOT IN (SELECT id FROM bug)")
            for number in _circles(ledger):
                ledger.do("UPDATE bug SET merged = NULL WHERE id = ?", number)
                ledger.refused.append(f"that bug {number} is merged into itself")
    make_sums(ledger)


def _circles(ledger: Ledger) -> list[int]:
    """Bugs that are merged into themselves, directly or through others."""
    into = {
        row["id"]: row["merged"]
        for row in ledger.all("SELECT id, merged FROM bug WHERE merged IS NOT NULL")
    }
    done: set[int] = set()
    found = []
    for start in into:
        path: list[int] = []
        on_path: set[int] = set()
        at = start
        while at in into and at not in done and at not in on_path:
            path.append(at)
            on_path.add(at)
            at = into[at]
        if at in on_path:
            found += path[path.index(at) :]
        done |= on_path
    return found
