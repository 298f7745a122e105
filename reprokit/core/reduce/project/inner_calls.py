"""Write a program that compiles one inner function of a program alone.

Dynamo fails while it traces a function of the user that others call. The function, or the module
that has it as ``forward``, often fails alone, and its program has none of the code around it.
:func:`record_calls` adds the calls of the recorder (``agent/serve/value_recorder.py``) to a copy of
a program, and :func:`programs_of_calls` writes programs with arguments like the recorded ones.
"""

from __future__ import annotations

import ast
import builtins
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from reprokit.core.reduce.ast_edits import (
    NO_PROGRAM,
    copy_tree,
    is_definition,
    text_of,
)
from reprokit.core.reduce.project import value_texts
from reprokit.core.reduce.project.tensor_values import names_of_tensor_values

MAX_PROGRAMS = 4
"""The most functions that are compiled alone."""
CALLED = "forward", "__call__"
"""The methods that a call of an object runs."""
MADE = "made"
"""The field of a description with the number of the ``__init__`` that made an object; a negative
number for a dataclass.
"""


@dataclass(frozen=True)
class InnerCall:
    """The first call of a function of the program."""

    number: int
    """The index of the function in :func:`functions_of`."""
    arguments: Mapping[str, Mapping[str, Any]]
    """A description of each argument, by the name of its parameter."""


def functions_of(tree: ast.Module) -> list[tuple[ast.FunctionDef, ast.ClassDef | None]]:
    """Return the functions of a program and the methods of its classes, each with its class."""
    found: list[tuple[ast.FunctionDef, ast.ClassDef | None]] = []
    for row in tree.body:
        if isinstance(row, ast.FunctionDef):
            found.append((row, None))
        elif isinstance(row, ast.ClassDef):
            found += [(one, row) for one in row.body if isinstance(one, ast.FunctionDef)]
    return found


def record_calls(tree: ast.Module, recorder: ast.expr) -> None:
    """Let each function note its arguments; ``recorder`` is the function that does so."""
    for number, (function, owner) in enumerate(functions_of(tree)):
        if owner is None or _is_method(function):
            given = ast.Call(ast.Name("locals", ast.Load()), [], [])
            noted = [ast.Constant(number), ast.Constant(function.name == "__init__"), given]
            function.body.insert(0, ast.Expr(ast.Call(copy_tree(recorder), noted, [])))


def programs_of_calls(text: str, calls: Sequence[InnerCall], traced: str) -> Iterator[str]:
    """Yield programs that compile one function alone, at most ``MAX_PROGRAMS``.

    ``calls`` are in the order in which the functions began. Functions with the name ``traced``, at
    which the compiler failed, come first, and of those that begin last, which are the inner ones.
    A call with a number out of a tensor gives no program.
    """
    tree = ast.parse(text)
    functions, secret = functions_of(tree), names_of_tensor_values(tree)
    calls = [call for call in calls if not secret & _names_of_literals(call.arguments)]
    inner = [c for c in reversed(calls) if functions[c.number][0].name != "__init__"]
    inner.sort(key=lambda call: functions[call.number][0].name != traced)
    for call in inner[:MAX_PROGRAMS]:
        try:
            new = _program(tree, functions, call)
        except NO_PROGRAM:
            continue
        if new and len(new.splitlines()) < len(text.splitlines()):
            yield new


def _names_of_literals(arguments: Mapping[str, Mapping[str, Any]]) -> set[str]:
    """Return the parameters with plain values, also those with which objects were made."""
    names: set[str] = set()
    for name, described in arguments.items():
        if MADE in described:
            names |= _names_of_literals(described["arguments"])
        elif "literal" in described or "parts" in described:
            names.add(name)
    return names


def _program(
    tree: ast.Module,
    functions: list[tuple[ast.FunctionDef, ast.ClassDef | None]],
    call: InnerCall,
) -> str:
    function, owner = functions[call.number]
    rows: list[ast.stmt] = []
    taken = set(dir(builtins)) | {name for row in tree.body for name in _defined(row)}

    def named(name: str, value: ast.expr) -> ast.expr:
        if isinstance(value, ast.Constant):
            return value
        free = (name, *(f"{name}_{n}" for n in range(2, len(taken) + 3)))
        new = next(one for one in free if one not in taken)
        taken.add(new)
        rows.append(ast.Assign([ast.Name(new, ast.Store())], value))
        return ast.Name(new, ast.Load())

    compiled: ast.expr = ast.Name(function.name, ast.Load())
    if owner is not None:
        made = _value(call.arguments.get(_parameters(function)[0], {}), functions)
        if made is None:
            return ""
        compiled = named(owner.name.lower(), made)
        if function.name not in CALLED:
            compiled = ast.Attribute(compiled, function.name, ast.Load())
    given = _arguments(function, call.arguments, functions, skip=owner is not None)
    if given is None:
        return ""
    arguments, keywords = given
    words = _words_of_compile(tree)
    entered = ast.Call(_torch("compile"), [compiled], words)
    names = _parameters(function)[int(owner is not None) :]
    passed = [
        named(names[n] if n < len(names) else "x", value) for n, value in enumerate(arguments)
    ]
    rows.append(ast.Expr(ast.Call(entered, passed, keywords)))
    kept = _definitions_for(tree, [*rows, *(ast.Expr(word.value) for word in words)])
    changed = ast.Module([*(copy_tree(row) for row in kept), *rows], [])
    _without_compile(changed, len(kept))
    return text_of(changed)


