"""Shorten a failing program by whole statements, so that failures can be told apart.

It is no reduction: ``reprokit minimize`` does that. Few runs in one process are enough to remove
what has nothing to do with the failure, and what remains names it.
"""

from __future__ import annotations

import ast
import time
from collections.abc import Callable

MAX_RUNS = 40
_NEEDED = (ast.Return, ast.Import, ast.ImportFrom, ast.Pass, ast.Nonlocal, ast.Global)
KEPT = frozenset({"make", "observe"})
"""Functions that stay as they are."""


def shorten_program(text: str, is_same: Callable[[str], bool], limit_s: float) -> str:
    """Return the program without the statements, and the heads of blocks, that ``is_same`` does
    not need.

    ``is_same`` runs a shorter program, and says whether it fails in the same way. No run begins
    after ``limit_s`` seconds.
    """
    end = time.monotonic() + limit_s
    left, number = MAX_RUNS, 2 * _statement_count(text) - 1
    while number >= 0 and left and time.monotonic() < end:
        shorter = _without_statement(text, number)
        if shorter:
            left -= 1
            if is_same(shorter):
                text = shorter
                number = min(number, 2 * _statement_count(text))
        number -= 1
    return text


def _places(tree: ast.Module) -> list[tuple[list[ast.stmt], ast.stmt]]:
    """Return each statement that may go, with the list that it is in; outer ones come later."""
    found: list[tuple[list[ast.stmt], ast.stmt]] = []

    def visit(node: ast.AST) -> None:
        for field in ("body", "orelse", "finalbody", "handlers", "cases"):
            rows = getattr(node, field, [])
            for row in rows if isinstance(rows, list) else ():  # the body of a lambda is none
                if isinstance(row, ast.FunctionDef) and row.name in KEPT:
                    continue
                visit(row)
                if isinstance(row, ast.stmt) and not isinstance(row, _NEEDED):
                    found.append((rows, row))

    visit(tree)
    return found


def _statement_count(text: str) -> int:
    return len(_places(ast.parse(text)))


def _without_statement(text: str, number: int) -> str:
    """Return the program without a statement, or with its body in its place. Empty if that is no
    shorter program, and for the function that is compiled.

    The number of a statement is half of ``number``.
    """
    tree = ast.parse(text)
    places = _places(tree)
    if number // 2 >= len(places):
        return ""
    rows, row = places[number // 2]
    if isinstance(row, ast.FunctionDef) and row.name == "function":
        return ""
    body: list[ast.stmt] = []
    if not number % 2:
        if not isinstance(row, (ast.With, ast.For, ast.While, ast.If, ast.Try)):
            return ""
        body = row.body
    at = rows.index(row)
    rows[at : at + 1] = body or ([] if len(rows) > 1 else [ast.Pass()])
    return ast.unparse(tree) + "\n"


def words_of_program(text: str) -> str:
    """Return the constructs of a program, and the names that it uses and does not define, in the
    order of the alphabet.

    They are the same in two programs that reach one fault of the compiler through different
    definitions.
    """
    tree = ast.parse(text)
    rows = [
        row
        for row in tree.body
        if isinstance(row, (ast.FunctionDef, ast.ClassDef, ast.Assign))
        and getattr(row, "name", "") not in KEPT
    ]
    nodes = [node for row in rows for node in ast.walk(row)]
    own = {name for node in nodes if (name := _defined_name(node))} | _USUAL
    words: set[str] = set()
    for node in nodes:
        words |= {_CONSTRUCTS.get(type(node), ""), _used_name(node)} - own
        if isinstance(node, ast.Try) and node.finalbody:
            words.add("finally")
        if isinstance(node, ast.FunctionDef) and node.name.startswith("__"):
            words.add(node.name)
    return " ".join(sorted(words - {""}))


def _defined_name(node: ast.AST) -> str:
    """Return the name that a node defines; empty if there is none."""
    if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
        return node.name
    if isinstance(node, ast.arg):
        return node.arg
    if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
        return node.id
    if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
        return node.attr
    return ""


def _used_name(node: ast.AST) -> str:
    """Return the name that a node reads; empty if there is none."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute):
        return node.attr
    if isinstance(node, ast.keyword):
        return node.arg or "**"
    return ""


_CONSTRUCTS: dict[type[ast.AST], str] = {
    ast.Yield: "yield",
    ast.YieldFrom: "yield from",
    ast.With: "with",
    ast.ExceptHandler: "except",
    ast.Raise: "raise",
    ast.Break: "break",
    ast.Continue: "continue",
    ast.While: "while",
    ast.Global: "global",
    ast.Nonlocal: "nonlocal",
    ast.Lambda: "lambda",
    ast.ListComp: "list comprehension",
    ast.SetComp: "set comprehension",
    ast.DictComp: "dict comprehension",
    ast.GeneratorExp: "generator expression",
    ast.Starred: "*",
    ast.NamedExpr: ":=",
    ast.Delete: "del",
    ast.Slice: "slice",
    ast.ClassDef: "class",
}
_USUAL = frozenset("torch function out observe LOG append look x n io StringIO mode".split())
