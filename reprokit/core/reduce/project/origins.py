"""Cut a program by what one run records: blocks that never ran are left out, what comes from
outside becomes literals and tensors of the same metadata, and settings become their values.

A value comes from outside if it depends on a module other than torch, or on a call that reads: a
file, a data loader, a tokenizer, the command line. :func:`recording_program` makes a copy of a
program that records such values, ``agent/serve/value_recorder.py`` describes them in a run, and
:func:`cut_program` tries to put constants in their place.
"""

from __future__ import annotations

import ast
import functools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from reprokit.core.reduce.ast_edits import (
    Path,
    Test,
    is_definition,
    last_name,
    node_at,
    replace_node,
    text_of,
    walk_places,
)
from reprokit.core.reduce.project import blocks, entry_text, inner_calls, value_texts
from reprokit.core.reduce.project.chosen_edits import ChosenEdits, Edit
from reprokit.core.reduce.project.tensor_values import OF_TENSORS, names_of_tensor_values

RECORDER = "_reprokit_values"
"""The name by which the copy of the program calls the recorder."""
RECORDER_MODULE = "_reprokit.agent.serve.value_recorder"
READERS = frozenset({"open", "input", "load", "from_file", "read", "DataLoader", "from_pretrained"})
"""Names of functions whose results come from outside."""
PLAIN = frozenset("torch math __future__ typing dataclasses functools collections".split())
"""Modules that read nothing."""
OUTSIDE, INSIDE, LOOKUP, SETTING = "outside", "inside", "lookup", "setting"
"""An expression that is computed from outside, one inside a class or a compiled function, one that
looks something up, such as a class in a registry, and an attribute, such as ``config.hidden``.
"""
_RECORDED_BY = {LOOKUP: "definition", SETTING: "setting"}
"""The function of the recorder for each kind; ``value`` for the others."""
_NO_VALUES = frozenset(
    {"annotation", "returns", "optional_vars", "cases", "decorator_list", "bases"}
)
"""The fields of nodes in which an expression is not replaced."""
LOOKUPS = frozenset({"get", "getattr"})
SETTING_PARTS = 8
"""The most parts into which the settings of a program are divided, if not all of them can be
replaced: it may have many, and 15 programs are tried at most.
"""
MIN_BLOCKS = 6
"""With fewer blocks, a program without values from outside is not run for them."""
MAX_REPEATS = 64
"""The most iterations of a loop over values from outside; a loop with more is not changed."""


@dataclass(frozen=True)
class RecordedValues:
    """What a run of the recording program saw, by the number of the expression or the loop."""

    values: Mapping[int, Mapping[str, Any]]
    """The description of a value that was alike at each evaluation."""
    loops: Mapping[int, tuple[int, Mapping[str, Mapping[str, Any]]]]
    """The iterations of a loop, and the description of each variable that it assigns."""
    ran: frozenset[int] = frozenset()
    """The blocks that ran, by their numbers in ``blocks.blocks_of``; empty if none was recorded."""
    calls: tuple[inner_calls.InnerCall, ...] = ()
    """The first call of each function, in the order in which they began."""


