"""Write some of a graph's units as a program that runs by itself.

A value that the units read and none of them writes becomes an argument, made from its recorded
metadata. A value that no unit reads is returned. Bodies of ``cond`` and similar operators become
separate functions.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Collection, Iterable, Mapping
from typing import Any

from reprokit.core.reduce.graphs import value_properties
from reprokit.core.reduce.graphs.graph_units import GraphProgram, rename_units
from reprokit.core.shared.source import entry_programs, process_group

LARGE_BYTES = 1 << 30
"""Inputs with more bytes than this are fake tensors. If the run had fake tensors, the limit is a
sixteenth of it.
"""


def program_of_units(graph: GraphProgram, chosen: Collection[int], is_bare: bool = False) -> str:
    """Return the program of the units ``chosen`` and of the units that they need, in the graph's
    order.

    With ``is_bare`` it has no ``no_grad``, which few failures need, and a seed only if the values
    of its inputs matter.
    """
    keep = _closed(graph, set(chosen))
    units = [graph.units[i] for i in sorted(keep)]
    written = {name for unit in units for name in unit.writes}
    read_names = [name for unit in units for name in unit.reads]
    outside = [n for n in dict.fromkeys(read_names) if n not in written]
    arguments = [n for n in outside if n in graph.values]
    symbols = {n: dim for n in arguments if (dim := _dimension(graph, n, arguments))}
    meshes = [n for n in arguments if graph.values[n].get("kind") == "mesh"]
    arguments = [n for n in arguments if n not in symbols and n not in meshes]
    own = dict.fromkeys(name for unit in units for name in graph.own_operators(unit))
    own |= {name: None for n in arguments for name in graph.classes_of(n)}
    defined = dict.fromkeys(row for name in own for row in graph.definitions.get(name, ()))
    taken = written | set(symbols) | {b.name for b in graph.bodies} | set(graph.constants)
    taken |= {n.id for row in defined for n in ast.walk(ast.parse(row)) if isinstance(n, ast.Name)}
    names = _nice_names(arguments, taken | {process_group.MESH})
    known = {**names, **{n: n for n in symbols}, **dict.fromkeys(meshes, process_group.MESH)}
    body = [f"{name} = {names[dim[0]]}.shape[{dim[1]}]" for name, dim in symbols.items()]
    body += [ast.unparse(rename_units(s, known)) for unit in units for s in unit.statements]
    last = {name: i for i, unit in enumerate(units) for name in unit.reads}
    sinks = [
        n
        for i, unit in enumerate(units)
        for n in unit.writes[-1:]
        if last.get(n, -1) <= i
        and (graph.values.get(n, {}).get("kind") == "tensor" or n in graph.returns)
    ]
    if not sinks and units:
        sinks = list(units[-1].writes[-1:])
    sinks = list(dict.fromkeys(sinks))
    body.append(f"return {', '.join(sinks)}" if sinks else "return None")
    used = {n for unit in units for n in unit.reads}
    bodies = graph.bodies_of(used)
    used |= {n.id for b in bodies for n in ast.walk(b) if isinstance(n, ast.Name)}
    constants = [f"{n} = {graph.constants[n]}" for n in sorted(graph.constants) if n in used]
    makers = [row for n in arguments for row in _makers(names[n], graph.values[n])]
    makers += _marks(graph, arguments, names)
    function = [
        f"def repro({', '.join(names[n] for n in arguments)}):",
        *(f"    {row}" for t in body for row in t.splitlines()),
    ]
    rows = [*_head(graph), *_group(graph, [*body, *makers]), *_definitions(graph, defined)]
    rows += [row for b in bodies for row in ("", *ast.unparse(b).splitlines(), "")]
    entered = _entry_text(graph, [names[n] for n in arguments])
    call = _call(graph, entered, len(sinks), is_bare)
    last_rows = [*constants, *makers, *call]
    if _is_large(graph, arguments):
        rows[1:1] = [
            "import torch._inductor.config",
            "from torch._subclasses.fake_tensor import FakeTensorMode",
            "torch._inductor.config.wrap_inductor_compiled_regions = True",
        ]
        last_rows = ["with FakeTensorMode():", *(f"    {row}" for row in last_rows)]
    has_seed = graph.seed is not None or not is_bare
    seed = [f"torch.manual_seed({graph.seed or 0})"] * has_seed
    rows += ["", *entered.definitions, "", *function, "", *seed, *last_rows]
    return tidy_program("\n".join(rows) + "\n")


def tidy_program(text: str) -> str:
    """Return the program in a canonical layout, without unused imports."""
    tree = ast.parse(text)
    used = {n.id for n in ast.walk(tree) if isinstance(n, ast.Name)}
    body: list[ast.stmt] = []
    for node in tree.body:
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            node.names = [
                a for a in node.names if (a.asname or a.name.split(".")[0]) in used or a.name == "*"
            ]
            if not node.names:
                continue
        if (
            isinstance(node, ast.Assign)
            and ast.unparse(node) == "NoneType = type(None)"
            and text.count("NoneType") == 1
        ):
            continue
        if isinstance(node, (ast.Import, ast.ImportFrom)) and any(
            ast.dump(node) == ast.dump(b) for b in body
        ):
            continue
        body.append(node)
    tree.body = body
    return ast.unparse(ast.fix_missing_locations(tree)) + "\n"


def _closed(graph: GraphProgram, keep: set[int]) -> set[int]:
    """Add the units whose values cannot be arguments: tuples, contexts, other objects."""
    producers = {name: i for i, unit in enumerate(graph.units) for name in unit.writes}
    waiting = list(keep)
    while waiting:
        for name in graph.units[waiting.pop()].reads:
            producer = producers.get(name)
            if producer is not None and producer not in keep and name not in graph.values:
                keep.add(producer)
                waiting.append(producer)
    return keep


def _dimension(graph: GraphProgram, name: str, arguments: list[str]) -> tuple[str, int] | None:
    """Return the argument and the dimension whose size is the symbol ``name``; None if there is
    none.
    """
    facts = graph.values[name]
    if facts.get("kind") != "symbol":
        return None
    for other in arguments:
        for dim, symbol in enumerate(graph.values[other].get("symbols") or ()):
            if symbol == facts.get("symbol"):
                return other, dim
    return None


def _is_large(graph: GraphProgram, arguments: list[str]) -> bool:
    """Return whether the arguments are too large to allocate for one probe, so that fake tensors
    are used.
    """
    total = 0
    for name in arguments:
        facts = graph.values[name]
        if facts["kind"] == "tensor":
            count = 1
            for size in facts["shape"]:
                count *= 2 if size is None else int(size)
            total += count * 8
    return total > LARGE_BYTES or (bool(graph.settings.get("fake")) and total > LARGE_BYTES // 16)


def _makers(name: str, facts: Mapping[str, Any]) -> list[str]:
    if facts["kind"] == "tensor":
        return value_properties.maker_rows(name, facts)
    value = facts.get("value")
    return [f"{name} = {2 if value is None else value!r}"]


def _marks(graph: GraphProgram, arguments: list[str], names: Mapping[str, str]) -> list[str]:
    """Return the lines that mark symbolic sizes as dynamic, unless all sizes are dynamic."""
    if graph.settings.get("dynamic") is True:
        return []
    rows = []
    for name in arguments:
        for dim, symbol in enumerate(graph.values[name].get("symbols") or ()):
            if symbol:
                rows.append(f"torch._dynamo.mark_dynamic({names[name]}, {dim})")
    return rows


def _nice_names(arguments: list[str], taken: Collection[str]) -> dict[str, str]:
    """Return short names: ``x``, ``y``, ``z``, ``w``, ``x4`` ...; a weight or bias is called so."""
    chosen: dict[str, str] = {}
    used = set(taken) | {"torch", "repro"}
    plain = iter(["x", "y", "z", "w", *(f"x{i}" for i in range(4, len(arguments) + 99))])
    for name in arguments:
        part = re.search(r"(weight|bias)_?$", name)
        nice = part[1] if part else next(n for n in plain if n not in used)
        number = 2
        while nice in used:
            nice = f"{part[1] if part else 'x'}{number}"
            number += 1
        chosen[name] = nice
        used.add(nice)
    return chosen


def _head(graph: GraphProgram) -> list[str]:
    modules = sorted({m for m, _, _ in graph.settings.get("configs", ())})
    return ["import torch", *(f"import {m}" for m in modules), *graph.imports]


def _group(graph: GraphProgram, body: list[str]) -> list[str]:
    """Return the lines of the process group and the mesh that the lines of ``body`` need."""
    text = "\n".join(body)
    has_mesh = re.search(rf"\b{process_group.MESH}\b", text)
    if "world_size" not in graph.settings or not (
        has_mesh or process_group.needs_process_group(text)
    ):
        return []
    count = int(graph.settings["world_size"])
    whole = {"shape": [count], "device": "cpu"}
    mesh = (
        next((v for v in graph.values.values() if v.get("kind") == "mesh"), whole)
        if has_mesh
        else None
    )
    return [
        process_group.TENSOR_IMPORT,
        *process_group.join_group_lines(int(graph.settings["rank"]), count, mesh),
    ]


def _definitions(graph: GraphProgram, defined: Iterable[str]) -> list[str]:
    settings = graph.settings
    sources = dict.fromkeys((*settings.get("sources", ()), *defined))
    rows = [row for source in sources for row in (*source.splitlines(), "")]
    rows += [f"{module}.{key} = {value}" for module, key, value in settings.get("configs", ())]
    if settings.get("default_dtype", "torch.float32") != "torch.float32":
        rows.append(f"torch.set_default_dtype({settings['default_dtype']})")
    return rows


def _entry_text(graph: GraphProgram, arguments: list[str]) -> entry_programs.EntryText:
    settings = graph.settings
    options = ", ".join(f"{key!r}: {text}" for key, text in (settings.get("options") or {}).items())
    words = {"backend": settings.get("backend"), "dynamic": settings.get("dynamic")}
    return entry_programs.enter_text(
        settings.get("entry") or entry_programs.COMPILE,
        "repro",
        entry_programs.given_names(arguments),
        {name: str(text) for name, text in words.items() if text is not None},
        f"{{{options}}}" if options else "",
    )


def _call(
    graph: GraphProgram, entered: entry_programs.EntryText, outputs: int, is_bare: bool
) -> list[str]:
    settings, call = graph.settings, entered.call
    rows = [*entered.before, *entered.each]
    if graph.is_training and outputs <= 1:
        rows += [f"out = {call}", *entered.backward("out.sum()")]
    elif graph.is_training:
        loss = "sum((t.sum() for t in out if t.requires_grad))"
        rows += [f"out = {call}", *entered.backward(loss)]
    else:
        rows.append(call)
    contexts = [
        f"torch.autocast({kind!r}, {dtype})" for kind, dtype in settings.get("autocast", ())
    ]
    if not settings.get("grad", True) and not is_bare:
        contexts.insert(0, "torch.no_grad()")
    if contexts:
        rows = [f"with {', '.join(contexts)}:", *(f"    {row}" for row in rows)]
    return rows
