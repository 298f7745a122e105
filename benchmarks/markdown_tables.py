"""Write results as Markdown tables, and keep those of the documentation current.

A table of a document is between ``<!-- table: NAME -->`` and ``<!-- end -->``. NAME is that of a
file in benchmarks/results, without its suffix.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Mapping, Sequence
from pathlib import Path

from .harness import ROOT
from .results import Cell, Column, Result, Row, read_result, recorded_results

DOCUMENTS = (ROOT / "docs" / "benchmarks.md", ROOT / "docs" / "comparison.md")
"""The pages with tables of results."""
WIDTH = 120
_BLOCK = re.compile(
    r"^<!-- table: (?P<name>[\w-]+) -->\n(?P<body>.*?)^<!-- end -->$", re.DOTALL | re.MULTILINE
)
GPU_COMMAND = "nox -s gpu -- --gpu-results benchmarks/results/gpu.json"
_NAMES = {"python": "Python", "triton": "Triton"}


def show_cell(value: Cell, digits: int | None = None) -> str:
    """Return a cell as text; an empty text where there is no value."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float) and digits is not None:
        return f"{value:,.{digits}f}"
    if isinstance(value, int):
        return f"{value:,}"
    return re.sub(r"\s*\n\s*", " ", str(value)).replace("|", "\\|")


def heading_lines(columns: Sequence[Column]) -> list[str]:
    """Return the two lines that begin a table."""
    shown = [column.heading for column in columns if not column.is_hidden]
    return [f"| {' | '.join(shown)} |", "| --- " * len(shown) + "|"]


def row_line(columns: Sequence[Column], row: Row) -> str:
    """Return one row of a table."""
    cells = (show_cell(row.get(c.key), c.digits) for c in columns if not c.is_hidden)
    return f"| {' | '.join(cells)} |"


def environment_line(environment: Mapping[str, str | int]) -> str:
    """Return versions and CPU count in one line."""
    parts = []
    for key, value in environment.items():
        if key == "cpu_count":
            parts.append(f"{value} CPUs")
        elif key == "system":
            parts.append(str(value))
        else:
            parts.append(f"{_NAMES.get(key, key)} {value}")
    return ", ".join(parts)


def result_lines(result: Result) -> list[str]:
    """Return the table of a result, followed by where and how it was recorded."""
    lines = heading_lines(result.columns)
    lines += [row_line(result.columns, row) for row in result.rows]
    lines += ["", _provenance(result)]
    if result.notes:
        lines.append("")
    for note in result.notes:
        lines += _wrapped(note, "- ", "  ")
    return lines


def current_texts(documents: Sequence[Path] = DOCUMENTS) -> tuple[dict[Path, str], list[str]]:
    """Return the documents with tables made from the recorded results, and what is wrong with them:
    a line for each table that differs, each marker without a result, each result without a marker.
    """
    results, problems = recorded_results(), []
    texts = {document: document.read_text() for document in documents}
    names = {match["name"] for text in texts.values() for match in _BLOCK.finditer(text)}
    pages = " or ".join(document.name for document in documents)
    problems += [f"the result {n} has no table in {pages}" for n in results.keys() - names]

    def fresh(match: re.Match[str]) -> str:
        name = match["name"]
        if name in results:
            body = "\n".join(result_lines(read_result(results[name]))) + "\n"
        else:
            problems.append(f"the table {name} has no result in benchmarks/results")
            return match[0]
        if body != match["body"]:
            problems.append(f"the table {name} differs from its result")
        return f"<!-- table: {name} -->\n{body}<!-- end -->"

    return {page: _BLOCK.sub(fresh, text) for page, text in texts.items()}, sorted(problems)


def _provenance(result: Result) -> str:
    machine = environment_line(result.environment)
    how = "Command" if result.measurement else "Recorded by hand from"
    date = f"Date: {result.date or 'not recorded'}."
    return f"{f'Machine: {machine}. ' if machine else ''}{date} {how}: `{result.command}`."


def _wrapped(text: str, first: str = "", later: str = "") -> list[str]:
    return textwrap.wrap(
        text,
        WIDTH,
        initial_indent=first,
        subsequent_indent=later,
        break_long_words=False,
        break_on_hyphens=False,
    )
