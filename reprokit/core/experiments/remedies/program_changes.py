"""Changed lines of the user's own program that may avoid its recompiles or graph breaks.

Each change is a whole program, which is run before anybody reads about it.
"""

from __future__ import annotations

import ast
import dataclasses
import re
from collections.abc import Iterator

from reprokit.core.experiments.ablation import CHANGES, CompileVariant
from reprokit.core.experiments.remedies.moved_out import moved_out
from reprokit.core.judge.responsible.documented_limits import specialization
from reprokit.core.judge.stacks.location import plural
from reprokit.core.records.finding import Verdict
from reprokit.core.records.observation import Observation
from reprokit.core.reduce.ast_edits import index_after_imports, last_name

MAX_CHANGES = 3
"""Limit of the changes that are tried."""
_ATTRIBUTE = re.compile(r"[\w.\[\]'\"]*\.(?P<name>\w+) == -?\d")
"""A guard on the number that an attribute has."""
_GLOBAL = re.compile(r"G\[['\"](?P<name>\w+)['\"]\] == -?\d")
"""A guard on the number that a global variable has."""
_SIZE = re.compile(r"tensor '(?P<name>[A-Za-z_]\w*)' size mismatch at index (?P<dim>\d+)\b")
"""A guard on the size of a tensor that has a name of its own."""
_LATER = "reorderable_logging_functions"
"""The setting that moves logging calls behind the graph, which Dynamo's hints name."""
_MESSAGES = frozenset(
    "print pprint breakpoint debug info warning warn error exception log write graph_break".split()
)
"""Functions that a program can do without."""
_TO_NUMBER = ("float", "int", "bool")

Replacement = tuple[ast.expr | ast.stmt, str]
"""A part of the program, and its new text."""


def changes_for(
    verdict: Verdict, seen: Observation, program: str, line: str
) -> list[CompileVariant]:
    """Return changes of ``program`` that may avoid the failure, the smallest first.

    ``line`` is the text of the user's line that the verdict names.
    """
    try:
        tree = ast.parse(program)
    except (SyntaxError, ValueError):
        return []
    changes: list[CompileVariant] = []
    if verdict.kind in ("recompile-limit", "recompile-storm"):
        changes += _for_recompiles(seen, tree, program)
        changes += moved_out(tree, program, line) if line else []
    elif verdict.kind == "exception" and specialization(seen):
        marks = [c.func for c in ast.walk(tree) if isinstance(c, ast.Call)]
        named = [f for f in marks if isinstance(f, ast.Attribute) and f.attr == "mark_dynamic"]
        owners = [(f, ast.get_source_segment(program, f.value)) for f in named]
        changes += _variant(program, [(f, f"{text}.maybe_mark_dynamic") for f, text in owners])
    elif verdict.kind == "graph-break" and line:
        statements = _statements_at(tree, program, line)
        hints = " ".join(hint for broken in seen.breaks for hint in broken.hints)
        if _LATER in hints and re.match(r"print\(", line):
            changes += _print_later(tree, program)
        changes += _variant(program, [p for s in statements for p in _without_number(s, program)])
        changes += moved_out(tree, program, line)
        changes += _variant(program, [p for s in statements for p in _without_statement(s)])
    return changes[:MAX_CHANGES]


def _for_recompiles(seen: Observation, tree: ast.Module, program: str) -> list[CompileVariant]:
    """Return the program in which every number that changes in most recompiles is a tensor.

    If sizes change too, they are marked as dynamic in the same variant.
    """
    found: dict[int, Replacement] = {}
    for guards in seen.recompiled[0].changing if seen.recompiled else ():
        ways = ((_ATTRIBUTE, _numbers_of_attribute), (_GLOBAL, _numbers_of_global))
        for pattern, replacements in ways:
            if match := pattern.match(guards[-1]):
                rows = replacements(tree, program, match["name"])
                found.update((id(node), (node, text)) for node, text in rows)
    changes = _variant(program, list(found.values()))
    marked = mark_sizes(seen)
    if not changes or not marked:
        return changes
    (change,), (sizes,) = changes, marked
    overrides = {**change.overrides, **sizes.overrides}
    name = f"{change.name}, and {sizes.name}"
    return [dataclasses.replace(change, name=name, overrides=overrides)]


def sizes_to_mark(seen: Observation) -> dict[str, list[int]]:
    """Return the tensors whose changing sizes cause recompiles, with their dimensions."""
    sizes: dict[str, set[int]] = {}
    for guard in seen.recompiled[0].guards if seen.recompiled else ():
        if match := _SIZE.search(guard):
            sizes.setdefault(match["name"], set()).add(int(match["dim"]))
    return {name: sorted(dims) for name, dims in sizes.items()}


def mark_sizes(seen: Observation) -> list[CompileVariant]:
    """Return the variant that marks the changing sizes as dynamic; none if no size changes."""
    sizes = sizes_to_mark(seen)
    calls = [
        f"torch._dynamo.mark_dynamic({name}, {dims[0] if len(dims) == 1 else dims})"
        for name, dims in sizes.items()
    ]
    if not calls:
        return []
    name = f"{'; '.join(calls)} before each call"
    return [CompileVariant(name, "switches", {"dynamic_sizes": sizes})]


def mark_written(line: str) -> list[CompileVariant]:
    """Return the variant that marks the addresses of the tensors that a line writes as static."""
    try:
        (statement,) = ast.parse(line.removesuffix(":")).body
    except (SyntaxError, ValueError):
        return []
    written: list[ast.expr] = []
    if isinstance(statement, ast.Assign):
        written = [t for t in statement.targets if isinstance(t, ast.Subscript)]
    elif isinstance(statement, ast.AugAssign):
        written = [statement.target]
    for call in (node for node in ast.walk(statement) if isinstance(node, ast.Call)):
        if isinstance(call.func, ast.Attribute) and call.func.attr.endswith("_"):
            written.append(call.func.value)
    names = []
    for node in written:
        while isinstance(node, ast.Subscript):
            node = node.value
        names += [node.id] if isinstance(node, ast.Name) else []
    if not names:
        return []
    calls = "; ".join(f"torch._dynamo.mark_static_address({name})" for name in names)
    return [CompileVariant(f"{calls} before the call", "switches", {"static_inputs": names})]


