"""The report is the same in HTML and in the terminal, self-contained, and safe with any text."""

from __future__ import annotations

import json
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from reprokit.core.records import bounded_json, process_state
from reprokit.core.records.dumps import Dump, Frame, ThreadStack
from reprokit.core.records.finding import Signature, Verdict
from reprokit.core.records.observation import Observation
from reprokit.core.redaction.redactor import Redactor
from reprokit.core.redaction.rules.machine_names import PrivateNames
from reprokit.core.shared.contract.events import Begin, End, Event
from reprokit.host.report import flamegraph, html_report, report_data, svg, timeline
from reprokit.host.run import observation_reader, run_directory
from tests.support.browser import Browser

EVIL = '</title><script>alert(1)</script>" onload="alert(2)\' <img src=http://evil.example/x>'
FRAMES = tuple(
    Frame("/v/lib/python3.11/site-packages/torch/_inductor/graph.py", f"level_{n}", n)
    for n in range(30)
)


def events(*rows: tuple[str, str, float]) -> list[Event]:
    kinds = {"begin": Begin, "end": End}
    return [kinds[ev](name=name, t=t, tid=1) for ev, name, t in rows]


COMPILE = events(
    ("begin", "dynamo", 10.0),
    ("begin", "backend_compile", 12.0),
    ("begin", "GraphLowering.run", 13.0),
    ("end", "GraphLowering.run", 16.0),
    ("begin", "Scheduler.__init__", 16.0),
)


def model(run_path: Path, text: str = "nothing moved", kind: str = "hang") -> dict[str, Any]:
    """Return a complete report with ``text`` in each position that a target can control."""
    run_directory.make_folders(run_path)
    rows = ["t,pid,ppid,name,state,rss_bytes,cpu_s,want_s,threads,gpu_share"]
    for second in range(10, 30):
        rows.append(f"{second},7,1,python,running,{second * 10**7},1.0,{second * 0.9},4,")
        rows.append(f"{second},0,0,gpu0,,1000000,,,,0.5")
    (run_path / "samples.csv").write_text("\n".join(rows) + "\nhalf a row,")
    stack = (Frame("/home/bob/x.py", text, 3), *FRAMES)
    dumps = tuple(
        Dump(n, "py-spy", 7, (ThreadStack(7, "MainThread", stack, is_main=True, tid=7),))
        for n in (1, 2, 3)
    )
    for dump in dumps:
        path = run_path / "stacks" / f"{dump.number}-py-spy-7.json"
        frames = [{"filename": f.file, "name": f.function, "line": f.line} for f in stack]
        path.write_text(
            __import__("json").dumps(
                [{"os_thread_id": 7, "thread_name": "MainThread", "frames": frames}]
            )
        )
    state = process_state.ProcessState(
        7, 1, text, "SSS", 0.5, 10**8, (process_state.ThreadState(7, syscall="futex"),)
    )
    seen = Observation(
        dumps=dumps,
        main_pid=7,
        started=10.0,
        seconds=20.0,
        evidence=process_state.Evidence((state,)),
    )
    verdict = Verdict(
        kind,
        "lowering",
        "lock-deadlock",
        text,
        (text,),
        text,
        ("memory-runaway",),
        (text,),
        {"pass": text},
    )
    journals = observation_reader.Journals({7: COMPILE}, 0, {})
    return report_data.make_report_data(
        verdict, Signature("abc", text, 1), seen, journals, run_path
    )


def tags(page: str) -> set[str]:
    """Return the names of all elements and of all their attributes."""
    names: set[str] = set()

    class Parser(HTMLParser):
        def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
            names.update([tag, *(name for name, _ in attrs)])

    Parser().feed(page)
    return names


def test_the_page_is_self_contained_and_escapes_everything(tmp_path: Path) -> None:
    """The page has no script and fetches nothing, and no text of a target becomes markup."""
    page = html_report.render_html_report(model(tmp_path, EVIL))
    names = tags(page)
    assert not names & {"script", "img", "link", "iframe", "object", "src", "href", "onload"}
    assert "@import" not in page and "default-src 'none'" in page.replace("&#39;", "'")


