"""Programs that repeat their compile or their call, so that a rare failure shows in most runs."""

from __future__ import annotations

import ast
from collections.abc import Iterator

REPEATS = 20
"""Enough for a failure of one run in nine to show in nine of ten."""
_FRESH = ("torch._dynamo.reset()", "torch._inductor.config.force_disable_caches = True")


def repeated_programs(text: str) -> Iterator[tuple[str, str]]:
    """Yield programs that show a rare failure more often, each with how it does that.

    The first one calls what is compiled once; the second one compiles again each time. Nothing is
    yielded for a program that does not call torch.compile in a statement of its own.
    """
    try:
        tree = ast.parse(text)
    except (SyntaxError, RecursionError):
        return
    first = next(
        (
            index
            for index, node in enumerate(tree.body)
            if not isinstance(node, (ast.FunctionDef, ast.ClassDef, ast.If))
            and "torch.compile(" in ast.unparse(node)
        ),
        None,
    )
    if first is None:
        return
    start = tree.body[first].lineno - 1
    rows = text.splitlines()
    for is_fresh in (False, True):
        inner = list(_FRESH[:1]) if is_fresh else []
        outer = ["import torch._inductor.config", _FRESH[1]] if is_fresh else []
        body = [f"    {row}" if row.strip() else row for row in (*inner, *rows[start:])]
        new = "\n".join([*rows[:start], *outer, f"for _ in range({REPEATS}):", *body]) + "\n"
        if _has_same_strings(tree, new):
            how = "compiled and called" if is_fresh else "called"
            yield f"it is {how} {REPEATS} times", new


def _has_same_strings(tree: ast.Module, new: str) -> bool:
    """Return whether no string of the program became longer, because its lines were indented."""

    def strings(module: ast.Module) -> list[str]:
        nodes = (n for n in ast.walk(module) if isinstance(n, ast.Constant))
        return sorted(repr(n.value) for n in nodes if isinstance(n.value, (str, bytes)))

    try:
        return strings(tree) == strings(ast.parse(new))
    except SyntaxError:
        return False
