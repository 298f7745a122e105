"""Record each graph before it is compiled: source text and input metadata, written whole or not at
all.
"""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Sequence
from typing import Any

from ...core.shared import cuts
from ...core.shared.contract import events, run_names
from . import collectives, compile_settings, graph_source, journal

MAX_GRAPHS = 400
"""A recompile storm must not fill the disk; later graphs are counted in the journal only."""

SMALL = "small.private"
"""What stands in small inputs. It is the user's data: packs take no file that ends so."""

is_only_new = False
"""Write no graph that another rank has written already."""
_recorded = 0
current: int | None = None
"""The number of the graph that Inductor has at work."""


def record_graph(
    gm: Any,
    example_inputs: Sequence[Any],
    level: str,
    cid: str | None,
    is_backward: bool,
    compiler_fn: Any = None,
) -> int | None:
    """Write ``graphs/<n>/`` and journal the graph; gives n, or None if not written.

    ``graph.py`` is the graph as a script, ``inputs.json`` the metadata of its inputs,
    ``values.json`` that of every value in it and the settings of the compile, ``small.private``
    what stands in its small inputs. ``gm`` is an ``fx.GraphModule``; ``example_inputs`` are its
    inputs in order: tensors (fake or real) and numbers (symbolic or not).
    """
    global _recorded
    nodes = len(gm.graph.nodes)
    told = events.Graph(level=level, cid=cid, nodes=nodes, backward=is_backward)
    number: int | None = None
    try:
        calls, digest = collectives.describe_collectives(gm)
        told = dataclasses.replace(told, calls=calls, digest=digest)
        is_new = _is_first(digest)
        if _recorded < MAX_GRAPHS and (is_new or not is_only_new):
            _recorded += 1
            inputs = graph_source.describe_inputs(gm, example_inputs)
            source = graph_source.standalone_program(gm, inputs, level=level, cid=cid)
            values = {
                "values": graph_source.describe_values(gm, inputs),
                "settings": compile_settings.describe_settings(compiler_fn),
            }
            small = graph_source.small_values(gm, example_inputs) if level == "dynamo" else {}
            head: dict[str, Any] = {
                "level": level,
                "cid": cid,
                "nodes": nodes,
                "backward": is_backward,
            }
            head.update({"calls": calls, "digest": digest} if digest else {})
            number = _write(source, {**head, "inputs": inputs}, values, small)
        journal.write(dataclasses.replace(told, n=number))
    except Exception as problem:  # some graphs have no source text; the compile must go on
        problem_text = cuts.cut_head(repr(problem), 2000)
        journal.write(dataclasses.replace(told, n=number, problem=problem_text))
    return number


def _is_first(digest: str) -> bool:
    """No process of this run has had a graph with this digest; an empty one is always the first."""
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
    """Put the module that Inductor generated beside the graph that it was generated from."""
    if current is not None:
        write_whole(
            os.path.join(journal.RUN_DIR, run_names.GRAPHS_FOLDER, f"{current:04d}"),
            run_names.COMPILED_FILE,
            text,
        )


def write_whole(folder: str, name: str, text: str) -> None:
    """Write a file under another name first, so that nobody reads half of it."""
    draft = os.path.join(folder, f".{name}.{os.getpid()}")
    with open(draft, "w", encoding="utf-8", errors="backslashreplace") as file:
        file.write(text)
    os.replace(draft, os.path.join(folder, name))


def _write(
    source: str, facts: dict[str, Any], values: dict[str, Any], small: dict[str, Any]
) -> int:
    """Put the files into a folder of their own and give it the next free number."""
    top = os.path.join(journal.RUN_DIR, run_names.GRAPHS_FOLDER)
    draft = os.path.join(top, f".draft-{os.getpid()}-{_recorded}")
    os.makedirs(draft)
    for name, text in (
        (run_names.GRAPH_FILE, source),
        (run_names.INPUTS_FILE, json.dumps(facts, indent=1, default=repr, ensure_ascii=False)),
        (run_names.VALUES_FILE, json.dumps(values, default=repr, ensure_ascii=False)),
        (SMALL, json.dumps(small)),
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
        except OSError:  # another rank took the number; a folder with files in it is never replaced
            if not os.path.isdir(draft):
                raise
            number += 1
