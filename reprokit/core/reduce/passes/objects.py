"""Replace an object that is created once by variables and functions.

Whole programs have a trainer, an engine or a model of which one object exists. Its attributes
become variables of the program, and its methods become functions, which other passes can inline.
"""

from __future__ import annotations

import ast
import builtins
from collections.abc import Iterator
from dataclasses import dataclass, field

from reprokit.core.reduce.ast_edits import (
    Path,
    ReplacedNode,
    Test,
    copy_tree,
    keep_proposals,
    last_name,
    node_at,
    reads_name,
    replace_node,
    target_names,
    walk_places,
)

CALLED = "__call__", "forward"
"""The methods that a call of an object runs."""


def dissolve_objects(text: str, test: Test) -> str:
    """Replace classes of one object by variables and functions, as far as ``test`` allows; classes
    that inherit from others of the program get their methods first. Of objects that stay,
    properties that only return a value are replaced by it.
    """
    text = keep_proposals(keep_proposals(text, _merged, test), _dissolved, test)
    return keep_proposals(text, _without_property, test)


def _without_property(tree: ast.Module) -> Iterator[ast.Module]:
    """Propose to replace a property that only returns a value by the value."""
    methods = [
        (path, row)
        for path, row in walk_places(tree)
        if isinstance(row, ast.FunctionDef) and len(row.args.args) == 1
    ]
    for path, row in methods:
        is_property = [last_name(d) for d in row.decorator_list] == ["property"]
        is_only = len([other for _, other in methods if other.name == row.name]) == 1
        returned = row.body[-1]
        if is_property and is_only and len(row.body) == 1 and isinstance(returned, ast.Return):
            changed = copy_tree(tree)
            replace_node(changed, path, [ast.Pass()])
            value = returned.value or ast.Constant(None)
            read = _Property(row.name, row.args.args[0].arg, value)
            yield read.visit(changed)


class _Property(ast.NodeTransformer):
    """Replaces ``owner.name`` by a value, in which ``self`` becomes the owner."""

    def __init__(self, name: str, self_name: str, value: ast.expr) -> None:
        self._name, self._self, self._value = name, self_name, value

    def visit_Attribute(self, node: ast.Attribute) -> ast.AST:
        self.generic_visit(node)
        if node.attr != self._name or not isinstance(node.ctx, ast.Load):
            return node
        value: ast.AST = ReplacedNode({self._self: node.value}).visit(copy_tree(self._value))
        return value


def _merged(tree: ast.Module) -> Iterator[ast.Module]:
    """Propose to write the methods that a class inherits into the class."""
    classes = {n.name: n for n in tree.body if isinstance(n, ast.ClassDef)}
    for index, node in enumerate(tree.body):
        if not isinstance(node, ast.ClassDef):
            continue
        bases = [classes[b.id] for b in node.bases if isinstance(b, ast.Name) and b.id in classes]
        if not bases or node in bases:
            continue
        changed = copy_tree(tree)
        merged = changed.body[index]
        assert isinstance(merged, ast.ClassDef)
        names = [base.name for base in bases]
        merged.bases = [b for b in merged.bases if last_name(b) not in names]
        for base in bases:
            known = [ast.unparse(b) for b in merged.bases]
            merged.bases += [copy_tree(b) for b in base.bases if ast.unparse(b) not in known]
            _inherit(merged, copy_tree(base))
        changed.body = [n for n in changed.body if not _is_unread(changed, n, names)]
        yield changed


def _inherit(merged: ast.ClassDef, base: ast.ClassDef) -> None:
    """Add the members of a base to a class. A method that ``super()`` calls gets a name of its
    own.
    """
    own = {name for row in merged.body for name in _member_names(row)}
    rows: list[ast.stmt] = []
    for row in base.body:
        names = _member_names(row)
        if isinstance(row, ast.FunctionDef) and row.name in own:
            caller = _Super(row.name, f"{row.name.strip('_')}_of_{base.name.lower()}")
            merged.body = [caller.visit(own_row) for own_row in merged.body]
            if caller.count:
                row.name = caller.new
                rows.append(row)
        elif names and not own & set(names):
            rows.append(row)
    merged.body = [*rows, *(r for r in merged.body if not isinstance(r, ast.Pass))] or [ast.Pass()]


