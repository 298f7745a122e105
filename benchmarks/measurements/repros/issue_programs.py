"""Measure whether the program in the text of an issue alone shows the failure, here and elsewhere.

python -m benchmarks run issue_programs [--only CASE ...] [--in PLACE ...] [--at-once N]

The failures are those of ``capture_steps``. The first Python block of ``issue.md`` is written to an
empty folder and run by ``reprokit check`` against the pack, here, and then as it is in each place of
``reprokit replay --in``. A program that says what the machine lacks gives a truthful answer.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import re
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from ...harness import quiet_environ, run_reprokit, show_progress
from ...measurement import Measurement, add_only_option
from ...results import Column, Row
from ..cost.capture_steps import CASES, LIMIT_S, STALL, Case

COLUMNS = (
    Column("case", "case"),
    Column("here", "the block of the issue"),
    Column("places", "in other places"),
    Column("conditions", "needs"),
    Column("is_true", "true"),
)
PLACES = ("isolated", "cores=1", "cpu=none", "root=/")
MAX_CAPTURES = 8
"""A case that fails in some of its runs is captured until it fails."""
_BLOCK = re.compile(r"```python\n(.*?)```", re.DOTALL)


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the choice of cases and places."""
    add_only_option(parser, list(CASES), "case")
    parser.add_argument(
        "--in",
        dest="places",
        nargs="+",
        default=list(PLACES),
        metavar="PLACE",
        help=f"the places of reprokit replay; default: {' '.join(PLACES)}",
    )
    parser.add_argument(
        "--at-once",
        type=int,
        default=1,
        metavar="N",
        help="cases that are measured at the same time; no result is a time (default: 1)",
    )


def measure_rows(options: argparse.Namespace) -> Iterator[Row]:
    """Yield one row for each case."""

    def measure_row(name: str) -> Row:
        with tempfile.TemporaryDirectory(prefix="issues-", ignore_cleanup_errors=True) as folder:
            return {"case": name, **_measure_case(CASES[name], Path(folder), options.places)}

    with concurrent.futures.ThreadPoolExecutor(options.at_once) as pool:
        yield from pool.map(measure_row, options.only)


def _measure_case(case: Case, folder: Path, places: Sequence[str]) -> Row:
    script = folder / "script.py"
    script.write_text(case.script)
    for number in range(MAX_CAPTURES):
        done = run_reprokit(
            "capture",
            *STALL,
            "--output-dir",
            folder / f"out-{number}",
            *(case.target or ("--", sys.executable, str(script))),
            environ=quiet_environ(case.bug),
            cwd=folder,
            limit_s=LIMIT_S,
        )
        if done.kind != "ok":
            break
    issue = Path(done.answer.get("issue") or "absent")
    block = _BLOCK.search(issue.read_text()) if issue.exists() else None
    if block is None or not done.answer.get("repro"):
        why = done.answer.get("unproven") or done.last_error
        return {"here": f"no repro: {why}", "places": "", "conditions": "", "is_true": "no"}
    alone = folder / "alone"
    alone.mkdir()
    program = alone / "program.py"
    program.write_text(block[1])
    # an injected bug is a part of the machine
    environ = quiet_environ(case.bug)
    words = ("--same-as", done.answer["pack"], "--exit-zero-if", "bug")
    here = run_reprokit("check", program, *words, environ=environ, cwd=alone)
    # the folder of an injected bug is not below a different root
    used = [place for place in places if not (case.bug and place.startswith("root="))]
    inside = [word for place in used for word in ("--in", place)]
    there = run_reprokit(
        "replay", done.answer["pack"], "--yes", *inside, environ=environ, cwd=alone
    )
    answers = [
        (row["place"], row["unmet"] or row["answer"]) for row in there.answer.get("places", ())
    ]
    found = (done.answer.get("minimized") or {}).get("conditions") or {}
    needed = ", ".join(name for name, _ in found.get("needed", ()))
    show_progress(f"{here.answer.get('answer')}; {answers}")
    has_said = all(answer == "same" or answer not in ANSWERS for _, answer in answers)
    is_true = here.answer.get("answer") == "same" and bool(answers) and has_said
    return {
        "here": here.answer.get("answer"),
        "places": "; ".join(f"{place}: {answer}" for place, answer in answers),
        "conditions": needed or "nothing",
        "is_true": "yes" if is_true else "no",
    }


ANSWERS = ("same", "other", "passes", "unresolved")


def summarise_rows(rows: Sequence[Row]) -> list[str]:
    """Return how often the text of the issue is enough."""
    same = sum(row["here"] == "same" for row in rows)
    true = sum(row["is_true"] == "yes" for row in rows)
    return [
        f"The block of the issue shows the failure here in {same} of {len(rows)} cases.",
        f"It shows it in all places too, or says what the machine lacks, in {true} of {len(rows)}.",
    ]


MEASUREMENT = Measurement(COLUMNS, measure_rows, add_options, summarise_rows)
