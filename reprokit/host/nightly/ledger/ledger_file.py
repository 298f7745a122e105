"""Open, check and migrate the SQLite file of a ledger; docs/reference/ledger.md describes its tables.

Key insight: the observations (``night``, ``cell``, ``run``, ``signature``, ``sighting``) and the
decisions (``bug``, ``event``, ``proposal``) are the data. ``place``, ``tally`` and ``version`` are
sums over them, which are updated with each result, so that queries over a million sightings stay
fast. They can be computed again at any time.
"""

from __future__ import annotations

import json
import os
import sqlite3
from pathlib import Path

from reprokit.core.shared.errors import BadInput
from reprokit.host.nightly.jobs.job_schema import Settings
from reprokit.host.nightly.ledger import audit
from reprokit.host.nightly.ledger.database import (
    BUSY_TIMEOUT_S,
    Ledger,
    backup_path,
    prepare_connection,
)

APPLICATION = 0x52_50_4B_54
"""``RPKT``: the application id in SQLite's header."""
MIGRATIONS = (
    """
    CREATE TABLE night(id INTEGER PRIMARY KEY, uid TEXT NOT NULL UNIQUE, name TEXT NOT NULL, suite TEXT NOT NULL, started REAL NOT NULL,
        ended REAL, state TEXT NOT NULL, planned INTEGER NOT NULL DEFAULT 0, note TEXT NOT NULL DEFAULT '');
    CREATE TABLE cell(id INTEGER PRIMARY KEY, key TEXT NOT NULL UNIQUE, target TEXT NOT NULL, settings TEXT NOT NULL,
        tags TEXT NOT NULL DEFAULT '[]');
    CREATE TABLE run(night INTEGER NOT NULL, cell INTEGER NOT NULL, kind TEXT NOT NULL, n INTEGER NOT NULL,
        ok INTEGER NOT NULL, torch TEXT NOT NULL DEFAULT '', triton TEXT NOT NULL DEFAULT '', seconds REAL, compile_s REAL,
        peak_rss_bytes REAL, most_rss_bytes REAL, phases TEXT NOT NULL DEFAULT '{}', is_expected INTEGER NOT NULL DEFAULT 1,
        problem TEXT NOT NULL DEFAULT '', folder TEXT NOT NULL DEFAULT '', PRIMARY KEY(night, cell)) WITHOUT ROWID;
    CREATE INDEX run_by_cell ON run(cell, night);
    CREATE TABLE bug(id INTEGER PRIMARY KEY, title TEXT NOT NULL, kind TEXT NOT NULL, phase TEXT NOT NULL DEFAULT '',
        cause TEXT NOT NULL DEFAULT '', status TEXT NOT NULL DEFAULT '', reason TEXT NOT NULL DEFAULT '',
        changed INTEGER NOT NULL DEFAULT 0, tried INTEGER NOT NULL DEFAULT 0, muted TEXT, merged INTEGER,
        repro TEXT NOT NULL DEFAULT '', repro_lines INTEGER, pack TEXT NOT NULL DEFAULT '');
    CREATE TABLE signature(id TEXT PRIMARY KEY, algorithm INTEGER NOT NULL, title TEXT NOT NULL, traits TEXT NOT NULL,
        bug INTEGER NOT NULL) WITHOUT ROWID;
    CREATE INDEX signature_by_bug ON signature(bug);
    CREATE TABLE sighting(signature TEXT NOT NULL, night INTEGER NOT NULL, cell INTEGER NOT NULL, k INTEGER NOT NULL,
        n INTEGER NOT NULL, torch TEXT NOT NULL DEFAULT '', pack TEXT NOT NULL DEFAULT '',
        is_expected INTEGER NOT NULL DEFAULT 0, PRIMARY KEY(signature, night, cell)) WITHOUT ROWID;
    CREATE INDEX sighting_by_night ON sighting(night, cell);
    CREATE TABLE alias(signature TEXT NOT NULL, bug INTEGER NOT NULL, PRIMARY KEY(signature, bug)) WITHOUT ROWID;
    CREATE TABLE restart(signature TEXT NOT NULL, night INTEGER NOT NULL, PRIMARY KEY(signature, night)) WITHOUT ROWID;
    CREATE TABLE event(id INTEGER PRIMARY KEY, bug INTEGER NOT NULL, night INTEGER NOT NULL, at REAL NOT NULL,
        what TEXT NOT NULL, why TEXT NOT NULL);
    CREATE INDEX event_by_bug ON event(bug);
    CREATE TABLE proposal(a INTEGER NOT NULL, b INTEGER NOT NULL, score REAL NOT NULL, shared TEXT NOT NULL,
        state TEXT NOT NULL DEFAULT 'open', PRIMARY KEY(a, b)) WITHOUT ROWID;
    CREATE TABLE place(signature TEXT NOT NULL, cell INTEGER NOT NULL, hits INTEGER NOT NULL, runs INTEGER NOT NULL,
        since INTEGER NOT NULL, first INTEGER NOT NULL, last INTEGER NOT NULL, PRIMARY KEY(signature, cell)) WITHOUT ROWID;
    CREATE INDEX place_by_cell ON place(cell);
    CREATE TABLE tally(signature TEXT NOT NULL, night INTEGER NOT NULL, hits INTEGER NOT NULL, cells INTEGER NOT NULL,
        surprises INTEGER NOT NULL, PRIMARY KEY(signature, night)) WITHOUT ROWID;
    CREATE INDEX tally_by_night ON tally(night);
    CREATE TABLE version(signature TEXT NOT NULL, torch TEXT NOT NULL, hits INTEGER NOT NULL, first INTEGER NOT NULL,
        last INTEGER NOT NULL, PRIMARY KEY(signature, torch)) WITHOUT ROWID;
    """,
)
"""One script for each version; a ledger of version n has run the first n scripts."""


