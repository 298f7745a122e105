"""Find the names of a program that may have a number out of a tensor, which no repro contains."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator

from reprokit.core.reduce.ast_edits import last_name

OF_TENSORS = frozenset({"item", "tolist", "numpy"})
"""Methods whose results are values of a tensor, which are not written."""


def names_of_tensor_values(tree: ast.Module) -> set[str]:
    """Return the variables, attributes and parameters whose values may come from ``OF_TENSORS``.

    Scopes are ignored, so the set may also have a name whose value never comes from a tensor.
    """
    functions: dict[str, list[str]] = {}
    for row in ast.walk(tree):
        if isinstance(row, ast.FunctionDef):
            functions.setdefault(row.name, []).extend(a.arg for a in row.args.args)
    classes = {
        row.name: [n for one in row.body for n in _parameters(one)]
        for row in ast.walk(tree)
        if isinstance(row, ast.ClassDef)
    }
    found: set[str] = set()
    while True:
        before = len(found)
        for node in ast.walk(tree):
            if isinstance(node, (ast.Assign, ast.AnnAssign, ast.AugAssign)) and node.value:
                if _has_any(node.value, found):
                    targets = node.targets if isinstance(node, ast.Assign) else [node.target]
                    found |= set(_stored(targets))
            elif isinstance(node, ast.Call):
                found |= {k.arg for k in node.keywords if k.arg and _has_any(k.value, found)}
                if any(_has_any(argument, found) for argument in node.args):
                    name = last_name(node.func)
                    found |= {*functions.get(name, ()), *classes.get(name, ())} - {"self"}
        if len(found) == before:
            return found


def _parameters(row: ast.stmt) -> list[str]:
    """Return the parameters of ``__init__``, or the field of a dataclass."""
    if isinstance(row, ast.FunctionDef) and row.name == "__init__":
        return [a.arg for a in row.args.args]
    is_field = isinstance(row, ast.AnnAssign) and isinstance(row.target, ast.Name)
    return [row.target.id] if is_field else []  # type: ignore[attr-defined]


def _has_any(node: ast.AST, names: set[str]) -> bool:
    return any(
        last_name(n) in names or (isinstance(n, ast.Call) and last_name(n.func) in OF_TENSORS)
        for n in ast.walk(node)
    )


def _stored(targets: Iterable[ast.AST]) -> Iterator[str]:
    for target in targets:
        for node in ast.walk(target):
            if isinstance(node, (ast.Name, ast.Attribute)) and isinstance(node.ctx, ast.Store):
                yield last_name(node)
