"""The locks that a line of Python holds and acquires, read from the source around it.

CPython does not record who holds a lock. A thread inside the block of ``with lock:``, or behind
``lock.acquire()``, holds it, and the source shows that.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)
Scope = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda | ast.ClassDef | ast.Module


@dataclass(frozen=True)
class NamedLock:
    """A lock, as the source names it."""

    name: str
    """The expression: ``self._lock``."""
    identity: str
    """Equal for two expressions that may be the same lock: the variable with its module or
    function, or an attribute, of whatever object.
    """
    line: int
    """The line that acquires it."""


def locks_of_line(
    tree: ast.Module, module: str, line: int
) -> tuple[list[NamedLock], list[NamedLock]]:
    """Return the locks that a line holds, and those that it acquires, in their order.

    ``module`` is the name of the module, without its packages.
    """
    scopes = [tree, *_scopes_around(tree, line)]
    if isinstance(scopes[-1], (ast.Module, ast.ClassDef, ast.Lambda)):
        return [], []
    held: dict[str, NamedLock] = {}
    acquired: list[NamedLock] = []

    def named(node: ast.expr) -> NamedLock:
        return NamedLock(ast.unparse(node), _identity(node, scopes, module), node.lineno)

    for node in _statements_of(scopes[-1]):
        if isinstance(node, (ast.With, ast.AsyncWith)):
            names = [i.context_expr for i in node.items if _is_name(i.context_expr)]
            first, last = node.lineno, node.body[0].lineno - 1
            if first <= line <= max(last, first):
                acquired += map(named, names)
            elif last < line <= (node.end_lineno or line):
                held.update((lock.identity, lock) for lock in map(named, names))
        elif isinstance(node, ast.Call) and (waited := _waits_on(node, line)) is not None:
            held.pop(named(waited).identity, None)  # a condition is released while it waits
        elif isinstance(node, ast.Expr) and (found := _call_of_lock(node.value)):
            lock, is_acquired = named(found[0]), found[1]
            if node.lineno <= line <= (node.end_lineno or node.lineno):
                acquired += [lock] * is_acquired
            elif node.lineno < line and is_acquired:
                held[lock.identity] = lock
            elif node.lineno < line:
                held.pop(lock.identity, None)
    return list(held.values()), acquired


def _scopes_around(tree: ast.AST, line: int) -> list[Scope]:
    """Return the classes and functions around a line, the outermost first."""
    for node in ast.iter_child_nodes(tree):
        if getattr(node, "lineno", line + 1) <= line <= (getattr(node, "end_lineno", 0) or 0):
            inner = _scopes_around(node, line)
            is_scope = isinstance(node, (*_FUNCTIONS, ast.ClassDef))
            return [node, *inner] if is_scope else inner  # type: ignore[list-item]
    return []


def _statements_of(scope: ast.AST) -> Iterator[ast.AST]:
    """Yield the nodes of a scope in the order of the source, without those of inner scopes."""
    for node in ast.iter_child_nodes(scope):
        if isinstance(node, (*_FUNCTIONS, ast.ClassDef)):
            continue
        yield node
        yield from _statements_of(node)


def _is_name(node: ast.expr) -> bool:
    """Return whether an expression is a variable or an attribute. A call makes its object anew."""
    while isinstance(node, ast.Attribute):
        node = node.value
    return isinstance(node, ast.Name)


def _waits_on(node: ast.Call, line: int) -> ast.expr | None:
    """Return the condition of ``condition.wait()`` in a line."""
    function = node.func
    is_wait = isinstance(function, ast.Attribute) and function.attr in ("wait", "wait_for")
    if not is_wait or not node.lineno <= line <= (node.end_lineno or line):
        return None
    assert isinstance(function, ast.Attribute)
    return function.value if _is_name(function.value) else None


def _call_of_lock(node: ast.expr) -> tuple[ast.expr, bool] | None:
    """Return the lock of ``lock.acquire()`` or ``lock.release()``, and whether it is acquired."""
    if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)):
        return None
    if node.func.attr not in ("acquire", "release") or not _is_name(node.func.value):
        return None
    return node.func.value, node.func.attr == "acquire"


def _identity(node: ast.expr, scopes: list[Scope], module: str) -> str:
    if isinstance(node, ast.Attribute):
        owner = node.value
        source = _imported(owner.id, scopes[0]) if isinstance(owner, ast.Name) else ""
        return f"{source.rpartition('.')[2]}.{node.attr}" if source else f".{node.attr}"
    assert isinstance(node, ast.Name)
    for depth in range(len(scopes) - 1, 0, -1):
        scope = scopes[depth]
        if not isinstance(scope, _FUNCTIONS) or node.id in _global_names(scope):
            continue
        if node.id in _local_names(scope):
            path = ".".join(getattr(s, "name", "<lambda>") for s in scopes[1 : depth + 1])
            return f"{module}.{path}.<locals>.{node.id}"
    source = _imported(node.id, scopes[0])
    return ".".join(source.split(".")[-2:]) if source else f"{module}.{node.id}"


def _local_names(scope: ast.AST) -> set[str]:
    names = {a.arg for a in ast.walk(getattr(scope, "args", ast.Pass())) if isinstance(a, ast.arg)}
    for node in _statements_of(scope):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            names.add(node.id)
    return names - {
        n for s in _statements_of(scope) if isinstance(s, ast.Nonlocal) for n in s.names
    }


def _global_names(scope: ast.AST) -> set[str]:
    return {n for s in _statements_of(scope) if isinstance(s, ast.Global) for n in s.names}


def _imported(name: str, tree: Scope) -> str:
    """Return the module, or the module and the name in it, that a name is imported from."""
    for node in ast.walk(tree):
        for alias in node.names if isinstance(node, (ast.Import, ast.ImportFrom)) else ():
            if (alias.asname or alias.name.partition(".")[0]) == name:
                before = f"{node.module or ''}." if isinstance(node, ast.ImportFrom) else ""
                return f"{before}{alias.name}"
    return ""
