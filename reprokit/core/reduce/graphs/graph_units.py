"""Read a recorded graph as a list of units that can be left out.

FX writes a graph as straight-line Python with one node per line, so a candidate is a subset of the
lines.
"""

from __future__ import annotations

import ast
import functools
import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from reprokit.core.reduce.ast_edits import copy_tree
from reprokit.core.reduce.graphs.higher_order import Body, GraphParts, rewrite_calls
from reprokit.core.shared.operators import is_torch_namespace
from reprokit.core.shared.source import entry_programs, process_group

MAX_NAME = 40
"""A longer name of a constant, such as that of the state of an optimizer, is the path on which
Dynamo found it, and is not written.
"""
_ITEM = re.compile(r"\.(item|tolist)\(\)")
_SCALAR_OUTPUTS = ("torch._dynamo.config", "capture_scalar_outputs", "True")
"""The setting without which Dynamo ends a graph at a number out of a tensor. It is on for a
compiled optimizer, and with ``fullgraph=True``, although the program does not set it.
"""


class Unreadable(Exception):
    """The recorded text is not a graph that can be divided into units."""


@dataclass(frozen=True)
class GraphUnit:
    """One line of the graph."""

    statements: tuple[ast.stmt, ...]
    writes: tuple[str, ...]
    reads: tuple[str, ...]

    @functools.cached_property
    def text(self) -> str:
        """The source text of the unit."""
        return "; ".join(ast.unparse(s) for s in self.statements)

    @property
    def kind(self) -> str:
        """The text of the unit without names and numbers: equal for units with the same
        operator.
        """
        names = "|".join(re.escape(n) for n in (*self.reads, *self.writes))
        return re.sub(rf"(?<![.\w])({names}|\d+)\b", "_", self.text)  # not the relu of torch.relu


@dataclass(frozen=True)
class GraphProgram:
    """A recorded graph, divided into units."""

    units: tuple[GraphUnit, ...]
    values: Mapping[str, Mapping[str, Any]]
    """The metadata of every tensor and number, by name."""
    imports: tuple[str, ...]
    bodies: tuple[Body, ...]
    """Functions and classes that the units name: bodies of higher-order operators, innermost
    first."""
    constants: Mapping[str, str]
    """The texts that make the tensors that are attributes of the graph's module, by name."""
    settings: Mapping[str, Any]
    returns: tuple[str, ...] = ()
    level: str = "dynamo"
    is_training: bool = False
    """The program runs the backward of the returned values."""
    definitions: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """The definitions of the user's own operators (``mine::scale``), kernels and classes, by what
    the units call them."""
    undefined: Mapping[str, str] = field(default_factory=dict)
    """Why an operator has no definition."""

    seed: int | None = None
    """The seed of a program whose random values matter."""

    def bodies_of(self, names: Collection[str]) -> list[Body]:
        """Return the bodies that the names need, innermost first."""
        by_name = {b.name: b for b in self.bodies}
        wanted, waiting = set[str](), [n for n in names if n in by_name]
        while waiting:
            if (name := waiting.pop()) not in wanted:
                wanted.add(name)
                waiting += [n for n in _names_in(by_name[name]) if n in by_name]
        return [b for b in self.bodies if b.name in wanted]

    def own_operators(self, unit: GraphUnit) -> list[str]:
        """Return the user's own operators, kernels and classes that a unit and its bodies use."""
        bodies = self.bodies_of(unit.reads)
        texts = [unit.text, *(ast.unparse(b) for b in bodies)]
        names = {*unit.reads, *(n for b in bodies for n in _names_in(b))}
        return [
            *dict.fromkeys(name for text in texts for name in own_operators(text)),
            *(n for n in self.definitions if n in names),
        ]

    def classes_of(self, name: str) -> list[str]:
        """Return the user's own classes in the text that makes a value."""
        made_by = str(self.values[name].get("made_by") or "")
        return [n for n in self.definitions if re.search(rf"\b{re.escape(n)}\b", made_by)]

    def why_undefined(self, unit: GraphUnit) -> str:
        """Return the operator of a unit that the program cannot define, and why; empty if there is
        none.
        """
        for name in self.own_operators(unit):
            if name not in self.definitions:
                return f"{name}: {self.undefined.get(name, 'its definition was not recorded')}"
        return ""


