"""Write the report of a nightly run: a digest in Markdown and a self-contained page in HTML."""

from __future__ import annotations

import html
import re
from pathlib import Path

from markupsafe import Markup

from reprokit import __version__
from reprokit.host.nightly import night_heat_map
from reprokit.host.nightly.engines.local_engine import duration_in_words
from reprokit.host.nightly.jobs import quarantine
from reprokit.host.nightly.night_report import GROUPS
from reprokit.host.nightly.night_report_model import NightReport
from reprokit.host.report import template_files
from reprokit.host.report.page import page_parts
from reprokit.host.system import files

DIGEST_FILE, PAGE_FILE = "digest.md", "report.html"
MAX_BUGS_IN_DIGEST = 20
"""Maximum number of bugs of one group in the digest, which must stay short."""
TITLES = dict(
    zip(
        GROUPS,
        ("new", "back after they were fixed", "fixed", "flaky", "still open", "muted"),
        strict=True,
    )
)
MARKS = {
    "ok": ("kind-ok", "✓"),
    "exception": ("kind-exception", "E"),
    "crash": ("kind-crash", "C"),
    "hang": ("kind-hang", "H"),
    "oom": ("kind-oom", "M"),
    "wrong-result": ("kind-wrong-result", "W"),
    "nondeterministic": ("kind-wrong-result", "V"),
    "failed-check": ("kind-wrong-result", "F"),
    "recompile-limit": ("kind-recompile", "R"),
    "recompile-storm": ("kind-recompile", "S"),
    "graph-break": ("kind-graph", "B"),
    "cudagraph-skip": ("kind-graph", "G"),
    "cache-miss": ("kind-recompile", "A"),
    "memory-growth": ("kind-oom", "Y"),
    "slower": ("kind-slow", "P"),
    "peak-memory": ("kind-oom", "Z"),
    "rank-mismatch": ("kind-rank-mismatch", "K"),
    "slow-compile": ("kind-slow", "T"),
    "superlinear-compile": ("kind-slow", "L"),
    "compile-time-regression": ("kind-slow", "D"),
    "memory-regression": ("kind-oom", "N"),
    "error-in-eager": ("kind-error-in-eager", "X"),
    "unknown": ("kind-unknown", "?"),
    night_heat_map.OTHER: ("kind-unknown", "O"),
    night_heat_map.LOST: ("kind-lost", "–"),
}
"""Kind -> its class and its letter in the table of all runs; others look like ``other``."""
STATES = {
    "shows": "shows",
    "ok": "healthy",
    "before": "not in this run",
    "other": "a different failure",
    "": "",
}


def write_report(report: NightReport, folder: Path) -> tuple[Path, Path]:
    """Write the digest and the page to ``folder``, and return their paths.

    A folder with the name of one of them goes to the quarantine.
    """
    for path in (folder / DIGEST_FILE, folder / PAGE_FILE):
        if path.is_dir() and not path.is_symlink():
            quarantine.quarantine_file(path, folder)
    return files.write_atomically(
        folder / DIGEST_FILE, digest_text(report)
    ), files.write_atomically(folder / PAGE_FILE, page_text(report))


def digest_text(report: NightReport) -> str:
    """Return Markdown for a chat or an issue tracker, without mentions or links to issues."""
    text = (
        template_files.markdown_templates()
        .get_template("digest.md.j2")
        .render(r=report, most=MAX_BUGS_IN_DIGEST)
    )
    # code stays as it is
    parts = re.split(r"(^ *(`{3,})\w*\n.*?^ *\2$)", text, flags=re.MULTILINE | re.DOTALL)
    pairs = zip(parts[::3], [*parts[1::3], ""], strict=True)
    return "".join(re.sub(r"\n{3,}", "\n\n", words) + code for words, code in pairs).strip() + "\n"


def page_text(report: NightReport) -> str:
    """Return a self-contained page; every text is escaped, and the only script is reprokit's."""
    environment = template_files.html_templates().overlay()
    environment.filters.update(
        bars=bar_rectangles, duration=duration_in_words, night_lines=_night_lines
    )
    kinds = sorted({bug["kind"] for bugs in report["groups"].values() for bug in bugs})
    shown = {s["kind"] for row in report["heat_map"]["rows"] for s in row["states"] if s}
    return environment.get_template("nightly.html.j2").render(
        r=report,
        groups=[*TITLES.items()],
        said=STATES,
        kinds=kinds,
        marks=MARKS,
        used_marks=[(kind, MARKS.get(kind, MARKS["other"])) for kind in _in_order(shown)],
        parts=page_parts.page_parts("nightly"),
        version=__version__,
    )


def _in_order(kinds: set[str]) -> list[str]:
    """Return the kinds in the order of :data:`MARKS`; kinds without a letter are last."""
    return [*(kind for kind in MARKS if kind in kinds), *sorted(kinds - {*MARKS})]


def _night_lines(name: str) -> list[str]:
    """Return the name of a nightly run in short lines for a narrow column: month, day and rest."""
    match = re.fullmatch(r"\d{4}-(\d\d-\d\d)(.*)", name)
    return [part for part in match.groups() if part] if match else [name]


def bar_rectangles(values: list[float], what: str = "cells that showed it") -> Markup:
    """Return a small SVG image with one bar for each nightly run."""
    highest, width, height = max([*values, 1e-9]), 7, 22
    parts = []
    for index, value in enumerate(values):
        tall = round(value / highest * (height - 2)) if value else 0
        full = ' class="full"' if value else ""
        parts.append(
            f'<rect x="{index * width}" y="{height - max(tall, 1)}" width="{width - 2}"'
            f' height="{max(tall, 1)}"{full}/>'
        )
    label = html.escape(f"{what}, by nightly run: {', '.join(f'{v:g}' for v in values)}")
    return Markup(  # noqa: S704 - numbers only
        f'<svg class="bars" width="{len(values) * width}" height="{height}" role="img"'
        f' aria-label="{label}">{"".join(parts)}</svg>'
    )
