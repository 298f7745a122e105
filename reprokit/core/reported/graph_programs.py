"""Make programs of what a trace has of a compile.

``TORCH_TRACE`` has the graph of Dynamo as Python text, which is in the public interface of torch,
and the graph of Inductor as a program for ``run_repro``, in operators of ATen.
"""

from __future__ import annotations

import ast
import contextlib
import re
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from reprokit.core.reported import recompile_programs
from reprokit.core.reported.graph_inputs import input_of
from reprokit.core.reported.made_programs import (
    Cleaner,
    GraphCall,
    MadeProgram,
    are_numbers,
    parsed,
    settings_of,
)
from reprokit.core.reported.repro_programs import NotConverted, program_of_repro
from reprokit.core.reported.trace_records import CompileRecord, RunRecord, backend_of
from reprokit.core.shared.source.tensors import tensor_text

BACKENDS = ("inductor", "eager", "aot_eager", "aot_eager_decomp_partition", "eager_noexcept")
"""Backends that are a part of torch."""
CALL = "the call that failed"
EXPORTED = "the exported program"
USUAL_SIZE = 8
MAX_PROGRAMS = 3
"""Graphs of a run without a failed compile that become programs."""
_SYMBOL = re.compile(r"[a-z]{1,2}\d{1,4}")
_RANGE = re.compile(r"\b(?P<name>s\d{1,4}): VR\[(?P<low>\d{1,9}), (?P<high>[\w-]{1,12})\]")
_SIZES = re.compile(r'(?<=: ")\w{2,4}\[[\w, ]{1,99}\]')
_NAME_OF_SIZE = re.compile(r"\bs\d{1,4}\b")
_SYMBOLIC = re.compile(r"\w+\[(?P<sizes>[^\]]{0,200})\]")


def programs_of_compile(row: CompileRecord) -> list[MadeProgram]:
    """Return the programs that show what a compile did, the one with public functions first.

    A graph of a backend that is not a part of torch shows nothing without that backend.
    """
    settings = list(row.settings)
    for text in row.runnables[:1]:
        settings += [one for one in settings_of(parsed(text)) if one not in settings]
    found = []
    backend = backend_of(row)
    grad = None if row.trains == row.infers else row.trains
    for text in reversed(row.graphs if backend in ("", *BACKENDS) else ()):
        made = program_of_dynamo_graph(text, row.tensors, settings, grad, backend)
        found += [made] if made is not None else []
    for text in reversed(row.exported):
        made = program_of_exported(text)
        found += [made] if made is not None else []
    if row.call:
        found.append(MadeProgram(row.call, CALL))
    for text in reversed(row.runnables):
        with contextlib.suppress(NotConverted, RecursionError):
            found.append(program_of_repro(text))
    return found


def programs_of_limit(row: CompileRecord, run: RunRecord) -> list[MadeProgram]:
    """Return the program of the calls that were compiled until the limit refused ``row``."""
    same = sorted(run.of_frame(row), key=lambda one: int(one.cid.partition("/")[2] or 0))
    guards = [one.recompiled_because[0] for one in same if one.recompiled_because]
    text = recompile_programs.program_of_recompiles(row.call, guards) if row.call else ""
    return [MadeProgram(text, "the calls that were compiled again")] if text else []


def programs_of_compiles(rows: Sequence[CompileRecord]) -> list[MadeProgram]:
    """Return a program for each of the last compiles with a graph, the last one first."""
    found = []
    for row in reversed(rows):
        for program in programs_of_compile(row)[:1]:
            is_exported = program.made_from == EXPORTED
            name = EXPORTED if is_exported else f"the graph of compile {row.cid}"
            found.append(replace(program, made_from=name))
        if len(found) == MAX_PROGRAMS:
            break
    return found


def program_of_dynamo_graph(
    text: str,
    tensors: Mapping[str, Mapping[str, Any]],
    settings: Sequence[str] = (),
    trains: bool | None = None,
    backend: str = "",
) -> MadeProgram | None:
    """Return the program of a graph as ``GraphModule.print_readable`` prints it; None where there
    is doubt.

    ``tensors`` are the descriptions of the inputs by their sources. A size that is a symbol gets
    the value that it had. The program calls backward if it ``trains``, and runs under
    ``torch.no_grad`` if it does not; None if that is not known.
    """
    tree = parsed(text)
    classes = [node for node in tree.body if isinstance(node, ast.ClassDef)]
    if len(classes) != 1:
        return None
    forward = _method(classes[0], "forward")
    if forward is None or forward.args.vararg or forward.args.kwarg:
        return None
    described = {re.sub(r"[^a-zA-Z0-9]+", "_", source): facts for source, facts in tensors.items()}
    symbols = _symbols(forward, described)
    inputs = []
    for argument in forward.args.args[1:]:
        made = _input_text(argument, described, symbols)
        if not made:
            return None
        inputs.append(made)
    graphs = _with_submodules(classes[0])
    if any(map(_undefined_attributes, graphs)):
        return None
    tree = ast.Module(list(graphs), [])
    cleaned = ast.unparse(ast.fix_missing_locations(Cleaner().visit(tree)))
    words: dict[str, Any] = {"dynamic": True} if symbols else {}
    words |= {"backend": backend} if backend in BACKENDS[1:] else {}
    needs_grad = any("requires_grad" in one for one in inputs)
    call = GraphCall(
        cleaned,
        classes[0].name,
        inputs,
        words,
        trains=bool(trains) and needs_grad,
        has_grad=trains is not False or not needs_grad,
        settings=settings,
    )
    return MadeProgram(call.program(), "the graph of Dynamo", factory=call.factory())


