"""The report of one run as one HTML page that needs no network."""

from __future__ import annotations

from typing import Any

from reprokit import __version__
from reprokit.host.report import svg
from reprokit.host.report.template_files import html_templates


def html_report(model: dict[str, Any]) -> str:
    """One self-contained HTML page: no script, nothing fetched, every text escaped."""
    kind, phase = str(model["kind"]), model["phase"]
    headline = f"{kind}{' in ' + phase if phase else ''}" + (
        f": {model['cause']}" if model["cause"] else ""
    )
    template = html_templates().get_template("report.html.j2")
    return template.render(
        r=model,
        headline=headline,
        version=__version__,
        timeline=svg.timeline_shapes(model["timeline"]),
        flame=svg.flame_shapes(model["flame"]),
        growth=svg.growth_shapes(model["growth"]),
    )
