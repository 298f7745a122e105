"""Load the templates of Markdown and HTML."""

from __future__ import annotations

from functools import cache
from importlib import resources
from pathlib import Path

import jinja2

from reprokit.host.report import markdown
from reprokit.host.report.page import html_text, palette


@cache
def markdown_templates() -> jinja2.Environment:
    """Return the environment of the Markdown templates."""
    return markdown.template_environment(jinja2.FunctionLoader(read_template))


@cache
def public_templates() -> jinja2.Environment:
    """Return the environment of the templates of issues and comments, which print only claims and
    quotations.
    """
    return markdown.claims_environment(jinja2.FunctionLoader(read_template))


@cache
def html_templates() -> jinja2.Environment:
    """Return the environment of the HTML templates, in which all text is escaped."""
    environment = jinja2.Environment(
        loader=jinja2.FunctionLoader(read_template),
        undefined=jinja2.StrictUndefined,
        keep_trailing_newline=True,
        autoescape=True,
        finalize=html_text.clean_value,
    )
    environment.filters.update(
        prose=html_text.prose, program=html_text.program_text, phase_class=palette.phase_class
    )
    return environment


def read_template(name: str) -> str:
    """Read a template from the installed package, or from the source tree."""
    inside = resources.files("reprokit").joinpath("templates", *name.split("/"))
    if inside.is_file():
        return inside.read_text(encoding="utf-8")
    return (Path(__file__).resolve().parents[3] / "templates" / name).read_text(encoding="utf-8")
