"""Compute the shapes of the report's figures; the template draws them, with escaped text.

The timeline and the flame graph have positions in percent, so that they fit any width.
"""

from __future__ import annotations

import math
from typing import Any

from reprokit.host.report import flamegraph
from reprokit.host.report.page import palette
from reprokit.host.report.report_model import FlameNode, Span, Timeline

Shape = dict[str, Any]
"""A rectangle, line or text for the template, or a figure of them."""

WIDTH = 1100.0
"""Width of the growth figure, in pixels."""
LABEL_WIDTH = 150.0
"""Width of its names at the left, in pixels."""
FIGURE_WIDTH = 900.0
"""Width of the timeline and the flame graph on a desktop, in pixels."""
SERIES_HEIGHT = 46.0
ROW_HEIGHT = 19.0
MIN_SHARE = 0.15
"""Smallest width of a box, in percent."""
CHAR_WIDTH = 6.7
"""Width of a character of the font, in pixels."""
MAX_TITLE_FRAMES = 90
GROWTH_HEIGHT = 300.0
MIN_COST_S = 0.01
"""The lower end of the logarithmic axis of costs."""


def timeline_shapes(model: Timeline) -> Shape:
    """Return the boxes of the lanes, the areas of the series, and the ticks of the axis."""
    seconds = max(float(model["seconds"]), 0.001)
    lanes = []
    for lane in model["lanes"]:
        name, _, thread = lane["name"].partition(", ")
        boxes = [_span_box(span, seconds) for span in lane["spans"]]
        lanes.append({"name": name, "more": thread, "label": _lane_label(lane), "boxes": boxes})
    series = []
    for measure in model["series"]:
        most = max((v for _, v in measure["points"]), default=0.0)
        scale = (SERIES_HEIGHT - 3) / most if most > 0 else 0.0
        points = [
            (_percent(max(t, 0.0), seconds), round(SERIES_HEIGHT - v * scale, 1))
            for t, v in measure["points"]
        ]
        first, last = (points[0][0], points[-1][0]) if points else (0.0, 0.0)
        line = " ".join(f"{x},{y}" for x, y in points)
        area = f"{first},{SERIES_HEIGHT} {line} {last},{SERIES_HEIGHT}"
        most_in_words = _amount(most, measure["unit"])
        series.append({"name": measure["name"], "most": most_in_words, "area": area})
    ticks = [_tick(_percent(t, seconds), f"{t:g} s") for t in _ticks(seconds)]
    return {"lanes": lanes, "series": series, "ticks": ticks, "height": SERIES_HEIGHT}


def _span_box(span: Span, seconds: float) -> Shape:
    width = max(_percent(span["end"] - span["start"], seconds), MIN_SHARE)
    is_wide = width / 100 * FIGURE_WIDTH > CHAR_WIDTH * (len(span["phase"]) + 1.5)
    return {
        **span,
        "x": min(_percent(span["start"], seconds), 100 - MIN_SHARE),
        "width": width,
        "text": span["phase"] if is_wide else "",
        "class": palette.phase_class(span["phase"]),
    }


def _lane_label(lane: Any) -> str:
    """Return the longest phases of a lane in words, for readers who do not see the figure."""
    longest = sorted(lane["spans"], key=lambda s: s["start"] - s["end"])[:5]
    words = (
        f"{s['phase']} {s['end'] - s['start']:.2f} s from {s['start']:.2f} s"
        f"{', still open at the end' if s['is_open'] else ''}"
        for s in sorted(longest, key=lambda s: s["start"])
    )
    return f"{lane['name']}: {'; '.join(words)}"


def flame_shapes(model: FlameNode) -> Shape:
    """Return the boxes of the flame graph, callers above callees.

    A chain of frames, each of which calls only the next, is one box.
    """
    boxes: list[Shape] = []
    total = max(model["samples"], 1)
    levels = 0

    def add(node: FlameNode, first: int, level: int) -> None:
        nonlocal levels
        width = _percent(node["samples"], total)
        if width < MIN_SHARE:
            return
        levels = max(levels, level + 1)
        chain, children = flamegraph.collapse_chains(node)
        boxes.append(_flame_box(chain, _percent(first, total), width, level, total))
        for child in children:
            add(child, first, level + 1)
            first += child["samples"]

    add(model, 0, 0)
    used = {box["package"] for box in boxes} - {palette.PROCESS}
    legend = [
        {"class": f"package-{i}", "name": name}
        for i, (_, name, _) in enumerate(palette.PACKAGES)
        if f"package-{i}" in used
    ]
    return {
        "height": levels * ROW_HEIGHT,
        "row": ROW_HEIGHT,
        "boxes": boxes,
        "legend": legend,
        "hot": flamegraph.hot_frames(model),
    }


