"""Delete old run directories and packs by the policy of the suite.

Packs of bugs that are not fixed are never deleted.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from reprokit.host.nightly.jobs import job_result
from reprokit.host.nightly.ledger.database import Ledger
from reprokit.host.nightly.suite.cells import Suite
from reprokit.host.system import deletion


@dataclass
class Pruned:
    """The numbers of deleted run directories and packs, and their size."""

    folders: int = 0
    packs: int = 0
    size_bytes: int = 0


def prune_output(ledger: Ledger, suite: Suite, output: Path, is_rehearsal: bool = False) -> Pruned:
    """Delete old run directories and packs; with ``is_rehearsal``, only count them.

    Run directories of healthy runs are deleted after ``keep_healthy_nights`` nightly runs, others
    after ``keep_nights``. Days without a nightly run do not count. Packs are kept while their bug
    is not fixed, and for ``fixed_nights`` afterwards. Specs, results and logs of jobs are kept.
    """
    gone = Pruned()
    nights = [
        row["id"]
        for row in ledger.fetch_all(
            "SELECT id FROM night WHERE suite = ? AND ended IS NOT NULL ORDER BY id DESC",
            suite.name,
        )
    ]
    if not nights:
        return gone

    def limit(count: int) -> int:
        return int(nights[min(count, len(nights)) - 1])

    kept = {
        row["pack"]
        for row in ledger.fetch_all(
            "SELECT x.pack FROM sighting x JOIN signature s ON s.id = x.signature JOIN bug b ON"
            " b.id = s.bug WHERE b.status != 'fixed' OR b.changed >= ? UNION SELECT pack FROM bug"
            " WHERE status != 'fixed' OR changed >= ?",
            limit(suite.fixed_nights),
            limit(suite.fixed_nights),
        )
    }
    rows = ledger.fetch_all(
        "SELECT run.night, night.name, run.folder, run.kind FROM run JOIN night ON night.id ="
        " run.night WHERE night.suite = ? AND run.night < ? AND folder != ''",
        suite.name,
        limit(suite.keep_healthy_nights),
    )
    for row in rows:
        # from names that the schema of the ledger checks, and not from the path in a result
        folder = output / "nights" / row["name"] / "jobs" / Path(row["folder"]).name
        if row["kind"] != "ok" and row["night"] >= limit(suite.keep_nights):
            continue
        if (
            folder.resolve() != folder
            or output not in folder.parents
            or not (folder / job_result.SPEC_FILE).is_file()
        ):
            continue
        for path in sorted([*folder.glob("run-[0-9]*"), *folder.glob("cache")]):
            gone.folders += 1
            gone.size_bytes += _size(path)
            if not is_rehearsal:
                deletion.delete_path(path, inside=folder)
        for path in sorted(folder.glob("reprokit-*.tar.gz")):
            if str(path) not in kept:
                gone.packs += 1
                gone.size_bytes += path.lstat().st_size
                if not is_rehearsal:
                    deletion.delete_path(path, inside=folder)
    return gone


def _size(folder: Path) -> int:
    return sum(p.lstat().st_size for p in folder.rglob("*") if not p.is_dir())
