"""The report is the same in HTML and in the terminal, self-contained, and safe with any text."""

from __future__ import annotations

import base64
import hashlib
import json
import re
import struct
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from reprokit.core.judge.stacks import phases
from reprokit.core.records import bounded_json, process_state
from reprokit.core.records.dumps import Dump, Frame, ThreadStack
from reprokit.core.records.finding import Signature, Verdict
from reprokit.core.records.observation import Observation
from reprokit.core.redaction.redactor import Redactor
from reprokit.core.redaction.rules.machine_names import PrivateNames
from reprokit.core.shared.contract.event_base import Event
from reprokit.core.shared.contract.events import Begin, End
from reprokit.host.report import (
    flamegraph,
    report_data,
    report_head,
    template_files,
    timeline,
    waiting_lines,
)
from reprokit.host.report.page import html_report, page_parts, palette, svg
from reprokit.host.report.report_model import FlameNode, ReportHead
from reprokit.host.run import observation_reader, run_directory
from tests.support import report_image
from tests.support.browser import DESKTOP_WIDTH, PHONE_WIDTH, Browser

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


def head_of(text: str = "", file: str = "repro.py") -> ReportHead:
    """Return the head of a report with ``text`` in each position."""
    return {
        "users_line": text,
        "compiling": text,
        "program": {"file": file, "text": text, "about": text, "why_unproven": ""},
        "avoids": [text] if text else [],
        "advice": text,
        "command": text,
        "versions": [{"name": "torch", "version": text}],
        "started": "2026-11-24 21:57 UTC",
        "decision": {
            "action": "new issue",
            "why": "",
            "issue": "",
            "url": "https://github.com/pytorch/pytorch/issues/new",
            "avoids": "",
            "similar": [],
            "form": "pytorch/pytorch",
        },
    }


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
        verdict, Signature("abc", text, 1), seen, journals, run_path, head_of(text)
    )


