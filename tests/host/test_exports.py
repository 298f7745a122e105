"""The files for speedscope and for Perfetto have the formats of these viewers."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

import pytest

from reprokit.core.records.dumps import Dump, Frame, ThreadStack
from reprokit.core.shared.contract.event_base import Event
from reprokit.core.shared.contract.events import Begin, End
from reprokit.host.report.exports import speedscope, trace_events

SAMPLES = "t,pid,ppid,name,state,rss_bytes,cpu_s,want_s,threads,gpu_share\n" + "".join(
    f"{t},7,1,python,running,{t * 10**6},1.0,{t * 0.5},4,\n"
    f"{t},9,7,cc1plus,running,5000000,1.0,{t},1,\n"
    f"{t},0,0,gpu0,,1000000,,,,0.25\n"
    for t in (101, 102, 103)
)


def check_speedscope(document: dict[str, Any]) -> None:
    """Check a document as the schema of speedscope does, and the rules that its reader has."""
    assert set(document) <= {
        "$schema",
        "exporter",
        "name",
        "activeProfileIndex",
        "shared",
        "profiles",
    }
    assert document["$schema"] == "https://www.speedscope.app/file-format-schema.json"
    frames = document["shared"]["frames"]
    for frame in frames:
        assert set(frame) <= {"name", "file", "line", "col"} and isinstance(frame["name"], str)
        assert isinstance(frame.get("line", 1), int) and isinstance(frame.get("file", ""), str)
    assert 0 <= document.get("activeProfileIndex", 0) < len(document["profiles"])
    units = ("bytes", "microseconds", "milliseconds", "nanoseconds", "none", "seconds")
    for profile in document["profiles"]:
        assert set(profile) == {
            "type",
            "name",
            "unit",
            "startValue",
            "endValue",
            "samples",
            "weights",
        }
        assert profile["type"] == "sampled" and profile["unit"] in units
        assert len(profile["samples"]) == len(profile["weights"]) > 0
        assert profile["endValue"] - profile["startValue"] == sum(profile["weights"])
        assert all(0 <= index < len(frames) for stack in profile["samples"] for index in stack)


def check_trace_events(document: dict[str, Any]) -> None:
    """Check the keys of each event, and that the complete events of a thread are nested."""
    assert document["displayTimeUnit"] in ("ms", "ns")
    needed = {
        "M": {"name", "pid", "args"},
        "X": {"name", "cat", "pid", "tid", "ts", "dur", "args"},
        "C": {"name", "pid", "ts", "args"},
    }
    open_until: dict[tuple[int, int], list[float]] = {}
    last = 0.0
    for event in document["traceEvents"]:
        assert set(event) == {"ph", *needed[event["ph"]]}
        assert isinstance(event["pid"], int) and isinstance(event["name"], str)
        if event["ph"] == "M":
            assert event["name"] == "process_name" and isinstance(event["args"]["name"], str)
            continue
        assert event["ts"] >= last and event.get("dur", 0) >= 0
        last = event["ts"]
        if event["ph"] == "C":
            assert all(isinstance(value, (int, float)) for value in event["args"].values())
        if event["ph"] == "X":
            ends = open_until.setdefault((event["pid"], event["tid"]), [])
            while ends and ends[-1] <= event["ts"]:
                ends.pop()
            assert not ends or event["ts"] + event["dur"] <= ends[-1], event
            ends.append(event["ts"] + event["dur"])


def events() -> list[Event]:
    rows = [
        (Begin, "dynamo", 101.0),
        (Begin, "backend_compile", 101.5),
        (End, "backend_compile", 102.0),
        (Begin, "GraphLowering.run", 102.0),
        (Begin, "lost end", 102.1),
        (End, "GraphLowering.run", 102.5),
        (End, "never begun", 102.6),
        (Begin, "Scheduler.__init__", 102.75),
    ]
    return [kind(name=name, t=t, tid=7) for kind, name, t in rows]


def test_stacks_become_a_file_of_speedscope() -> None:
    """Each thread is a profile, each sample one stack from the outermost frame to the innermost,
    and service threads are left out.
    """
    frames = (
        Frame("/v/lib/python3.11/site-packages/torch/_inductor/graph.py", "run", 12),
        Frame("/home/bob/x.py", "main", 3),
    )
    main = ThreadStack(7, "MainThread", frames, is_main=True, tid=7)
    other = ThreadStack(7, "loader", frames[1:], tid=8)
    dumps = [Dump(n, "py-spy", 7, (main, other)) for n in (1, 2)]
    dumps.append(Dump(2, "faulthandler", 7, (main,)))
    document = speedscope.speedscope_file(dumps, {7: "rank 0"}, "hang: lowering")
    check_speedscope(json.loads(json.dumps(document)))
    assert [(p["name"], len(p["samples"])) for p in document["profiles"]] == [
        ("rank 0", 2),
        ("rank 0, loader", 2),
    ]
    shared = document["shared"]["frames"]
    stack = [(shared[i]["name"], shared[i]["file"]) for i in document["profiles"][0]["samples"][0]]
    assert stack == [("x.main", "<user>"), ("run", "torch/_inductor/graph.py")]
    deep = ThreadStack(7, "MainThread", frames * 2000, is_main=True, tid=7)
    check_speedscope(speedscope.speedscope_file([Dump(1, "py-spy", 7, (deep,))], {}, "deep"))


def test_phases_processes_and_measurements_become_a_trace() -> None:
    """Compiler events are nested per thread, a compiler process has a lifetime, memory, CPU and
    GPU are counters, and what never ended lasts to the end of the run and is marked.
    """
    document = trace_events.trace_event_file({7: events()}, {"0": 7}, SAMPLES, 100.0, 104.0)
    check_trace_events(json.loads(json.dumps(document)))
    rows = document["traceEvents"]
    assert Counter(row["ph"] for row in rows) == {"M": 3, "X": 6, "C": 6 + 4 + 3}
    by_name = {row["name"]: row for row in rows if row["ph"] == "X"}
    lowering, still = by_name["GraphLowering.run"], by_name["Scheduler.__init__"]
    assert (lowering["cat"], lowering["ts"], lowering["dur"]) == ("lowering", 2_000_000, 500_000)
    assert still["args"] == {"still open at the end": True}
    assert still["ts"] + still["dur"] == 4_000_000
    assert by_name["cc1plus"]["cat"] == "process" and by_name["cc1plus"]["dur"] == 2_000_000
    names = {row["pid"]: row["args"]["name"] for row in rows if row["ph"] == "M"}
    assert names == {0: "GPUs (0)", 7: "rank 0 (7)", 9: "cc1plus (9)"}
    loads = [row["args"]["CPUs"] for row in rows if row["name"] == "CPU load" and row["pid"] == 7]
    assert loads == pytest.approx([0.5, 0.5])


def test_files_without_evidence_are_not_made() -> None:
    """A run without stacks, events and samples gives no file; damaged samples are skipped."""
    assert speedscope.speedscope_file([Dump(1, "py-spy", 7, (), "gone")], {}, "x") == {}
    assert trace_events.trace_event_file({7: []}, {}, "", 0.0, 1.0) == {}
    header = SAMPLES.splitlines()[0]
    damaged = f"{header}\n1,x,\n101,7,1,python,running,nonsense\nhalf"
    assert trace_events.trace_event_file({}, {}, damaged, 100.0, 104.0) == {}


def test_a_trace_of_a_long_compile_keeps_its_longest_events() -> None:
    """The number of events is limited, and the shortest are left out."""
    rows: list[Event] = [Begin(name="dynamo", t=100.0, tid=7)]
    for n in range(trace_events.MAX_TRACE_EVENTS + 50):
        start = 101.0 + n * 0.01
        rows.append(Begin(name="GraphLowering.run", t=start, tid=7))
        rows.append(End(name="GraphLowering.run", t=start + (0.001 if n < 60 else 0.005), tid=7))
    document = trace_events.trace_event_file({7: rows}, {}, "", 100.0, 1000.0)
    check_trace_events(document)
    events_left = [row for row in document["traceEvents"] if row["ph"] == "X"]
    assert len(events_left) == trace_events.MAX_TRACE_EVENTS
    assert any(row["name"] == "dynamo" for row in events_left)
    assert sum(row["dur"] < 2000 for row in events_left) == 9
