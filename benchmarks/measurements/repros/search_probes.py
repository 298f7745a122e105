"""Count the probes that different searches need for the nodes of the same recorded graphs.

python -m benchmarks run search_probes [--only CASE ...]

The cases are the failures of benchmarks/cases/minimization_cases.py with a recorded graph, and
known bugs in a block of a transformer. Every search gets the same predicate: the failure shows in a
forked child. A program is run once, and counts as one probe of each search that asks for it.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from unittest import mock

from reprokit.core.judge import same_failure
from reprokit.core.reduce import subsets
from reprokit.core.reduce.graphs import subgraph
from reprokit.host.minimize import cases, reducer
from reprokit.host.minimize.oracle import Oracle
from reprokit.host.minimize.starting_points import StartingPoint, hinted_units
from reprokit.host.pack import reopen
from reprokit.host.run import run_directory

from ... import searches
from ...cases.minimization_cases import FAILURES
from ...harness import MeasurementFailed, quiet_environ, run_reprokit, show_progress
from ...measurement import Measurement, add_only_option
from ...results import Column, Row
from ..cost.capture_steps import BURIED, CASES, Case

NAMES = ("reprokit", "ddmin", "ProbDD", "CDD", "weighted ddmin")
COLUMNS = (
    Column("case", "case"),
    Column("nodes", "nodes"),
    *(Column(f"{name} probes", f"{name}, probes") for name in NAMES),
    *(Column(f"{name} cpu_s", f"{name}, CPU s", 1) for name in NAMES),
    *(Column(f"{name} size", f"{name}, nodes left") for name in NAMES),
)
LIMIT_S = 400.0
SEARCHED = tuple(
    name
    for name, failure in FAILURES.items()
    if not (failure.is_hang or failure.is_flaky or failure.is_exported)
) + tuple(f"{name}, buried" for names in BURIED.values() for name in names)


class CountingOracle:
    """The predicate of one search: it counts the programs that the search asks for."""

    def __init__(self, oracle: Oracle, cpu_s: Callable[[], float], costs: dict[str, float]) -> None:
        self._oracle, self._cpu_s, self._costs = oracle, cpu_s, costs
        self._asked: set[str] = set()

    def answer(self, text: str) -> str:
        """Return the answer for a program; a known one costs what its run has cost."""
        key, known = self._oracle.examine(text)
        before = self._cpu_s()
        answer = self._oracle.answer_for(text)
        if known is None:
            self._costs[key] = self._cpu_s() - before
        if key in self._costs:
            self._asked.add(key)
        return answer

    @property
    def probes(self) -> int:
        """The number of different programs that had to run."""
        return len(self._asked)

    @property
    def cpu_s(self) -> float:
        """The CPU seconds of their runs."""
        return sum(self._costs[key] for key in self._asked)


def measure_rows(options: argparse.Namespace) -> Iterator[Row]:
    """Yield one row for each case."""
    for name in options.only:
        with tempfile.TemporaryDirectory(prefix="searches-", ignore_cleanup_errors=True) as folder:
            case = CASES[name]
            environ = quiet_environ(case.bug)
            with mock.patch.dict(os.environ, environ, clear=True):
                row = _measure_case(case, Path(folder), environ)
        if row:
            yield {"case": name, **row}


def _measure_case(case: Case, folder: Path, environ: Mapping[str, str]) -> Row:
    script = folder / "script.py"
    script.write_text(case.script)
    done = run_reprokit(
        "capture",
        "--no-minimize",
        "--no-ablate",
        "--output-dir",
        folder / "out",
        *(case.target or ("--", sys.executable, str(script))),
        environ=environ,
        cwd=folder,
        limit_s=LIMIT_S,
    )
    if not done.answer.get("pack"):
        raise MeasurementFailed(f"the capture left no pack: {done.last_error}")
    opened = reopen.open_pack(Path(done.answer["pack"]))
    run = run_directory.create_run_directory(folder / "searches", "searches")
    failing = reopen.case_of_pack(opened, run, sys.executable)
    starts = [s for s in cases.starting_points_of_case(failing) if s.graph is not None]
    for start in starts:
        with cases.create_probe_server(failing) as server:
            limits = cases.probe_limits_of(failing)
            oracle = Oracle(run.path, server, failing.signature, limits, failing.python)
            oracle.begin_program(start.text, start.graph.settings.get("sources", ()))  # type: ignore[union-attr]
            if oracle.shows_failure(start.text):
                return _compare(failing, start, oracle, lambda: server.cpu_s)
    show_progress("no recorded graph shows the failure")
    return {}


def _compare(
    failing: cases.MinimizeCase, start: StartingPoint, oracle: Oracle, cpu_s: Callable[[], float]
) -> Row:
    graph = start.graph
    assert graph is not None
    units, costs = list(start.units), dict[str, float]()
    hints = hinted_units(graph, failing.verdict, failing.seen)

    def own(things: Sequence[int], answer: Callable[[list[int]], str]) -> list[int]:
        implied = subsets.Implied[int](lambda some: reducer.has_failure(answer(some)))
        return subsets.smallest_subset(things, implied.holds, hints, lambda i: graph.units[i].kind)

    row: Row = {"nodes": len(units)}
    for name in NAMES:
        counting = CountingOracle(oracle, cpu_s, costs)

        def answer(some: list[int], counting: CountingOracle = counting) -> str:
            return counting.answer(subgraph.program_of_units(graph, some)) if some else ""

        def holds(some: list[int]) -> bool:
            return answer(some) == same_failure.SAME

        if name == "reprokit":
            kept = own(units, answer)
        elif name == "weighted ddmin":
            kept = searches.weighted_ddmin(
                units, holds, lambda i: float(len(subgraph.program_of_units(graph, [i])))
            )
        else:
            search = {
                "ddmin": subsets.ddmin,
                "ProbDD": searches.prob_dd,
                "CDD": searches.counter_dd,
            }
            kept = search[name](units, holds)
        row[f"{name} probes"] = counting.probes
        row[f"{name} cpu_s"] = round(counting.cpu_s, 2)
        row[f"{name} size"] = len(kept)
    show_progress(", ".join(f"{name} {row[f'{name} probes']}" for name in NAMES))
    return row


def summarise_rows(rows: Sequence[Row]) -> list[str]:
    """Return in how many cases reprokit's search needs the fewest probes, and leaves most nodes."""

    def number(row: Row, key: str) -> float:
        return float(str(row[key]))

    others = NAMES[1:]
    fewest = [
        r
        for r in rows
        if all(number(r, f"{o} probes") >= number(r, "reprokit probes") for o in others)
    ]
    larger = [
        r for r in rows if any(number(r, f"{o} size") < number(r, "reprokit size") for o in others)
    ]
    totals = ", ".join(f"{n} {sum(number(r, f'{n} cpu_s') for r in rows):.0f} s" for n in NAMES)
    return [
        f"No search needs fewer probes than reprokit's in {len(fewest)} of {len(rows)} cases.",
        f"A search leaves fewer nodes than reprokit's in {len(larger)} of {len(rows)} cases.",
        f"CPU seconds of all probes: {totals}.",
    ]


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the choice of cases."""
    add_only_option(parser, list(SEARCHED), "case")


MEASUREMENT = Measurement(COLUMNS, measure_rows, add_options, summarise_rows)