def open_ledger(path: Path, is_new_ok: bool = False, is_checked: bool = False) -> Ledger:
    """Open the ledger.

    Rows that do not agree with the schema are removed, and ``refused`` of the result lists them.
    ``is_checked`` also checks the structure of the file first, as a nightly run does.

    Raises:
        BadInput: the file is not a ledger, is damaged, or is from a newer reprokit.
    """
    if not path.exists() and not is_new_ok:
        raise BadInput(
            f"there is no ledger {path}; reprokit nightly run creates one, or name it with --ledger"
        )
    if path.exists() and not path.is_file():
        raise BadInput(f"{path} is not a file; name a different --ledger")
    is_new = not path.exists() or path.stat().st_size == 0
    try:
        if is_new:
            path.parent.mkdir(parents=True, exist_ok=True)
        database = sqlite3.connect(path, timeout=BUSY_TIMEOUT_S, isolation_level=None)
    except (OSError, sqlite3.Error) as problem:
        raise BadInput(
            f"cannot open the ledger {path}: {problem}; name a different --ledger"
        ) from problem
    ledger = Ledger(path, prepare_connection(database))
    try:
        _check(ledger, is_new, is_checked)
        if is_new:
            database.execute(f"PRAGMA application_id = {APPLICATION}")
        if not _is_read_only(path):
            # on a network file system without WAL, SQLite keeps its rollback journal
            database.execute("PRAGMA journal_mode = WAL")
        database.execute("PRAGMA synchronous = NORMAL")
        database.execute("PRAGMA cache_size = -64000")
        _migrate(ledger)
        audit.check_tables(ledger, MIGRATIONS)
        if not is_new:
            audit.remove_invalid_rows(ledger)
    except (sqlite3.Error, UnicodeDecodeError) as problem:  # in the name of a column
        ledger.close()
        raise BadInput(_damaged(path, " ".join(str(problem).split())[:200])) from problem
    except BaseException:
        ledger.close()
        raise
    return ledger


def _is_read_only(path: Path) -> bool:
    return not os.access(path, os.W_OK)


def _check(ledger: Ledger, is_new: bool, is_checked: bool) -> None:
    if is_new:
        return
    application = ledger.fetch_all("PRAGMA application_id")[0][0]
    version = ledger.fetch_all("PRAGMA user_version")[0][0]
    if application != APPLICATION:
        raise BadInput(
            f"{ledger.path} is a database, but not a ledger of reprokit; name a different --ledger"
        )
    if version > len(MIGRATIONS):
        raise BadInput(
            f"{ledger.path} was written by a newer reprokit (schema {version}, this one knows"
            f" {len(MIGRATIONS)}); update reprokit, or name a different --ledger; nothing was"
            " changed"
        )
    if is_checked and (problem := ledger.fetch_all("PRAGMA quick_check(1)")[0][0]) != "ok":
        raise BadInput(_damaged(ledger.path, str(problem).splitlines()[-1][:200]))


def _migrate(ledger: Ledger) -> None:
    while (version := ledger.fetch_all("PRAGMA user_version")[0][0]) < len(MIGRATIONS):
        with ledger.transaction():
            if ledger.fetch_all("PRAGMA user_version")[0][0] != version:
                continue  # another process was first
            for statement in MIGRATIONS[version].split(";"):
                if statement.strip():
                    ledger.execute(statement)
            ledger.execute(f"PRAGMA user_version = {version + 1}")


def _damaged(path: Path, why: str) -> str:
    kept = backup_path(path)
    moved = f"move it and the files {path.name}-* away"
    advice = (
        f"{moved}, and copy {kept} to {path}" if kept.exists() else f"{moved}, and import an export"
    )
    return (
        f"the ledger {path} cannot be read ({why}); {advice}: reprokit nightly run then collects"
        " the results in the folders of nightly runs; nothing was changed"
    )


def begin_night(
    ledger: Ledger, uid: str, name: str, suite: str, planned: int, started: float
) -> int:
    """Add a nightly run, and return its number.

    Nightly runs are ordered by their number, because a clock can be set back.
    """
    with ledger.transaction():
        sql = (
            "INSERT INTO night(uid, name, suite, started, state, planned) VALUES(?, ?, ?, ?,"
            " 'running', ?)"
        )
        return ledger.execute(sql, uid, name, suite, started, planned)


def cell_id(ledger: Ledger, key: str, target: str, settings: Settings, tags: list[str]) -> int:
    """Return the number of a cell, and add the cell where it is new."""
    row = ledger.fetch_one("SELECT id, tags FROM cell WHERE key = ?", key)
    tags_json = json.dumps(tags)
    if row is None:
        sql = "INSERT INTO cell(key, target, settings, tags) VALUES(?, ?, ?, ?)"
        return ledger.execute(sql, key, target, json.dumps(settings, sort_keys=True), tags_json)
    if row["tags"] != tags_json:
        ledger.execute("UPDATE cell SET tags = ? WHERE id = ?", tags_json, row["id"])
    return int(row["id"])
