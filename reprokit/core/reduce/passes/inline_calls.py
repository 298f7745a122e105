"""Replace calls of functions of the program by what the functions do."""

from __future__ import annotations

import ast
import symtable
from collections.abc import Iterator

from reprokit.core.reduce.ast_edits import (
    ReplacedNode,
    Test,
    call_arguments,
    copy_tree,
    keep_proposals,
    node_at,
    own_nodes,
    reads_name,
    replace_node,
    walk_places,
)

MAX_INLINED = 20
"""Functions that are inlined at once."""
Block = list[ast.stmt]


def inline_calls(text: str, test: Test) -> str:
    """Replace a function that only returns a value by the value, and a function that only one other
    function calls by its body there.
    """
    return keep_proposals(keep_proposals(text, _as_values, test), _in_functions, test)


def inline_all(tree: ast.Module) -> None:
    """Inline the functions that only statements of the module call."""
    for _ in range(MAX_INLINED):
        if not inline_one(tree):
            break


def inline_one(tree: ast.Module) -> bool:
    """Replace ``model, args = make()`` and ``main()`` by the body of the function, if nothing else
    calls it. The call may be in a loop. Return whether one was replaced.
    """
    for block, index in _statements(tree.body):
        function = _called_here(tree, block[index])
        if function is None:
            continue
        taken = _global_names([row for row in tree.body if row is not function])
        rows = _rows_of(*_renamed(function, block[index], taken))
        if rows is not None:
            block[index : index + 1] = rows
            tree.body.remove(function)
            return True
    return False


def _in_functions(tree: ast.Module) -> Iterator[ast.Module]:
    """Propose to inline a function into the only function that calls it."""
    for number, caller in enumerate(tree.body):
        if not isinstance(caller, ast.FunctionDef):
            continue
        for place, (inner, at) in enumerate(_statements(caller.body)):
            if _called_here(tree, inner[at]) in (None, caller):
                continue
            changed = copy_tree(tree)
            outer = changed.body[number]
            assert isinstance(outer, ast.FunctionDef)
            block, index = list(_statements(outer.body))[place]
            function = _called_here(changed, block[index])
            assert function is not None
            rows = _rows_of(*_renamed(function, block[index], _identifiers(outer)))
            shared = sorted(_globals(function))
            if rows is None or _assigned(outer) & set(shared):
                continue
            block[index : index + 1] = rows
            if shared:
                outer.body.insert(0, ast.Global(shared))
            changed.body.remove(function)
            yield changed


def _called_here(tree: ast.Module, node: ast.stmt) -> ast.FunctionDef | None:
    """Return the function that a statement calls, if nothing else in the program names it."""
    call = _call_of(node)
    if call is None or not isinstance(call.func, ast.Name):
        return None
    name = call.func.id
    named = [n for n in tree.body if isinstance(n, ast.FunctionDef) and n.name == name]
    if not named:
        return None
    uses = [n for n in ast.walk(tree) if isinstance(n, ast.Name) and n.id == name]
    is_only = len(named) == len(uses) == 1 and not named[0].decorator_list
    return named[0] if is_only else None


def _call_of(node: ast.stmt) -> ast.Call | None:
    value = node.value if isinstance(node, (ast.Assign, ast.Expr, ast.Return)) else None
    return value if isinstance(value, ast.Call) else None


def _arguments(function: ast.FunctionDef, node: ast.stmt) -> dict[str, ast.expr] | None:
    call = _call_of(node)
    values = call_arguments(function, call, 0) if call is not None else None
    return None if values is None else {n: v for n, v in values.items() if ast.unparse(v) != n}


def _stored(function: ast.FunctionDef, node: ast.stmt) -> set[str]:
    """Return the local variables that the body of a function would assign in place of a call."""
    inner = [n for row in function.body for n in ast.walk(row)]
    stored = {n.id for n in inner if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
    return (stored | (_arguments(function, node) or {}).keys()) - _globals(function)


def _globals(function: ast.FunctionDef) -> set[str]:
    return {name for n in ast.walk(function) if isinstance(n, ast.Global) for name in n.names}


def _assigned(function: ast.FunctionDef) -> set[str]:
    """Return the names that are variables of a function itself."""
    names = {
        n.id for n in ast.walk(function) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)
    }
    return (names | {n.arg for n in ast.walk(function) if isinstance(n, ast.arg)}) - _globals(
        function
    )


def _renamed(
    function: ast.FunctionDef, node: ast.stmt, taken: set[str]
) -> tuple[ast.FunctionDef, ast.stmt]:
    """Return a function whose local variables have none of the names that are taken, and the
    statement that calls it.
    """
    stored = _stored(function, node)
    names: dict[str, str] = {}
    for name in sorted(stored & taken):
        free = (f"{name}_{number}" for number in range(2, len(taken) + len(stored) + 3))
        names[name] = next(new for new in free if new not in taken | stored)
    if not names:
        return function, node
    changed, node = copy_tree(function), copy_tree(node)
    for one in ast.walk(changed):
        if isinstance(one, ast.Name) and one.id in names:
            one.id = names[one.id]
        elif isinstance(one, ast.arg) and one.arg in names:
            one.arg = names[one.arg]
    call = _call_of(node)
    for keyword in call.keywords if call is not None else ():
        keyword.arg = names.get(keyword.arg or "", keyword.arg)
    return changed, node


