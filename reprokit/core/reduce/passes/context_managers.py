"""Write what a context manager of the program does around the block that it manages."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from reprokit.core.reduce.ast_edits import (
    Test,
    call_arguments,
    copy_tree,
    keep_proposals,
    reads_name,
    replace_node,
    walk_places,
)


def inline_contexts(text: str, test: Test) -> str:
    """Replace a block of a context manager of the program by the statements of the manager around
    the statements of the block.
    """
    return keep_proposals(text, _without_context, test)


def _without_context(tree: ast.Module) -> Iterator[ast.Module]:
    managers = {
        n.name: n
        for n in tree.body
        if isinstance(n, ast.FunctionDef)
        and len(n.decorator_list) == 1
        and ast.unparse(n.decorator_list[0]).endswith("contextmanager")
    }
    for path, node in walk_places(tree):
        item = node.items[0] if isinstance(node, ast.With) and len(node.items) == 1 else None
        call = item.context_expr if item is not None else None
        manager = managers.get(ast.unparse(call.func)) if isinstance(call, ast.Call) else None
        if manager is None or item is None or not isinstance(call, ast.Call):
            continue
        assert isinstance(node, ast.With)
        if reads_name(manager, manager.name) or any(node is n for n in ast.walk(manager)):
            continue  # a recursive manager would grow without end
        values = call_arguments(manager, call, 0)
        rows = _around(manager.body, item.optional_vars, node.body)
        if rows is None or values is None:
            continue
        changed = copy_tree(tree)
        given = [
            ast.Assign([ast.Name(n, ast.Store())], copy_tree(v))
            for n, v in values.items()
            if ast.unparse(v) != n
        ]
        replace_node(changed, path, [*given, *(copy_tree(row) for row in rows)])
        if not reads_name(changed, manager.name):
            changed.body = [r for r in changed.body if getattr(r, "name", "") != manager.name]
        yield changed


def _around(
    rows: list[ast.stmt], target: ast.expr | None, body: list[ast.stmt]
) -> list[ast.stmt] | None:
    """Return the statements of a context manager with those of the block in place of its ``yield``;
    None if that is not in a block of its own.
    """
    for index, row in enumerate(rows):
        if isinstance(row, ast.Expr) and isinstance(row.value, ast.Yield):
            value = row.value.value or ast.Constant(None)
            given = [ast.Assign([target], value)] if target is not None else []
            return [*rows[:index], *given, *body, *rows[index + 1 :]]
        if isinstance(row, (ast.Try, ast.With)):
            inner = _around(row.body, target, body)
            if inner is None:
                continue
            changed = copy_tree(row)
            changed.body = inner
            return [*rows[:index], changed, *rows[index + 1 :]]
    return None
