"""The starting points of a reduction: the recorded graphs of a run, and the target's source."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from reprokit.core.records.finding import Verdict
from reprokit.core.records.observation import Observation
from reprokit.core.records.rank_graphs import GraphRecord
from reprokit.core.reduce import readable, sized_program
from reprokit.core.reduce.graphs import graph_units, subgraph, value_properties
from reprokit.core.shared.contract import run_names
from reprokit.host.system import files, host_log

MAX_GRAPHS = 6
MAX_VALUED_GRAPHS = 2
"""Graphs that are tried with recorded values too."""
FUNCTION_TRANSFORM = "torch._functorch."
"""The calls into which Dynamo traces ``torch.func``. They push and pop levels of the transforms, so
a program that has them is not traced again: its inputs are wrapped tensors without storage.
"""
SEEDS = 0, 1, 2
"""The random seeds that are tried where the drawn values matter."""
LEVEL_NAMES = {
    "descriptor": "graph that Dynamo saw, with inputs like the recorded ones,",
    "exact": "graph that Dynamo saw, with inputs in exactly the recorded range,",
    "statistics": "graph that Dynamo saw, with the recorded mean and standard deviation,",
    "values": "graph that Dynamo saw, with the recorded values of its inputs,",
    "dynamo": "graph that Dynamo saw",
    "export": "exported graph",
    "aten": "graph that Inductor got",
    "source": "source of the target",
    "kernel": "Triton kernel",
}


@dataclass(frozen=True)
class StartingPoint:
    """One program that a reduction can begin with."""

    level: str
    text: str
    graph: graph_units.GraphProgram | None = None
    units: tuple[int, ...] = ()
    """Indices of the units of the graph that it begins with."""
    properties: tuple[value_properties.ValueProperty, ...] = ()
    """Properties of the recorded values; the text has all of them."""
    missing: tuple[str, ...] = ()
    """The operators and settings of the run that the program lacks, each with the reason."""


def hinted_units(graph: graph_units.GraphProgram, verdict: Verdict, seen: Observation) -> list[int]:
    """Return the indices of units whose operator is named by the error or the node at work."""
    message = verdict.work.get("node", "") + " " + verdict.reason
    for raised in (seen.raised, *seen.compile_failures):
        for link in raised.chain if raised else ():
            message += " " + link.message[:4_000]
    operators = set(re.findall(r"\b(?:aten|prims)\.(\w+)", message)) | set(
        re.findall(r"\bnode (\w+?)(?:_\d+)?\b", message)
    )
    operators = {o.rstrip("_") for o in operators if len(o) > 2}
    if not operators:
        return []
    word = re.compile(r"\b(?:" + "|".join(map(re.escape, sorted(operators))) + r")_?\b")
    return [i for i, unit in enumerate(graph.units) if word.search(unit.text)]


def find_starting_points(
    seen: Observation,
    run_path: Path,
    source: str,
    is_training: bool,
    is_fake: bool,
    is_wrong: bool = False,
) -> list[StartingPoint]:
    """Return the starting points in the order in which they are tried.

    Graphs with properties of the recorded values come after all graphs without them, in the order
    of ``value_properties.LEVELS``. For wrong results (``is_wrong``) every recorded graph is a
    starting point, because any of them may be the first wrong one. A graph of ``torch.func`` is not
    a starting point if Inductor got a graph too, which has only plain operators.
    """
    is_training |= any(g.is_backward for g in seen.graphs)
    main_rank = next((rank for rank, pid in seen.ranks.items() if pid == seen.main_pid), "")
    records = [
        g for g in seen.graphs if g.number >= 0 and (not main_rank or g.rank in ("", main_rank))
    ]
    waiting = [g for g in records if not g.is_done]
    failing = records if is_wrong else waiting or records[-1:]
    cids = {g.cid for g in failing}
    # a precompiled graph is compiled after Dynamo is done with it, and without its compile id
    entered = (
        [g for g in records if g.is_entered and g.cid in cids]
        or [g for g in waiting if g.is_entered]
        or [g for g in records if g.is_entered][-1:]
    )
    aten = [g for g in failing if g.level == "aten"]
    starts: list[StartingPoint] = []
    valued: dict[str, list[StartingPoint]] = {level: [] for level in value_properties.LEVELS}
    for graphs in (entered, aten):
        ordered = (graphs if is_wrong else graphs[::-1])[:MAX_GRAPHS]
        for number, record in enumerate(ordered):
            with host_log.suppress(Exception):
                graph = _graph(
                    record, run_path, records, is_training and record.level == "dynamo", is_fake
                )
                starts += _starts(record.level, graph)
                if record.level != "aten" and number < MAX_VALUED_GRAPHS:
                    texts = {start.text for start in starts}
                    for start in _valued(graph, _folder(record, run_path)):
                        if start.text not in texts:
                            valued[start.level].append(start)
    sources = source_starting_points(source)
    from_aten = [s for s in starts if s.level == "aten"]
    entries = [s for s in starts if s.level != "aten"]
    if from_aten and any(FUNCTION_TRANSFORM in start.text for start in entries):
        return [*sources, *from_aten]
    with_values = [start for level in value_properties.LEVELS for start in valued[level]]
    return [*entries, *with_values, *sources, *from_aten]


def source_starting_points(source: str) -> list[StartingPoint]:
    """Return the source of the target as it runs; an empty list where there is none."""
    with host_log.suppress(Exception):
        if source:
            return [StartingPoint("source", readable.flatten_calls(source))]
    return []


def kernel_starting_points(run_path: Path, name: str) -> list[StartingPoint]:
    """Return the program of a Triton kernel that failed; an empty list where it is not there."""
    text = files.read_text(run_path / run_names.KERNELS_FOLDER / Path(name).name)
    return [StartingPoint("kernel", readable.flatten_calls(text))] if text else []


def sized_starting_points(source: str, knob: str) -> list[StartingPoint]:
    """Return the source with its size as a name, so that it can run at several sizes.

    A recorded graph has one size, so it is not a starting point here.
    """
    with host_log.suppress(Exception):
        if source and (text := sized_program.with_size(readable.flatten_calls(source), knob)):
            return [StartingPoint("source", text)]
    return []


def _starts(level: str, graph: graph_units.GraphProgram) -> list[StartingPoint]:
    """Return the graph with the user's own operators, and without them where it has some.

    A definition that was written may fail in eager, for example if it needs a file.
    """
    if not graph.definitions:
        return [_start(level, graph)]
    lacks = dict.fromkeys(graph.definitions, "the program with its definition does not show it")
    values = {n: {**facts, "made_by": ""} for n, facts in graph.values.items()}
    without = dataclasses.replace(
        graph, values=values, definitions={}, undefined={**lacks, **graph.undefined}
    )
    return [_start(level, graph), _start(level, without)]


def _start(level: str, graph: graph_units.GraphProgram) -> StartingPoint:
    """Return the graph without the operators that no text defines; their results become inputs."""
    kept, gone, missing = [], set[str](), dict[str, None]()
    for index, unit in enumerate(graph.units):
        why = graph.why_undefined(unit)
        if why or any(name in gone and name not in graph.values for name in unit.reads):
            gone |= set(unit.writes)
            missing.update({why: None} if why else {})
        else:
            kept.append(index)
    missing.update(dict.fromkeys(f"{name}: {why}" for name, why in graph.undefined.items()))
    settings = graph.settings.get("left_out") or ()
    return StartingPoint(
        level,
        subgraph.program_of_units(graph, kept),
        graph,
        tuple(kept),
        missing=(*missing, *map(str, settings)),
    )


def _valued(graph: graph_units.GraphProgram, folder: Path) -> list[StartingPoint]:
    """Return the graph with the properties of its recorded values, at each level that has any."""
    described = files.read_json_object(folder / run_names.PRIVATE_VALUES_FILE)
    levels = value_properties.recorded_properties(graph.values, described)
    graph = dataclasses.replace(graph, seed=0)
    starts = []
    for level, properties in levels.items():
        start = _start(level, value_properties.with_properties(graph, properties))
        starts.append(dataclasses.replace(start, properties=tuple(properties)))
    return starts


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
    recorded = files.read_json_object(folder / run_names.VALUES_FILE)
    settings = recorded.get("settings") or {}
    if record.level == "aten":
        parents = [g for g in records if g.is_entered and g.cid == record.cid]
        if parents:
            parent_settings = (
                files.read_json_object(_folder(parents[-1], run_path) / run_names.VALUES_FILE).get(
                    "settings"
                )
                or {}
            )
            settings = {**parent_settings, "grad": False, "dynamic": None}
    text = files.read_text(folder / run_names.GRAPH_FILE)
    return graph_units.read_graph(
        text,
        recorded.get("values") or {},
        {**settings, "fake": is_fake},
        record.level,
        is_training,
        recorded.get("definitions"),
        recorded.get("undefined"),
    )


def with_seeds(start: StartingPoint) -> Iterator[StartingPoint]:
    """Yield a starting point with each seed, if its random values may matter."""
    if start.graph is None or start.level not in value_properties.DRAWS:
        yield start
        return
    for seed in SEEDS:
        graph = dataclasses.replace(start.graph, seed=seed)
        text = subgraph.program_of_units(graph, start.units)
        yield dataclasses.replace(start, graph=graph, text=text)