def _numbers_of_attribute(tree: ast.Module, program: str, name: str) -> Iterator[Replacement]:
    """Yield the values that become an attribute, each as a tensor."""
    for node in ast.walk(tree):
        targets = node.targets if isinstance(node, ast.Assign) else ()
        if isinstance(node, ast.AnnAssign) and node.value is not None:
            targets = [node.target]
        if not any(isinstance(t, ast.Attribute) and t.attr == name for t in targets):
            continue
        assert isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None
        yield from _as_tensor(node.value, program, rf"\.{name}\b")


def _numbers_of_global(tree: ast.Module, program: str, name: str) -> Iterator[Replacement]:
    """Yield the values that become a global variable, each as a tensor."""
    functions = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ClassDef)
    pending: list[tuple[ast.AST, bool]] = [(tree, True)]
    while pending:
        node, is_global = pending.pop()
        if isinstance(node, functions):
            declared = [n for n in ast.walk(node) if isinstance(n, ast.Global)]
            is_global = any(name in n.names for n in declared)
        targets = node.targets if isinstance(node, ast.Assign) else ()
        if isinstance(node, ast.AnnAssign) and node.value is not None:
            targets = [node.target]
        if is_global and any(isinstance(t, ast.Name) and t.id == name for t in targets):
            assert isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None
            yield from _as_tensor(node.value, program, rf"\b{name}\b")
        pending += [(child, is_global) for child in ast.iter_child_nodes(node)]


def _as_tensor(node: ast.expr, program: str, own: str) -> Iterator[Replacement]:
    """Yield a value as a tensor, unless it depends on the variable ``own`` that becomes one."""
    value = ast.get_source_segment(program, node) or ""
    if value and "torch." not in value and re.search(own, value) is None:
        yield node, f"torch.tensor({value})"


def _statements_at(tree: ast.Module, program: str, line: str) -> list[ast.stmt]:
    """Return the statements without a body that begin with a line, or have it."""
    lines = program.splitlines()
    return [
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.Expr | ast.Assign | ast.AugAssign | ast.AnnAssign | ast.Return)
        and any(
            lines[n - 1].strip() == line
            for n in range(node.lineno, (node.end_lineno or node.lineno) + 1)
        )
    ]


def _without_number(statement: ast.stmt, program: str) -> Iterator[Replacement]:
    """Yield the expressions that make a number of a tensor, each as the tensor."""
    for node in ast.walk(statement):
        if not isinstance(node, ast.Call) or node.keywords:
            continue
        function: ast.expr | None = None
        if isinstance(node.func, ast.Attribute) and node.func.attr == "item" and not node.args:
            function = node.func.value
        elif isinstance(node.func, ast.Name) and node.func.id in _TO_NUMBER and len(node.args) == 1:
            function = node.args[0]
        if function is not None and (text := ast.get_source_segment(program, function)):
            yield node, text
            return


def _without_statement(statement: ast.stmt) -> Iterator[Replacement]:
    """Yield a statement that only writes a message, as ``pass``."""
    call = statement.value if isinstance(statement, ast.Expr) else None
    if isinstance(call, ast.Call) and last_name(call.func) in _MESSAGES:
        yield statement, "pass"


def _print_later(tree: ast.Module, program: str) -> list[CompileVariant]:
    """Return the program in which calls of ``print`` run after the graph."""
    index = index_after_imports(tree)
    if index >= len(tree.body):
        return []
    line, rows = f"torch._dynamo.config.{_LATER}.add(print)", program.splitlines(keepends=True)
    first = tree.body[index]
    number = min([first.lineno, *(d.lineno for d in getattr(first, "decorator_list", []))]) - 1
    old = rows[number].rstrip("\n")
    text = "".join([*rows[:number], f"import torch._dynamo\n{line}\n", *rows[number:]])
    return [CompileVariant(line, CHANGES, {"replaces": {old: f"{line}\n{old}"}}, program=text)]


def _variant(program: str, replaced: list[Replacement]) -> list[CompileVariant]:
    """Return the program with the replaced parts, named by its first changed line."""
    if not replaced:
        return []
    rows = program.splitlines(keepends=True)
    changed = [*rows]
    # from the end, so that the positions of those before stay the same
    in_order = sorted(replaced, key=lambda pair: (pair[0].lineno, pair[0].col_offset))
    for node, text in reversed(in_order):
        first, last = node.lineno - 1, (node.end_lineno or node.lineno) - 1
        # columns are counted in bytes
        head = changed[first].encode()[: node.col_offset].decode()
        tail = changed[last].encode()[node.end_col_offset or 0 :].decode()
        changed[first : last + 1] = [head + text + tail, *[""] * (last - first)]
    first = in_order[0][0].lineno - 1
    old, new = rows[first].strip(), changed[first].strip()
    more = len({n.lineno for n, _ in replaced}) - 1
    others = f" (and {plural(more, 'more line')})" if more else ""
    name = f"without `{old}`" if new == "pass" else f"`{new}` instead of `{old}`{others}"
    lines = {
        rows[n].rstrip("\n"): changed[n].rstrip("\n")
        for n in range(len(rows))
        if rows[n] != changed[n]
    }
    return [CompileVariant(name, CHANGES, {"replaces": lines}, program="".join(changed))]
