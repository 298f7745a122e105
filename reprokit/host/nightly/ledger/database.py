"""The database of an open ledger: queries, transactions and copies.

:mod:`.ledger_file` opens and migrates it.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

from reprokit.host.nightly.ledger import rows
from reprokit.host.system import deletion, host_log

BUSY_TIMEOUT_S = 30.0
"""A second writer, such as ``reprokit nightly mute`` during a nightly run, waits at most this
long.
"""
SUM_TABLES = ("place", "tally", "version")
"""Tables that are computed from the others."""


class Ledger:
    """An open ledger; every change is one transaction."""

    def __init__(self, path: Path, database: sqlite3.Connection) -> None:
        self.path = path
        self.refused: list[str] = []
        """One line for each table from which invalid rows were removed when it was opened."""
        self._database = database

    def fetch_all(self, sql: str, *values: Any) -> list[sqlite3.Row]:
        """Return the rows of a query."""
        return self._database.execute(sql, values).fetchall()

    def fetch_one(self, sql: str, *values: Any) -> sqlite3.Row | None:
        """Return the first row of a query, or None."""
        row: sqlite3.Row | None = self._database.execute(sql, values).fetchone()
        return row

    def execute(self, sql: str, *values: Any) -> int:
        """Execute a statement inside :meth:`transaction`; return the id of an inserted row."""
        return self._database.execute(sql, values).lastrowid or 0

    def count_changes(self) -> int:
        """Return the number of rows that changed since the file was opened."""
        return self._database.total_changes

    @contextlib.contextmanager
    def transaction(self) -> Iterator[None]:
        """Begin a transaction, and commit it at the end, or roll it back after an exception."""
        self._database.execute("BEGIN IMMEDIATE")
        try:
            yield
        except BaseException:
            with host_log.suppress(sqlite3.Error):  # a full disk has rolled it back already
                self._database.execute("ROLLBACK")
            raise
        self._database.execute("COMMIT")

    def back_up(self) -> Path:
        """Copy the ledger to a file next to it, completely or not at all; return its path."""
        target = backup_path(self.path)
        draft = target.with_name(f".{target.name}.{os.getpid()}.draft")
        try:
            copy = sqlite3.connect(draft)
            try:
                self._database.backup(copy)
            finally:
                copy.close()
            os.replace(draft, target)
        finally:
            deletion.delete_path(draft, inside=target.parent)
        return target

    def copy_into_memory(self) -> None:
        """Continue with a copy in memory, for a file that cannot be written."""
        copy = prepare_connection(sqlite3.connect(":memory:", isolation_level=None))
        self._database.backup(copy)
        self._database.close()
        self._database = copy

    def close(self) -> None:
        """Close the file."""
        self._database.close()

    def __enter__(self) -> Ledger:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def backup_path(path: Path) -> Path:
    """Return the path of the copy that each nightly run makes at its end."""
    return path.with_name(f"{path.stem}.backup{path.suffix}")


def prepare_connection(database: sqlite3.Connection) -> sqlite3.Connection:
    """Return the connection with safe settings and with the SQL functions of :mod:`.rows`."""
    database.row_factory = sqlite3.Row
    # a damaged text must not stop the reader
    database.text_factory = partial(str, encoding="utf-8", errors="replace")
    database.execute("PRAGMA trusted_schema = OFF")
    for name, function in rows.FUNCTIONS.items():
        database.create_function(name, 2, function, deterministic=True)
    return database