def _value(
    described: Mapping[str, Any], functions: list[tuple[ast.FunctionDef, ast.ClassDef | None]]
) -> ast.expr | None:
    """Return an expression for a described value, or for an object of a class of the program."""
    if MADE not in described:
        return value_texts.expression_of(described) if described else None
    given: tuple[list[ast.expr], list[ast.keyword]] | None
    if described[MADE] < 0:
        fields = {name: _value(one, functions) for name, one in described["arguments"].items()}
        words = [ast.keyword(name, value) for name, value in fields.items() if value is not None]
        given = ([], words) if len(words) == len(fields) else None
    else:
        init = functions[int(described[MADE])][0]
        given = _arguments(init, described["arguments"], functions, skip=True)
    if given is None:
        return None
    return ast.Call(ast.Name(str(described["class"]), ast.Load()), *given)


def _arguments(
    function: ast.FunctionDef,
    described: Mapping[str, Mapping[str, Any]],
    functions: list[tuple[ast.FunctionDef, ast.ClassDef | None]],
    skip: bool,
) -> tuple[list[ast.expr], list[ast.keyword]] | None:
    """Return the arguments of a call like the recorded one; None if one cannot be written."""
    takes = function.args
    values: list[ast.expr] = []
    for name in _parameters(function)[int(skip) :]:
        value = _value(described.get(name, {}), functions)
        if value is None:
            return None
        values.append(value)
    words: list[ast.keyword] = []
    for one in takes.kwonlyargs:
        value = _value(described.get(one.arg, {}), functions)
        if value is None:
            return None
        words.append(ast.keyword(one.arg, value))
    if takes.vararg is not None:
        rest = _value(described.get(takes.vararg.arg, {}), functions)
        if not isinstance(rest, ast.Tuple):
            return None
        values += rest.elts
    if takes.kwarg is not None:
        named = _value(described.get(takes.kwarg.arg, {}), functions)
        if not isinstance(named, ast.Dict):
            return None
        for key, value in zip(named.keys, named.values, strict=True):
            words.append(ast.keyword(str(ast.literal_eval(key or ast.Constant(""))), value))
    return values, words


def _parameters(function: ast.FunctionDef) -> list[str]:
    return [one.arg for one in (*function.args.posonlyargs, *function.args.args)]


def _is_method(function: ast.FunctionDef) -> bool:
    return not function.decorator_list and _parameters(function)[:1] == ["self"]


def _torch(name: str) -> ast.expr:
    return ast.Attribute(ast.Name("torch", ast.Load()), name, ast.Load())


def _words_of_compile(tree: ast.Module) -> list[ast.keyword]:
    """Return the keyword arguments of the first call of ``torch.compile``."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "torch.compile":
            return [copy_tree(word) for word in node.keywords]
    return []


def _definitions_for(tree: ast.Module, rows: Sequence[ast.stmt]) -> list[ast.stmt]:
    """Return the imports, and the definitions and variables of a program that rows need."""
    read = {"torch"} | _names_read(rows)
    kept: list[ast.stmt] = []
    while True:
        before = len(kept)
        for row in tree.body:
            if any(row is one for one in kept):
                continue
            defined = _defined(row)
            is_needed = not read.isdisjoint(defined) or "annotations" in defined
            if isinstance(row, ast.Assign) and not defined:  # such as REGISTRY["name"] = Class
                is_needed = _names_read([row]) <= read
            if is_needed:
                kept.append(row)
                read |= _names_read([row])
        if len(kept) == before:
            return [row for row in tree.body if any(row is one for one in kept)]


def _defined(row: ast.stmt) -> set[str]:
    """Return the names that a statement of the module defines."""
    if isinstance(row, (ast.FunctionDef, ast.ClassDef)):
        return {row.name}
    if isinstance(row, (ast.Import, ast.ImportFrom)):
        return {(alias.asname or alias.name).split(".")[0] for alias in row.names}
    targets = row.targets if isinstance(row, ast.Assign) else []
    return {
        n.id
        for one in targets
        for n in ast.walk(one)
        if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)
    }


def _names_read(rows: Sequence[ast.stmt]) -> set[str]:
    return {
        n.id
        for row in rows
        for n in ast.walk(row)
        if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Load)
    }


def _without_compile(tree: ast.Module, count: int) -> None:
    """Remove decorators that compile from the first ``count`` statements."""
    for row in tree.body[:count]:
        for node in ast.walk(row) if is_definition(row) else ():
            if isinstance(node, ast.FunctionDef):
                node.decorator_list = [
                    d for d in node.decorator_list if not ast.unparse(d).startswith("torch.compile")
                ]
