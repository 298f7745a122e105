"""Write the report of a nightly run: a digest in Markdown and a self-contained page in HTML."""

from __future__ import annotations

import html
import re
from pathlib import Path

from markupsafe import Markup

from reprokit import __version__
from reprokit.host.nightly.engines.local_engine import duration_in_words
from reprokit.host.nightly.jobs import quarantine
from reprokit.host.nightly.night_report import GROUPS
from reprokit.host.nightly.night_report_model import NightReport
from reprokit.host.report import template_files
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
    environment.filters.update(bars=bar_rectangles, duration=duration_in_words)
    kinds = sorted({bug["kind"] for bugs in report["groups"].values() for bug in bugs})
    return environment.get_template("nightly.html.j2").render(
        r=report, groups=[*TITLES.items()], said=STATES, kinds=kinds, version=__version__
    )


def bar_rectangles(values: list[float], what: str = "cells that showed it") -> Markup:
    """Return a small SVG image with one bar for each nightly run."""
    highest, width, height = max([*values, 1e-9]), 7, 22
    parts = []
    for index, value in enumerate(values):
        tall = round(value / highest * (height - 2)) if value else 0
        colour = "var(--c)" if value else "#d0d7de"
        parts.append(
            f'<rect x="{index * width}" y="{height - max(tall, 1)}" width="{width - 2}"'
            f' height="{max(tall, 1)}" fill="{colour}"/>'
        )
    label = html.escape(f"{what}, by nightly run: {', '.join(f'{v:g}' for v in values)}")
    return Markup(  # noqa: S704 - numbers only
        f'<svg width="{len(values) * width}" height="{height}" role="img"'
        f' aria-label="{label}">{"".join(parts)}</svg>'
    )
