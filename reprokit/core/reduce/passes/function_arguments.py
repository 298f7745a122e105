"""Passes over functions that are arguments, as those of ``torch.while_loop`` and ``torch.cond``."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from reprokit.core.reduce.ast_edits import (
    NO_PROGRAM,
    NodePlace,
    ReplacedNode,
    Test,
    copy_tree,
    last_name,
    node_at,
    one_by_one,
    reads_name,
    text_of,
    walk_places,
)

_FUNCTIONS = {"while_loop": 2, "cond": 2}
"""The operators, and how many arguments from the first function on are functions."""
_FIRST = {"while_loop": 0, "cond": 1}
"""The position of the first function. The operands follow the functions."""
_WITH_STATE = ("while_loop",)
"""The operators whose last function returns new operands."""
MAX_LAMBDA_CHARS, MAX_LINE_CHARS = 60, 100
AnyFunction = ast.FunctionDef | ast.Lambda


def drop_operands(text: str, test: Test) -> str:
    """Remove an operand of ``torch.while_loop`` or ``torch.cond``, with its parameters.

    A parameter of which the operand is removed is replaced by the operand, where it is a name.
    """

    def edits(tree: ast.Module) -> Iterator[NodePlace]:
        for path, node in walk_places(tree):
            if isinstance(node, ast.Call) and (found := _operands_and_functions(tree, node)):
                for index in range(len(found[0].elts)):
                    yield NodePlace(path, index)

    def apply(tree: ast.Module, place: NodePlace) -> None:
        call = node_at(tree, place.path)
        found = _operands_and_functions(tree, call)
        assert found is not None
        (operands, functions), index = found, place.choice
        operand = operands.elts.pop(index)
        for function in functions:
            gone = function.args.args.pop(index).arg
            if isinstance(operand, ast.Name):
                ReplacedNode({gone: operand}).visit(function)
        if last_name(call.func) in _WITH_STATE:
            results = _results(functions[-1])
            del results.elts[index]

    return one_by_one(text, edits, apply, test)


def write_lambdas(text: str, test: Test) -> str:
    """Write a short function that is used once, inside a different function, as a lambda."""
    refused = set()
    while True:
        tree = ast.parse(text)
        places = [
            (body, node)
            for outer in ast.walk(tree)
            if isinstance(outer, ast.FunctionDef) and isinstance(body := outer.body, list)
            for node in body
            if isinstance(node, ast.FunctionDef) and node.name not in refused
        ]
        found = next(((b, n, v) for b, n in places if (v := _only_value(n)) is not None), None)
        if found is None:
            return text
        body, node, value = found
        refused.add(node.name)
        if len(reads_name(tree, node.name)) != 1:
            continue
        body.remove(node)
        ReplacedNode({node.name: ast.Lambda(node.args, value)}).visit(tree)
        try:
            new = text_of(tree)
        except NO_PROGRAM:
            continue
        if max(map(len, new.splitlines())) <= MAX_LINE_CHARS and test(new):
            text = new


def _operands_and_functions(
    tree: ast.Module, call: ast.Call
) -> tuple[ast.Tuple, list[AnyFunction]] | None:
    """Return the operands of an operator and the functions that take them, one parameter each."""
    name = last_name(call.func)
    if name not in _FUNCTIONS:
        return None
    first = _FIRST[name]
    place = first + _FUNCTIONS[name]
    if len(call.args) != place + 1 or not isinstance(operands := call.args[place], ast.Tuple):
        return None
    functions = [_function_of(tree, argument) for argument in call.args[first:place]]
    known = [f for f in functions if f is not None and len(f.args.args) == len(operands.elts)]
    if len(known) < len(functions) or len(operands.elts) < 2:
        return None
    if name in _WITH_STATE and len(_results(known[-1]).elts) != len(operands.elts):
        return None
    return operands, known


def _function_of(tree: ast.Module, argument: ast.expr) -> AnyFunction | None:
    if isinstance(argument, ast.Lambda):
        return argument
    name = last_name(argument)
    found = [n for n in ast.walk(tree) if isinstance(n, ast.FunctionDef) and n.name == name]
    is_plain = isinstance(argument, ast.Name) and len(found) == 1
    return found[0] if is_plain and len(reads_name(tree, name)) == 1 else None


def _results(function: AnyFunction) -> ast.Tuple:
    """Return the tuple that a function returns at its end; an empty one if it is written
    differently.
    """
    value: ast.expr | None
    if isinstance(function, ast.Lambda):
        value = function.body
    else:
        last = function.body[-1]
        value = last.value if isinstance(last, ast.Return) else None
    return value if isinstance(value, ast.Tuple) else ast.Tuple([], ast.Load())


def _only_value(function: ast.FunctionDef) -> ast.expr | None:
    """Return the value of a function that only returns it, if it is short enough for a lambda."""
    row = function.body[0]
    if len(function.body) > 1 or not isinstance(row, ast.Return) or row.value is None:
        return None
    takes = function.args
    has_types = any(a.annotation for a in (*takes.args, *takes.kwonlyargs, *takes.posonlyargs))
    is_long = len(ast.unparse(ast.Lambda(takes, copy_tree(row.value)))) > MAX_LAMBDA_CHARS
    is_plain = not (function.decorator_list or has_types or is_long)
    return row.value if is_plain else None
