"""What each process did when: phases from the journals, processor, memory and GPU from the
samples.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping
from typing import Any

from reprokit.core.judge.stacks import phases
from reprokit.core.shared.contract.events import Begin, End, Event

MOST_LANES = 12
MOST_SPANS = 400
MOST_POINTS = 240
LEAST_SPAN_S = 0.001

Model = dict[str, Any]


def make_timeline(
    by_pid: Mapping[int, list[Event]],
    ranks: Mapping[str, int],
    samples: str,
    began: float,
    ended: float,
) -> Model:
    """Lanes of phases and series of measures, in seconds from ``began``; plain values, ready for
    JSON.
    """
    seconds = max(ended - began, 0.001)
    lanes: list[Model] = []
    names = {pid: f"rank {rank}, process {pid}" for rank, pid in ranks.items()}
    for pid, events in by_pid.items():
        threads: dict[int, list[Begin | End]] = {}
        for event in events:
            if isinstance(event, (Begin, End)):
                threads.setdefault(event.tid or pid, []).append(event)
        for tid, own in threads.items() or ((pid, []),):
            spans = _spans(own, began, ended)
            if spans or pid in names:
                name = names.get(pid, f"process {pid}") + (f", thread {tid}" if tid != pid else "")
                lanes.append({"pid": pid, "name": name, "spans": spans})
    lanes.sort(
        key=lambda lane: (
            str(lane["name"]) if int(lane["pid"]) in names else "~",
            -len(lane["spans"]),
        )
    )
    totals = _totals(lanes)
    for lane in lanes:
        lane["spans"] = _longest(lane["spans"])
    return {
        "seconds": round(seconds, 3),
        "lanes": lanes[:MOST_LANES],
        "lanes_left_out": max(0, len(lanes) - MOST_LANES),
        "series": _series(samples, began),
        "phases": totals,
    }


def _longest(spans: list[Model]) -> list[Model]:
    """As many as can be drawn: what is still open, and the longest, in the order of time."""
    if len(spans) <= MOST_SPANS:
        return spans
    chosen = sorted(spans, key=lambda s: (not s["is_open"], s["start"] - s["end"]))[:MOST_SPANS]
    return sorted(chosen, key=lambda s: s["start"])


def _spans(events: list[Begin | End], began: float, ended: float) -> list[Model]:
    """The innermost phase at each time; what is open at the end is marked so."""
    spans: list[Model] = []
    stack: list[str] = []
    at: float | None = None

    def close(until: float, is_open: bool = False) -> None:
        if not stack or at is None or (until - at < LEAST_SPAN_S and not is_open):
            return
        phase = phases.phase_of_events(stack)
        row = {
            "phase": phase[0] if phase else "other",
            "event": stack[-1],
            "start": round(at - began, 3),
        }
        last = spans[-1] if spans else None
        if last and last["phase"] == row["phase"] and row["start"] - last["end"] < 0.01:
            last["end"], last["is_open"], last["event"] = (
                round(until - began, 3),
                is_open,
                row["event"],
            )
        else:
            spans.append({**row, "end": round(until - began, 3), "is_open": is_open})

    for event in events:
        close(event.t)
        at = event.t
        if isinstance(event, Begin):
            stack.append(event.name)
        elif event.name in stack:
            while stack.pop() != event.name:
                pass
    close(max(ended, at or ended), is_open=True)
    return spans


def _totals(lanes: list[Model]) -> list[Model]:
    """Seconds by phase over all lanes, the longest first."""
    found: dict[str, float] = {}
    for span in (s for lane in lanes for s in lane["spans"]):
        found[span["phase"]] = found.get(span["phase"], 0.0) + span["end"] - span["start"]
    rows = sorted(found.items(), key=lambda row: -row[1])
    return [{"phase": phase, "seconds": round(total, 2)} for phase, total in rows]


def _series(samples: str, began: float) -> list[Model]:
    """Processors wanted, memory, and the use of each GPU over time, from ``samples.csv``, cut short
    or not.
    """
    want: dict[float, float] = {}
    memory: dict[float, float] = {}
    gpus: dict[str, dict[float, float]] = {}
    before: dict[str, tuple[float, float]] = {}
    for row in csv.DictReader(io.StringIO(samples)):
        try:
            t = float(row["t"])
            if row["pid"] == "0":
                gpus.setdefault(row["name"], {})[t] = float(row["gpu_share"])
                continue
            wanted, rss = float(row["want_s"]), float(row["rss_bytes"])
        except (KeyError, TypeError, ValueError):
            continue
        memory[t] = memory.get(t, 0.0) + rss
        last = before.get(row["pid"])
        before[row["pid"]] = t, wanted
        if last and t > last[0]:
            want[t] = want.get(t, 0.0) + max(0.0, (wanted - last[1]) / (t - last[0]))
    series = [("processors wanted", "", want), ("memory", "bytes", memory)]
    series += [(f"{name} busy", "share", points) for name, points in sorted(gpus.items())]
    return [
        {
            "name": name,
            "unit": unit,
            "points": _thinned(
                [(round(t - began, 2), round(v, 3)) for t, v in sorted(points.items())]
            ),
        }
        for name, unit, points in series
        if points
    ]


def _thinned(points: list[tuple[float, float]]) -> list[tuple[float, float]]:
    if len(points) <= MOST_POINTS:
        return points
    return [points[i * (len(points) - 1) // (MOST_POINTS - 1)] for i in range(MOST_POINTS)]
