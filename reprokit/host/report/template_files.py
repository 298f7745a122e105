"""Find and load the templates of Markdown and HTML."""

from __future__ import annotations

from functools import cache
from importlib import resources
from pathlib import Path

import jinja2

from reprokit.host.report import markdown


@cache
def markdown_templates() -> jinja2.Environment:
    """The templates of Markdown."""
    return markdown.environment(jinja2.FunctionLoader(read_template))


@cache
def html_templates() -> jinja2.Environment:
    """The templates of HTML, in which every text is escaped."""
    return jinja2.Environment(
        loader=jinja2.FunctionLoader(read_template),
        undefined=jinja2.StrictUndefined,
        keep_trailing_newline=True,
        autoescape=True,
    )


def read_template(name: str) -> str:
    """From the installed package, where the wheel puts them, or from the source tree."""
    inside = resources.files("reprokit").joinpath("templates", *name.split("/"))
    if inside.is_file():
        return inside.read_text(encoding="utf-8")
    return (Path(__file__).resolve().parents[3] / "templates" / name).read_text(encoding="utf-8")
