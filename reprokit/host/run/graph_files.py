"""The files of recorded graphs in a run directory: one for each graph, packed with gzip.

Such a file is a JSON object with the parts of a ``RecordedGraph``. It has the suffix of private
files, because one part has the user's data. A pack has the other parts as files of a folder.
"""

from __future__ import annotations

import gzip
import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, TypedDict

from reprokit.core.shared.contract import run_names
from reprokit.host.system import files, host_log

MAX_BYTES = 64 << 20
"""Of a file that is unpacked."""
_IN_PACK = re.compile(r"graphs/(\d{1,9})/(graph\.py|inputs\.json|values\.json)")


class RecordedGraph(TypedDict, total=False):
    """What the agent records of a graph."""

    graph: str
    """The graph as a script."""
    inputs: dict[str, Any]
    """Facts about the graph, and the metadata of its inputs."""
    values: dict[str, Any]
    """The metadata of each value, the settings of the compile, and definitions."""
    private: dict[str, Any]
    """What is known about the values of the inputs."""


def graph_path(run_path: Path, number: int) -> Path:
    """Return the path of the file of a graph."""
    return run_path / run_names.GRAPHS_FOLDER / f"{number:04d}{run_names.PRIVATE_SUFFIX}"


def read_graph(run_path: Path, number: int) -> RecordedGraph:
    """Return what is recorded of a graph; parts that cannot be read are empty."""
    return _read(graph_path(run_path, number))


def _read(path: Path) -> RecordedGraph:
    found: dict[str, Any] = {}
    with host_log.suppress(OSError), files.open_unpacked_file(path) as file:
        text = files.read_at_most(file, MAX_BYTES).decode("utf-8", "replace")
        found = files.parse_json_object(text)
    graph = found.get("graph")
    parts: RecordedGraph = {"graph": graph if isinstance(graph, str) else ""}
    for name in ("inputs", "values", "private"):
        value = found.get(name)
        parts[name] = value if isinstance(value, dict) else {}
    return parts


def write_graph(run_path: Path, number: int, parts: RecordedGraph) -> None:
    """Write the file of a graph, for a reduction of what a pack has."""
    path = graph_path(run_path, number)
    path.parent.mkdir(parents=True, exist_ok=True)
    files.write_atomically(path, gzip.compress(json.dumps(parts).encode()))


def files_for_pack(run_path: Path) -> Iterator[tuple[str, str]]:
    """Yield the names and the texts of the files that a pack has of each graph."""
    folder = run_path / run_names.GRAPHS_FOLDER
    for path in sorted(folder.glob(f"[0-9]*{run_names.PRIVATE_SUFFIX}")):
        parts = _read(path)
        if not parts["graph"]:  # the process was killed while it wrote the file
            continue
        top = f"{run_names.GRAPHS_FOLDER}/{path.stem}"
        yield f"{top}/graph.py", parts["graph"]
        yield f"{top}/inputs.json", json.dumps(parts["inputs"], indent=1, ensure_ascii=False)
        yield f"{top}/values.json", json.dumps(parts["values"], ensure_ascii=False)


def write_graphs_of_pack(pack: Mapping[str, bytes], run_path: Path) -> None:
    """Write the graphs among the files of a pack, which are by name, into a run directory."""
    graphs: dict[int, RecordedGraph] = {}
    for name, data in pack.items():
        if found := _IN_PACK.fullmatch(name):
            parts = graphs.setdefault(int(found[1]), {})
            text, part = data.decode("utf-8", "replace"), found[2].partition(".")[0]
            parts[part] = text if part == "graph" else files.parse_json_object(text)  # type: ignore[literal-required]
    for number, parts in graphs.items():
        write_graph(run_path, number, parts)
