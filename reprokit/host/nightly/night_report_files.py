"""The morning's report as files: a digest in Markdown, and one page of HTML that needs no
network.
"""

from __future__ import annotations

import html
import re
from pathlib import Path
from typing import Any

from markupsafe import Markup

from reprokit import __version__
from reprokit.host.nightly.engines.local_engine import duration_in_words
from reprokit.host.nightly.jobs import quarantine
from reprokit.host.nightly.night_report import GROUPS
from reprokit.host.report import template_files
from reprokit.host.system import files

DIGEST, PAGE = "digest.md", "report.html"
MOST_IN_DIGEST = 20
"""Bugs of one group in the digest: a chat is no archive."""
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
    "before": "not tonight",
    "other": "another failure",
    "": "",
}


def write_report(told: dict[str, Any], folder: Path) -> tuple[Path, Path]:
    """Write digest and page into ``folder``; a folder in the place of one goes to the
    quarantine.
    """
    for place in (folder / DIGEST, folder / PAGE):
        if place.is_dir() and not place.is_symlink():
            quarantine.quarantine_file(place, folder)
    return files.write_whole(folder / DIGEST, digest_text(told)), files.write_whole(
        folder / PAGE, page_text(told)
    )


def digest_text(told: dict[str, Any]) -> str:
    """Markdown for a chat or an issue tracker: no mention, no number that either would turn into a
    link.
    """
    text = (
        template_files.markdown_templates()
        .get_template("digest.md.j2")
        .render(r=told, most=MOST_IN_DIGEST)
    )
    parts = re.split(
        r"(^ *(`{3,})\w*\n.*?^ *\2$)", text, flags=re.MULTILINE | re.DOTALL
    )  # code stays as it is
    pairs = zip(parts[::3], [*parts[1::3], ""], strict=True)
    return "".join(re.sub(r"\n{3,}", "\n\n", words) + code for words, code in pairs).strip() + "\n"


def page_text(told: dict[str, Any]) -> str:
    """One self-contained page; every text is escaped, and its one script is our own."""
    environment = template_files.html_templates().overlay()
    environment.filters.update(bars=bar_rectangles, duration=duration_in_words)
    kinds = sorted({bug["kind"] for bugs in told["groups"].values() for bug in bugs})
    return environment.get_template("nightly.html.j2").render(
        r=told, groups=[*TITLES.items()], said=STATES, kinds=kinds, version=__version__
    )


def bar_rectangles(values: list[float], what: str = "cells that showed it") -> Markup:
    """A small picture: one bar a night."""
    most, width, height = max([*values, 1e-9]), 7, 22
    parts = []
    for place, value in enumerate(values):
        tall = round(value / most * (height - 2)) if value else 0
        colour = "var(--c)" if value else "#d0d7de"
        parts.append(
            f'<rect x="{place * width}" y="{height - max(tall, 1)}" width="{width - 2}"'
            f' height="{max(tall, 1)}" fill="{colour}"/>'
        )
    label = html.escape(f"{what}, by night: {', '.join(f'{v:g}' for v in values)}")
    return Markup(  # noqa: S704 - numbers only
        f'<svg width="{len(values) * width}" height="{height}" role="img"'
        f' aria-label="{label}">{"".join(parts)}</svg>'
    )
