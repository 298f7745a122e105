"""Keep the condition of an exception that code of the program raises only when it is compiled.

Dynamo may trace a function of the program with other values than eager has, so a ``raise`` of the
program that eager never reaches ends the compile. The condition before it is what shows the defect:
a program that always raises there, in a function that eager no longer calls, has the same message
and shows nothing. So the run in eager must reach the statement that has the ``raise``, if that of
the original does.
"""

from __future__ import annotations

import ast
import re

_OBSERVED = re.compile(r"raised exception (\w+)\(")
"""How Dynamo names an exception that traced code raises."""
_REACHED = "__import__('builtins').reprokit_reached = True"
_END = "__import__('sys').exit(not hasattr(__import__('builtins'), 'reprokit_reached'))"
_SCOPES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)


def with_check(text: str, failure: str) -> str:
    """Return a program that ends with status 1 if it does not reach a statement that can raise the
    exception of ``failure``, the message of a signature; empty if it has no such statement.
    """
    observed = _OBSERVED.search(failure)
    name = observed[1] if observed else failure.partition(":")[0].rpartition(".")[2]
    try:
        tree = ast.parse(text)
        if not name or not _mark(tree.body, name, failure):
            return ""
        tree.body += ast.parse(_END).body
        return ast.unparse(tree)
    except (SyntaxError, ValueError, RecursionError):
        return ""


def _mark(rows: list[ast.stmt], name: str, failure: str) -> bool:
    """Put a mark before each statement of a block that can raise; return whether there is one."""
    is_marked = False
    for row in rows[:]:
        if isinstance(row, _SCOPES):
            is_marked |= _mark(row.body, name, failure)
        elif any(_raises(node, name, failure) for node in ast.walk(row)):
            rows[rows.index(row) : rows.index(row)] = ast.parse(_REACHED).body
            is_marked = True
    return is_marked


def _raises(node: ast.AST, name: str, failure: str) -> bool:
    """Return whether a statement raises an exception of this name with words of the message."""
    if isinstance(node, ast.Assert):
        return name == "AssertionError"
    if not isinstance(node, ast.Raise) or node.exc is None:
        return False
    kind, words = node.exc, ""
    if isinstance(kind, ast.Call):
        first = kind.args[0] if kind.args else None
        words = str(first.value) if isinstance(first, ast.Constant) else ""
        kind = kind.func
    plain = re.split(r"['\"\\\d]|0x", words)[0][:40]
    return ast.unparse(kind).rpartition(".")[2] == name and plain in failure