def _rows_of(function: ast.FunctionDef, node: ast.stmt) -> Block | None:
    """Return the statements that do what a call of a function does; None if there are none."""
    values = _arguments(function, node)
    if values is None:
        return None
    rows = [row for row in function.body if not isinstance(row, ast.Global)]
    shared = [row for row in function.body if isinstance(row, ast.Global)]
    last = function.body[-1]
    returns = [n for n in own_nodes(function.body) if isinstance(n, ast.Return)]
    is_last = isinstance(last, ast.Return) and last.value is not None and len(returns) == 1
    if any(isinstance(n, (ast.Yield, ast.YieldFrom)) for n in own_nodes(rows)):
        return None
    if any(isinstance(n, ast.Nonlocal) for row in rows for n in ast.walk(row)):
        return None  # there is no such thing in a module
    if not (is_last or (isinstance(node, ast.Expr) and not returns)):
        return None
    if shared and isinstance(node, ast.Return):
        return None  # only a function returns, and there the names would be local
    new: Block = [
        ast.Assign(targets=[ast.Name(n, ast.Store())], value=v) for n, v in values.items()
    ]
    if not is_last:
        return new + rows or [ast.Pass()]
    assert isinstance(last, ast.Return) and last.value is not None
    end: ast.stmt = ast.Expr(last.value)
    if isinstance(node, ast.Return):
        end = last
    elif isinstance(node, ast.Assign) and len(node.targets) > 1:
        return None
    elif isinstance(node, ast.Assign):
        end = ast.Assign(node.targets, last.value)
        if ast.unparse(end.targets[0]) == ast.unparse(last.value):
            return new + rows[:-1] or [ast.Pass()]
    return [*new, *rows[:-1], end]


def _identifiers(node: ast.AST) -> set[str]:
    names = {n.id for n in ast.walk(node) if isinstance(n, ast.Name)}
    return names | {n.arg for n in ast.walk(node) if isinstance(n, ast.arg)}


def _statements(block: Block) -> Iterator[tuple[Block, int]]:
    """Yield the statements of a block that are not in a function or a class: block and index."""
    for index, node in enumerate(block):
        yield block, index
        if isinstance(node, (ast.For, ast.While, ast.If, ast.With, ast.Try)):
            for field in ("body", "orelse", "finalbody"):
                yield from _statements(getattr(node, field, []))


def _global_names(rows: Block) -> set[str]:
    """Return the names of a module's variables, also of those that only functions read."""
    found: set[str] = set()
    tables = [
        symtable.symtable(ast.unparse(ast.fix_missing_locations(ast.Module(rows, []))), "", "exec")
    ]
    while tables:
        table = tables.pop()
        tables += table.get_children()
        is_module = table.get_type() == "module"
        found |= {s.get_name() for s in table.get_symbols() if is_module or s.is_global()}
    return found


def _as_values(tree: ast.Module) -> Iterator[ast.Module]:
    for function in tree.body:
        if not isinstance(function, ast.FunctionDef) or len(function.body) != 1:
            continue
        row = function.body[0]
        value = row.value if isinstance(row, (ast.Return, ast.Expr)) else None
        is_generator = isinstance(value, ast.Yield)
        if value is None or (isinstance(row, ast.Expr) and not is_generator):
            continue
        result = value.value if isinstance(value, ast.Yield) else value
        changed = copy_tree(tree)
        for path, _ in reversed(list(walk_places(tree))):  # the inner calls first
            node = node_at(changed, path)
            call = _advanced(node) if is_generator else node
            if isinstance(call, ast.Call) and ast.unparse(call.func) == function.name:
                new = _with_arguments(function, call, result) if result is not None else None
                if new is not None:
                    replace_node(changed, path, [new])
        if not reads_name(changed, function.name):
            changed.body = [
                r
                for r in changed.body
                if not isinstance(r, ast.FunctionDef) or r.name != function.name
            ]
            yield changed


def _advanced(node: ast.AST) -> ast.expr | None:
    """Return ``x`` of ``next(x)``."""
    is_next = isinstance(node, ast.Call) and ast.unparse(node.func) == "next"
    return node.args[0] if is_next and node.args else None  # type: ignore[attr-defined]


def _with_arguments(function: ast.FunctionDef, call: ast.Call, result: ast.expr) -> ast.expr | None:
    """Return the result of a call, in which each argument is computed at most once."""
    values = call_arguments(function, call, 0)
    if values is None or function.decorator_list:
        return None
    for name, value in values.items():
        if not isinstance(value, (ast.Name, ast.Constant)) and len(reads_name(result, name)) != 1:
            return None
    new = ReplacedNode(values).visit(copy_tree(result))
    assert isinstance(new, ast.expr)
    return new
