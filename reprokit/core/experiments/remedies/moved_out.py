"""Programs in which one statement runs before or after the compiled function, instead of in it.

The statement and those between it and the start or the end of the function move. The compiled rest
becomes a function of its own, and the old name calls both. The program that is tried also runs the
old function on a copy of the arguments of each call, and asserts that both return the same.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from reprokit.core.experiments.ablation import CHANGES, CompileVariant
from reprokit.core.judge.stacks.location import plural
from reprokit.core.reduce.ast_edits import last_name

MAX_MOVED = 3
"""Limit of the statements that move: more of them would leave too little to the compiler."""
_HARD = (
    ast.Yield,
    ast.YieldFrom,
    ast.Await,
    ast.Global,
    ast.Nonlocal,
    ast.Delete,
    ast.FunctionDef,
    ast.AsyncFunctionDef,
    ast.ClassDef,
    ast.Import,
    ast.ImportFrom,
)
"""What makes the parts of a function depend on each other in more than their names."""
_COPIED = """\
{indent}def {name}({first}*args, **kwargs):
{indent}    import copy
{indent}    {owner}args_of_old, kwargs_of_old = copy.deepcopy(({own}args, kwargs))
{indent}    with torch.random.fork_rng():
{indent}        old = {called}{name}_old(*args_of_old, **kwargs_of_old)
{indent}    new = {self}{name}_new(*args, **kwargs)
{indent}    torch.testing.assert_close(new, old, equal_nan=True)
{indent}    return new
"""
"""The function of the program that is tried. Each program that compiles imports ``torch``."""


@dataclass(frozen=True)
class _Split:
    """A compiled function in two parts, of which one moves."""

    function: ast.FunctionDef
    owner: str
    """The name of ``self`` with a period for a method; empty for a function."""
    moved: list[ast.stmt]
    rest: list[ast.stmt]
    is_before: bool
    """The moved part is the start of the function."""


def moved_out(tree: ast.Module, program: str, line: str) -> list[CompileVariant]:
    """Return the program in which the statement with ``line`` runs outside of its compiled
    function.

    Returns nothing where the statement is in a function that the program does not compile itself,
    in a loop, or more than ``MAX_MOVED`` statements from both ends.
    """
    rows = program.splitlines()
    for owner, function in _functions(tree):
        split = _split(function, owner, rows, line)
        if split is None:
            continue
        edits = _compiled_here(tree, program, split)
        if edits is None:
            continue
        first = min([function.lineno, *(d.lineno for d in function.decorator_list)])
        edits.append((first, function.end_lineno or first, _new_text(split, program)))
        for start, end, text in sorted(edits, reverse=True):
            rows[start - 1 : end] = text.splitlines()
        where = "before" if split.is_before else "after"
        more = sum(not _is_plain_return(s) for s in split.moved) - 1
        others = f" (and {plural(more, 'more statement')})" if more else ""
        name = f"`{line}`{others} moved {where} the compiled function"
        overrides = {"moves": {"line": line, "function": function.name, "where": where}}
        return [CompileVariant(name, CHANGES, overrides, program="\n".join([*rows, ""]))]
    return []


def _functions(tree: ast.Module) -> Iterator[tuple[str, ast.FunctionDef]]:
    """Yield the functions of a module and the methods of its classes."""
    for node in tree.body:
        if isinstance(node, ast.FunctionDef):
            yield "", node
        for method in node.body if isinstance(node, ast.ClassDef) else ():
            if isinstance(method, ast.FunctionDef) and method.args.args:
                yield f"{method.args.args[0].arg}.", method


def _split(function: ast.FunctionDef, owner: str, rows: list[str], line: str) -> _Split | None:
    """Return the function in two parts; None if the statement cannot move."""
    if any(isinstance(node, _HARD) for s in function.body for node in ast.walk(s)):
        return None
    body = function.body[ast.get_docstring(function) is not None :]
    found = [
        number
        for number, statement in enumerate(body)
        if any(
            rows[n - 1].strip() == line
            for n in range(statement.lineno, (statement.end_lineno or statement.lineno) + 1)
        )
    ]
    if len(found) != 1 or isinstance(body[found[0]], ast.Return | ast.For | ast.While | ast.Try):
        return None
    before, after = body[: found[0] + 1], body[found[0] :]
    starts = _Split(function, owner, before, body[found[0] + 1 :], True)
    ends = _Split(function, owner, after, body[: found[0]], False)
    order = (starts, ends) if len(before) < len(after) else (ends, starts)
    return next((s for s in order if _can_move(s)), None)


def _can_move(split: _Split) -> bool:
    if not split.rest or len(split.moved) > MAX_MOVED:
        return False
    if isinstance(split.rest[0], ast.Return) and not any(_calls(split.rest)):
        return False  # nothing is left to compile
    # only the last part may return
    returns = any(isinstance(n, ast.Return) for s in split.rest for n in ast.walk(s))
    return split.is_before or not returns


def _is_plain_return(statement: ast.stmt) -> bool:
    return isinstance(statement, ast.Return) and not any(_calls([statement]))


def _calls(statements: Iterable[ast.stmt]) -> Iterator[ast.AST]:
    for statement in statements:
        for node in ast.walk(statement):
            if isinstance(node, ast.Call | ast.BinOp):
                yield node


def _compiled_here(
    tree: ast.Module, program: str, split: _Split
) -> list[tuple[int, int, str]] | None:
    """Return the changed lines that compile the rest of the function, apart from the function
    itself; None if the program does not compile it in a known way.
    """
    name = split.function.name
    if split.function.decorator_list:
        (first, *more) = split.function.decorator_list
        called = first.func if isinstance(first, ast.Call) else first
        return [] if not more and last_name(called) == "compile" else None
    for node in ast.walk(tree):
        if not isinstance(node, ast.Assign) or len(node.targets) != 1:
            continue
        target, call = node.targets[0], node.value
        if not isinstance(target, ast.Name) or not isinstance(call, ast.Call) or not call.args:
            continue
        if ast.unparse(call.func) != "torch.compile":
            continue
        what, *options = [ast.get_source_segment(program, a) or "" for a in call.args]
        options += [ast.get_source_segment(program, k) or "" for k in call.keywords]
        is_function = what == name and not split.owner and node.col_offset == 0
        if not is_function and not (split.owner and name == "forward"):
            continue
        rest = f"{name}_compiled" if is_function else f"{target.id}.{name}_compiled"
        compiles = f"{rest} = torch.compile({', '.join([rest, *options])})"
        pad = " " * node.col_offset
        text = f"{pad}{target.id} = {what}\n{pad}{compiles}"
        return [(node.lineno, node.end_lineno or node.lineno, text)]
    return None


def _new_text(split: _Split, program: str) -> str:
    """Return the rest as a function of its own, the function that calls it, the old function, and
    the function that compares the two.
    """
    function, owner = split.function, split.owner
    name, pad = function.name, " " * function.col_offset
    given = ast.unparse(function.args)
    moved, rest = _text(split.moved, program), _text(split.rest, program)
    takes = _names(function.args)[bool(owner) :]
    stored = _stored(split.moved if split.is_before else split.rest)
    if split.is_before:
        known = dict.fromkeys([*takes, *stored])
        passed = [n for n in known if n in _loaded(split.rest)]
        results: list[str] = []
    else:
        passed = [n for n in takes if n in _loaded(split.rest) or n in stored]
        results = [n for n in dict.fromkeys(stored) if n in _loaded(split.moved)]
    call = f"{owner}{name}_compiled({', '.join(passed)})"
    inner = ", ".join([*filter(None, [owner[:-1]]), *passed])
    lines = [f"{pad}{row}" for row in _decorators(function, program)]
    lines += [f"{pad}def {name}_compiled({inner}):", rest]
    if results:
        lines.append(f"{pad}    return {', '.join(results)}")
    lines.append(f"{pad}def {name}_new({given}):")
    if split.is_before:
        lines += [moved, f"{pad}    return {call}"]
    else:
        lines += [
            f"{pad}    {', '.join(results)} = {call}" if results else f"{pad}    {call}",
            moved,
        ]
    lines += [f"{pad}def {name}_old({given}):", _text(function.body, program)]
    lines.append(
        _COPIED.format(
            indent=pad,
            name=name,
            first=f"{owner[:-1]}, " if owner else "",
            owner="owner, " if owner else "",
            own=f"{owner[:-1]}, " if owner else "",
            called="owner." if owner else "",
            self=owner,
        )
    )
    return "\n".join(lines)


def _decorators(function: ast.FunctionDef, program: str) -> list[str]:
    return [f"@{ast.get_source_segment(program, d)}" for d in function.decorator_list]


def _text(statements: list[ast.stmt], program: str) -> str:
    rows = program.splitlines()
    first, last = statements[0].lineno, statements[-1].end_lineno or statements[-1].lineno
    return "\n".join(rows[first - 1 : last])


def _names(given: ast.arguments) -> list[str]:
    rows = [*given.posonlyargs, *given.args, *given.kwonlyargs]
    return [a.arg for a in (*rows, *filter(None, (given.vararg, given.kwarg)))]


def _stored(statements: list[ast.stmt]) -> list[str]:
    names = (n for s in statements for n in ast.walk(s) if isinstance(n, ast.Name))
    return [n.id for n in names if isinstance(n.ctx, ast.Store)]


def _loaded(statements: list[ast.stmt]) -> set[str]:
    found: set[str] = set()
    for node in (n for s in statements for n in ast.walk(s)):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
            found.add(node.id)
        elif isinstance(node, ast.AugAssign) and isinstance(node.target, ast.Name):
            found.add(node.target.id)
    return found
