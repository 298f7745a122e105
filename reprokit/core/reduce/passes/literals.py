"""Compute what a program computes from texts, numbers and containers that are written in it.

Programs read their settings from dictionaries and look classes up by name. When the settings are
literals, so are the results.
"""

from __future__ import annotations

import ast
import keyword
import operator
from collections.abc import Callable, Iterator
from typing import Any

from reprokit.core.reduce.ast_edits import (
    Test,
    copy_tree,
    keep_proposals,
    replace_node,
    target_names,
    walk_places,
)

MAX_TURNS = 4
"""The most iterations of a loop over a literal that is written out."""
_COMPARED: dict[type[ast.cmpop], Callable[[Any, Any], bool]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.Is: operator.is_,
    ast.IsNot: operator.is_not,
}


def compute_literals(text: str, test: Test) -> str:
    """Replace expressions of literals by their values, all at once, and write out short loops over
    literals.
    """
    return keep_proposals(keep_proposals(text, _computed, test), _written_out, test)


def _computed(tree: ast.Module) -> Iterator[ast.Module]:
    """Propose to compute literals, with those of settings in their places or without."""
    for prepared in (_with_settings(copy_tree(tree)), copy_tree(tree)):
        folded = _Folder().visit(prepared)
        assert isinstance(folded, ast.Module)
        yield folded


def _with_settings(tree: ast.Module) -> ast.Module:
    """Return the program with the elements of literal containers in place of their lookups."""
    for row in tree.body:
        name = target_names(row)
        value = row.value if isinstance(row, ast.Assign) else None
        if not isinstance(value, (ast.Dict, ast.List, ast.Tuple)) or not _is_pure(value):
            continue
        stored = [
            n
            for n in ast.walk(tree)
            if (isinstance(n, ast.Name) and n.id == name and isinstance(n.ctx, ast.Store))
            or (isinstance(n, ast.arg) and n.arg == name)
        ]
        if len(stored) == 1:
            _Lookup(name, value).visit(tree)
    return tree


def _is_pure(node: ast.expr) -> bool:
    """Return whether an expression has only constants."""
    try:
        ast.literal_eval(node)
    except (ValueError, TypeError, SyntaxError, RecursionError):
        return False
    return True


class _Lookup(ast.NodeTransformer):
    """Replaces ``settings["size"]`` and ``settings.get("size")`` by the value."""

    def __init__(self, name: str, value: ast.expr) -> None:
        self._name, self._value = name, value

    def visit_Subscript(self, node: ast.Subscript) -> ast.AST:
        is_read = isinstance(node.ctx, ast.Load) and isinstance(node.value, ast.Name)
        if is_read and ast.unparse(node.value) == self._name:
            return _item(self._value, node.slice) or node
        return self.generic_visit(node)

    def visit_Call(self, node: ast.Call) -> ast.AST:
        if ast.unparse(node.func) == f"{self._name}.get":
            return _got(self._value, node) or node
        return self.generic_visit(node)


def _item(owner: ast.expr, key: ast.expr) -> ast.expr | None:
    """Return a copy of an element of a written container; None if it is not known."""
    try:
        wanted = ast.literal_eval(key)
    except (ValueError, TypeError, SyntaxError):
        return None
    if isinstance(owner, ast.Dict):
        for one, value in zip(owner.keys, owner.values, strict=True):
            if not isinstance(one, ast.Constant):
                return None
            if one.value == wanted and type(one.value) is type(wanted):
                return copy_tree(value)
    elif isinstance(owner, (ast.List, ast.Tuple)) and type(wanted) is int:
        is_known = not any(isinstance(e, ast.Starred) for e in owner.elts)
        if is_known and -len(owner.elts) <= wanted < len(owner.elts):
            return copy_tree(owner.elts[wanted])
    return None


def _got(owner: ast.expr, call: ast.Call) -> ast.expr | None:
    """Return the result of ``{...}.get(key, default)``; None if it is not known."""
    if not isinstance(owner, ast.Dict) or not 0 < len(call.args) < 3 or call.keywords:
        return None
    keys = [k.value for k in owner.keys if isinstance(k, ast.Constant)]
    if len(keys) != len(owner.keys) or not isinstance(call.args[0], ast.Constant):
        return None
    otherwise = call.args[1] if len(call.args) == 2 else ast.Constant(None)
    return _item(owner, call.args[0]) or otherwise