def test_the_timeline_shows_phases_and_marks_the_open_one() -> None:
    """The innermost phases are in order; a phase that never ended extends to the end and is
    marked.
    """
    drawn = timeline.make_timeline({7: COMPILE}, {"0": 7}, "", 10.0, 30.0)
    spans = [(s["phase"], s["start"], s["end"], s["is_open"]) for s in drawn["lanes"][0]["spans"]]
    assert spans == [
        ("dynamo-trace", 0.0, 2.0, False),
        ("backend", 2.0, 3.0, False),
        ("lowering", 3.0, 6.0, False),
        ("scheduler", 6.0, 20.0, True),
    ]
    assert drawn["lanes"][0]["name"].startswith("rank 0")
    assert drawn["phases"][0] == {"phase": "scheduler", "seconds": 14.0}


def test_samples_become_series(tmp_path: Path) -> None:
    """CPU use, memory and the GPU become series, also from a truncated file."""
    series = {s["name"]: s["points"] for s in model(tmp_path)["timeline"]["series"]}
    assert series["CPU load"][3][1] == pytest.approx(0.9, abs=0.01)
    assert series["memory"][-1][1] == 29 * 10**7
    assert series["gpu0 busy"][0] == (0.0, 0.5)


def test_the_flame_graph_counts_each_stack_once(tmp_path: Path) -> None:
    """With three samples of one stack, every frame is as wide as the whole graph."""
    tree = model(tmp_path)["flame"]
    assert tree["samples"] == 3 and flamegraph.tree_depth(tree) == 33
    boxes = svg.flame_shapes(tree)["boxes"]
    assert {b["width"] for b in boxes} == {boxes[0]["width"]}
    assert boxes[-1]["text"] == "nothing moved"


def test_a_long_compile_keeps_its_end_and_a_deep_stack_its_leaf(tmp_path: Path) -> None:
    """With hundreds of spans and frames, open phases are drawn, all phases are counted, and the
    recursion is not too deep.
    """
    rows = [("begin", "GraphLowering.run", 0.0)]
    for n in range(500):
        rows += [("begin", "Scheduler.__init__", n + 0.1), ("end", "Scheduler.__init__", n + 0.2)]
    drawn = timeline.make_timeline({7: events(*rows)}, {}, "", 0.0, 600.0)
    assert (
        drawn["lanes"][0]["spans"][-1]["is_open"] and drawn["lanes"][0]["spans"][-1]["end"] == 600.0
    )
    assert drawn["phases"][0] == {"phase": "lowering", "seconds": pytest.approx(550.0, abs=0.1)}
    deep = tuple(Frame("/home/bob/x.py", f"call_{n}", n) for n in range(2000))
    dump = Dump(1, "py-spy", 7, (ThreadStack(7, "MainThread", deep, is_main=True, tid=7),))
    grown = flamegraph.stack_tree([dump], {})
    assert flamegraph.tree_depth(grown) < 100
    whole = {**model(tmp_path), "flame": Redactor(PrivateNames()).redact_value(grown)}
    # show reads it
    assert bounded_json.parse_json(json.dumps({"pack": whole})) == json.loads(
        json.dumps({"pack": whole})
    )
    text = html_report.render_html_report(whole)
    assert "call_0" in text and "call_1999" in text and "frames ..." in text


def test_a_run_without_data_has_a_report(tmp_path: Path) -> None:
    """A run without data has a report that says so."""
    run_directory.make_folders(tmp_path)
    empty = report_data.make_report_data(
        Verdict("unknown", None, None, "Nothing."),
        Signature("a", "unknown", 1),
        Observation(),
        observation_reader.Journals({}, 0, {}),
        tmp_path,
    )
    page = html_report.render_html_report(empty)
    assert "No phase and no sample was recorded" in page and "No stack was sampled" in page


def test_a_browser_shows_the_report(tmp_path: Path, browser: Browser) -> None:
    """In headless Chromium the cause is on top, the pictures are drawn, and the page has no script
    or markup of the target.
    """
    page = tmp_path / "report.html"
    page.write_text(html_report.render_html_report(model(tmp_path / "run", EVIL)))
    dom = browser.open_page(page, "--dump-dom")
    assert "hang in lowering: lock-deadlock" in dom and dom.count("<svg") == 2
    assert "script" not in tags(dom) and "img" not in tags(dom) and "onload" not in tags(dom)
    blank = tmp_path / "blank.html"
    blank.write_text("<!doctype html><title>blank</title>")
    drawn, empty = (browser.screenshot(p, tmp_path / f"{p.stem}.png") for p in (page, blank))
    assert drawn.startswith(b"\x89PNG") and len(drawn) > 5 * len(empty)