def _flame_box(chain: list[FlameNode], x: float, width: float, level: int, total: int) -> Shape:
    """Return the box of a chain of frames, whose colour is that of its last frame."""
    first, last = chain[0], chain[-1]
    share = f"{first['samples']} of {total} samples ({first['samples'] / total:.0%})"
    if len(chain) == 1:
        text, about = first["name"], f"{first['name']}: {share}"
    else:
        text = f"{first['name']} \u2192 {last['name']} ({len(chain)} frames)"
        about = f"{len(chain)} frames from {first['name']} to {last['name']}: {share}"
    shown = [f"{node['name']} {node['place']}".strip() for node in chain if node["place"]]
    chars = int((width / 100 * FIGURE_WIDTH - 6) / CHAR_WIDTH)
    if len(chain) > 1 and len(text) > chars:
        text = f"\u2026 {last['name']}"
    package = f"package-{palette.package_number(last['place'])}" if last["place"] else "process"
    return {
        "x": x,
        "width": width,
        "level": level,
        "y": level * ROW_HEIGHT,
        "text": text if chars > 2 else "",
        "title": "\n".join([about, *shown[:MAX_TITLE_FRAMES]]),
        "package": package,
    }


def _percent(part: float, whole: float) -> float:
    return round(100 * part / whole, 3)


def growth_shapes(model: dict[str, Any]) -> Shape:
    """Return the lines of the measured and predicted costs over the size.

    Both axes are logarithmic, so that a power law is a straight line.
    """
    if not model.get("phases"):
        return {}
    used = [row for row in model["sizes"] if row["is_used"]]
    first, at = used[0]["size"], model["at"]
    ceiling = 10 ** math.ceil(
        math.log10(max(10.0, *(min(row["cpu_s"], 1e6) for row in used))) + 1.0
    )

    def x(size: float) -> float:
        return round(
            LABEL_WIDTH
            + 30
            + (WIDTH - LABEL_WIDTH - 290)
            * math.log(size / first)
            / math.log(max(at, first + 1) / first),
            1,
        )

    def y(cost: float) -> float:
        share = math.log(min(max(cost, MIN_COST_S), ceiling) / MIN_COST_S) / math.log(
            ceiling / MIN_COST_S
        )
        return round(GROWTH_HEIGHT - 24 - (GROWTH_HEIGHT - 40) * share, 1)

    lines: list[Shape] = []
    rows = [("all", [row["cpu_s"] for row in used], model["total"])]
    rows += [(p["phase"], p["costs"], p) for p in model["phases"][: len(palette.LINE_COLOURS) - 1]]
    for number, (name, costs, fit) in enumerate(rows):
        dots = [
            {"x": x(row["size"]), "y": y(c), "title": f"{name}: {c:.2f} s at {row['size']}"}
            for row, c in zip(used, costs, strict=True)
        ]
        text = f"{name}: {fit['words']}"
        lines.append(
            {
                "name": name,
                "text": text,
                "class": f"line-{number}",
                "dots": dots,
                "points": " ".join(f"{d['x']},{d['y']}" for d in dots),
                "last": dots[-1],
                "x": x(at),
                "y": y(fit["predicted"]),
                "low": y(fit["low"]),
                "high": y(fit["high"]),
            }
        )
    lowest = 0.0
    # names at the right edge must not overlap
    for line in sorted(lines, key=lambda row: float(row["y"])):
        line["text_y"] = lowest = max(float(line["y"]) + 4, lowest + 13)
    sizes = [{"x": x(n), "text": str(n)} for n in (*(row["size"] for row in used), at)]
    decades = [
        {"y": y(10.0**k), "text": f"{10.0**k:g} s"}
        for k in range(-2, round(math.log10(ceiling)) + 1)
    ]
    return {
        "width": WIDTH,
        "height": GROWTH_HEIGHT,
        "label": LABEL_WIDTH,
        "lines": lines,
        "sizes": sizes,
        "decades": decades,
    }


def _tick(x: float, text: str) -> Shape:
    """Return a label of the axis; the last one ends at its tick, so that it is not cut."""
    return {"x": x, "text": text, "anchor": "end" if x > 93 else "start"}


def _ticks(seconds: float) -> list[float]:
    for step in (1, 2, 5, 10, 20, 30, 60, 120, 300, 600, 1800, 3600, 7200, 21600, 86400):
        if seconds / step <= 6:
            return [float(step * n) for n in range(int(seconds / step) + 1)]
    return [0.0, seconds]


def _amount(value: float, unit: str) -> str:
    if unit == "bytes":
        return f"{value / 1e9:.2f} GB" if value >= 1e9 else f"{value / 1e6:.0f} MB"
    return f"{value:.0%}" if unit == "share" else f"{value:.1f}"
