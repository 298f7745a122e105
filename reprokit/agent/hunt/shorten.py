"""Shorten a failing program by whole statements, so that failures can be told apart.

It is no reduction: ``reprokit minimize`` does that. Few runs in one process are enough to remove
what has nothing to do with the failure, and what remains names it.
"""

from __future__ import annotations

import ast
import keyword
import re
from collections.abc import Callable

MAX_RUNS = 40
_NEEDED = (ast.Return, ast.Import, ast.ImportFrom, ast.Pass, ast.Nonlocal, ast.Global)
KEPT = frozenset({"make", "observe"})
"""Functions that stay as they are."""


def shorten_program(text: str, is_same: Callable[[str], bool]) -> str:
    """Return the program without the statements that ``is_same`` does not need.

    ``is_same`` runs a shorter program, and says whether it fails in the same way.
    """
    left, count = MAX_RUNS, _statement_count(text)
    number = count - 1
    while number >= 0 and left:
        shorter = _without_statement(text, number)
        if shorter:
            left -= 1
            if is_same(shorter):
                text = shorter
                number = min(number, _statement_count(text))
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
    """Return the program without a statement; empty for the function that is compiled."""
    tree = ast.parse(text)
    places = _places(tree)
    if number >= len(places):
        return ""
    rows, row = places[number]
    if isinstance(row, ast.FunctionDef) and row.name == "function":
        return ""
    at = rows.index(row)
    rows[at : at + 1] = [] if len(rows) > 1 else [ast.Pass()]
    return ast.unparse(tree) + "\n"


def words_of_program(text: str) -> str:
    """Return the words of a program without its variables and numbers, in the order of the
    alphabet.
    """
    tree = ast.parse(text)
    words: set[str] = set()
    for row in tree.body:
        if isinstance(row, ast.FunctionDef) and row.name in KEPT:
            continue
        if isinstance(row, (ast.FunctionDef, ast.ClassDef, ast.Assign)):
            words |= set(re.findall(r"[A-Za-z_]\w+", ast.unparse(row)))
    plain = {re.sub(r"\d+", "", word) for word in words if not re.fullmatch(r"[a-z]\d*", word)}
    shown = [word for word in plain if not keyword.iskeyword(word) or word in _TELLING]
    return " ".join(sorted(set(shown) - _USUAL))


_TELLING = frozenset({"yield", "with", "try", "finally", "except", "nonlocal", "global", "raise"})
_USUAL = frozenset(
    {"torch", "function", "out", "observe", "LOG", "STATE", "BUFFER", "io", "StringIO", "mode",
     "look", "append", "part_"}
)  # fmt: skip
