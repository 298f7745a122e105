"""Passes over the names of a program: they remove what nothing reads, and merge equal values."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from reprokit.core.reduce.ast_edits import (
    NO_PROGRAM,
    NodePlace,
    ReplacedNode,
    Test,
    calls_of,
    one_by_one,
    reads_name,
    text_of,
)
from reprokit.core.reduce.project.entry_text import library_aliases


def merge_arguments(text: str, test: Test) -> str:
    """Use one name for two equal values: ``y = torch.randn(8)`` is removed if ``x =
    torch.randn(8)`` exists, and ``x`` is read instead.
    """

    def edits(tree: ast.Module) -> Iterator[NodePlace]:
        rows = [
            (i, n)
            for i, n in enumerate(tree.body)
            if isinstance(n, ast.Assign) and isinstance(n.targets[0], ast.Name)
        ]
        first: dict[str, int] = {}
        for choice, (index, node) in enumerate(rows):
            if isinstance(node.value, ast.Call):
                call = ast.dump(node.value)
                if call in first:
                    yield NodePlace((("body", index),), first[call])
                first.setdefault(call, choice)

    def apply(tree: ast.Module, place: NodePlace) -> None:
        rows = [
            n
            for n in tree.body[: place.path[0][1]]
            if isinstance(n, ast.Assign) and isinstance(n.targets[0], ast.Name)
        ]
        node, other = tree.body[place.path[0][1]], rows[place.choice]
        assert isinstance(node, ast.Assign)
        gone, kept = node.targets[0], other.targets[0]
        assert isinstance(gone, ast.Name) and isinstance(kept, ast.Name)
        del tree.body[place.path[0][1]]
        _merge_parameters(tree, gone.id, kept.id)

    return one_by_one(text, edits, apply, test)


def drop_libraries(text: str, test: Test) -> str:
    """Replace names that come from a library other than torch by None, so that nothing needs it."""
    aliases = [a for node in ast.parse(text).body for a in library_aliases(node)]
    for name in [(alias.asname or alias.name).split(".")[0] for alias in aliases]:
        tree = ast.parse(text)
        changed = ReplacedNode({name: ast.Constant(None)}).visit(tree)
        try:
            new = text_of(changed)
        except NO_PROGRAM:
            continue
        if new != text and test(new):
            text = new
    return text


def drop_unused(text: str, test: Test) -> str:
    """Remove all imports, definitions, assignments and parameters that nothing reads, if the
    predicate holds for the result.
    """
    while True:
        changed = _without_unused(text)
        if changed == text or not test(changed):
            return text
        text = changed


def _without_unused(text: str) -> str:
    tree = ast.parse(text)
    read = {n.id for n in ast.walk(tree) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Load)}
    read |= {
        n.target.id
        for n in ast.walk(tree)
        if isinstance(n, ast.AugAssign) and isinstance(n.target, ast.Name)
    }
    for owner in ast.walk(tree):
        for field in ("body", "orelse", "finalbody"):
            rows = getattr(owner, field, None)
            if isinstance(rows, list):
                kept = [r for row in rows if (r := _used_part(row, read, owner)) is not None]
                setattr(
                    owner,
                    field,
                    kept
                    or (
                        [ast.Pass()]
                        if field == "body" and rows and not isinstance(owner, ast.Module)
                        else []
                    ),
                )
    for function in [n for n in tree.body if isinstance(n, ast.FunctionDef)]:
        inside = {n.id for n in ast.walk(function) if isinstance(n, ast.Name)}
        for place in reversed(range(len(function.args.args))):
            if function.args.args[place].arg not in inside:
                _drop_parameter(tree, function, place)
    _shorten_imports(tree)
    return ast.unparse(ast.fix_missing_locations(tree)) + "\n"


def _shorten_imports(tree: ast.Module) -> None:
    """Replace ``import torch._inductor.config`` by ``import torch`` if nothing names the module,
    and remove repeated imports.
    """
    named = {ast.unparse(n) for n in ast.walk(tree) if isinstance(n, ast.Attribute)}
    body: list[ast.stmt] = []
    for row in tree.body:
        if isinstance(row, ast.Import):
            for alias in row.names:
                if not alias.asname and not any(
                    n == alias.name or n.startswith(alias.name + ".") for n in named
                ):
                    alias.name = alias.name.split(".")[0]
            if any(ast.dump(row) == ast.dump(other) for other in body):
                continue
        body.append(row)
    tree.body = body


def _used_part(row: ast.stmt, read: set[str], owner: ast.AST) -> ast.stmt | None:
    if isinstance(row, (ast.Import, ast.ImportFrom)):
        row.names = [
            a for a in row.names if (a.asname or a.name.split(".")[0]) in read or a.name == "*"
        ]
        return row if row.names else None
    if isinstance(row, (ast.FunctionDef, ast.ClassDef)) and not isinstance(owner, ast.ClassDef):
        return row if row.name in read else None
    if (
        isinstance(row, ast.Expr)
        and isinstance(row.value, ast.Constant)
        and not isinstance(owner, ast.ClassDef)
    ):
        return None
    return row


def _drop_parameter(tree: ast.Module, function: ast.FunctionDef, place: int) -> None:
    """Remove a parameter from a function, and its argument from the calls of the function."""
    calls = list(calls_of(tree, function.name))
    if not calls or any(
        len(c.args) <= place or any(isinstance(a, ast.Starred) for a in c.args) for c in calls
    ):
        return
    if function.args.defaults or function.args.vararg:
        return
    del function.args.args[place]
    for call in calls:
        del call.args[place]


def _merge_parameters(tree: ast.Module, gone: str, kept: str) -> None:
    """Replace ``gone`` by ``kept``, and remove the argument from calls and the parameter from the
    function.
    """
    for function in [n for n in tree.body if isinstance(n, ast.FunctionDef)]:
        for call in calls_of(tree, function.name):
            words = [a.id if isinstance(a, ast.Name) else "" for a in call.args]
            if gone in words and kept in words and len(words) == len(function.args.args):
                dead, alive = (function.args.args[words.index(w)].arg for w in (gone, kept))
                del call.args[words.index(gone)]
                function.args.args = [a for a in function.args.args if a.arg != dead]
                for name in ast.walk(function):
                    if isinstance(name, ast.Name) and name.id == dead:
                        name.id = alive
    for name in reads_name(tree, gone):
        name.id = kept
