"""Record each graph before it is compiled: its source text and the metadata of its inputs.

A graph's folder appears under its final name only when all of its files are written.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from types import CodeType
from typing import TYPE_CHECKING, Any

from ...core.shared import cuts
from ...core.shared.contract import events, run_names
from . import collectives, compile_settings, graph_source, journal
from .definitions.graph_definitions import GraphDefinitions
from .values import input_values, value_facts

if TYPE_CHECKING:
    import torch

MAX_GRAPHS = 400
"""Limit of graphs that one process writes. Later graphs are only in the journal, so that a program
that recompiles without end does not fill the disk.
"""

is_only_new = False
"""Whether to skip a graph that another rank has already written."""
refuses_graphs = False
"""Whether a graph is an error: the process only finds out whether the compiler is entered."""
has_refused = False
traced_code: set[CodeType] = set()
"""The code of all functions that Dynamo traced for a graph."""
entered = 0
"""How many graphs the compiler was entered with."""
has_symbolic_sizes = False
"""Whether one of these graphs has an input with a symbolic size."""
current: int | None = None
"""The number of the graph that Inductor is compiling."""
_recorded = 0


def whole_path(cut: str) -> str:
    """Return the path of a traced file of the program that Dynamo calls ``cut``, or ``cut``.

    Dynamo leaves out the folders that a file shares with torch, and one more character if those are
    ``/``: ``mp/train.py`` is ``/tmp/train.py``.
    """
    package = os.path.dirname(os.path.abspath(sys.modules["torch"].__file__ or ""))
    beside = os.path.dirname(package)
    for file in {code.co_filename for code in traced_code}:
        if file.endswith(cut) and os.path.isabs(file) and not file.startswith(package):
            with contextlib.suppress(ValueError):  # different drives
                if file[len(os.path.commonpath((file, beside))) + 1 :] == cut:
                    return file
    return cut


def record_graph(
    gm: torch.fx.GraphModule,
    example_inputs: Sequence[Any],
    level: str,
    cid: str | None,
    is_backward: bool,
    compiler_fn: Callable[..., Any] | None = None,
    entry: str = "",
    options: Mapping[str, Any] | None = None,
    has_values: bool = True,
) -> int | None:
    """Write a graph to the folder ``graphs/<n>/``, journal it, and return n, or None if the graph
    was not written.

    ``graph.py`` is the graph as a script. ``inputs.json`` has the metadata of its inputs.
    ``values.json`` has the metadata of each value in it, the settings of the compile, and the
    definitions of the user's own operators and kernels.
    ``values.private`` describes the values of its inputs. ``example_inputs`` are the inputs in
    order: tensors (fake or real) and numbers (symbolic or not). ``entry`` and ``options`` are those
    of a compile that Dynamo did not start. Without ``has_values`` only metadata is read.
    """
    global _recorded, has_refused, entered, has_symbolic_sizes
    if refuses_graphs:
        has_refused = True
        raise RuntimeError("no graph is compiled in this process")
    if level != "aten":
        entered += 1
        has_symbolic_sizes |= any(map(_is_symbolic, example_inputs))
    nodes = len(gm.graph.nodes)
    event = events.Graph(level=level, cid=cid, nodes=nodes, backward=is_backward)
    number: int | None = None
    try:
        calls, digest = collectives.describe_collectives(gm)
        event = dataclasses.replace(event, calls=calls, digest=digest)
        is_new = _is_first(digest)
        if _recorded < MAX_GRAPHS and (is_new or not is_only_new):
            _recorded += 1
            definitions = GraphDefinitions(gm)
            inputs = value_facts.describe_inputs(gm, example_inputs, definitions)
            source = graph_source.standalone_program(gm, inputs, level, cid, definitions)
            values = {
                "values": value_facts.describe_values(gm, inputs, definitions),
                "settings": compile_settings.describe_settings(compiler_fn, entry, options),
                "definitions": definitions.definitions,
                "undefined": definitions.undefined,
            }
            private = (
                input_values.describe_input_values(gm, example_inputs)
                if level != "aten" and has_values
                else {}
            )
            facts: dict[str, object] = {
                "level": level,
                "cid": cid,
                "nodes": nodes,
                "backward": is_backward,
            }
            if digest:
                facts.update(calls=calls, digest=digest)
            number = _write_files(source, {**facts, "inputs": inputs}, values, private)
        journal.write_event(dataclasses.replace(event, n=number))
    except Exception as problem:  # some graphs have no source text; the compile must go on
        problem_text = cuts.cut_head(repr(problem), 2000)
        journal.write_event(dataclasses.replace(event, n=number, problem=problem_text))
    return number


def _is_symbolic(value: Any) -> bool:
    """Return whether an input is a symbolic number, or a tensor with one in its shape."""
    numbers = value.shape if hasattr(value, "shape") else (value,)
    return any(type(number).__name__.startswith("Sym") for number in numbers)


def _is_first(digest: str) -> bool:
    """Whether no process of this run has recorded a graph with this digest.

    A graph with an empty digest is always the first.
    """
    if not digest:
        return True
    try:
        os.close(
            os.open(
                os.path.join(journal.RUN_DIR, run_names.GRAPHS_FOLDER, f".digest-{digest}"),
                os.O_CREAT | os.O_EXCL,
                0o600,
            )
        )
    except FileExistsError:
        return False
    return True


def keep_compiled(text: str) -> None:
    """Write the module that Inductor generated into the folder of its graph."""
    if current is not None:
        write_whole(
            os.path.join(journal.RUN_DIR, run_names.GRAPHS_FOLDER, f"{current:04d}"),
            run_names.COMPILED_FILE,
            text,
        )


def write_whole(folder: str, name: str, text: str) -> None:
    """Write a file under a temporary name and rename it, so that no reader sees a part of it."""
    draft = os.path.join(folder, f".{name}.{os.getpid()}")
    with open(draft, "w", encoding="utf-8", errors="backslashreplace") as file:
        file.write(text)
    os.replace(draft, os.path.join(folder, name))


def _write_files(
    source: str,
    facts: Mapping[str, object],
    values: Mapping[str, object],
    private: Mapping[str, object],
) -> int:
    """Write the files of a graph to the folder with the next free number, and return the number."""
    top = os.path.join(journal.RUN_DIR, run_names.GRAPHS_FOLDER)
    draft = os.path.join(top, f".draft-{os.getpid()}-{_recorded}")
    os.makedirs(draft)
    for name, text in (
        (run_names.GRAPH_FILE, source),
        (run_names.INPUTS_FILE, json.dumps(facts, indent=1, default=repr, ensure_ascii=False)),
        (run_names.VALUES_FILE, json.dumps(values, default=repr, ensure_ascii=False)),
        (run_names.PRIVATE_VALUES_FILE, json.dumps(private)),
    ):
        with open(
            os.path.join(draft, name), "w", encoding="utf-8", errors="backslashreplace"
        ) as file:
            file.write(text)
    number = len(os.listdir(top))
    while True:
        try:
            os.rename(draft, os.path.join(top, f"{number:04d}"))
            return number
        # another rank took the number: rename never replaces a folder that has files
        except OSError:
            if not os.path.isdir(draft):
                raise
            number += 1
