"""The style sheet, the script and the security policy of a page.

A page is one file without a network. Its policy allows only the exact style sheet and script of
reprokit, by their digests, so no text of a target can become a style or a script.
"""

from __future__ import annotations

import base64
import hashlib
from dataclasses import dataclass

from markupsafe import Markup

from reprokit.host.report.page import palette
from reprokit.host.report.template_files import read_template


@dataclass(frozen=True)
class PageParts:
    """The constant parts of a page."""

    style: Markup
    script: Markup
    policy: str
    """The value of the Content-Security-Policy."""


def page_parts(name: str) -> PageParts:
    """Return the parts of the page ``report`` or ``nightly``."""
    styles = (read_template("pages/base.css"), palette.colour_styles())
    style = "".join((*styles, read_template(f"pages/{name}.css")))
    script = read_template(f"pages/{name}.js")
    for text in (style, script):
        assert "</" not in text, "it would end its element"
    policy = (
        f"default-src 'none'; style-src {_digest(style)}; script-src {_digest(script)};"
        " base-uri 'none'; form-action 'none'"
    )
    return PageParts(Markup(style), Markup(script), policy)  # noqa: S704 - files of reprokit


def _digest(text: str) -> str:
    digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
    return f"'sha256-{digest}'"
