"""Measure how long a nightly run takes on a calculated cluster, and how fast a ledger takes results.

python -m benchmarks run cluster_schedule [--nodes 1000] [--runs 20000]

No cluster is needed: the runs have recorded lengths, and the measurement calculates when the last
node is free. A nightly run starts the longest cells first; how long each took the last time is
known to within 40 %. The last columns compare how many results come in a second with how many one
real ledger takes.
"""

from __future__ import annotations

import argparse
import heapq
import random
import statistics
import tempfile
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from reprokit.host.nightly.ledger import add_result, ledger_file

from ...ledger_results import invented_result
from ...measurement import Measurement, positive_int
from ...results import Column, Row

RECORDED_S = (14.8, 9.1, 8.6, 38.0, 23.5, 61.0, 220.0, 12.0, 31.0, 47.0, 90.0, 600.0)
"""Recorded lengths of runs: from healthy small models to llama40b on eight ranks, and a hang at its
deadline.
"""
LEDGER_RESULTS = 2000
COLUMNS = (
    Column("order", "order of the runs"),
    Column("nodes", "nodes"),
    Column("runs", "runs"),
    Column("minutes", "minutes", 1),
    Column("least_minutes", "least possible", 1),
    Column("results_per_s", "results each second", 0),
    Column("ledger_per_s", "one ledger takes each second", 0),
)


def schedule_s(order: Iterable[int], run_s: Sequence[float], nodes: int) -> float:
    """Return the seconds until all runs have ended, each started on the first free node."""
    free_at = [0.0] * nodes
    for number in order:
        heapq.heappush(free_at, heapq.heappop(free_at) + run_s[number])
    return max(free_at)


def ledger_rate() -> float:
    """Return how many results one ledger takes in a second."""
    with (
        tempfile.TemporaryDirectory() as folder,
        ledger_file.open_ledger(Path(folder) / "l.sqlite", is_new_ok=True) as store,
    ):
        night = ledger_file.begin_night(store, "n", "n", "s", LEDGER_RESULTS, 0.0)
        began = time.monotonic()
        for number in range(LEDGER_RESULTS):
            with store.transaction():
                cell = ledger_file.cell_id(store, f"c{number}", f"c{number}", {}, [])
            add_result.add_result(store, night, cell, invented_result(number % 5, 0))
        return LEDGER_RESULTS / (time.monotonic() - began)


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the sizes of the cluster and of the suite."""
    parser.add_argument("--nodes", type=positive_int, default=1000, help="default: 1000")
    parser.add_argument("--runs", type=positive_int, default=20_000, help="default: 20000")


def measure_rows(options: argparse.Namespace) -> Iterator[Row]:
    """Yield a row for each order."""
    chance = random.Random(1)
    run_s = [chance.choice(RECORDED_S) * chance.uniform(0.8, 1.25) for _ in range(options.runs)]
    expected_s = [seconds * chance.uniform(0.7, 1.4) for seconds in run_s]
    orders: dict[str, Sequence[int]] = {
        "longest first": sorted(range(options.runs), key=lambda number: -expected_s[number]),
        "as listed": range(options.runs),
    }
    ledger_per_s = round(ledger_rate())
    for name, order in orders.items():
        yield {
            "order": name,
            "nodes": options.nodes,
            "runs": options.runs,
            "minutes": round(schedule_s(order, run_s, options.nodes) / 60, 1),
            "least_minutes": round(max(sum(run_s) / options.nodes, max(run_s)) / 60, 1),
            "results_per_s": round(options.nodes / statistics.mean(run_s)),
            "ledger_per_s": ledger_per_s,
        }


MEASUREMENT = Measurement(COLUMNS, measure_rows, add_options)
