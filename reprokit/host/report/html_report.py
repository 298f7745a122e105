"""Render the report of one run as an HTML page."""

from __future__ import annotations

from reprokit import __version__
from reprokit.host.report import svg
from reprokit.host.report.report_model import ReportModel
from reprokit.host.report.template_files import html_templates


def render_html_report(model: ReportModel) -> str:
    """Return a self-contained HTML page, without scripts and external files, and with all text
    escaped.
    """
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
