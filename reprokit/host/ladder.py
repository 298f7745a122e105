"""The ladder of one reduction: which program to begin with, what to leave out of it first, and what of each is kept."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import re
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..core import cut, graphs, lift, oracle, passes, polish, reduce, straighten, trees, unused
from ..core.records import GraphRecord, Observation, Verdict
from . import files
from .minimized import Minimized, cost
from .oracle import Oracle, lines_of

FLAKY_TRIES = 10
GOOD_LINES = 14
"""A repro from a graph that is not longer needs no rival from the source."""
HEALTHY_MULTIPLE = 4.0
LEAST_HANG_S = 4.0
ENDLESS_S = 15.0
"""Served seconds to trace one line as often as is called endless."""
LEAST_PASS_S = 15.0
"""Served seconds that a compile may take behind the phase of the failure."""
LEAST_DEADLINE_S = 60.0
MOST_GRAPHS = 6


@dataclass(frozen=True)
class Start:
    """One program to begin with."""

    level: str
    text: str
    graph: graphs.Graph | None = None
    places: tuple[int, ...] = ()
    """Units of the graph that it begins with."""


class Ladder:
    """One reduction: the best so far, and the steps that make it smaller."""

    def __init__(self, asker: Oracle, found: Minimized, folder: Path, verdict: Verdict, seen: Observation) -> None:
        self._ask, self._found, self._folder = asker, found, folder
        self._verdict, self._seen = verdict, seen
        self._level = ""
        self._passing: set[str] = set()
        self.ends = 0.0
        """Monotonic time at which the budget ends; 0 until a program has shown the failure."""
        asker.on_same = self.keep

    def keep(self, text: str) -> None:
        """Note a program that shows the failure, when it is the best so far."""
        found = self._found
        if found.text and cost(text) >= cost(found.text):
            return
        found.text, found.level, found.proof = text, self._level, None
        self._ask.status.lines = lines_of(text)
        with contextlib.suppress(OSError):
            files.write_whole(self._folder / "best.py", text)

    def run(self, starts: list[Start], budget_s: float) -> None:
        """Climb: what each start gives is kept when it is the best; raises Spent when the budget has ended."""
        found, asker = self._found, self._ask
        usual, is_done = asker.limits, False
        carried = [text for s in starts if s.graph for text in s.graph.settings.get("sources", ())]
        asker.ends = self.ends or time.monotonic() + budget_s
        for begins in (self._begins, self._is_flaky, self._begins_cold):
            for start in starts:
                if is_done and (start.level in ("aten", self._level) or self._is_good()):
                    continue
                self._level, asker.limits = start.level, usual
                asker.status.trying = f"the {NAMES[start.level]} as it is"
                is_own = self._verdict.phase == "backend" and "backend=" in start.text
                asker.begin(start.text, carried, "backend=" if is_own else "")
                if not begins(start):
                    continue
                if not self.ends:
                    self.ends = asker.ends = time.monotonic() + budget_s
                found.began_lines = found.began_lines or lines_of(start.text)
                text = start.text if start.graph is None else self._cut(start)
                before = ""
                while text != before:
                    before, text = text, self._pass_over(text)
                is_done = True
            if is_done or asker.is_cold or asker.rate < 1.0:
                break
        found.is_complete = is_done
        if not is_done:
            found.notes.append(
                "no program that stands alone shows the failure: neither a recorded graph nor the source"
            )

    def _is_good(self) -> bool:
        return bool(self._found.text) and cost(self._found.text)[0] <= GOOD_LINES

    def _begins(self, start: Start) -> bool:
        """The program as it is shows the failure, stopped behind its phase or compiled to the end."""
        asker, text = self._ask, start.text
        for change in ({}, {"stop": None}) if asker.limits.stop else ({},):
            self._limit(**change)
            asker.forget(text)
            if asker.holds(text):
                self._settle()
                return True
            if asker.has_failed_eager:
                self._found.notes.append(f"the {NAMES[start.level]} alone fails in eager: {asker.said}")
                return False
        if asker.said.startswith(oracle.PASSES):
            self._passing.add(text)
        self._found.notes.append(f"the {NAMES[start.level]} alone does not show it: {asker.said}")
        return False

    def _is_flaky(self, start: Start) -> bool:
        """It passed; whether it shows in some of many runs."""
        asker = self._ask
        if start.text not in self._passing:
            return False
        asker.status.trying = "whether it is flaky"
        self._limit(stop=None)
        answers: list[str] = []
        while len(answers) < FLAKY_TRIES and time.monotonic() < asker.ends:
            answers.append(asker.once(start.text).answer)
        hits, tries = answers.count(oracle.SAME), len(answers) + 1
        if not hits:
            return False
        self._found.notes.append(f"flaky: {hits} of {tries} runs of the first program showed it")
        self.go_patient(hits / tries)
        return asker.holds(start.text)

    def _begins_cold(self, start: Start) -> bool:
        """No forked child shows it: whether a fresh process does."""
        asker = self._ask
        if start.level == "aten" or time.monotonic() > asker.ends or asker.cold(start.text).answer != oracle.SAME:
            return False
        self.go_cold()
        return asker.holds(start.text)

    def go_cold(self) -> None:
        """Ask fresh processes only from now on."""
        self._found.notes.append("forked children answered differently from fresh processes, so only those were asked")
        self._ask.is_cold = True
        self._ask.forget()
        self._found.text, self._found.proof = "", None

    def go_patient(self, rate: float) -> None:
        """The failure shows in ``rate`` of the runs: a pass is believed only after several."""
        self._ask.rate = rate
        self._ask.forget()

    def _limit(self, **changes: Any) -> None:
        self._ask.limits = dataclasses.replace(self._ask.limits, **changes)

    def _settle(self) -> None:
        """Know from the first answer how long others may take."""
        last = self._ask.last
        if last is None:
            return
        if self._seen.endless_line:
            self._limit(deadline_s=ENDLESS_S)
        elif self._verdict.kind == "hang":
            self._limit(deadline_s=max(LEAST_HANG_S, HEALTHY_MULTIPLE * last.healthy_s))
        else:
            self._limit(deadline_s=LEAST_PASS_S + HEALTHY_MULTIPLE * last.seconds)

    def _cut(self, start: Start) -> str:
        """Leave out units of the graph."""
        found, asker = self._found, self._ask
        graph, places = start.graph, list(start.places)
        assert graph is not None
        found.began_nodes = found.began_nodes or len(places)
        hints = hinted(graph, self._verdict, self._seen)
        asker.status.trying = f"which of {len(places)} nodes are needed"
        kept = reduce.smallest(
            places,
            lambda some: bool(some) and asker.holds(cut.program(graph, some)),
            hints,
            lambda i: graph.units[i].kind,
        )
        return cut.program(graph, kept)

    def _pass_over(self, text: str) -> str:
        """Every pass once."""
        for name, step in PASSES:
            self._ask.status.trying = name
            text = step(text, self._ask.holds)
        return text


PASSES: tuple[tuple[str, Callable[[str, trees.Test], str]], ...] = (
    ("names that nothing reads", unused.drop_unused),
    ("sizes of the model", passes.shrink_knobs),
    ("submodules alone", lift.submodules),
    ("statements", passes.drop_statements),
    ("arguments and elements", passes.drop_parts),
    ("steps between", passes.bypass),
    ("equal inputs", unused.merge_arguments),
    ("numbers", passes.shrink_numbers),
    ("blocks", passes.unwrap),
    ("expressions", passes.simplify),
    ("loops", lift.loops),
    ("constants", lift.constants),
    ("modules as functions", lift.functions),
    ("names that nothing reads", unused.drop_unused),
    ("public names", polish.public_names),
    ("a straight line", straighten.straighten),
    ("names", polish.plain_names),
)
NAMES = {"dynamo": "graph that Dynamo saw", "aten": "graph that Inductor got", "source": "source of the target"}


def hinted(graph: graphs.Graph, verdict: Verdict, seen: Observation) -> list[int]:
    """Units whose operator the error or the node at work names."""
    said = verdict.work.get("node", "") + " " + verdict.reason
    for raised in (seen.raised, *seen.compile_failures):
        for link in raised.chain if raised else ():
            said += " " + link.message[:4_000]
    operators = set(re.findall(r"\b(?:aten|prims)\.(\w+)", said)) | set(re.findall(r"\bnode (\w+?)(?:_\d+)?\b", said))
    operators = {o.rstrip("_") for o in operators if len(o) > 2}
    if not operators:
        return []
    word = re.compile(r"\b(?:" + "|".join(map(re.escape, sorted(operators))) + r")_?\b")
    return [i for i, unit in enumerate(graph.units) if word.search(unit.text)]


def starts(seen: Observation, run_path: Path, source: str, is_training: bool, is_fake: bool) -> list[Start]:
    """What there is to begin with, in the order in which it is tried: values of inputs only where none do not do."""
    is_training |= any(g.is_backward for g in seen.graphs)
    records = [g for g in seen.graphs if g.number >= 0]
    waiting = [g for g in records if not g.is_done]
    failing = waiting or records[-1:]
    cids = {g.cid for g in failing}
    dynamo = [g for g in records if g.level == "dynamo" and g.cid in cids] or [
        g for g in waiting if g.level == "dynamo"
    ]
    aten = [g for g in failing if g.level == "aten"]
    found: list[Start] = []
    valued: list[Start] = []
    for level, some in (("dynamo", dynamo), ("aten", aten)):
        for record in list(reversed(some))[:MOST_GRAPHS]:
            with contextlib.suppress(Exception):
                graph = _graph(record, run_path, records, is_training and level == "dynamo", is_fake)
                found.append(_start(level, graph))
                if small := _read(_folder(record, run_path) / "small.private"):
                    valued.append(_start(level, graphs.with_data(graph, small)))
    sources = []
    if source:
        with contextlib.suppress(Exception):
            sources.append(Start("source", polish.flatten(source)))
    place = len([f for f in found if f.level == "dynamo"])
    return [*found[:place], *valued, *sources, *found[place:]]


def _start(level: str, graph: graphs.Graph) -> Start:
    # operators of the user's own are defined where no graph reaches; without them, what they gave are inputs
    places = tuple(i for i, unit in enumerate(graph.units) if not unit.custom)
    return Start(level, cut.program(graph, places), graph, places)


def _folder(record: GraphRecord, run_path: Path) -> Path:
    return run_path / "graphs" / f"{record.number:04d}"


def _graph(
    record: GraphRecord, run_path: Path, records: list[GraphRecord], is_training: bool, is_fake: bool
) -> graphs.Graph:
    folder = _folder(record, run_path)
    told = _read(folder / "values.json")
    settings = told.get("settings") or {}
    if record.level == "aten":
        parents = [g for g in records if g.level == "dynamo" and g.cid == record.cid]
        if parents:
            asked = _read(_folder(parents[-1], run_path) / "values.json").get("settings") or {}
            settings = {**asked, "grad": False, "dynamic": None}
    text = files.read_text(folder / "graph.py")
    return graphs.read(text, told.get("values") or {}, {**settings, "fake": is_fake}, record.level, is_training)


def _read(path: Path) -> dict[str, Any]:
    with contextlib.suppress(ValueError, RecursionError):
        value = json.loads(files.read_text(path) or "{}")
        return value if isinstance(value, dict) else {}
    return {}
