"""Count the probes that different searches need for the statements of the same programs.

python -m benchmarks run statement_probes [--only CASE ...]

The programs are the scripts of benchmarks/cases/minimization_cases.py. reprokit's search is its pass over
statements, which leaves out the outermost first. The others get one list of all statements. Every
search gets the same predicate: the failure shows in a forked child.
"""

from __future__ import annotations

import argparse
import ast
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from unittest import mock

from reprokit.core.judge import same_failure
from reprokit.core.reduce import ast_edits
from reprokit.core.reduce.edit_memory import EditMemory
from reprokit.core.reduce.passes import statements
from reprokit.host.minimize import cases
from reprokit.host.minimize.starts.starting_points import StartingPoint

from ...cases.minimization_cases import FAILURES
from ...harness import quiet_environ, show_progress
from ...measurement import Measurement, add_only_option
from ...results import Column, Row
from ..cost.capture_steps import CASES
from . import search_probes
from .search_probes import NAMES, Answer

COLUMNS = (
    Column("case", "case"),
    Column("statements", "statements"),
    *(Column(f"{name} probes", f"{name}, probes") for name in NAMES),
    *(Column(f"{name} cpu_s", f"{name}, CPU s", 1) for name in NAMES),
    *(Column(f"{name} size", f"{name}, statements left") for name in NAMES),
)


def measure_rows(options: argparse.Namespace) -> Iterator[Row]:
    """Yield one row for each case."""
    for name in options.only:
        with tempfile.TemporaryDirectory(prefix="searches-", ignore_cleanup_errors=True) as folder:
            case = CASES[name]
            environ = quiet_environ(case.bug)
            with mock.patch.dict(os.environ, environ, clear=True):
                failing = search_probes.captured_case(case, Path(folder), environ)
                row = _measure_case(failing, case.script)
        if row:
            yield {"case": name, **row}


def _measure_case(failing: cases.MinimizeCase, text: str) -> Row:
    starts = [StartingPoint("source", text)]
    with search_probes.first_failing(failing, starts) as (start, oracle, cpu_s):
        if start is None or oracle is None:
            show_progress("the script does not show the failure in a forked child")
            return {}
        paths = [place.path for place in ast_edits.walk_statements(ast.parse(text))]

        def program_of(some: list[ast_edits.Path]) -> str:
            changed = ast.parse(text)  # several times faster than a copy
            try:
                ast_edits.without_node(changed, sorted(set(paths) - set(some), reverse=True))
                return ast_edits.text_of(changed)
            except ast_edits.NO_PROGRAM:
                return ""

        def own(answer: Answer) -> int:
            edits = EditMemory()

            def test(new: str) -> bool:
                return edits.shows_failure(new, lambda: same_failure.has_failure(answer(new)))

            reduced = text
            for _ in range(2):  # the second time with the edits that were skipped
                before = ""
                while reduced != before:
                    before = reduced
                    edits.begin_pass(reduced)
                    reduced = statements.drop_statements(reduced, test)
                edits.forget_unclear()
            return len(list(ast_edits.walk_statements(ast.parse(reduced))))

        row = search_probes.compare_searches(oracle, cpu_s, paths, program_of, own)
        return {"statements": len(paths), **row}


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the choice of cases."""
    add_only_option(parser, [name for name in search_probes.SEARCHED if name in FAILURES], "case")


MEASUREMENT = Measurement(COLUMNS, measure_rows, add_options, search_probes.summarise_rows)