class _Super(ast.NodeTransformer):
    """Replaces ``super().name`` by ``self.new``."""

    def __init__(self, name: str, new: str) -> None:
        self._name, self.new, self.count = name, new, 0

    def visit_Attribute(self, node: ast.Attribute) -> ast.AST:
        if node.attr == self._name and ast.unparse(node.value).startswith("super("):
            self.count += 1
            return ast.Attribute(ast.Name("self", ast.Load()), self.new, ast.Load())
        return self.generic_visit(node)


def _is_unread(tree: ast.Module, row: ast.stmt, names: list[str]) -> bool:
    return isinstance(row, ast.ClassDef) and row.name in names and not reads_name(tree, row.name)


def _member_names(row: ast.stmt) -> list[str]:
    if isinstance(row, ast.FunctionDef):
        return [row.name]
    if isinstance(row, ast.AnnAssign) and isinstance(row.target, ast.Name):
        return [row.target.id] if row.value is not None else []
    return [name] if (name := target_names(row)) else []


@dataclass
class _Names:
    """The names in the program of what an object has."""

    members: dict[str, str] = field(default_factory=dict)
    properties: set[str] = field(default_factory=set)
    value: str = ""
    """The function that a call of the object runs; empty if it cannot be called."""

    def read(self, name: str, ctx: ast.expr_context) -> ast.expr:
        """Return the expression for an attribute of the object."""
        new = ast.Name(self.members[name], ctx)
        return ast.Call(new, [], []) if name in self.properties else new


def _dissolved(tree: ast.Module) -> Iterator[ast.Module]:
    for index, node in enumerate(tree.body):
        if isinstance(node, ast.ClassDef) and not node.decorator_list:
            sites = [
                path
                for path, n in walk_places(tree)
                if isinstance(n, ast.Call)
                and isinstance(n.func, ast.Name)
                and n.func.id == node.name
            ]
            if len(sites) == len(reads_name(tree, node.name)) == 1 and sites[0][0] != (
                "body",
                index,
            ):
                changed = _without_object(copy_tree(tree), index, sites[0])
                if changed is not None:
                    yield changed


def _without_object(tree: ast.Module, index: int, site: Path) -> ast.Module | None:
    """Return the program without the class at ``index``, whose only object is made at ``site``."""
    owner = tree.body[index]
    assert isinstance(owner, ast.ClassDef)
    names = _names_of(tree, owner)
    if names is None:
        return None
    rows: list[ast.stmt] = []
    for row in owner.body:
        if isinstance(row, ast.FunctionDef):
            method = _as_function(row, names)
            if method is None:
                return None
            rows.append(method)
        elif (member := _member_names(row)) and isinstance(row, (ast.Assign, ast.AnnAssign)):
            target = ast.Name(names.members[member[0]], ast.Store())
            assert row.value is not None
            rows.append(ast.Assign([target], row.value))
    call = node_at(tree, site)
    at = max(n for n in range(len(site)) if isinstance(node_at(tree, site[: n + 1]), ast.stmt)) + 1
    statement = node_at(tree, site[:at])
    is_named = isinstance(statement, ast.Assign) and statement.value is call
    alias = last_name(statement.targets[0]) if is_named else ""
    value = ast.Name(names.value, ast.Load()) if names.value else ast.Constant(None)
    new: list[ast.stmt] = []
    if "__init__" in names.members:
        started = ast.Name(names.members["__init__"], ast.Load())
        new.append(ast.Expr(ast.Call(started, call.args, call.keywords)))
    made = _Made(call, value, alias, names)
    rows = [made.visit(row) for row in rows]
    tree.body = [row if row is owner else made.visit(row) for row in tree.body]
    variable = target_names(statement)
    if not (variable and is_named and not names.value and not reads_name(tree, variable)):
        new.append(statement)
    replace_node(tree, site[:at], new)
    tree.body[tree.body.index(owner) : tree.body.index(owner) + 1] = rows
    return tree