def recording_program(text: str, needs_calls: bool = False) -> str:
    """Return a copy of a program that records its values from outside, the blocks that run and the
    calls of functions; empty if it has no such value, too few blocks, and its calls do not matter.
    """
    tree = ast.parse(text)
    names = _outside_names(tree)
    loops = list(_loops(tree, names))
    places = list(_expressions(tree, names))
    every = [block for _, _, block in blocks.blocks_of(tree)]
    has_values = any(
        kind != SETTING and (kind != LOOKUP or path[-1][0] == "func") for path, kind in places
    )
    if not (needs_calls or has_values or loops or len(every) >= MIN_BLOCKS):
        return ""
    # the innermost first, and bodies of loops last, so that the paths stay valid
    for number, (path, kind) in reversed(list(enumerate(places))):
        node = node_at(tree, path)
        function = _recorder(_RECORDED_BY.get(kind, "value"))
        call = ast.Call(function, [ast.Constant(number), node], [])
        replace_node(tree, path, [call])
    for number, path in reversed(list(enumerate(loops))):
        loop = node_at(tree, path)
        rows = [ast.keyword(name, ast.Name(name, ast.Load())) for name in _assigned(loop.target)]
        call = ast.Call(_recorder("iteration"), [ast.Constant(number)], rows)
        loop.body.insert(0, ast.Expr(call))
        begins = ast.Call(_recorder("started"), [ast.Constant(number)], [])
        # it returns None, so the loop goes over its own values
        loop.iter = ast.BoolOp(ast.Or(), [begins, loop.iter])
    for number, block in enumerate(every):
        call = ast.Call(_recorder("ran"), [ast.Constant(number)], [])
        block.insert(0, ast.Expr(call))
    inner_calls.record_calls(tree, _recorder("called"))
    head = entry_text.head_of(tree)
    package, _, module = RECORDER_MODULE.rpartition(".")
    start = ast.ImportFrom(package, [ast.alias(module, RECORDER)], 0)
    tree.body = [*head, start, *(n for n in tree.body if n not in head)]
    return text_of(tree)


def reads_from_outside(text: str) -> bool:
    """Return whether a program has values from outside, as far as its text shows."""
    tree = ast.parse(text)
    names = _outside_names(tree)
    kinds = [kind for _, kind in _expressions(tree, names)]
    has_values = any(kind not in _RECORDED_BY for kind in kinds)
    return has_values or any(True for _ in _loops(tree, names))


