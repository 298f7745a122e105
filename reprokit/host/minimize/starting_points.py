"""What a reduction can begin with: the graphs that a run recorded, and the target's own source."""

from __future__ import annotations

import contextlib
import dataclasses
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from reprokit.core.records.finding import Verdict
from reprokit.core.records.observation import Observation
from reprokit.core.records.rank_graphs import GraphRecord
from reprokit.core.reduce import graph_units, readable, sized_program, subgraph
from reprokit.core.shared.contract import run_names
from reprokit.host.system import files

MOST_GRAPHS = 6
NAMES = {
    "values": "graph that Dynamo saw, with what stood in its small inputs,",
    "dynamo": "graph that Dynamo saw",
    "aten": "graph that Inductor got",
    "source": "source of the target",
    "kernel": "Triton kernel",
}


@dataclass(frozen=True)
class StartingPoint:
    """One program to begin with."""

    level: str
    text: str
    graph: graph_units.GraphProgram | None = None
    places: tuple[int, ...] = ()
    """Units of the graph that it begins with."""
    data: Mapping[str, Any] = field(default_factory=dict)
    """What stood in small inputs, as nested lists by name; the text has it all."""


def hinted_graphs(
    graph: graph_units.GraphProgram, verdict: Verdict, seen: Observation
) -> list[int]:
    """Units whose operator the error or the node at work names."""
    said = verdict.work.get("node", "") + " " + verdict.reason
    for raised in (seen.raised, *seen.compile_failures):
        for link in raised.chain if raised else ():
            said += " " + link.message[:4_000]
    operators = set(re.findall(r"\b(?:aten|prims)\.(\w+)", said)) | set(
        re.findall(r"\bnode (\w+?)(?:_\d+)?\b", said)
    )
    operators = {o.rstrip("_") for o in operators if len(o) > 2}
    if not operators:
        return []
    word = re.compile(r"\b(?:" + "|".join(map(re.escape, sorted(operators))) + r")_?\b")
    return [i for i, unit in enumerate(graph.units) if word.search(unit.text)]


def find_starts(
    seen: Observation,
    run_path: Path,
    source: str,
    is_training: bool,
    is_fake: bool,
    is_wrong: bool = False,
) -> list[StartingPoint]:
    """What there is to begin with, in the order in which it is tried: values of inputs only where
    it takes them.

    Of wrong results (``is_wrong``) any graph may be the one to begin with, and what follows it is
    wrong too.
    """
    is_training |= any(g.is_backward for g in seen.graphs)
    story = next((rank for rank, pid in seen.ranks.items() if pid == seen.main_pid), "")
    records = [g for g in seen.graphs if g.number >= 0 and (not story or g.rank in ("", story))]
    waiting = [g for g in records if not g.is_done]
    failing = records if is_wrong else waiting or records[-1:]
    cids = {g.cid for g in failing}
    dynamo = [g for g in records if g.level == "dynamo" and g.cid in cids] or [
        g for g in waiting if g.level == "dynamo"
    ]
    aten = [g for g in failing if g.level == "aten"]
    found: list[StartingPoint] = []
    valued: list[StartingPoint] = []
    for level, some in (("dynamo", dynamo), ("aten", aten)):
        for record in (some if is_wrong else some[::-1])[:MOST_GRAPHS]:
            with contextlib.suppress(Exception):
                graph = _graph(
                    record, run_path, records, is_training and level == "dynamo", is_fake
                )
                found.append(_start(level, graph))
                if data := files.read_object(_folder(record, run_path) / "small.private"):
                    start = _start("values", graph_units.with_data(graph, data))
                    valued.append(dataclasses.replace(start, graph=graph, data=data))
    sources = []
    if source:
        with contextlib.suppress(Exception):
            sources.append(StartingPoint("source", readable.flatten_calls(source)))
    place = len([f for f in found if f.level == "dynamo"])
    return [*found[:place], *sources, *valued, *found[place:]]


def find_kernel(run_path: Path, name: str) -> list[StartingPoint]:
    """The program of a Triton kernel that failed."""
    text = files.read_text(run_path / run_names.KERNELS_FOLDER / Path(name).name)
    return [StartingPoint("kernel", readable.flatten_calls(text))] if text else []


def find_sized(source: str, knob: str) -> list[StartingPoint]:
    """The source with its size as a name, to be run at several; a recorded graph has one size."""
    with contextlib.suppress(Exception):
        if source and (text := sized_program.with_size(readable.flatten_calls(source), knob)):
            return [StartingPoint("source", text)]
    return []


def _start(level: str, graph: graph_units.GraphProgram) -> StartingPoint:
    # operators of the user's own are defined where no graph reaches; without them, what they gave
    # are inputs
    places, gone = [], set[str]()
    for place, unit in enumerate(graph.units):
        if unit.custom or any(name in gone and name not in graph.values for name in unit.reads):
            gone |= set(unit.writes)
        else:
            places.append(place)
    return StartingPoint(level, subgraph.program_of_units(graph, places), graph, tuple(places))


def _folder(record: GraphRecord, run_path: Path) -> Path:
    return run_path / run_names.GRAPHS_FOLDER / f"{record.number:04d}"


def _graph(
    record: GraphRecord,
    run_path: Path,
    records: list[GraphRecord],
    is_training: bool,
    is_fake: bool,
) -> graph_units.GraphProgram:
    folder = _folder(record, run_path)
    told = files.read_object(folder / run_names.VALUES_FILE)
    settings = told.get("settings") or {}
    if record.level == "aten":
        parents = [g for g in records if g.level == "dynamo" and g.cid == record.cid]
        if parents:
            asked = (
                files.read_object(_folder(parents[-1], run_path) / run_names.VALUES_FILE).get(
                    "settings"
                )
                or {}
            )
            settings = {**asked, "grad": False, "dynamic": None}
    text = files.read_text(folder / run_names.GRAPH_FILE)
    return graph_units.read_graph(
        text, told.get("values") or {}, {**settings, "fake": is_fake}, record.level, is_training
    )