def _names_of(tree: ast.Module, owner: ast.ClassDef) -> _Names | None:
    """Return a name for each attribute and method; None if the object has special methods."""
    taken = set(dir(builtins)) | {n.id for n in ast.walk(tree) if isinstance(n, ast.Name)}
    taken |= {n.arg for n in ast.walk(tree) if isinstance(n, ast.arg)}
    taken |= {n.name for n in ast.walk(tree) if isinstance(n, (ast.FunctionDef, ast.ClassDef))} - {
        row.name for row in owner.body if isinstance(row, ast.FunctionDef)
    }
    taken |= {
        (a.asname or a.name).split(".")[0]
        for n in ast.walk(tree)
        if isinstance(n, (ast.Import, ast.ImportFrom))
        for a in n.names
    }
    names, lower = _Names(), owner.name.lower()
    attributes = [
        n.attr
        for n in ast.walk(owner)
        if isinstance(n, ast.Attribute)
        and isinstance(n.ctx, ast.Store)
        and ast.unparse(n.value) == "self"
    ]
    for name in [*(name for row in owner.body for name in _member_names(row)), *attributes]:
        special = {"__init__": f"init_{lower}", "__call__": f"call_{lower}"}
        if name.startswith("__") and name not in special:
            return None
        plain = special.get(name, name.strip("_") or name)
        free = (plain, f"{lower}_{plain}", *(f"{lower}_{plain}_{n}" for n in range(2, 99)))
        new = next((one for one in free if one not in taken), "")
        if name not in names.members and new:
            names.members[name] = new
            taken.add(new)
        elif name not in names.members:
            return None
    for row in owner.body:
        for decorator in row.decorator_list if isinstance(row, ast.FunctionDef) else []:
            if last_name(decorator) in ("property", "cached_property"):
                names.properties.add(row.name)  # type: ignore[attr-defined]
    names.value = next((names.members[n] for n in CALLED if n in names.members), "")
    return names


def _as_function(row: ast.FunctionDef, names: _Names) -> ast.FunctionDef | None:
    """Return a method as a function of the program; None if it needs the object itself."""
    decorators = [last_name(d) for d in row.decorator_list]
    if {"classmethod", "setter"} & set(decorators) or row.name not in names.members:
        return None
    if "staticmethod" not in decorators:
        if not row.args.args or row.args.args[0].arg != "self":
            return None
        del row.args.args[0]
    row.decorator_list = [
        d
        for d in row.decorator_list
        if last_name(d) not in ("staticmethod", "property", "cached_property")
    ]
    row.body = [r for r in row.body if not ast.unparse(r).startswith("super(")] or [ast.Pass()]
    renamed = _Self(names)
    row.body = [renamed.visit(r) for r in row.body]
    row.name = names.members[row.name]
    if renamed.stored:
        row.body.insert(0, ast.Global(sorted(renamed.stored)))
    rest = ast.Module(row.body, [])
    return None if reads_name(rest, "self") or reads_name(rest, "super") else row


class _Self(ast.NodeTransformer):
    """Replaces ``self.x`` by a variable or a function, and ``self`` by what a call of it runs."""

    def __init__(self, names: _Names) -> None:
        self._names = names
        self.stored: set[str] = set()

    def visit_Attribute(self, node: ast.Attribute) -> ast.AST:
        if ast.unparse(node.value) == "self" and node.attr in self._names.members:
            if not isinstance(node.ctx, ast.Load):
                self.stored.add(self._names.members[node.attr])
            return self._names.read(node.attr, node.ctx)
        return self.generic_visit(node)

    def visit_Name(self, node: ast.Name) -> ast.AST:
        is_called = node.id == "self" and bool(self._names.value)
        return ast.Name(self._names.value, ast.Load()) if is_called else node


class _Made(ast.NodeTransformer):
    """Replaces the object, and what is read from the variable that it is assigned to."""

    def __init__(self, call: ast.Call, value: ast.expr, alias: str, names: _Names) -> None:
        self._call, self._value, self._alias, self._names = call, value, alias, names

    def visit_Attribute(self, node: ast.Attribute) -> ast.AST:
        is_object = node.value is self._call or (
            self._alias and last_name(node.value) == self._alias
        )
        if is_object and node.attr in self._names.members:
            return self._names.read(node.attr, node.ctx)
        return self.generic_visit(node)

    def visit_Call(self, node: ast.Call) -> ast.AST:
        return copy_tree(self._value) if node is self._call else self.generic_visit(node)
