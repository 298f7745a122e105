"""The timeline of a run: phases from the journals; CPU, memory and GPU use from the samples."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping

from reprokit.core.judge.stacks import phases
from reprokit.core.shared.contract.event_base import Event
from reprokit.core.shared.contract.events import Begin, End
from reprokit.host.report.report_model import Lane, PhaseSeconds, Series, Span, Timeline
from reprokit.host.system import host_log

MAX_LANES = 12
MAX_SPANS = 400
MAX_POINTS = 240
MIN_SPAN_S = 0.001


def make_timeline(
    by_pid: Mapping[int, list[Event]],
    ranks: Mapping[str, int],
    samples: str,
    began: float,
    ended: float,
) -> Timeline:
    """Return lanes of phases and series of measurements as JSON values, in seconds from
    ``began``.
    """
    seconds = max(ended - began, 0.001)
    lanes: list[Lane] = []
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
            lane["name"] if lane["pid"] in names else "~",
            -len(lane["spans"]),
        )
    )
    totals = _totals(lanes)
    for lane in lanes:
        lane["spans"] = _longest(lane["spans"])
    return {
        "seconds": round(seconds, 3),
        "lanes": lanes[:MAX_LANES],
        "lanes_left_out": max(0, len(lanes) - MAX_LANES),
        "series": _series(samples, began),
        "phases": totals,
    }


def _longest(spans: list[Span]) -> list[Span]:
    """Return at most MAX_SPANS spans, ordered by time: the open ones and the longest."""
    if len(spans) <= MAX_SPANS:
        return spans
    chosen = sorted(spans, key=lambda s: (not s["is_open"], s["start"] - s["end"]))[:MAX_SPANS]
    return sorted(chosen, key=lambda s: s["start"])


def _spans(events: list[Begin | End], began: float, ended: float) -> list[Span]:
    """Return the innermost phase at each time; a phase that is open at the end is marked."""
    spans: list[Span] = []
    stack: list[str] = []
    at: float | None = None

    def close(until: float, is_open: bool = False) -> None:
        if not stack or at is None or (until - at < MIN_SPAN_S and not is_open):
            return
        names = phases.phase_of_events(stack)
        phase = names[0] if names else "other"
        start, end = round(at - began, 3), round(until - began, 3)
        last = spans[-1] if spans else None
        if last and last["phase"] == phase and start - last["end"] < 0.01:
            last["end"], last["is_open"], last["event"] = end, is_open, stack[-1]
        else:
            spans.append(
                {"phase": phase, "event": stack[-1], "start": start, "end": end, "is_open": is_open}
            )

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


def _totals(lanes: list[Lane]) -> list[PhaseSeconds]:
    """Return the seconds of each phase over all lanes, the longest first."""
    seconds: dict[str, float] = {}
    for span in (s for lane in lanes for s in lane["spans"]):
        seconds[span["phase"]] = seconds.get(span["phase"], 0.0) + span["end"] - span["start"]
    rows = sorted(seconds.items(), key=lambda row: -row[1])
    return [{"phase": phase, "seconds": round(total, 2)} for phase, total in rows]


def _series(samples: str, began: float) -> list[Series]:
    """Return the requested CPUs, the memory, and the use of each GPU over time, from
    ``samples.csv``, which may be incomplete.
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
        except (KeyError, TypeError, ValueError) as problem:
            host_log.log_ignored(problem)
            continue
        memory[t] = memory.get(t, 0.0) + rss
        last = before.get(row["pid"])
        before[row["pid"]] = t, wanted
        if last and t > last[0]:
            want[t] = want.get(t, 0.0) + max(0.0, (wanted - last[1]) / (t - last[0]))
    series = [("CPU load", "", want), ("memory", "bytes", memory)]
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
    if len(points) <= MAX_POINTS:
        return points
    return [points[i * (len(points) - 1) // (MAX_POINTS - 1)] for i in range(MAX_POINTS)]
