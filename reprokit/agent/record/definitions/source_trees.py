"""Find the syntax tree of a function or class in its source file.

The tree is found by the code object. ``inspect.getsource`` follows ``__wrapped__`` and returns
whole statements for a lambda.
"""

from __future__ import annotations

import ast
import copy
import functools
import inspect
import linecache
import textwrap
import types
from collections.abc import Iterator
from typing import Any

MAX_SOURCE_CHARS = 20_000
"""Limit of the source text of one function or class."""

Tree = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda | ast.ClassDef


class NoText(Exception):
    """A value cannot be written as Python text; the message is the reason."""


def function_tree(function: types.FunctionType) -> Tree:
    """Return a copy of the tree of a function or lambda; raises NoText if it is not found."""
    code = function.__code__
    found = [node for node in _functions(code.co_filename) if _is_of(node, code)]
    if len(found) > 1:
        found = [node for node in found if _compiles_to(node, code)]
    if not found:
        raise NoText(f"the source of {function.__qualname__} cannot be read")
    return _copied(found[0], function.__qualname__)


def class_tree(value: type) -> Tree:
    """Return the tree of a class; raises NoText if it is not found."""
    try:
        node = ast.parse(textwrap.dedent(inspect.getsource(value))).body[0]
    except (OSError, TypeError, SyntaxError) as problem:
        raise NoText(f"the source of {value.__qualname__} cannot be read: {problem}") from problem
    if not isinstance(node, ast.ClassDef):
        raise NoText(f"the source of {value.__qualname__} is not a class statement")
    return _copied(node, value.__qualname__)


def closure_values(function: Any) -> dict[str, Any]:
    """Return the variables of enclosing functions that a function uses."""
    values = {}
    names = function.__code__.co_freevars
    for name, cell in zip(names, function.__closure__ or (), strict=True):
        try:
            values[name] = cell.cell_contents
        except ValueError:  # the variable has no value yet
            continue
    return values


def _copied(node: Tree, name: str) -> Tree:
    if len(ast.unparse(node)) > MAX_SOURCE_CHARS:
        raise NoText(f"the source of {name} is too long")
    return copy.deepcopy(node)


def _functions(file: str) -> Iterator[Tree]:
    for node in ast.walk(_tree_of_file(file, tuple(linecache.getlines(file)))):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)):
            yield node


@functools.lru_cache(maxsize=8)
def _tree_of_file(file: str, lines: tuple[str, ...]) -> ast.Module:
    try:
        return ast.parse("".join(lines))
    except (SyntaxError, ValueError, RecursionError):
        return ast.Module([], [])


def _is_of(node: Tree, code: types.CodeType) -> bool:
    if isinstance(node, ast.Lambda):
        return code.co_name == "<lambda>" and node.lineno == code.co_firstlineno
    first = min([node.lineno, *(d.lineno for d in node.decorator_list)])
    return node.name == code.co_name and code.co_firstlineno in (first, node.lineno)


def _compiles_to(node: Tree, code: types.CodeType) -> bool:
    """Return whether a function has the instructions of ``code``, so that two lambdas on one line
    differ.
    """
    if not isinstance(node, ast.Lambda):
        return True
    text = f"def outer({', '.join(code.co_freevars)}):\n    return ({ast.unparse(node)})"
    outer = next(c for c in compile(text, "", "exec").co_consts if inspect.iscode(c))
    inner = next(c for c in outer.co_consts if inspect.iscode(c))
    same = ("co_code", "co_names", "co_varnames", "co_freevars")
    values = [c for c in code.co_consts if not inspect.iscode(c)]
    return all(getattr(inner, name) == getattr(code, name) for name in same) and values == [
        c for c in inner.co_consts if not inspect.iscode(c)
    ]
