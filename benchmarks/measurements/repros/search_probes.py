"""Count the probes that different searches need for the nodes of the same recorded graphs.

python -m benchmarks run search_probes [--only CASE ...]

The cases are the failures of benchmarks/cases/minimization_cases.py with a recorded graph, and
known bugs in a block of a transformer. Every search gets the same predicate: the failure shows in a
forked child. A program is run once, and counts as one probe of each search that asks for it.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import os
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TypeVar
from unittest import mock

from reprokit.core.judge import same_failure
from reprokit.core.reduce import subsets
from reprokit.core.reduce.graphs import subgraph
from reprokit.host.minimize import cases
from reprokit.host.minimize.answers.oracle import Oracle
from reprokit.host.minimize.starts.starting_points import StartingPoint, hinted_units
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
T = TypeVar("T")
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
                failing = captured_case(case, Path(folder), environ)
                row = _measure_case(failing)
        if row:
            yield {"case": name, **row}


def captured_case(case: Case, folder: Path, environ: Mapping[str, str]) -> cases.MinimizeCase:
    """Capture a failure without a reduction, and return it with a run directory of its own."""
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
    return reopen.case_of_pack(opened, run, sys.executable)


@contextlib.contextmanager
def first_failing(
    failing: cases.MinimizeCase, starts: Sequence[StartingPoint]
) -> Iterator[tuple[StartingPoint | None, Oracle | None, Callable[[], float]]]:
    """Give the first starting point that shows the failure, its oracle, and the CPU seconds of all
    probes so far; None if there is no such point.
    """
    for start in starts:
        with cases.create_probe_server(failing) as server:
            limits = cases.probe_limits_of(failing)
            oracle = Oracle(failing.run_path, server, failing.signature, limits, failing.python)
            oracle.begin_program(
                start.text, start.graph.settings.get("sources", ()) if start.graph else ()
            )
            shows = oracle.shows_failure(start.text)
            if not shows and limits.stop:
                oracle.limits = dataclasses.replace(limits, stop=None)
                oracle.forget_answers(start.text)
                shows = oracle.shows_failure(start.text)
            if shows:
                yield start, oracle, lambda: server.cpu_s
                return
            show_progress(f"{start.level}: {oracle.last_outcome}")
    yield None, None, float


def _measure_case(failing: cases.MinimizeCase) -> Row:
    starts = [s for s in cases.starting_points_of_case(failing) if s.graph is not None]
    with first_failing(failing, starts) as (start, oracle, cpu_s):
        if start is None or oracle is None or start.graph is None:
            show_progress("no recorded graph shows the failure")
            return {}
        graph, units = start.graph, list(start.units)
        hints = hinted_units(graph, failing.verdict, failing.seen)

        def own(answer: Answer) -> int:
            implied = subsets.Implied[int](
                lambda some: bool(some) and same_failure.has_failure(answer(program_of(some)))
            )
            return len(
                subsets.smallest_subset(units, implied.holds, hints, lambda i: graph.units[i].kind)
            )

        def program_of(some: list[int]) -> str:
            return subgraph.program_of_units(graph, some)

        return {"nodes": len(units), **compare_searches(oracle, cpu_s, units, program_of, own)}


Answer = Callable[[str], str]


def compare_searches(
    oracle: Oracle,
    cpu_s: Callable[[], float],
    items: Sequence[T],
    program_of: Callable[[list[T]], str],
    own: Callable[[Answer], int],
) -> Row:
    """Run every search for the items that a failure needs, and return its probes, its CPU seconds
    and the number of items that it leaves.

    ``program_of`` returns the program of a part of the items; empty if there is none. ``own`` is
    reprokit's search, which gets the answers for programs.
    """
    row: Row = {}
    costs: dict[str, float] = {}
    for name in NAMES:
        counting = CountingOracle(oracle, cpu_s, costs)

        def holds(some: list[T], counting: CountingOracle = counting) -> bool:
            text = program_of(some) if some else ""
            return bool(text) and counting.answer(text) == same_failure.SAME

        if name == "reprokit":
            size = own(counting.answer)
        elif name == "weighted ddmin":
            size = len(
                subsets.weighted_ddmin(items, holds, lambda item: float(len(program_of([item]))))
            )
        else:
            search = {
                "ddmin": subsets.ddmin,
                "ProbDD": searches.prob_dd,
                "CDD": searches.counter_dd,
            }
            size = len(search[name](items, holds))
        row[f"{name} probes"] = counting.probes
        row[f"{name} cpu_s"] = round(counting.cpu_s, 2)
        row[f"{name} size"] = size
    show_progress(", ".join(f"{name} {row[f'{name} probes']}" for name in NAMES))
    return row


def summarise_rows(rows: Sequence[Row]) -> list[str]:
    """Return in how many cases reprokit's search needs the fewest probes, and leaves most items."""

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
        f"A search leaves less than reprokit's in {len(larger)} of {len(rows)} cases.",
        f"CPU seconds of all probes: {totals}.",
    ]


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the choice of cases."""
    add_only_option(parser, list(SEARCHED), "case")


MEASUREMENT = Measurement(COLUMNS, measure_rows, add_options, summarise_rows)
