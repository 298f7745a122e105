"""Write a program from top to bottom: no factory that is called once, no tuple that is taken apart at once."""

from __future__ import annotations

import ast
import copy
from collections.abc import Callable

from .trees import Test, target


def straighten(text: str, test: Test) -> str:
    """Inline factories and take tuples apart, each step for itself."""
    for step in (_factories, _tuples, _factories, _stars, _compiled):
        changed = _safely(step, text)
        if changed != text and test(changed):
            text = changed
    return text


def _safely(step: Callable[[ast.Module], None], text: str) -> str:
    tree = ast.parse(text)
    step(tree)
    return ast.unparse(ast.fix_missing_locations(tree)) + "\n"


def _factories(tree: ast.Module) -> None:
    """``model, args = make()`` becomes the body of make, when it takes nothing and nothing else calls it."""
    for place, node in enumerate(tree.body):
        if not (
            isinstance(node, ast.Assign) and isinstance(node.value, ast.Call) and isinstance(node.value.func, ast.Name)
        ):
            continue
        name = node.value.func.id
        made = [n for n in tree.body if isinstance(n, ast.FunctionDef) and n.name == name]
        uses = [n for n in ast.walk(tree) if isinstance(n, ast.Name) and n.id == name]
        if len(made) != 1 or len(uses) != 1 or node.value.args or node.value.keywords or made[0].args.args:
            continue
        *body, last = made[0].body
        inner = [n for row in made[0].body for n in ast.walk(row)]
        returns = [n for n in inner if isinstance(n, ast.Return)]
        stored = {n.id for n in inner if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
        known = {n.id for r in tree.body if r is not made[0] for n in ast.walk(r) if isinstance(n, ast.Name)}
        if not (isinstance(last, ast.Return) and last.value is not None and len(returns) == 1) or stored & known:
            continue
        tree.body[place : place + 1] = [*body, ast.Assign(targets=node.targets, value=last.value)]
        tree.body.remove(made[0])
        return


def _tuples(tree: ast.Module) -> None:
    """``a, b = (1, 2)`` becomes two lines, unless the second reads what the first wrote."""
    rows: list[ast.stmt] = []
    for node in tree.body:
        if (
            isinstance(node, ast.Assign)
            and isinstance(node.targets[0], ast.Tuple)
            and isinstance(node.value, ast.Tuple)
        ):
            names, values = node.targets[0].elts, node.value.elts
            stored = {n.id for n in names if isinstance(n, ast.Name)}
            read = {n.id for v in values for n in ast.walk(v) if isinstance(n, ast.Name)}
            if len(names) == len(values) and len(stored) == len(names) and not stored & read:
                rows += [ast.Assign(targets=[n], value=v) for n, v in zip(names, values, strict=True)]
                continue
        rows.append(node)
    tree.body = rows


def _stars(tree: ast.Module) -> None:
    """``args = (a, b)`` and ``f(*args)`` become ``x = a``, ``y = b`` and ``f(x, y)``."""
    outside = [r for r in tree.body if not isinstance(r, (ast.FunctionDef, ast.ClassDef))]
    taken = {n.id for r in outside for n in ast.walk(r) if isinstance(n, ast.Name)}
    for place, node in enumerate(tree.body):
        name = target(node)
        value = node.value if isinstance(node, ast.Assign) else None
        uses = [n for n in ast.walk(tree) if isinstance(n, ast.Name) and n.id == name and isinstance(n.ctx, ast.Load)]
        calls = [
            n
            for n in ast.walk(tree)
            if isinstance(n, ast.Call)
            and any(isinstance(a, ast.Starred) and isinstance(a.value, ast.Name) and a.value.id == name for a in n.args)
        ]
        if not (name and isinstance(value, ast.Tuple) and len(uses) == len(calls) == 1 and len(calls[0].args) == 1):
            continue
        free = [n for n in ("x", "y", "z", "w", *(f"x{i}" for i in range(2, 99))) if n not in taken]
        rows: list[ast.stmt] = []
        names: list[ast.expr] = []
        for element in value.elts:
            if isinstance(element, ast.Name):
                names.append(element)
                continue
            given = free.pop(0)
            rows.append(ast.Assign(targets=[ast.Name(given, ast.Store())], value=element))
            names.append(ast.Name(given, ast.Load()))
        calls[0].args = names
        tree.body[place : place + 1] = rows
        return


def _compiled(tree: ast.Module) -> None:
    """``compiled = torch.compile(f)`` and ``compiled(x)`` become one line."""
    for place, node in enumerate(tree.body):
        name = target(node)
        if not name or "compile" not in ast.unparse(node):
            continue
        uses = [n for n in ast.walk(tree) if isinstance(n, ast.Name) and n.id == name and isinstance(n.ctx, ast.Load)]
        inside = [r for r in tree.body[place + 1 :] if any(u in set(ast.walk(r)) for u in uses)]
        if len(uses) == 1 and len(inside) == 1 and not isinstance(inside[0], (ast.For, ast.While, ast.FunctionDef)):
            assert isinstance(node, ast.Assign)
            _Put(name, node.value).visit(inside[0])
            del tree.body[place]
            return


class _Put(ast.NodeTransformer):
    def __init__(self, name: str, value: ast.expr) -> None:
        self._name, self._value = name, value

    def visit_Name(self, node: ast.Name) -> ast.AST:
        return copy.deepcopy(self._value) if node.id == self._name and isinstance(node.ctx, ast.Load) else node
