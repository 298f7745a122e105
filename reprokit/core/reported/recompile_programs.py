"""Make a program that is compiled again and again, from the call and the guards that failed.

A record has one call as a program: that for which the limit was reached. The guards that failed
before say which value was different in each earlier call.
"""

from __future__ import annotations

import ast
import copy
import dataclasses
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from reprokit.core.reported.made_programs import literal, parsed

MAX_VALUES = 64
_EQUAL = re.compile(
    r"\d{1,6}/\d{1,6}: (G\['[A-Za-z_]\w{0,100}'\])?([A-Za-z_.][\w.]{0,200})?"
    r" == (.{1,400}?)(?:\s\s+#.*)?",
    re.DOTALL,
)
_SIZE = re.compile(
    r"\d{1,6}/\d{1,6}: tensor '(\w{1,200})' size mismatch at index (\d{1,3})\. expected (\d{1,12}),"
    r" actual \d{1,12}.*",
    re.DOTALL,
)
_DTYPE = re.compile(
    r"\d{1,6}/\d{1,6}: tensor '(\w{1,200})' dtype mismatch\. expected (\w{1,20}), actual .*",
    re.DOTALL,
)
_DTYPES = {
    "Float": "float32",
    "Double": "float64",
    "Half": "float16",
    "BFloat16": "bfloat16",
    "Byte": "uint8",
    "Char": "int8",
    "Short": "int16",
    "Int": "int32",
    "Long": "int64",
    "Bool": "bool",
    "ComplexFloat": "complex64",
    "ComplexDouble": "complex128",
}
"""The names of scalar types in guards (``c10/core/ScalarType.h``)."""
_MAKERS = ("torch.randn", "torch.zeros", "torch.randint")
"""Functions that make a tensor, which are given its sizes or a tuple of them."""


@dataclass(frozen=True)
class _Changed:
    """What was different in each earlier call."""

    source: str
    """An argument, a global variable, or an attribute of one."""
    values: tuple[ast.expr, ...]
    index: int | None = None
    """The dimension, if the values are sizes."""
    is_dtype: bool = False
    is_global: bool = False


def program_of_recompiles(call: str, guards: Sequence[str]) -> str:
    """Return the program of all calls; empty where there is doubt.

    ``call`` is the program of the last one, as ``agent/failures/call_programs.py`` writes it.
    ``guards`` are the guards of the code of each earlier call that failed in the next one, in
    order.
    """
    changed = _changed(guards)
    tree = parsed(call)
    if changed is None or not tree.body:
        return ""
    outer = tree.body[-1]
    rows = outer.body if isinstance(outer, ast.With) else tree.body
    last = rows[-1]
    if not isinstance(last, ast.Expr) or not isinstance(last.value, ast.Call):
        return ""
    made, called = last.value.func, last.value
    if not isinstance(made, ast.Call) or ast.unparse(made.func) != "torch.compile" or not made.args:
        return ""
    again = ast.Call(ast.Name("compiled", ast.Load()), called.args, called.keywords)
    loop = _loop(tree, changed, made.args[0], again)
    if loop is None:
        return ""
    rows[-1:] = [ast.Assign([ast.Name("compiled", ast.Store())], made), *loop]
    return ast.unparse(ast.fix_missing_locations(tree)) + "\n"


def _changed(guards: Sequence[str]) -> _Changed | None:
    """Return what all guards are about; None if they are about several things, or not known."""
    found: list[_Changed] = []
    for guard in guards[:MAX_VALUES]:
        if match := _EQUAL.fullmatch(guard):
            value = parsed(match[3]).body
            if len(value) != 1 or not isinstance(value[0], ast.Expr):
                return None
            if literal(value[0].value) is ...:
                return None
            source = (match[1] or "")[3:-2] + (match[2] or "")
            found.append(_Changed(source, (value[0].value,), is_global=bool(match[1])))
        elif match := _SIZE.fullmatch(guard):
            found.append(_Changed(match[1], (ast.Constant(int(match[3])),), int(match[2])))
        elif (match := _DTYPE.fullmatch(guard)) and match[2] in _DTYPES:
            text = ast.parse(f"torch.{_DTYPES[match[2]]}", mode="eval").body
            found.append(_Changed(match[1], (text,), is_dtype=True))
        else:
            return None
    if len({dataclasses.replace(one, values=()) for one in found}) != 1:
        return None
    return dataclasses.replace(found[0], values=tuple(one.values[0] for one in found))


