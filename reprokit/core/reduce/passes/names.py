"""Remove a name with all that reads it: one change where statements alone would fail one by one.

A statement cannot go before those that read its result, so leaving out ``optimizer = ...`` alone
ends in a NameError. This pass leaves it out together with ``optimizer.step()`` and with what is
computed of it, as a slice of the program without that name.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator

from reprokit.core.reduce.ast_edits import NO_PROGRAM, Test, copy_tree, own_nodes, text_of

Scope = ast.Module | ast.FunctionDef | ast.AsyncFunctionDef
_SCOPES = (ast.Module, ast.FunctionDef, ast.AsyncFunctionDef)
MAX_SORTED = 100
"""Names for which the lines that each removes are counted first."""


def drop_names(text: str, test: Test) -> str:
    """Remove each variable and attribute with all that reads it.

    Names that remove the most lines come first; in a program with many names, the last ones.
    """
    tree = ast.parse(text)
    keys = list(_names_of(tree))[::-1]
    if len(keys) <= MAX_SORTED:
        lines = {key: _without(tree, *key)[1] for key in keys}
        keys.sort(key=lambda key: -lines[key])
    for key in keys:
        changed, count = _without(tree, *key)
        new = _text_of(changed) if changed is not None and count else ""
        if new and len(new) < len(text) and test(new):
            text, tree = new, ast.parse(new)
    return text


def _names_of(tree: ast.Module) -> Iterator[tuple[str, str]]:
    """Yield each assigned variable with its scope, and each attribute with an empty scope."""
    found = dict.fromkeys(
        (scope.name if not isinstance(scope, ast.Module) else ".", name)
        for scope in ast.walk(tree)
        if isinstance(scope, _SCOPES)
        for name in _stored(own_nodes(scope.body))
        if not name.startswith(".")
    )
    yield from found
    yield from dict.fromkeys(("", name) for name in _stored(ast.walk(tree)) if name.startswith("."))


def _stored(nodes: Iterable[ast.AST]) -> Iterator[str]:
    """Yield the variables that nodes assign, and with a dot the attributes and fields."""
    for node in nodes:
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            yield f".{node.attr}"
        elif isinstance(node, ast.ClassDef):
            for row in node.body:
                if isinstance(row, ast.AnnAssign) and isinstance(row.target, ast.Name):
                    yield f".{row.target.id}"


def _without(tree: ast.Module, where: str, name: str) -> tuple[ast.Module | None, int]:
    """Return the program without a name, and how many lines that removes; None if the call of
    torch.compile would go with it.
    """
    changed = copy_tree(tree)
    cut = _Cut({name} if not where else set())
    scopes = [n for n in ast.walk(changed) if isinstance(n, (*_SCOPES, ast.ClassDef))]
    gone: dict[int, set[str]] = {
        id(scope): {name} if where == getattr(scope, "name", ".") else set() for scope in scopes
    }
    while True:
        before = len(cut.attributes) + sum(map(len, gone.values()))
        for scope in scopes:
            cut.names, cut.is_class = gone[id(scope)], isinstance(scope, ast.ClassDef)
            scope.body = cut.block(scope.body)
            if not scope.body and not isinstance(scope, ast.Module):
                scope.body = [ast.Pass()]
        if before == len(cut.attributes) + sum(map(len, gone.values())):
            break
    return (None, 0) if cut.is_compiled else (changed, cut.lines)


def _text_of(tree: ast.Module) -> str:
    try:
        return text_of(tree)
    except NO_PROGRAM:
        return ""


class _Cut:
    """Leaves out the statements that name what is gone."""

    def __init__(self, attributes: set[str]) -> None:
        self.attributes = attributes
        self.names: set[str] = set()
        """The variables that are gone in this scope."""
        self.is_class = False
        self.lines = 0
        """How many lines are left out."""
        self.is_compiled = False
        """Whether a call of torch.compile would be left out."""

    def block(self, rows: list[ast.stmt]) -> list[ast.stmt]:
        """Return the statements of a block that stay."""
        kept: list[ast.stmt] = []
        for row in rows:
            kept += self._kept(row)
        return kept

    def _kept(self, row: ast.stmt) -> list[ast.stmt]:
        if isinstance(row, (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
            return [row]
        if isinstance(row, ast.AnnAssign) and self.is_class:
            field = f".{row.target.id}" if isinstance(row.target, ast.Name) else ""
            self.lines += field in self.attributes
            return [] if field in self.attributes else [row]
        heads: list[ast.AST] = [n for n in ast.iter_child_nodes(row) if not _is_block(n)]
        is_gone = any(self._names_gone(head) for head in heads)
        for field in ("body", "orelse", "finalbody"):
            if inner := getattr(row, field, None):
                setattr(row, field, self.block(inner))
        for handler in getattr(row, "handlers", ()):
            handler.body = self.block(handler.body) or [ast.Pass()]
        if is_gone:
            self._lose(row)
            self.lines += (row.end_lineno or row.lineno) - row.lineno + 1
            if isinstance(row, (ast.If, ast.With, ast.For)):
                self.lines -= sum((r.end_lineno or r.lineno) - r.lineno + 1 for r in row.body)
                return list(row.body)
            return []
        if hasattr(row, "body") and not row.body:
            self.lines += 1
            return list(getattr(row, "finalbody", ()))
        return [row]

    def _names_gone(self, head: ast.AST) -> bool:
        for node in ast.walk(head):
            if isinstance(node, ast.Name) and node.id in self.names:
                return True
            if isinstance(node, ast.Attribute) and f".{node.attr}" in self.attributes:
                return True
            if isinstance(node, ast.keyword) and f".{node.arg}" in self.attributes:
                return True
        return False

    def _lose(self, row: ast.stmt) -> None:
        """Note the names that a statement assigned, which nothing may read any more."""
        heads = [n for n in ast.iter_child_nodes(row) if not _is_block(n)]
        nodes = [node for head in heads for node in ast.walk(head)]
        for name in _stored(nodes):
            (self.attributes if name.startswith(".") else self.names).add(name)
        if any(isinstance(n, ast.Attribute) and n.attr == "compile" for n in nodes):
            self.is_compiled = True


def _is_block(node: ast.AST) -> bool:
    return isinstance(node, (ast.stmt, ast.ExceptHandler))
