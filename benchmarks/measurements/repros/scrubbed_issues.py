"""Measure how often reprokit scrub gives the right answer about public issues of PyTorch.

python -m benchmarks run scrubbed_issues [--texts FOLDER] [--only NUMBER ...] [--at-once N]

benchmarks/data/public_issues.json has the number of each issue and the answer that a person found
by hand on a CPU with torch 2.13.0. The texts are looked up when the measurement runs: in FOLDER,
as NUMBER.md, or with GitHub's API. They are not copied. An answer is right if it is that of the
person. ``cannot tell`` where the person knew the answer is not right, and calling something passed
that fails is counted apart.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import json
import tempfile
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from pathlib import Path

from ...harness import DATA, MeasurementFailed, quiet_environ, run_reprokit, show_progress
from ...measurement import Measurement, add_only_option
from ...results import Column, Row

COLUMNS = (
    Column("issue", "issue"),
    Column("kind", "kind"),
    Column("person", "by hand"),
    Column("answer", "scrub"),
    Column("lines", "lines of the repro"),
    Column("known", "known as"),
    Column("seconds", "s", 0),
    Column("is_right", "right"),
)
ISSUES: dict[str, dict[str, str]] = json.loads((DATA / "public_issues.json").read_text())
API = "https://api.github.com/repos/pytorch/pytorch/issues/"
LIMIT_S = 1_500.0
LOOK_UP_S = 30.0


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the folder of texts, and the choice of issues."""
    add_only_option(parser, list(ISSUES), "issue")
    parser.add_argument(
        "--texts",
        type=Path,
        metavar="FOLDER",
        help="has NUMBER.md for each issue; default: ask GitHub",
    )
    parser.add_argument(
        "--at-once",
        type=int,
        default=1,
        metavar="N",
        help="issues that are measured at the same time (default: 1)",
    )


def measure_rows(options: argparse.Namespace) -> Iterator[Row]:
    """Yield one row for each issue."""
    numbers = options.only or list(ISSUES)
    with concurrent.futures.ThreadPoolExecutor(options.at_once) as pool:
        yield from pool.map(lambda number: _measure_issue(number, options.texts), numbers)


def _measure_issue(number: str, folder: Path | None) -> Row:
    text = _text_of_issue(number, folder)
    expected = ISSUES[number]
    with tempfile.TemporaryDirectory(prefix="scrub-") as output:
        path = Path(output, f"{number}.md")
        path.write_text(text)
        done = run_reprokit(
            "scrub",
            path,
            "--yes",
            "--output-dir",
            Path(output, "out"),
            environ=quiet_environ(),
            limit_s=LIMIT_S,
        )
        answer = done.answer
        lines = _lines_of_repro(answer.get("comment"))
    given = str(answer.get("answer", f"exit code {done.status}"))
    is_right = given == expected["answer"]
    show_progress(f"{number}: {given}, by hand: {expected['answer']} ({answer.get('why', '')})")
    known = [match["issue"] for match in answer.get("known", ()) if match["how"] != "similar"]
    return {
        "issue": f"pytorch#{number}",
        "kind": expected["kind"],
        "person": expected["answer"],
        "answer": given,
        "lines": lines,
        "known": ", ".join(known),
        "seconds": done.wall_s,
        "is_right": "yes" if is_right else "no",
    }


def _lines_of_repro(comment: str | None) -> int | None:
    """Return the number of lines of the program in a comment; None without one."""
    if not comment:
        return None
    _, _, rest = Path(comment).read_text().partition("```python\n")
    return rest.partition("```")[0].count("\n") or None


def _text_of_issue(number: str, folder: Path | None) -> str:
    """Return the title and the text of an issue, from a folder or from GitHub."""
    if folder is not None:
        path = folder / f"{number}.md"
        if not path.exists():
            raise MeasurementFailed(f"{path} is missing")
        return path.read_text()
    request = urllib.request.Request(API + number, headers={"User-Agent": "reprokit benchmarks"})
    try:
        with urllib.request.urlopen(request, timeout=LOOK_UP_S) as response:
            issue = json.load(response)
    except (urllib.error.URLError, ValueError) as problem:
        raise MeasurementFailed(f"GitHub does not give issue {number}: {problem}") from problem
    return f"# {issue['title']}\n\n{issue['body']}\n"


def summarise_rows(rows: Sequence[Row]) -> list[str]:
    """Return how many answers are right, and what is worse than a missing answer."""
    right = sum(row["is_right"] == "yes" for row in rows)
    false = [row["issue"] for row in rows if row["answer"] == "passes" != row["person"]]
    return [
        f"The answer is right for {right} of {len(rows)} issues.",
        f"Called passing by mistake: {', '.join(map(str, false)) or 'none'}.",
    ]


MEASUREMENT = Measurement(COLUMNS, measure_rows, add_options, summarise_rows)