def _loop(
    tree: ast.Module, changed: _Changed, function: ast.expr, again: ast.Call
) -> list[ast.stmt] | None:
    """Return the loop over the earlier values, and the last call; None where there is doubt."""
    first, *path = changed.source.split(".")
    if path or changed.is_global:
        owner = first
        if not changed.is_global:  # self.step: an attribute of the module that is called
            if first != "self" or not isinstance(function, ast.Name):
                return None
            owner = function.id
        target = ".".join([owner, *path])
        if changed.is_global and _assigned(tree, owner) is None:
            return None
        sets = ast.parse(f"{target} = value").body[0]
        now = _assigned(tree, target)
        last = [now] if now is not None and literal(now) is not ... else []
        values = [*changed.values, *last]
        return [_for_each(values, [sets, ast.Expr(again)])]
    each = copy.deepcopy(again)
    if not _replace(each, tree, function, first, lambda old: _changed_argument(tree, changed, old)):
        return None
    return [_for_each(changed.values, [ast.Expr(each)]), ast.Expr(again)]


def _for_each(values: Sequence[ast.expr], body: list[ast.stmt]) -> ast.For:
    return ast.For(
        ast.Name("value", ast.Store()), ast.List(list(values), ast.Load()), body, [], None
    )


def _assigned(tree: ast.Module, name: str) -> ast.expr | None:
    """Return what a line of the program gives a name."""
    for node in reversed(tree.body):
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == name:
            return node.value
    return None


def _replace(
    call: ast.Call,
    tree: ast.Module,
    function: ast.expr,
    name: str,
    change: Callable[[ast.expr], ast.expr | None],
) -> bool:
    """Change one argument of a call, which is named as the parameter; return whether it did."""
    for word in call.keywords:
        if word.arg == name:
            changed = change(word.value)
            word.value = changed if changed is not None else word.value
            return changed is not None
    names = _parameters(tree, function)
    if name not in names or names.index(name) >= len(call.args):
        return False
    changed = change(call.args[names.index(name)])
    if changed is not None:
        call.args[names.index(name)] = changed
    return changed is not None


def _parameters(tree: ast.Module, function: ast.expr) -> list[str]:
    """Return the names of the positional parameters of the function that is compiled."""
    if isinstance(function, ast.Lambda):
        return [one.arg for one in function.args.args]
    if not isinstance(function, ast.Name):
        return []
    kind = function.id
    for node in tree.body:  # name = Class.__new__(Class)
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == function.id:
            kind = ast.unparse(node.value).partition(".__new__(")[0]
    for node in tree.body:
        if isinstance(node, ast.FunctionDef) and node.name == kind:
            return [one.arg for one in node.args.args]
        if isinstance(node, ast.ClassDef) and node.name == kind:
            for method in node.body:
                if isinstance(method, ast.FunctionDef) and method.name == "forward":
                    return [one.arg for one in method.args.args[1:]]
    return []


def _changed_argument(tree: ast.Module, changed: _Changed, old: ast.expr) -> ast.expr | None:
    """Return an argument with the value of the loop in it."""
    value = ast.Name("value", ast.Load())
    if changed.is_dtype:
        return ast.Call(ast.Attribute(old, "to", ast.Load()), [value], [])
    if changed.index is None:
        return value if literal(old) is not ... else None
    made: Any = next(
        (
            node.value
            for node in tree.body
            if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == ast.unparse(old)
        ),
        None,
    )
    if not isinstance(made, ast.Call) or ast.unparse(made.func) not in _MAKERS:
        return None
    made = copy.deepcopy(made)
    tuples = [one for one in made.args if isinstance(one, ast.Tuple)]
    sizes: list[ast.expr] = tuples[0].elts if tuples else made.args
    if changed.index >= len(sizes):
        return None
    sizes[changed.index] = value
    return ast.Call(made.func, made.args, made.keywords)
