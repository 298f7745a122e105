"""A pass over Triton kernels: it gives them a plain name and removes unused arguments."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable
from typing import Any

from reprokit.core.reduce import ast_edits

PLAIN_NAME = "kernel"


def drop_kernel_arguments(text: str, test: ast_edits.Test) -> str:
    """Return the kernel a plain name, and remove its unused arguments."""
    source, kernel = _parts(ast.parse(text))
    if source is None or kernel is None:
        return text
    new = re.sub(rf"\b{kernel.name}\b", PLAIN_NAME, text)
    if kernel.name != PLAIN_NAME and test(new):
        text = new
    for name in [a.arg for a in reversed(kernel.args.args)]:
        new = _without_argument(text, name)
        if new != text and test(new):
            text = new
    return text


def _parts(tree: ast.Module) -> tuple[ast.Call | None, ast.FunctionDef | None]:
    """Return the call of ``ASTSource``, and the kernel that it names."""
    calls = (
        n
        for n in ast.walk(tree)
        if isinstance(n, ast.Call) and ast.unparse(n.func).endswith("ASTSource")
    )
    source = next((c for c in calls if any(k.arg == "fn" for k in c.keywords)), None)
    name = (
        next((ast.unparse(k.value) for k in source.keywords if k.arg == "fn"), "") if source else ""
    )
    return source, next(
        (n for n in tree.body if isinstance(n, ast.FunctionDef) and n.name == name), None
    )


def _without_argument(text: str, name: str) -> str:
    """Return the program with the kernel without one argument; keys with the indices of later
    arguments are adjusted.
    """
    tree = ast.parse(text)
    source, kernel = _parts(tree)
    assert source is not None and kernel is not None
    index = [a.arg for a in kernel.args.args].index(name)
    if any(ast_edits.reads_name(row, name) for row in kernel.body) or kernel.args.defaults:
        return text
    del kernel.args.args[index]
    for keyword in source.keywords:
        if keyword.arg == "signature" and isinstance(keyword.value, ast.Dict):
            _keep(keyword.value, lambda key: key if key != name else None)
        elif keyword.arg in ("constexprs", "attrs") and isinstance(keyword.value, ast.Dict):

            def moved(key: Any) -> Any:
                first = key[0] if isinstance(key, tuple) and key and isinstance(key[0], int) else -1
                return None if first == index else (first - 1, *key[1:]) if first > index else key

            _keep(keyword.value, moved)
    return ast.unparse(ast.fix_missing_locations(tree)) + "\n"


def _keep(table: ast.Dict, change: Callable[[Any], Any]) -> None:
    """Change the keys of a literal; rows whose key becomes None are removed."""
    rows = [
        (ast.literal_eval(k), v)
        for k, v in zip(table.keys, table.values, strict=True)
        if k is not None
    ]
    kept = [(change(key), value) for key, value in rows]
    table.keys = [ast.parse(repr(key), mode="eval").body for key, _ in kept if key is not None]
    table.values = [value for key, value in kept if key is not None]