def program_of_exported(text: str) -> MadeProgram | None:
    """Return the program of an ``ExportedProgram`` as ``str()`` prints it; None where there is
    doubt. The print has ranges of the symbolic sizes and no values, so each gets one in its range.
    """
    start = text.find("class GraphModule(")
    graph, _, rest = text.partition("Graph signature:")
    if start < 0:
        return None
    lines = graph[graph.rfind("\n", 0, start) + 1 :]
    values = {
        found["name"]: _size_between(int(found["low"]), found["high"])
        for found in _RANGE.finditer(rest.partition("Range constraints:")[2])
    }
    sized = _SIZES.sub(
        lambda found: _NAME_OF_SIZE.sub(lambda one: str(values.get(one[0], one[0])), found[0]),
        textwrap.dedent(lines),
    )
    made = program_of_dynamo_graph(sized, {})
    return replace(made, made_from=EXPORTED) if made is not None else None


def _size_between(low: int, high: str) -> int:
    """Return a size in a range that torch prints: one that is not 0 or 1 if that is possible."""
    usual = max(low, USUAL_SIZE)
    return min(usual, int(high)) if high.isdigit() else usual


def _method(node: ast.ClassDef, name: str) -> ast.FunctionDef | None:
    return next(
        (one for one in node.body if isinstance(one, ast.FunctionDef) and one.name == name), None
    )


def _symbols(
    forward: ast.FunctionDef, described: Mapping[str, Mapping[str, Any]]
) -> dict[str, int]:
    """Return the values of symbolic sizes, from the sizes of the described tensors."""
    found: dict[str, int] = {}
    for argument in forward.args.args[1:]:
        facts = described.get(argument.arg)
        text = argument.annotation.value if isinstance(argument.annotation, ast.Constant) else ""
        sizes = _SYMBOLIC.match(str(text))
        if facts is None or sizes is None:
            continue
        names = [name.strip() for name in sizes["sizes"].split(",") if name.strip()]
        values: Any = facts.get("size")
        for name, size in zip(names, values if are_numbers(values) else (), strict=False):
            if _SYMBOL.fullmatch(name):
                found[name] = size
    return found


def _input_text(
    argument: ast.arg, described: Mapping[str, Mapping[str, Any]], symbols: Mapping[str, int]
) -> str:
    """Return the expression of one input; empty where there is doubt."""
    text = argument.annotation.value if isinstance(argument.annotation, ast.Constant) else ""
    if isinstance(text, str) and (found := re.fullmatch(r"Sym\((\w+)\)", text.strip())):
        if found[1].lstrip("-").isdigit():
            return found[1]
        return str(symbols[found[1]]) if found[1] in symbols else ""
    facts = described.get(argument.arg)
    if facts is None:
        return input_of(argument.annotation)
    sizes, strides = facts.get("size"), facts.get("stride")
    device = re.search(r"type='([a-z]{1,12})'(?:, index=(\d{1,3}))?", str(facts.get("device")))
    if not are_numbers(sizes) or not are_numbers(strides) or device is None:
        return input_of(argument.annotation)
    where = device[1] if device[1] == "cpu" or device[2] is None else f"{device[1]}:{device[2]}"
    try:
        return tensor_text(
            {
                "shape": sizes,
                "stride": strides,
                "device": where,
                "dtype": facts.get("dtype"),
                "requires_grad": facts.get("requires_grad") is True,
                "is_computed": facts.get("is_leaf") is not True,
            }
        )
    except (ValueError, TypeError):
        return ""


def _with_submodules(node: ast.ClassDef) -> list[ast.ClassDef]:
    """Return the class of a graph behind those of the modules that are printed inside of it.

    A class inside of the class would hide the module of the same name.
    """
    found: list[ast.ClassDef] = []
    text = ast.unparse(node)
    used = [
        one for one in node.body if isinstance(one, ast.ClassDef) and f"self.{one.name}" in text
    ]
    node.body = [one for one in node.body if not isinstance(one, ast.ClassDef)]
    rows = ["super().__init__()"]
    for one in used:
        name = one.name
        one.name = f"{node.name}_{name}"
        found += _with_submodules(one)
        rows.append(f"self.{name} = {one.name}()")
    if used:
        made = ast.parse("def __init__(self):\n    " + "\n    ".join(rows)).body[0]
        node.body.insert(0, made)
    return [*found, node]


def _undefined_attributes(node: ast.ClassDef) -> set[str]:
    """Return the attributes of ``self`` that a graph reads and that its text does not set."""
    stored, read = set[str](), set[str]()
    for one in ast.walk(node):
        if isinstance(one, ast.Attribute) and ast.unparse(one.value) == "self":
            (stored if isinstance(one.ctx, ast.Store) else read).add(one.attr)
    return read - stored
