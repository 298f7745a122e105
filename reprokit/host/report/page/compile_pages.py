"""Render what the traces of a run say about each compile as an HTML page."""

from __future__ import annotations

import io
from collections.abc import Mapping
from dataclasses import dataclass, field

from reprokit import __version__
from reprokit.core.reported import trace_records
from reprokit.core.reported.trace_records import CompileRecord, RunRecord
from reprokit.core.shared import cuts
from reprokit.host.report.page.page_parts import page_parts
from reprokit.host.report.template_files import html_templates

MAX_COMPILES, MAX_CHARS = 200, 2 << 20
"""Limits of a page: the compiles on it, and their texts. A compile that failed is first."""
MAX_TEXT_CHARS = 200_000
MAX_TRACE_BYTES = 64 << 20
"""Limit of the traces that are read, because reading takes CPU time of the capture."""
PARTS = (
    ("graphs", "Graph of Dynamo"),
    ("recompiles", "Compiled again because"),
    ("breaks", "Graph breaks"),
    ("guards", "Guards"),
    ("kernels", "Generated code"),
)


@dataclass(frozen=True)
class CompileSection:
    """One compile, as the page shows it."""

    anchor: str
    process: str
    """The name of its trace; empty if there is one trace."""
    row: CompileRecord
    parts: list[tuple[str, list[str]]] = field(default_factory=list)
    """Heading -> texts, without empty parts."""
    left_out: list[str] = field(default_factory=list)
    """Headings of the parts that do not fit."""


def render_compile_pages(traces: Mapping[str, bytes]) -> str:
    """Return a self-contained HTML page with a section for each compile, with all text escaped.

    ``traces`` are those of ``TORCH_TRACE``, by the name of the file. The page is empty text if they
    have no compile, or are too large.
    """
    if sum(map(len, traces.values())) > MAX_TRACE_BYTES:
        return ""
    runs = {
        name: trace_records.read_trace(io.StringIO(data.decode("utf-8", "replace"), newline="\n"))
        for name, data in traces.items()
    }
    compiles = _shown(runs)
    if not compiles:
        return ""
    count = sum(len(run.compiles) for run in runs.values())
    return (
        html_templates()
        .get_template("compiles.html.j2")
        .render(
            compiles=compiles,
            left_out=count - len(compiles),
            version=__version__,
            parts=page_parts("compiles"),
        )
    )


def _shown(runs: Mapping[str, RunRecord]) -> list[CompileSection]:
    """Return the compiles in the order of the run. Those that failed get their room first."""
    rows = [(name, row) for name, run in runs.items() for row in run.compiles.values()]
    by_room = sorted(rows, key=lambda one: (not one[1].error, one[1].has_ended))[:MAX_COMPILES]
    chosen: dict[int, CompileSection] = {}
    room, names = MAX_CHARS, list(runs)
    for name, row in by_room:
        process = name if len(runs) > 1 else ""
        shown = CompileSection(f"c{names.index(name)}-{row.cid.replace('/', '-')}", process, row)
        for part, heading in PARTS:
            texts = [cuts.cut_head(text, MAX_TEXT_CHARS) for text in row.texts(part)]
            size = sum(map(len, texts))
            if size <= room and texts:
                room -= size
                shown.parts.append((heading, texts))
            elif texts:
                shown.left_out.append(heading)
        chosen[id(row)] = shown
    return [chosen[id(row)] for _, row in rows if id(row) in chosen]