class _Folder(ast.NodeTransformer):
    """Computes lookups, conditions and names of attributes that are written."""

    def visit_Subscript(self, node: ast.Subscript) -> ast.AST:
        self.generic_visit(node)
        is_read = isinstance(node.ctx, ast.Load)
        return (_item(node.value, node.slice) if is_read else None) or node

    def visit_Call(self, node: ast.Call) -> ast.AST:
        self.generic_visit(node)
        if isinstance(node.func, ast.Attribute) and node.func.attr == "get":
            return _got(node.func.value, node) or node
        called = node.func.id if isinstance(node.func, ast.Name) else ""
        if called == "next" and len(node.args) == 1 and isinstance(node.args[0], ast.Call):
            inner = node.args[0]
            is_iter = isinstance(inner.func, ast.Name) and inner.func.id == "iter"
            items = _items(inner.args[0]) if is_iter and len(inner.args) == 1 else None
            return copy_tree(items[0]) if items else node
        if called == "getattr" and len(node.args) == 2:
            name = node.args[1].value if isinstance(node.args[1], ast.Constant) else None
            if isinstance(name, str) and name.isidentifier() and not keyword.iskeyword(name):
                return ast.Attribute(node.args[0], name, ast.Load())
        return node

    def visit_Compare(self, node: ast.Compare) -> ast.AST:
        self.generic_visit(node)
        sides = [node.left, *node.comparators]
        compare = _COMPARED.get(type(node.ops[0])) if len(node.ops) == 1 else None
        if compare is None or not all(isinstance(side, ast.Constant) for side in sides):
            return node
        first, second = (side.value for side in sides if isinstance(side, ast.Constant))
        try:
            return ast.Constant(compare(first, second))
        except TypeError:
            return node

    def visit_UnaryOp(self, node: ast.UnaryOp) -> ast.AST:
        self.generic_visit(node)
        if isinstance(node.op, ast.Not) and isinstance(node.operand, ast.Constant):
            return ast.Constant(not node.operand.value)
        return node

    def visit_BoolOp(self, node: ast.BoolOp) -> ast.AST:
        self.generic_visit(node)
        ends = isinstance(node.op, ast.Or)  # the truth that ends the evaluation
        values: list[ast.expr] = []
        for value in node.values:
            is_last = value is node.values[-1]
            if isinstance(value, ast.Constant) and bool(value.value) != ends and not is_last:
                continue
            values.append(value)
            if isinstance(value, ast.Constant):
                break
        return values[0] if len(values) == 1 else ast.BoolOp(node.op, values)

    def visit_IfExp(self, node: ast.IfExp) -> ast.AST:
        self.generic_visit(node)
        if isinstance(node.test, ast.Constant):
            return node.body if node.test.value else node.orelse
        return node

    def visit_If(self, node: ast.If) -> ast.AST | list[ast.stmt]:
        self.generic_visit(node)
        if isinstance(node.test, ast.Constant):
            return (node.body if node.test.value else node.orelse) or ast.Pass()
        return node


def _written_out(tree: ast.Module) -> Iterator[ast.Module]:
    """Propose to write out a loop over a short literal."""
    for path, node in walk_places(tree):
        if not isinstance(node, ast.For) or node.orelse:
            continue
        if any(isinstance(n, (ast.Break, ast.Continue)) for n in ast.walk(node)):
            continue
        items = _items(node.iter)
        if items is not None and 0 < len(items) <= MAX_TURNS:
            changed = copy_tree(tree)
            rows: list[ast.stmt] = []
            for item in items:
                rows.append(ast.Assign([copy_tree(node.target)], copy_tree(item)))
                rows += [copy_tree(row) for row in node.body]
            replace_node(changed, path, rows)
            yield changed


def _items(node: ast.expr) -> list[ast.expr] | None:
    """Return what a loop over a written container gets; None for other values."""
    if isinstance(node, (ast.List, ast.Tuple)):
        return None if any(isinstance(e, ast.Starred) for e in node.elts) else node.elts
    if isinstance(node, ast.Dict):
        pairs = [(k, v) for k, v in zip(node.keys, node.values, strict=True) if k is not None]
        return [k for k, _ in pairs] if len(pairs) == len(node.keys) else None
    if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)) or node.args:
        return None
    owner, method = node.func.value, node.func.attr
    if not isinstance(owner, ast.Dict) or None in owner.keys:
        return None
    if method == "values":
        return owner.values
    keys = [k for k in owner.keys if k is not None]
    if method == "keys":
        return keys
    made = zip(keys, owner.values, strict=True)
    return [ast.Tuple([k, v], ast.Load()) for k, v in made] if method == "items" else None