def cut_program(text: str, recorded: RecordedValues, test: Test, compares: bool = False) -> str:
    """Return the program without blocks that never ran, and with as many of its values from outside
    replaced as ``test`` allows.

    The outermost expressions and the loops are tried first: all at once, then by halves. Tensors of
    random numbers are tried first, and then fixed ones, where that is different. Then come
    settings, and last what is inside classes and compiled functions, such as the result of a model
    of a library. If ``compares``, results are compared, so no function draws random numbers in
    their place.
    """
    tree = ast.parse(text)
    chosen = ChosenEdits(tree, test)
    if recorded.ran:
        chosen.add_most(blocks.edits_without(tree, recorded.ran))
    tried: list[Edit] = []
    names = _outside_names(tree)
    loops, expressions = list(_loops(tree, names)), list(_expressions(tree, names))
    for kinds, is_fixed in (
        ((OUTSIDE, LOOKUP), False),
        ((OUTSIDE, LOOKUP), True),
        ((SETTING,), False),
        ((INSIDE,), False),
    ):
        edits = _edits_of_values(
            tree,
            recorded,
            loops if OUTSIDE in kinds else [],
            [(n, path) for n, (path, kind) in enumerate(expressions) if kind in kinds],
            is_fixed,
            compares,
        )
        while rest := [e for e in edits if not e.is_done(chosen.edits) and e not in tried]:
            outer = [e for e in rest if not e.is_in(rest)]
            parts = SETTING_PARTS if SETTING in kinds else len(outer)
            chosen.add_most(outer, -(-len(outer) // parts))
            tried += outer
    return chosen.text or text


def _edits_of_values(
    tree: ast.Module,
    recorded: RecordedValues,
    loops: Sequence[Path],
    expressions: Sequence[tuple[int, Path]],
    is_fixed: bool,
    compares: bool,
) -> list[Edit]:
    """Return the edits that put constants in place of expressions, each with its number, and of
    loops over values from outside: only those with fixed numbers, if that is wanted.
    """
    edits: list[Edit] = []

    def write(path: Path, described: Mapping[str, Any]) -> ast.expr | None:
        is_random = not (compares and is_definition(node_at(tree, path[:1])))
        return value_texts.expression_of(described, is_fixed, is_random)

    for number, path in enumerate(loops):
        if number in recorded.loops:
            count, variables = recorded.loops[number]
            if not is_fixed or any(map(value_texts.can_be_fixed, variables.values())):
                writes = functools.partial(write, path)
                loop = _plain_loop(node_at(tree, path), count, variables, writes)
                edits += [Edit(path, loop, kept="body")] if loop is not None else []
    for number, path in expressions:
        described = recorded.values.get(number) or {}
        if not is_fixed or value_texts.can_be_fixed(described):
            value = write(path, described)
            edits += [Edit(path, value)] if value is not None else []
    return edits


def _recorder(name: str) -> ast.expr:
    return ast.Attribute(ast.Name(RECORDER, ast.Load()), name, ast.Load())


def _outside_names(tree: ast.Module) -> set[str]:
    """Return the names whose values come from outside, or are made of such values.

    The results of compiled functions are not among them.
    """
    names: set[str] = set()
    compiled = _compiled_names(tree)
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names |= {(a.asname or a.name).split(".")[0] for a in node.names if _is_outside(a.name)}
        elif isinstance(node, ast.ImportFrom) and _is_outside(node.module or ""):
            names |= {a.asname or a.name for a in node.names}
    while True:
        before = len(names)
        for node in ast.walk(tree):
            if isinstance(node, ast.Assign) and _is_from_outside(node.value, names):
                if any(isinstance(n, ast.Name) and n.id in compiled for n in ast.walk(node.value)):
                    continue
                names |= {name for target in node.targets for name in _assigned(target)}
            elif isinstance(node, (ast.For, ast.comprehension)) and _is_from_outside(
                node.iter, names
            ):
                names |= set(_assigned(node.target))
            elif isinstance(node, ast.withitem) and _is_from_outside(node.context_expr, names):
                names |= set(_assigned(node.optional_vars or ast.Pass()))
        for row in tree.body:
            if (
                isinstance(row, ast.FunctionDef)
                and not row.decorator_list
                and row.name not in compiled
                and _is_from_outside(row, names)
            ):
                names.add(row.name)
        if len(names) == before:
            return names


def _compiled_names(tree: ast.Module) -> set[str]:
    """Return the names of functions that are compiled, and of the results of ``torch.compile``."""
    found: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign) and "torch.compile(" in ast.unparse(node.value):
            found |= {name for target in node.targets for name in _assigned(target)}
        elif isinstance(node, ast.FunctionDef) and any(
            "compile" in ast.unparse(decorator) for decorator in node.decorator_list
        ):
            found.add(node.name)
        elif isinstance(node, ast.Call) and ast.unparse(node.func) == "torch.compile":
            found |= {a.id for a in node.args if isinstance(a, ast.Name)}
    return found


def _is_outside(module: str) -> bool:
    return module.split(".")[0] not in PLAIN or module.startswith("torch.utils.data")


def _is_from_outside(node: ast.AST, names: set[str]) -> bool:
    return any(
        (isinstance(n, ast.Name) and n.id in names)
        or (isinstance(n, ast.Call) and last_name(n.func) in READERS)
        for n in ast.walk(node)
    )


def _assigned(target: ast.AST) -> list[str]:
    return [n.id for n in ast.walk(target) if isinstance(n, ast.Name) and n.id != "_"]


def _loops(tree: ast.Module, names: set[str]) -> Iterator[Path]:
    for path, node, is_inside in _walk(tree):
        is_loop = isinstance(node, ast.For) and not node.orelse and not is_inside
        if is_loop and _is_from_outside(node.iter, names):  # type: ignore[attr-defined]
            yield path


def _expressions(tree: ast.Module, names: set[str]) -> Iterator[tuple[Path, str]]:
    """Yield the expressions that are computed from values from outside, the outermost first,
    lookups, which may give a function or a class of the program, and settings; each with its kind.
    """
    compiled = _compiled_names(tree)
    not_settings = _module_names(tree) | names_of_tensor_values(tree)
    for path, node, is_inside in _walk(tree):
        is_value = isinstance(node, (ast.Call, ast.Attribute, ast.Subscript, ast.Name))
        if not is_value or not isinstance(getattr(node, "ctx", ast.Load()), ast.Load):
            continue
        if any(field in _NO_VALUES for field, _ in path):
            continue
        is_place = path[-1][0] == "func"
        is_place |= isinstance(node, ast.Call) and (
            last_name(node.func) in compiled | OF_TENSORS or "torch.compile(" in ast.unparse(node)
        )
        if not is_place and _is_from_outside(node, names):
            yield path, INSIDE if is_inside else OUTSIDE
        elif isinstance(node, ast.Subscript) or (
            isinstance(node, ast.Call) and last_name(node.func) in LOOKUPS
        ):
            yield path, LOOKUP
        elif isinstance(node, ast.Attribute) and not (
            path[-1][0] == "func" or node.attr.startswith("__")
        ):
            root, *parts = ast.unparse(node).split(".")
            if root.isidentifier() and not_settings.isdisjoint((root, *parts)):
                yield path, SETTING


def _module_names(tree: ast.Module) -> set[str]:
    """Return the names of imported modules, and of what is imported from them."""
    rows = [node for node in ast.walk(tree) if isinstance(node, (ast.Import, ast.ImportFrom))]
    return {(a.asname or a.name).split(".")[0] for row in rows for a in row.names}


def _walk(tree: ast.Module) -> Iterator[tuple[Path, ast.AST, bool]]:
    """Yield the nodes, each with its path and whether it is in a class or a compiled function."""
    compiled = _compiled_names(tree)
    inside: list[Path] = []
    for path, node in walk_places(tree):
        is_function = isinstance(node, ast.FunctionDef) and (node.name in compiled)
        if isinstance(node, ast.ClassDef) or is_function:
            inside.append(path)
        yield path, node, any(path[: len(one)] == one for one in inside)


def _plain_loop(
    loop: ast.For,
    count: int,
    variables: Mapping[str, Mapping[str, Any]],
    write: Callable[[Mapping[str, Any]], ast.expr | None],
) -> ast.For | None:
    """Return the start of a loop that assigns values like the recorded ones."""
    if not 0 < count <= MAX_REPEATS:
        return None
    target = "_"
    rows: list[ast.stmt] = []
    for name in _assigned(loop.target):
        described = variables.get(name, {})
        if described.get("is_index") and target == "_":
            target = name
        elif described.get("is_index"):
            rows.append(ast.Assign([ast.Name(name, ast.Store())], ast.Name(target, ast.Load())))
        elif (value := write(described)) is not None:
            rows.append(ast.Assign([ast.Name(name, ast.Store())], value))
        else:
            return None
    counted = ast.Call(ast.Name("range", ast.Load()), [ast.Constant(count)], [])
    return ast.For(ast.Name(target, ast.Store()), counted, rows, [])


def read_values(rows: Iterable[Mapping[str, Any]]) -> RecordedValues:
    """Return what the recorder wrote; a later row about the same value replaces an earlier one."""
    values: dict[int, Mapping[str, Any]] = {}
    variables: dict[int, dict[str, Mapping[str, Any]]] = {}
    counts: dict[int, int] = {}
    ran: set[int] = set()
    calls: list[inner_calls.InnerCall] = []
    for row in rows:
        number = int(row["number"])
        if row["what"] == "ran":
            ran.add(number)
        elif row["what"] == "called":
            calls.append(inner_calls.InnerCall(number, row["arguments"]))
        elif row["what"] == "value":
            values[number] = row["described"]
        elif row["what"] == "loop":
            variables.setdefault(number, {})[str(row["name"])] = row["described"]
        else:
            counts[number] = int(row["count"])
    loops = {number: (count, variables.get(number, {})) for number, count in counts.items()}
    return RecordedValues(values, loops, frozenset(ran), tuple(calls))
