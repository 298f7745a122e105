"""Write phases, processes and measurements in the trace event format of Chrome and Perfetto.

Times are microseconds from the start of the run. Events of the compiler are complete events (``X``)
of their thread, measurements are counters (``C``) of their process, and a process without a journal
is one complete event from its first to its last sample.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Mapping
from typing import Any

from reprokit import __version__
from reprokit.core.judge.stacks import phases
from reprokit.core.shared.contract.event_base import Event
from reprokit.core.shared.contract.events import Begin, End
from reprokit.host.system import host_log

MAX_TRACE_EVENTS = 30_000
"""Of more events, the longest are kept, and as many counters as fit."""
TraceEvent = dict[str, Any]


def trace_event_file(
    by_pid: Mapping[int, list[Event]],
    ranks: Mapping[str, int],
    samples: str,
    began: float,
    ended: float,
) -> dict[str, Any]:
    """Return the trace as JSON, which the caller must redact; empty if there is no evidence.

    ``began`` and ``ended`` are seconds since the epoch, and ``samples`` is the text of
    ``samples.csv``, which may be incomplete.
    """
    rows: list[TraceEvent] = []
    of_ranks = {pid: f"rank {rank}" for rank, pid in ranks.items()}
    names: dict[int, str] = {}
    for pid, events in by_pid.items():
        found = [*_phases(pid, events, began, ended)]
        if found:
            names[pid] = of_ranks.get(pid, "python")
        rows += found
    rows += _measurements(samples, began, names, of_ranks)
    if not rows:
        return {}
    rows = sorted(rows, key=lambda row: -row.get("dur", 0.0))[:MAX_TRACE_EVENTS]
    rows.sort(key=lambda row: (row["ts"], -row.get("dur", 0.0)))
    heads: list[TraceEvent] = [
        {"ph": "M", "name": "process_name", "pid": pid, "args": {"name": f"{name} ({pid})"}}
        for pid, name in sorted(names.items())
    ]
    return {
        "traceEvents": [*heads, *rows],
        "displayTimeUnit": "ms",
        "otherData": {"made_by": f"reprokit {__version__}"},
    }


def _phases(pid: int, events: Iterable[Event], began: float, ended: float) -> Iterable[TraceEvent]:
    """Yield the events of the compiler in one process; those that never ended last to the end."""
    stacks: dict[int, list[Begin]] = {}

    def closed(begin: Begin, tid: int, until: float, is_open: bool) -> TraceEvent:
        found = phases.phase_of_events([begin.name])
        row: TraceEvent = {
            "ph": "X",
            "name": begin.name,
            "cat": found[0] if found else "other",
            "pid": pid,
            "tid": tid,
            "ts": _micros(begin.t - began),
            "dur": _micros(until - began) - _micros(begin.t - began),
            "args": {"compile id": begin.cid} if begin.cid else {},
        }
        if is_open:
            row["args"]["still open at the end"] = True
        return row

    last = ended
    for event in events:
        if not isinstance(event, (Begin, End)):
            continue
        last = max(last, event.t)
        stack = stacks.setdefault(event.tid or pid, [])
        if isinstance(event, Begin):
            stack.append(event)
        elif any(begin.name == event.name for begin in stack):
            while stack:
                begin = stack.pop()
                yield closed(begin, event.tid or pid, event.t, is_open=False)
                if begin.name == event.name:
                    break
    for tid, stack in stacks.items():
        for begin in reversed(stack):
            yield closed(begin, tid, last, is_open=True)


def _measurements(
    samples: str, began: float, names: dict[int, str], of_ranks: Mapping[int, str]
) -> Iterable[TraceEvent]:
    """Yield the memory and the CPU load of each process, the use of each GPU, and the life of each
    process without a journal. Add the names of the processes to ``names``.
    """
    with_journal = frozenset(names)
    lives: dict[int, tuple[str, float, float]] = {}
    before: dict[int, tuple[float, float]] = {}
    for row in csv.DictReader(io.StringIO(samples)):
        try:
            t, pid = float(row["t"]), int(row["pid"])
            if pid == 0:
                yield _counter(
                    0, f"{row['name']} busy", t - began, 100 * float(row["gpu_share"]), "%"
                )
                names[0] = "GPUs"
                continue
            wanted, rss = float(row["want_s"]), float(row["rss_bytes"])
        except (KeyError, TypeError, ValueError) as problem:
            host_log.log_ignored(problem)
            continue
        yield _counter(pid, "memory", t - began, round(rss / 1e6, 3), "MB")
        if pid in before and t > before[pid][0]:
            load = max(0.0, (wanted - before[pid][1]) / (t - before[pid][0]))
            yield _counter(pid, "CPU load", t - began, round(load, 3), "CPUs")
        before[pid] = t, wanted
        name, first, _ = lives.get(pid, (row["name"], t, t))
        lives[pid] = name, first, t
        names.setdefault(pid, of_ranks.get(pid, name))
    for pid, (name, first, last) in lives.items():
        if pid not in with_journal:
            start = _micros(first - began)
            yield {
                "ph": "X",
                "name": name,
                "cat": "process",
                "pid": pid,
                "tid": pid,
                "ts": start,
                "dur": _micros(last - began) - start,
                "args": {},
            }


def _counter(pid: int, name: str, t: float, value: float, unit: str) -> TraceEvent:
    return {"ph": "C", "name": name, "pid": pid, "ts": _micros(t), "args": {unit: value}}


def _micros(seconds: float) -> float:
    return round(max(seconds, 0.0) * 1e6)
