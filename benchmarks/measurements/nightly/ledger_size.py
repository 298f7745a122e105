"""Measure what a result, the end of a nightly run and a report cost in ledgers of growing size.

python -m benchmarks run ledger_size [--sizes 10000 100000 1000000]

The results are invented: four of five cells show one of many bugs. A size is a number of sightings;
a result is one transaction.
"""

from __future__ import annotations

import argparse
import random
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from reprokit.host.nightly import night_report, night_report_files
from reprokit.host.nightly.ledger import add_result, bugs, ledger_file

from ...ledger_results import invented_result
from ...measurement import Measurement, positive_int
from ...results import Column, Row

MIN_CELLS, MAX_CELLS = 20, 4_000
COLUMNS = (
    Column("sightings", "sightings"),
    Column("nights", "nightly runs"),
    Column("bugs", "bugs"),
    Column("result_ms", "a result, ms", 2),
    Column("end_s", "end of a nightly run, s", 2),
    Column("report_s", "report, s", 2),
    Column("files_s", "its files, s", 2),
    Column("size_mb", "size, MB", 0),
)


def cells_of(sightings: int) -> int:
    """Return the number of cells of a suite that finds so many sightings."""
    known = {10_000: 200, 100_000: 600, 1_000_000: 4_000}
    return known.get(sightings) or min(max(sightings // 50, MIN_CELLS), MAX_CELLS)


def measure_ledger(folder: Path, sightings: int) -> Row:
    """Fill a ledger with invented results, and return its row."""
    chance, cells = random.Random(1), cells_of(sightings)
    known_bugs = max(sightings // 2000, 20)
    nights = added = 0
    results_s = end_s = 0.0
    path = folder / "ledger.sqlite"
    with ledger_file.open_ledger(path, is_new_ok=True) as store:
        with store.transaction():
            ids = [
                ledger_file.cell_id(
                    store, f"cell {i}", f"model{i % (cells // 4)}", {"mode": str(i % 4)}, []
                )
                for i in range(cells)
            ]
        while added < sightings:
            nights += 1
            night = ledger_file.begin_night(
                store, f"{nights}", f"night {nights:05d}", "main", cells, 1.7e9 + 86400 * nights
            )
            began = time.monotonic()
            for cell in ids:
                is_healthy = chance.random() >= 0.8
                bug = 0 if is_healthy else 1 + (cell * 7 + nights // 40) % known_bugs
                added += not is_healthy
                add_result.add_result(store, night, cell, invented_result(bug, nights))
            results_s += time.monotonic() - began
            began = time.monotonic()
            bugs.close_night(store, night, "done")
            end_s = time.monotonic() - began
        began = time.monotonic()
        report = night_report.make_report(store, None, folder)
        report_s = time.monotonic() - began
        began = time.monotonic()
        night_report_files.write_report(report, folder)
        files_s = time.monotonic() - began
        counts = {
            table: store.fetch_all(f"SELECT count(*) AS n FROM {table}")[0]["n"]
            for table in ("bug", "sighting")
        }
    return {
        "sightings": counts["sighting"],
        "nights": nights,
        "bugs": counts["bug"],
        "result_ms": round(1e3 * results_s / (nights * cells), 2),
        "end_s": round(end_s, 2),
        "report_s": round(report_s, 2),
        "files_s": round(files_s, 2),
        "size_mb": round(path.stat().st_size / 1e6, 1),
    }


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the sizes."""
    parser.add_argument(
        "--sizes",
        nargs="+",
        type=positive_int,
        default=[10_000, 100_000, 1_000_000],
        metavar="SIGHTINGS",
        help="default: 10000 100000 1000000",
    )


def measure_rows(options: argparse.Namespace) -> Iterator[Row]:
    """Yield a row for each size."""
    for sightings in options.sizes:
        with tempfile.TemporaryDirectory() as folder:
            yield measure_ledger(Path(folder), sightings)


MEASUREMENT = Measurement(COLUMNS, measure_rows, add_options)