def own_operators(text: str) -> list[str]:
    """Return the operators in a text that ``import torch`` does not define, as ``mine::scale``."""
    found = re.findall(r"\btorch\.ops\.(\w+)\.(\w+)", text)
    # these take an index into a table of the process, or graph modules
    wrapped = re.findall(r"\b(autograd_function_apply|triton_kernel_wrapper\w+)\(", text)
    return [f"{space}::{name}" for space, name in found if not is_torch_namespace(space)] + wrapped


def _names_in(tree: ast.AST) -> set[str]:
    return {n.id for n in ast.walk(tree) if isinstance(n, ast.Name)}


@dataclass
class _Class:
    forward: ast.FunctionDef
    children: dict[str, str] = field(default_factory=dict)
    constants: dict[str, str] = field(default_factory=dict)


def read_graph(
    source: str,
    values: Mapping[str, Any],
    settings: Mapping[str, Any],
    level: str,
    is_training: bool,
    definitions: Mapping[str, Any] | None = None,
    undefined: Mapping[str, Any] | None = None,
) -> GraphProgram:
    """Read a ``graph.py`` that the agent wrote; raises Unreadable for anything else.

    ``definitions`` and ``undefined`` are as in ``GraphProgram``.
    """
    _check(settings)
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError, RecursionError) as problem:
        raise Unreadable(f"the recorded graph does not parse: {problem}") from problem
    imports, classes = [], {}
    defined = {name: tuple(map(str, rows)) for name, rows in (definitions or {}).items()}
    own = {ast.unparse(row) for rows in defined.values() for row in _statements(rows)}
    for node in tree.body:
        if ast.unparse(node) in own:
            continue
        is_mesh = (
            isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == process_group.MESH
        )
        # a program of some units makes its own mesh
        if isinstance(node, (ast.Import, ast.ImportFrom, ast.Assign)) and not is_mesh:
            imports.append(ast.unparse(node))
        elif isinstance(node, ast.ClassDef):
            classes[node.name] = _class(node)
    if "Repro" not in classes:
        raise Unreadable("the recorded graph has no class Repro")
    parts = GraphParts([], {}, values)
    units = _function(classes, "Repro", "", parts)
    if settings.get("entry") in entry_programs.WITHOUT_DYNAMO:
        # the parameters of an exported program become inputs
        units = [u for u in units if not _reads_parameter(u, values)]
        parts.constants = {n: text for n, text in parts.constants.items() if n not in values}
        values = {
            name: {**facts, "requires_grad": False} if "requires_grad" in facts else facts
            for name, facts in values.items()
        }
    *lines, last = units
    if not isinstance(last.statements[-1], ast.Return):
        raise Unreadable("the recorded graph does not return")
    placeholders = [a.arg for a in classes["Repro"].forward.args.args[1:]]
    usable = {
        name: facts
        for name, facts in values.items()
        if process_group.can_distribute(facts.get("placements"))
    }
    kept, known = _without_aliases(lines, placeholders, usable)
    rewritten = [_unit(tuple(rewrite_calls(s, parts) for s in unit.statements)) for unit in kept]
    if level != "aten" and any(_ITEM.search(unit.text) for unit in rewritten):
        settings = {**settings, "configs": [*settings.get("configs", ()), _SCALAR_OUTPUTS]}
    return GraphProgram(
        tuple(rewritten),
        known,
        tuple(imports),
        tuple(parts.bodies),
        parts.constants,
        settings,
        last.reads,
        level,
        is_training,
        defined,
        {str(name): str(why) for name, why in (undefined or {}).items()},
    )