class Page(HTMLParser):
    """The elements of a page: name, attributes, and text."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str], list[str]]] = []
        self._open: list[int] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, {name: value or "" for name, value in attrs}, []))
        if tag not in ("meta", "input"):
            self._open.append(len(self.elements) - 1)

    def handle_endtag(self, tag: str) -> None:
        while self._open and self.elements[self._open.pop()][0] != tag:
            pass

    def handle_data(self, data: str) -> None:
        for index in self._open:
            self.elements[index][2].append(data)

    def all(self, name: str) -> list[tuple[dict[str, str], str]]:
        """Return the attributes and the text of all elements of a name."""
        return [(attrs, "".join(text)) for tag, attrs, text in self.elements if tag == name]

    @property
    def names(self) -> set[str]:
        """The names of all elements and of all their attributes."""
        return {name for tag, attrs, _ in self.elements for name in (tag, *attrs)}

    def prose(self) -> str:
        """Return the text outside of code, programs and tooltips."""
        outside = []
        for tag, _, text in self.elements:
            if tag in ("code", "pre", "title", "script", "style", "text"):
                outside.append("".join(text))
        whole = self.all("body")[0][1]
        for part in sorted(outside, key=len, reverse=True):
            whole = whole.replace(part, "") if part.strip() else whole
        return whole


def digest(text: str) -> str:
    return base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def check_page_is_safe(page: str, name: str) -> Page:
    """Check that only the constant script and style of reprokit can act on a page."""
    found = Page(page)
    banned = {"img", "link", "iframe", "object", "base", "form", "src", "style="}
    assert not found.names & banned and not {n for n in found.names if n.startswith("on")}
    ((attrs, script),) = found.all("script")
    ((_, style),) = found.all("style")
    assert not attrs and script == template_files.read_template(f"pages/{name}.js")
    assert not [attributes for _, attributes, _ in found.elements if "style" in attributes]
    (policy,) = [a["content"] for a, _ in found.all("meta") if "http-equiv" in a]
    assert policy.startswith("default-src 'none';")
    assert f"script-src 'sha256-{digest(script)}'" in policy
    assert f"style-src 'sha256-{digest(style)}'" in policy
    assert "unsafe" not in policy and "@import" not in style and "url(http" not in style
    return found


def check_page_is_accessible(found: Page) -> None:
    """Check captions, scopes, landmarks, names and links inside the page."""
    assert len(found.all("caption")) == len(found.all("table"))
    assert all(attrs.get("scope") in ("row", "col") for attrs, _ in found.all("th"))
    assert len(found.all("main")) == len(found.all("header")) == len(found.all("footer")) == 1
    assert len(found.all("h1")) == 1 and found.all("html")[0][0]["lang"] == "en"
    ids = [attrs["id"] for _, attrs, _ in found.elements if "id" in attrs]
    assert len(ids) == len(set(ids))
    targets = {attrs["href"][1:] for attrs, _ in found.all("a") if attrs["href"].startswith("#")}
    labels = {attrs.get("aria-labelledby") for attrs, _ in found.all("section")} - {None}
    assert targets | labels <= set(ids), (targets | labels) - set(ids)
    assert all("aria-label" in a for a, _ in found.all("svg") if a.get("role") == "img")
    assert all(a.get("aria-label") or text.strip() for a, text in found.all("button"))


def test_the_page_is_self_contained_and_escapes_everything(tmp_path: Path) -> None:
    """The only script of the page is reprokit's, the policy allows no other, and no text of a
    target becomes markup or a link.
    """
    found = check_page_is_safe(html_report.render_html_report(model(tmp_path, EVIL)), "report")
    links = {attrs["href"] for attrs, _ in found.all("a") if not attrs["href"].startswith("#")}
    assert links == {"https://github.com/pytorch/pytorch/issues/new"}
    evil = model(tmp_path)
    evil["head"]["decision"]["url"] = "javascript:alert(1)"
    assert "javascript:" not in html_report.render_html_report(evil)


def test_what_a_reader_needs_comes_before_the_evidence(tmp_path: Path) -> None:
    """The order is headline, sentence, decision, the user's line, what avoids the failure, repro,
    command, versions, date, evidence.
    """
    report = model(tmp_path, "the sentence")
    head = head_of()
    head["users_line"], head["command"] = "m.py:3 in f: x.sin()", "reprokit capture m.py:f"
    head["program"] = {"file": "repro.py", "text": "<b>", "about": "proved", "why_unproven": ""}
    head["avoids"], head["versions"] = ["no fusion"], [{"name": "torch", "version": "2.13.0"}]
    report["head"] = head
    page = html_report.render_html_report(report)
    body = page[page.index("<body>") :]
    parts = (
        "<h1>Hang while lowering to Inductor&#39;s IR: lock-deadlock</h1>",
        "the sentence",
        "issues/new",
        "m.py:3 in f: x.sin()",
        "no fusion",
        "data-copy=",
        "&lt;b&gt;",
        "reprokit capture m.py:f",
        "torch 2.13.0",
        "2026-11-24 21:57 UTC</dd>",
        'id="evidence"',
        'id="timeline"',
        'id="samples"',
    )
    places = [body.index(part) for part in parts]
    assert places == sorted(places)
    check_page_is_accessible(Page(page))


COMMENTS = "https://github.com/pytorch/pytorch/issues/7#issue-comment-box"


@pytest.mark.parametrize(
    ("decision", "not_filed", "target", "words"),
    [
        (
            {"action": "comment", "issue": "a/b#7", "url": COMMENTS},
            "",
            COMMENTS,
            "Comment on a/b#7",
        ),
        ({}, "", "https://github.com/pytorch/pytorch/issues/new", "Open a new issue in pytorch/"),
        (
            {"similar": ["a/b#7"]},
            "",
            "https://github.com/pytorch/pytorch/issues/new",
            "Open a new issue in pytorch/",
        ),
        ({"action": "nothing", "url": ""}, "it is yours", "#remedies", "Nothing to file"),
    ],
)
def test_the_decision_is_one_button(
    decision: dict[str, Any], not_filed: str, target: str, words: str, tmp_path: Path
) -> None:
    """Its target is the comments of the known issue, the form of a new one, or the remedies."""
    report = model(tmp_path)
    head = {**head_of(), "advice": "hold it in a tensor"}
    head["decision"] = {**head_of()["decision"], **decision}
    text = html_report.render_html_report({**report, "head": head, "not_filed": not_filed})
    (button,) = re.findall(r'<a class="action" href="([^"]+)"[^>]*>([^<]+)', text)
    assert button[0] == target and button[1].startswith(words)
    assert "Not tried: hold it in a tensor." in text
    assert ("Compare it with a/b#7 first" in text) == ("similar" in decision)
    assert f"Because {not_filed}." in text or not not_filed


def test_a_repro_is_never_cut(tmp_path: Path) -> None:
    """A candidate may be long and scrolls."""
    report = model(tmp_path)
    for file, scrolls in (("repro.py", False), ("candidate.py", True)):
        text = "\n".join(f"line_{n} = {n}" for n in range(99))
        report["head"] = head_of(text, file)
        page = html_report.render_html_report(report)
        assert "line_98 = 98" in page
        assert ('<pre class="program candidate"' in page) is scrolls


def test_both_sides_of_a_lock_are_shown_with_their_code(tmp_path: Path) -> None:
    """The place of each side is in the stacks, which have the whole path."""
    (tmp_path / "locks.py").write_text("one\nwith first:\n    with second:\n        work()\n")
    frames = [(Frame(str(tmp_path / "locks.py"), name, n),) for name, n in (("go", 2), ("f", 3))]
    threads = tuple(ThreadStack(n, "t", stack, tid=n) for n, stack in enumerate(frames))
    seen = Observation(dumps=(Dump(1, "py-spy", 7, threads),))
    detail = "waits for a lock at locks.py:3 in f; thread w waits at locks.py:2 in go"
    verdict = Verdict("hang", None, "lock-deadlock", "it waits", detail=detail)
    first, second = waiting_lines.waiting_lines(verdict, seen)
    assert first == {
        "who": "waits for a lock",
        "place": "locks.py:3 in f",
        "code": "with second:",
    }
    assert (second["who"], second["code"]) == ("thread w waits", "with first:")
    report = {**model(tmp_path / "run"), "waits": [first, second]}
    text = Page(html_report.render_html_report(report)).all("body")[0][1]
    assert "thread w waits at locks.py:2 in go" in text and "with first:" in text


def test_a_candidate_is_not_called_a_repro(tmp_path: Path) -> None:
    """A program without a proof is a candidate, and the page says why."""
    report = model(tmp_path)
    report["head"]["program"] = {
        "file": "candidate.py",
        "text": "import torch",
        "about": "a graph",
        "why_unproven": "run alone in a fresh process it passes",
    }
    text = Page(html_report.render_html_report(report)).all("body")[0][1]
    assert "Candidate candidate.py" in text and "Repro" not in text
    assert "Not proved: run alone in a fresh process it passes." in text


def test_backticks_become_code(tmp_path: Path) -> None:
    """Text in backticks is code, also where a backtick has no partner."""
    report = model(tmp_path, "the lock `a<b` is held; a lone `tick and ``two``")
    page = html_report.render_html_report(report)
    assert "<code>a&lt;b</code>" in page and "`" not in Page(page).prose()


def test_phases_have_a_legend_and_red_is_only_for_what_failed(tmp_path: Path) -> None:
    """Each phase of the timeline is in the legend with its words. A run that passed has nothing in
    the alarm colour, and a failed one only the phase that failed and those that were still open.
    """
    failed, passed = (
        Page(html_report.render_html_report({**model(tmp_path, kind=kind), "phase": phase}))
        for kind, phase in (("hang", "scheduler"), ("ok", None))
    )
    rows = [text for _, text in failed.all("tr")]
    for row in model(tmp_path)["timeline"]["phases"]:
        legend = f" {row['phase']}{phases.PHASE_WORDS[row['phase']]}"
        assert any(text.startswith(legend) for text in rows), legend
    classes = [
        [word for _, attrs, _ in page.elements for word in attrs.get("class", "").split()]
        for page in (failed, passed)
    ]
    assert [classes[0].count(name) for name in ("failed", "alarm", "open")] == [1, 1, 1]
    assert not {"failed", "alarm", "open"} & set(classes[1]) and "passed" in classes[1]


def luminance(colour: str) -> float:
    parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one: str, other: str) -> float:
    """Return the contrast of two colours, as WCAG 2 defines it."""
    high, low = sorted((luminance(one), luminance(other)), reverse=True)
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("is_dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("name", ["report", "nightly"])
def test_text_has_enough_contrast(name: str, is_dark: bool) -> None:
    """All text has a contrast of at least 4.5 to 1 on its background, on light and dark pages, and
    no phase has a red colour.
    """
    style = str(page_parts.page_parts(name).style)
    rules = r"@media \(prefers-color-scheme: dark\) ?\{.*\}"
    light, dark = re.sub(rules, "", style), "".join(re.findall(rules, style))
    found = dict(re.findall(r"--([\w-]+): (#\w{6})", light))
    if is_dark:
        found |= dict(re.findall(r"--([\w-]+): (#\w{6})", dark))
    pairs = [
        (found[text], found[ground])
        for text in ("text", "quiet", "link", "alarm", "good")
        for ground in ("page", "panel")
    ]
    pairs += [(found["page"], found["link"]), (found["text"], found["faint"])]
    fills = re.findall(r"--fill: ?(#\w{6})", dark if is_dark else light)
    pairs += [(found["on-fill"], fill) for fill in fills]
    if name == "nightly":
        states = ("new", "regressed", "fixed", "flaky", "open", "muted")
        pairs += [(found[state], found["page"]) for state in states]
        pairs += [(found["badge"], found[state]) for state in states]
    assert len(fills) >= 20
    assert not [pair for pair in pairs if contrast(*pair) < 4.5]
    for fill in (pair[is_dark] for pair in palette.PHASE_COLOURS.values()):
        red, green, blue = (int(fill[i : i + 2], 16) for i in (1, 3, 5))
        assert not red > 1.5 * max(green, blue)


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
    """With three samples of one stack, every frame is as wide as the whole graph, and all frames
    are one box that lists them.
    """
    tree = model(tmp_path)["flame"]
    assert tree["samples"] == 3 and flamegraph.tree_depth(tree) == 33
    figure = svg.flame_shapes(tree)
    root, process, chain = figure["boxes"]
    assert {b["width"] for b in (root, process, chain)} == {100.0}
    assert process["text"] == "process 7"
    assert chain["text"] == "level_29 → x.nothing moved (31 frames)"
    assert chain["title"].splitlines()[1:] == [
        *(f"level_{n} torch/_inductor/graph.py:{n}" for n in range(29, -1, -1)),
        "x.nothing moved <user>:3",
    ]
    assert figure["hot"] == [{"name": "x.nothing moved", "place": "<user>:3", "samples": 3}]


def test_a_flame_graph_keeps_its_most_frequent_frames(monkeypatch: pytest.MonkeyPatch) -> None:
    """A graph of too many frames leaves out the rarest."""
    monkeypatch.setattr(flamegraph, "MAX_NODES", 3)
    dumps = [
        Dump(n, "py-spy", 7, (ThreadStack(7, "MainThread", (Frame("/x.py", name, 1),), True),))
        for n, name in enumerate(("rare", "often", "often", "some", "often", "some"))
    ]
    (process,) = flamegraph.stack_tree(dumps, {})["children"]
    assert [(c["name"], c["samples"]) for c in process["children"]] == [
        ("x.often", 3),
        ("x.some", 2),
    ]


def test_only_chains_of_single_calls_share_a_box() -> None:
    """A frame that calls two others, or that has samples of its own, ends its box."""

    def frame(name: str, samples: int, *children: FlameNode) -> FlameNode:
        return {"name": name, "place": f"{name}.py:1", "samples": samples, "children": [*children]}

    branch = frame("c", 9, frame("d", 5, frame("e", 4)), frame("f", 4))
    root: FlameNode = {
        "name": "all samples",
        "place": "",
        "samples": 9,
        "children": [frame("a", 9, frame("b", 9, branch))],
    }
    figure = svg.flame_shapes(root)
    shown = [(b["title"].splitlines()[1:], b["level"]) for b in figure["boxes"]]
    assert shown == [
        ([], 0),
        (["a a.py:1", "b b.py:1", "c c.py:1"], 1),
        (["d d.py:1"], 2),
        (["e e.py:1"], 3),
        (["f f.py:1"], 2),
    ]
    assert [h["name"] for h in figure["hot"]] == ["e", "f", "d"]


def test_what_avoids_the_failure_is_sorted_by_the_size_of_the_change() -> None:
    """Switches come first, then the backend that does most, and eager mode last."""
    rows = [
        ("no torch.compile", "backends", "passes"),
        ('backend="eager"', "backends", "passes"),
        ('backend="aot_eager"', "backends", "passes"),
        ('backend="inductor"', "backends", "same"),
        ("dynamic=False", "switches", "other"),
        ("no fusion", "switches", "passes"),
    ]
    named, moved = "torch._dynamo.config.allow_rnn = True", "`h = f(x)` moved before the function"
    changes = [("full", "switches", "passes"), (moved, "changes", "passes")]
    changes += [(named, "switches", "passes"), ("a = 1", "changes", "passes")]
    steps = [{"name": n, "group": g, "answer": a} for n, g, a in changes]
    steps[1] = {**steps[1], "overrides": {"moves": {"where": "before"}}}
    assert report_head.ways_to_avoid({"steps": steps}, "") == ["a = 1", named, moved, "full"]
    steps = [{"name": n, "group": g, "answer": a} for n, g, a in rows]
    ways = report_head.ways_to_avoid({"steps": steps}, "passes")
    assert ways == ["no fusion", 'backend="aot_eager"', 'backend="eager"', "no torch.compile"]
    assert report_head.ways_to_avoid({}, "passes") == ["no torch.compile"]
    assert report_head.ways_to_avoid({}, "fails") == []


def test_paths_of_the_head_are_relative_to_the_folder_of_the_run() -> None:
    """Only paths that begin with the folder become relative to it."""

    def relative(text: str, folder: str) -> str:
        return report_head.relative_to_folders(text, [folder])

    assert relative("capture /w/x.py:f --a=/w/b '/w/c'", "/w") == "capture x.py:f --a=b 'c'"
    for folder in ("", "/", "/x"):
        assert relative("f in /w/x.py and /w/w/y", folder) == "f in /w/x.py and /w/w/y"
    installed = "at `/v/lib/python3.11/site-packages/torch/a.py:1`, /v/dist-packages/b/c.py"
    assert report_head.short_paths(installed, []) == "at `torch/a.py:1`, b/c.py"
    assert relative(installed, "") == installed  # a command has the whole path
    assert relative("/other/w/x.py /wide/x.py /w/", "/w") == "/other/w/x.py /wide/x.py /w/"


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
        head_of(),
    )
    page = html_report.render_html_report(empty)
    assert "No phase and no sample was recorded" in page and "No stack was sampled" in page


@pytest.mark.parametrize("text", [EVIL, "nothing moved"], ids=["hostile", "plain"])
def test_a_browser_shows_the_report(text: str, tmp_path: Path, browser: Browser) -> None:
    """In headless Chromium, the report fits a desktop and a phone, is dark where the user prefers
    that, loads nothing, and has no script or markup of the target. The copy button copies the
    repro, and the flame graph can be searched and zoomed, with mouse and keys.
    """
    page = tmp_path / "report.html"
    page.write_text(html_report.render_html_report(model(tmp_path / "run", text)))
    with browser.open_tab() as tab:
        for width, dark in ((DESKTOP_WIDTH, False), (PHONE_WIDTH, False), (DESKTOP_WIDTH, True)):
            tab.open_page(page, width, dark)
            content, window = tab.page_width()
            assert content <= window == width and tab.problems == []
            ground = tab.evaluate("getComputedStyle(document.body).backgroundColor")
            assert ground == ("rgb(13, 17, 23)" if dark else "rgb(255, 255, 255)")
            assert len(tab.screenshot(tmp_path / f"{width}-{dark}.png")) > 20_000
        tab.open_page(page)
        assert tab.evaluate("document.scripts.length + document.images.length") == 1
        tab.click("button[data-copy=program-text]")
        tab.paste("#flame-find", text)
        hits = "[...document.querySelectorAll('#flame .box:not(.miss)')].length"
        for words, count in (("no such frame", 0), ("samples", 3), ("LEVEL_7 ", 1)):
            tab.type_text("#flame-find", words)
            tab.wait_for(hits, count)
        found = "document.getElementById('flame-found').textContent"
        tab.wait_for(found, "1 of 3 boxes, 100 % of the samples")
        tab.click("#flame .box:nth-of-type(3)")
        frames = "[...document.querySelectorAll('#flame-detail li')].map(row => row.textContent)"
        assert len(tab.evaluate(frames)) == 31
        assert tab.evaluate("document.getElementById('flame-reset').disabled") is False
        for key in ("ArrowUp", "Escape"):
            tab.press_key(key)
        chosen = "document.activeElement.getAttribute('aria-label')"
        assert tab.evaluate(chosen).startswith("process 7")
        assert tab.evaluate("document.getElementById('flame-reset').disabled") is True
        assert tab.problems == []


def test_the_picture_of_the_readme_is_small() -> None:
    """docs/images/report.png, which tests/support/report_image.py makes, loads quickly."""
    data = report_image.IMAGE.read_bytes()
    width, height = struct.unpack(">II", data[16:24])
    assert data.startswith(b"\x89PNG") and width == 1000 and height <= report_image.MAX_HEIGHT
    assert len(data) <= report_image.MAX_BYTES
