"""Check a ledger when it is opened: refuse foreign tables, and remove invalid rows.

Invalid rows, and all rows that refer to them, go to the quarantine next to the ledger, and the sums
are computed again. A ledger that is not writable is copied to memory first.
"""

from __future__ import annotations

import sqlite3
from functools import lru_cache

from reprokit.core.judge.stacks.location import plural
from reprokit.core.shared.errors import BadInput
from reprokit.host.nightly.jobs import quarantine
from reprokit.host.nightly.ledger import rows
from reprokit.host.nightly.ledger.database import Ledger
from reprokit.host.nightly.ledger.exchange import recompute_sums
from reprokit.host.system import host_log

MAX_KEPT_ROWS = 1_000
"""Rows of one table that the quarantine keeps; the others are counted."""


def check_tables(ledger: Ledger, scripts: tuple[str, ...]) -> None:
    """Raise BadInput if the file has triggers, views, or other tables than the migrations make."""
    tables = {
        row["name"]: row for row in ledger.fetch_all("SELECT type, name, sql FROM sqlite_master")
    }
    for name, row in tables.items():
        if row["type"] in ("trigger", "view"):
            raise BadInput(_not_ours(ledger, f"it has a {row['type']}, {str(name)[:40]!r}"))
    for name, sql in _ours(scripts).items():
        if name not in tables or _plain(str(tables[name]["sql"])) != sql:
            raise BadInput(
                _not_ours(ledger, f"its {name} is missing or differs from that of reprokit")
            )


@lru_cache
def _ours(scripts: tuple[str, ...]) -> dict[str, str]:
    empty = sqlite3.connect(":memory:")
    for script in scripts:
        empty.executescript(script)
    tables = {
        name: _plain(sql)
        for name, sql in empty.execute("SELECT name, sql FROM sqlite_master WHERE sql IS NOT NULL")
    }
    empty.close()
    return tables


def _plain(sql: str) -> str:
    return " ".join(sql.split())


def _not_ours(ledger: Ledger, why: str) -> str:
    return (
        f"the ledger {ledger.path} was not made by reprokit ({why}); name a different --ledger;"
        " nothing was changed"
    )


def remove_invalid_rows(ledger: Ledger) -> None:
    """Delete rows that do not agree with the schema; ``ledger.refused`` lists them."""
    if not any(_has_bad(ledger, table) for table in rows.TABLES) and not _circles(ledger):
        return
    try:
        with ledger.transaction():
            _clean(ledger)
    except sqlite3.OperationalError as problem:  # no permission to write, or a full disk
        host_log.log_ignored(problem)
        ledger.refused.clear()
        ledger.copy_into_memory()
        with ledger.transaction():
            _clean(ledger)
        ledger.execute("PRAGMA query_only = 1")


def _has_bad(ledger: Ledger, table: str) -> bool:
    return (
        ledger.fetch_one(
            f"SELECT 1 FROM {table}"  # noqa: S608
            f" WHERE ({rows.column_condition(table)}) IS NOT 1 LIMIT 1"
        )
        is not None
    )


def _clean(ledger: Ledger) -> None:
    for table in rows.TABLES:
        bad = f"({rows.column_condition(table)}) IS NOT 1"
        count = ledger.fetch_all(f"SELECT count(*) AS n FROM {table} WHERE {bad}")[0]["n"]  # noqa: S608
        if count:
            kept = ledger.fetch_all(f"SELECT * FROM {table} WHERE {bad} LIMIT {MAX_KEPT_ROWS}")  # noqa: S608
            quarantined = quarantine.quarantine_text(
                [rows.row_as_json_line(dict(row)) for row in kept],
                ledger.path.parent,
                f"{table}.jsonl",
            )
            ledger.execute(f"DELETE FROM {table} WHERE {bad}")  # noqa: S608
            ledger.refused.append(
                f"{plural(count, 'row')} of {table} in the ledger, which the schema does not allow;"
                f" see {quarantined}"
            )
        if table == "bug":
            ledger.execute("UPDATE bug SET merged = NULL WHERE merged NOT IN (SELECT id FROM bug)")
            for number in _circles(ledger):
                ledger.execute("UPDATE bug SET merged = NULL WHERE id = ?", number)
                ledger.refused.append(f"that bug {number} is merged into itself")
    recompute_sums(ledger)


def _circles(ledger: Ledger) -> list[int]:
    """Return bugs that are merged into themselves, directly or through others."""
    into = {
        row["id"]: row["merged"]
        for row in ledger.fetch_all("SELECT id, merged FROM bug WHERE merged IS NOT NULL")
    }
    done: set[int] = set()
    circular = []
    for start in into:
        path: list[int] = []
        on_path: set[int] = set()
        at = start
        while at in into and at not in done and at not in on_path:
            path.append(at)
            on_path.add(at)
            at = into[at]
        if at in on_path:
            circular += path[path.index(at) :]
        done |= on_path
    return circular
