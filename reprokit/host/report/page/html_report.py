"""Render the report of one run as an HTML page."""

from __future__ import annotations

from reprokit import __version__
from reprokit.core.judge.stacks.phases import OUTSIDE_COMPILER, PHASE_WORDS
from reprokit.host.report.page import palette, svg
from reprokit.host.report.page.page_parts import page_parts
from reprokit.host.report.report_model import ReportModel
from reprokit.host.report.template_files import html_templates

FORM_ADDRESS = "https://github.com/"
"""The only address to which a report links."""
KIND_WORDS = {"oom": "Out of memory", "cudagraph-skip": "CUDA graphs skipped"}
"""The kinds whose names are not words."""


def render_html_report(
    model: ReportModel, exports: tuple[tuple[str, str], ...] = (), compiles: str = ""
) -> str:
    """Return a self-contained HTML page, with all text escaped; its only script is reprokit's.

    ``exports`` are the other files of the pack with the same data: the name, and what opens it.
    ``compiles`` is the file of the page of the compiles, if there is one.
    """
    url = model["head"]["decision"]["url"]
    sections = _sections(model)
    template = html_templates().get_template("report.html.j2")
    return template.render(
        r=model,
        headline=headline(model),
        is_alarm=palette.is_alarm(model["kind"]),
        decision_url=url if url.startswith(FORM_ADDRESS) else "",
        version=__version__,
        parts=page_parts("report"),
        phase_words=PHASE_WORDS,
        sections=sections,
        names={name: words for name, words, _ in sections},
        exports=exports,
        compiles=compiles,
        timeline=svg.timeline_shapes(model["timeline"]),
        flame=svg.flame_shapes(model["flame"]),
        growth=svg.growth_shapes(model["growth"]),
    )


def headline(model: ReportModel) -> str:
    """Return what happened, where and why, in one line."""
    kind, words = model["kind"], PHASE_WORDS.get(model["phase"] or "", "")
    text = KIND_WORDS.get(kind, kind.replace("-", " ").capitalize())
    if kind == "hang" and model["phase"] == "eager":
        text += f" {OUTSIDE_COMPILER}"
    elif words and kind not in ("ok", "error-in-eager"):
        text += f" {words}" if words.startswith("in ") else f" while {words}"
    return f"{text}: {model['cause']}" if model["cause"] else text


def _sections(model: ReportModel) -> list[tuple[str, str, bool]]:
    """Return the id and the heading of each section, and whether the page has it."""
    return [
        ("why", "Evidence", True),
        ("answers", "Answers from shorter runs", bool(model["answers"])),
        ("waits", "Who waits for whom", bool(model["path"])),
        ("ablation", "Other ways to compile", bool(model["ablation"])),
        ("growth", f"Growth with {model['growth'].get('knob', 'size')}", bool(model["growth"])),
        ("timeline", "Timeline", True),
        ("samples", "Sampled stacks", True),
        ("stacks", "Stacks at the end", bool(model["stacks"])),
        ("processes", "Processes", bool(model["processes"])),
    ]
