"""Compute the shapes of the report's figures; the template draws them, with escaped text."""

from __future__ import annotations

import math
from typing import Any

from reprokit.host.report import flamegraph
from reprokit.host.report.report_model import FlameNode, Timeline

Shape = dict[str, Any]
"""A rectangle, line or text for the template, or a figure of them."""

WIDTH = 1100.0
LABEL_WIDTH = 150.0
"""Width of the names at the left, in pixels."""
LANE_HEIGHT = 26.0
SERIES_HEIGHT = 64.0
ROW_HEIGHT = 17.0
MIN_BOX_WIDTH = 1.5
CHAR_WIDTH = 6.2
"""Width of a character of the font, in pixels."""

COLOURS = {
    "dynamo-trace": "#4e79a7",
    "guards": "#a0cbe8",
    "aot": "#f28e2b",
    "partition": "#ffbe7d",
    "fx-passes": "#59a14f",
    "lowering": "#b6992d",
    "scheduler": "#499894",
    "codegen": "#86bcb6",
    "cpp-build": "#e15759",
    "triton-compile": "#ff9d9a",
    "worker-wait": "#79706e",
    "backend": "#bab0ac",
    "kernel-run": "#d37295",
    "collective": "#b07aa1",
    "eager": "#d7b5a6",
    "run": "#d4d4d4",
    "build": "#d4d4d4",
    "import": "#e6e6e6",
}
OTHER_COLOUR = "#cccccc"
GROWTH_HEIGHT = 300.0
MIN_COST_S = 0.01
"""The lower end of the logarithmic axis of costs."""


def timeline_shapes(model: Timeline) -> Shape:
    """Return the rectangles of the lanes, the lines of the series, and the ticks of the axis."""
    seconds = max(float(model["seconds"]), 0.001)
    scale = (WIDTH - LABEL_WIDTH - 10) / seconds
    lanes, top = [], 22.0
    for lane in model["lanes"]:
        boxes = []
        for span in lane["spans"]:
            width = max((span["end"] - span["start"]) * scale, MIN_BOX_WIDTH)
            text = span["phase"] if width > CHAR_WIDTH * (len(span["phase"]) + 2) else ""
            boxes.append(
                {
                    **span,
                    "x": round(LABEL_WIDTH + span["start"] * scale, 1),
                    "width": round(width, 1),
                    "text": text,
                    "colour": COLOURS.get(span["phase"], OTHER_COLOUR),
                }
            )
        lanes.append({"name": lane["name"], "y": top, "boxes": boxes})
        top += LANE_HEIGHT
    series = []
    for measure in model["series"]:
        most = max((v for _, v in measure["points"]), default=0.0)
        scale_y = (SERIES_HEIGHT - 18) / most if most > 0 else 0.0
        base = top + SERIES_HEIGHT - 6
        points = " ".join(
            f"{LABEL_WIDTH + max(t, 0) * scale:.1f},{base - v * scale_y:.1f}"
            for t, v in measure["points"]
        )
        last = measure["points"][-1][0] if measure["points"] else 0
        area = f"{LABEL_WIDTH:.1f},{base:.1f} {points} {LABEL_WIDTH + last * scale:.1f},{base:.1f}"
        series.append(
            {
                "name": measure["name"],
                "most": _amount(most, measure["unit"]),
                "y": top,
                "base": base,
                "area": area,
            }
        )
        top += SERIES_HEIGHT
    ticks = [_tick(LABEL_WIDTH + t * scale, f"{t:g} s") for t in _ticks(seconds)]
    return {
        "width": WIDTH,
        "label": LABEL_WIDTH,
        "height": top + 4,
        "lanes": lanes,
        "series": series,
        "ticks": ticks,
    }


def flame_shapes(model: FlameNode) -> Shape:
    """Return the rectangles of the flame graph, callers above callees."""
    boxes: list[Shape] = []
    scale = (WIDTH - 4) / max(model["samples"], 1)

    def add(node: FlameNode, x: float, level: int) -> None:
        width = node["samples"] * scale
        if width < MIN_BOX_WIDTH:
            return
        text = node["name"]
        chars = int((width - 6) / CHAR_WIDTH)
        text = text if len(text) <= chars else text[: chars - 1] + "…" if chars > 3 else ""
        share = node["samples"] / max(model["samples"], 1)
        hue = 20 + sum(map(ord, node["place"].split("/")[0])) % 40
        boxes.append(
            {
                "x": round(x, 1),
                "y": level * ROW_HEIGHT,
                "width": round(width - 0.6, 1),
                "text": text,
                "title": (
                    f"{node['name']} {node['place']}: {node['samples']} of {model['samples']}"
                    f" samples ({share:.0%})"
                ),
                "colour": f"hsl({hue} 85% {78 - level % 2 * 5}%)",
            }
        )
        for child in node["children"]:
            add(child, x, level + 1)
            x += child["samples"] * scale

    add(model, 2.0, 0)
    return {
        "width": WIDTH,
        "height": flamegraph.tree_depth(model) * ROW_HEIGHT + 4,
        "row": ROW_HEIGHT,
        "boxes": boxes,
    }


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
    rows = [("all", [row["cpu_s"] for row in used], model["total"], "#1c1f23")]
    rows += [
        (p["phase"], p["costs"], p, COLOURS.get(p["phase"], OTHER_COLOUR))
        for p in model["phases"][:6]
    ]
    for name, costs, fit, colour in rows:
        dots = [
            {"x": x(row["size"]), "y": y(c), "title": f"{name}: {c:.2f} s at {row['size']}"}
            for row, c in zip(used, costs, strict=True)
        ]
        text = f"{name}: {fit['words']}"
        lines.append(
            {
                "name": name,
                "text": text,
                "colour": colour,
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
    return {"x": round(x, 1), "text": text, "anchor": "end" if x > WIDTH - 40 else "start"}


def _ticks(seconds: float) -> list[float]:
    for step in (1, 2, 5, 10, 20, 30, 60, 120, 300, 600, 1800, 3600, 7200, 21600, 86400):
        if seconds / step <= 10:
            return [float(step * n) for n in range(int(seconds / step) + 1)]
    return [0.0, seconds]


def _amount(value: float, unit: str) -> str:
    if unit == "bytes":
        return f"{value / 1e9:.2f} GB" if value >= 1e9 else f"{value / 1e6:.0f} MB"
    return f"{value:.0%}" if unit == "share" else f"{value:.1f}"
