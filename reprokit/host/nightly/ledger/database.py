"""The database of an open ledger: queries, transactions and copies. :mod:`ledger` opens and
migrates it.
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
from reprokit.host.system import deletion

BUSY_S = 30.0
"""A second writer, such as ``reprokit nightly mute`` during a nightly run, waits at most this
long.
"""
SUMS = ("place", "tally", "version")
"""Tables that are computed from the others."""


class Ledger:
    """An open ledger; every change is one transaction."""

    def __init__(self, path: Path, database: sqlite3.Connection) -> None:
        self.path = path
        self.refused: list[str] = []
        """The rows that were removed when it was opened, and why: one line for each table."""
        self._database = database

    def all(self, sql: str, *values: Any) -> list[sqlite3.Row]:
        """The rows of a query."""
        return self._database.execute(sql, values).fetchall()

    def one(self, sql: str, *values: Any) -> sqlite3.Row | None:
        """The first row of a query, or None."""
        row: sqlite3.Row | None = self._database.execute(sql, values).fetchone()
        return row

    def do(self, sql: str, *values: Any) -> int:
        """Run a statement inside :meth:`change`; gives the id of an inserted row."""
        return self._database.execute(sql, values).lastrowid or 0

    def changes(self) -> int:
        """The number of rows that changed since the file was opened."""
        return self._database.total_changes

    @contextlib.contextmanager
    def change(self) -> Iterator[None]:
        """One transaction: all of it or nothing, also if reprokit is killed inside."""
        self._database.execute("BEGIN IMMEDIATE")
        try:
            yield
        except BaseException:
            with contextlib.suppress(sqlite3.Error):  # a full disk has rolled it back already
                self._database.execute("ROLLBACK")
            raise
        self._database.execute("COMMIT")

    def back_up(self) -> Path:
        """Copy the ledger to a file beside it, completely or not at all."""
        place = backup_of(self.path)
        draft = place.with_name(f".{place.name}.{os.getpid()}.draft")
        try:
            copy = sqlite3.connect(draft)
            try:
                self._database.backup(copy)
            finally:
                copy.close()
            os.replace(draft, place)
        finally:
            deletion.delete(draft, inside=place.parent)
        return place

    def copy_into_memory(self) -> None:
        """Continue with a copy in memory, for a file that cannot be written."""
        copy = prepared_database(sqlite3.connect(":memory:", isolation_level=None))
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


def backup_of(path: Path) -> Path:
    """The path of the copy that each night leaves at its end."""
    return path.with_name(f"{path.stem}.backup{path.suffix}")


def prepared_database(database: sqlite3.Connection) -> sqlite3.Connection:
    """A connection that trusts nothing in its file and has the functions of :mod:`rows`."""
    database.row_factory = sqlite3.Row
    database.text_factory = partial(
        str, encoding="utf-8", errors="replace"
    )  # a damaged text must not stop the reader
    database.execute("PRAGMA trusted_schema = OFF")
    for name, function in rows.FUNCTIONS.items():
        database.create_function(name, 2, function, deterministic=True)
    return database
