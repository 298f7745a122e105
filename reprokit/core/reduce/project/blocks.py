"""The blocks of a program (bodies of functions, branches, loops and handlers), and the edits that
leave out those that never ran.
"""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterator

from reprokit.core.reduce.ast_edits import Path, copy_tree, last_name, walk_places
from reprokit.core.reduce.project.chosen_edits import Edit

_FIELDS = ("body", "orelse", "finalbody")
_OWNERS = (
    ast.FunctionDef,
    ast.AsyncFunctionDef,
    ast.If,
    ast.For,
    ast.While,
    ast.ExceptHandler,
)


def blocks_of(tree: ast.Module) -> Iterator[tuple[Path, str, list[ast.stmt]]]:
    """Yield each block: the path of the statement that has it, the field, and its statements."""
    for path, node in walk_places(tree):
        if isinstance(node, _OWNERS):
            for field in _FIELDS:
                block = getattr(node, field, None)
                if block:
                    yield path, field, block


def edits_without(tree: ast.Module, ran: Collection[int]) -> list[Edit]:
    """Return the edits that leave out the blocks that never ran, the outermost of them.

    A function that is named elsewhere keeps its head, because what names it may be needed.
    """
    nodes = dict(walk_places(tree))
    named = [last_name(n) for n in nodes.values() if isinstance(n, (ast.Name, ast.Attribute))]
    has_run: dict[Path, dict[str, bool]] = {}
    for number, (path, field, _) in enumerate(blocks_of(tree)):
        has_run.setdefault(path, {})[field] = number in ran
    edits: list[Edit] = []
    for path, fields in has_run.items():
        if all(fields.values()):
            continue
        if (edit := _edit_of(path, nodes[path], fields, named)) and not edit.is_in(edits):
            edits.append(edit)
    return edits


def _edit_of(
    path: Path, node: ast.AST, has_run: dict[str, bool], named: Collection[str]
) -> Edit | None:
    if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
        if node.name not in named:
            return Edit(path)
        head = copy_tree(node)
        head.body = [ast.Pass()]
        return None if _is_pass(node) else Edit(path, head)
    if isinstance(node, ast.If):
        return Edit(path, kept=next((field for field, ran in has_run.items() if ran), ""))
    if isinstance(node, (ast.For, ast.While)):
        # the statements after a loop without an iteration that are its ``else`` still run
        return (
            Edit(path, kept="orelse" if has_run.get("orelse") else "")
            if not has_run["body"]
            else None
        )
    return Edit(path)


def _is_pass(node: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    return len(node.body) == 1 and isinstance(node.body[0], (ast.Pass, ast.Expr))