def _statements(rows: Iterable[str]) -> Iterator[ast.stmt]:
    for row in rows:
        try:
            yield from ast.parse(row).body
        except (SyntaxError, ValueError, RecursionError) as problem:
            raise Unreadable(f"a recorded definition does not parse: {problem}") from problem


def _check(settings: Mapping[str, Any]) -> None:
    """Raise Unreadable if settings that become program text are not plain names: a pack may come
    from a stranger.
    """
    types = [
        settings.get("default_dtype", "torch.float32"),
        *(d for _, d in settings.get("autocast") or ()),
    ]
    kinds = [kind for kind, _ in settings.get("autocast") or ()]
    keys = [f"{module}.{key}" for module, key, _ in settings.get("configs") or ()]
    is_plain = all(re.fullmatch(r"torch\.\w+", str(t)) for t in types) and all(
        str(k).isidentifier() for k in kinds
    )
    is_plain &= all(re.fullmatch(r"torch\._\w+\.config(\.\w+)+", k) for k in keys)
    if not is_plain or settings.get("dynamic") not in (None, True, False):
        raise Unreadable("the recorded settings are not what reprokit writes")


def _class(node: ast.ClassDef) -> _Class:
    functions = {f.name: f for f in node.body if isinstance(f, ast.FunctionDef)}
    if "forward" not in functions:
        raise Unreadable(f"class {node.name} has no forward")
    module = _Class(functions["forward"])
    for statement in functions["__init__"].body if "__init__" in functions else ():
        if isinstance(statement, ast.Assign) and isinstance(statement.targets[0], ast.Attribute):
            if not isinstance(statement.targets[0].value, ast.Name):
                continue  # a tensor of a submodule
            name, value = statement.targets[0].attr, statement.value
            if (
                isinstance(value, ast.Call)
                and isinstance(value.func, ast.Name)
                and value.func.id.startswith("Repro_")
            ):
                module.children[name] = value.func.id
            else:
                module.constants[name] = ast.unparse(value)
        elif (
            isinstance(statement, ast.Expr)
            and isinstance(statement.value, ast.Call)
            and len(statement.value.args) == 2
        ):
            first, second = statement.value.args
            if isinstance(first, ast.Constant):
                module.constants[str(first.value)] = ast.unparse(second)
    return module


def _function(
    classes: Mapping[str, _Class], name: str, prefix: str, parts: GraphParts
) -> list[GraphUnit]:
    """Return the units of a class's forward, and append the bodies of its children to ``parts``."""
    module = classes[name]
    aliases: dict[str, str] = {}
    for child, class_name in module.children.items():
        units = _function(classes, class_name, f"{prefix}{child}_", parts)
        arguments = [ast.arg(a.arg) for a in classes[class_name].forward.args.args[1:]]
        kept, _ = _without_aliases(units, [], {})
        statements = [rewrite_calls(s, parts) for unit in kept for s in unit.statements]
        # Dynamo itself makes names such as cond_true_0, and fails on a program that has them
        aliases[child] = prefix + re.sub(r"(?:cond_)?(.+?)_?(\d*)$", r"\1_fn\2", child)
        body = ast.parse(f"def {aliases[child]}(): pass").body[0]
        assert isinstance(body, ast.FunctionDef)
        body.args.args, body.body = arguments, statements
        parts.bodies.append(body)
    for constant, text in module.constants.items():
        plain = f"{prefix}{constant}".strip("_")
        is_short = len(plain) <= MAX_NAME
        aliases[constant] = plain if is_short else f"constant{len(parts.constants)}"
        parts.constants[aliases[constant]] = text
    rows: dict[int, list[ast.stmt]] = {}
    for statement in module.forward.body:
        if _is_deletion(statement):
            continue
        changed = _Attributes(aliases).visit(statement)
        if isinstance(changed, ast.AnnAssign) and changed.value is not None:
            changed = ast.Assign(targets=[changed.target], value=changed.value)
        rows.setdefault(statement.lineno, []).append(ast.fix_missing_locations(changed))
    return [_unit(tuple(statements)) for statements in rows.values()]


class _Attributes(ast.NodeTransformer):
    """Replaces ``self.x`` by the name of its function or constant."""

    def __init__(self, aliases: Mapping[str, str]) -> None:
        self._aliases = aliases

    def visit_Attribute(self, node: ast.Attribute) -> ast.AST:
        if (
            isinstance(node.value, ast.Name)
            and node.value.id == "self"
            and node.attr in self._aliases
        ):
            return ast.Name(self._aliases[node.attr], ast.Load())
        return self.generic_visit(node)


def _unit(statements: tuple[ast.stmt, ...]) -> GraphUnit:
    writes: list[str] = []
    reads: list[str] = []
    for statement in statements:
        nodes = [n for n in ast.walk(statement) if isinstance(n, ast.Name)]
        if isinstance(statement, ast.AugAssign) and isinstance(statement.target, ast.Name):
            reads.append(statement.target.id)
        reads += [n.id for n in nodes if isinstance(n.ctx, ast.Load) and n.id not in writes]
        if not isinstance(statement, ast.AugAssign):
            writes += [n.id for n in nodes if isinstance(n.ctx, ast.Store)]
    return GraphUnit(statements, tuple(dict.fromkeys(writes)), tuple(dict.fromkeys(reads)))


def _is_deletion(statement: ast.stmt) -> bool:
    return (
        isinstance(statement, ast.Assign)
        and isinstance(statement.value, ast.Constant)
        and statement.value.value is None
        and all(isinstance(t, ast.Name) for t in statement.targets)
    )


def _reads_parameter(unit: GraphUnit, values: Mapping[str, Any]) -> bool:
    """Return whether the unit is ``weight = self.layer.weight``, with a known value."""
    row = unit.statements[0]
    value = row.value if isinstance(row, ast.Assign) else None
    while isinstance(value, ast.Attribute):
        value = value.value
    is_known = len(unit.writes) == 1 and unit.writes[0] in values
    return is_known and isinstance(value, ast.Name) and len(unit.statements) == 1


def _without_aliases(
    units: list[GraphUnit], placeholders: list[str], values: Mapping[str, Mapping[str, Any]]
) -> tuple[list[GraphUnit], dict[str, Mapping[str, Any]]]:
    """Remove aliases such as ``l_x_ = L_x_``, and return the units and their values.

    A name that ``x += 1`` changes stays, because a function cannot change a constant of the module
    by its own name so.
    """
    known = dict(values)
    same: dict[str, str] = {}
    kept = []
    changed = {
        ast.unparse(row.target)
        for unit in units
        for row in unit.statements
        if isinstance(row, ast.AugAssign)
    }
    for unit in units:
        statement = unit.statements[0]
        is_alias = (
            len(unit.statements) == 1
            and isinstance(statement, ast.Assign)
            and isinstance(statement.value, ast.Name)
            and isinstance(statement.targets[0], ast.Name)
        )
        if is_alias:
            target, source = unit.writes[0], unit.reads[0]
            if source in placeholders:
                known.setdefault(source, known.get(target, {}))
                same[source] = target  # the values are known under the node's name
                continue
            if target not in changed:
                same[target] = same.get(source, source)
                continue
        kept.append(_unit(tuple(rename_units(s, same) for s in unit.statements)))
    return kept, {n: v for n, v in known.items() if v}


class _Names(ast.NodeTransformer):
    def __init__(self, names: Mapping[str, str]) -> None:
        self._names = names

    def visit_Name(self, node: ast.Name) -> ast.AST:
        return ast.copy_location(ast.Name(self._names.get(node.id, node.id), node.ctx), node)


def rename_units(statement: ast.stmt, names: Mapping[str, str]) -> ast.stmt:
    """Return the statement with names replaced by those in ``names``; a copy if it has any."""
    if names.keys().isdisjoint(_names_in(statement)):
        return statement
    changed = _Names(names).visit(copy_tree(statement))
    assert isinstance(changed, ast.stmt)
    return ast.fix_missing_locations(changed)
