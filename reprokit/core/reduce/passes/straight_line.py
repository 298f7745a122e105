"""Rewrite a program as straight-line code, without factories that are called once and tuples that
are unpacked at once.
"""

from __future__ import annotations

import ast
from collections.abc import Callable

from reprokit.core.reduce.ast_edits import (
    ReplacedNode,
    Test,
    copy_tree,
    reads_name,
    target_names,
)
from reprokit.core.reduce.passes import inline_calls


def straighten_program(text: str, test: Test) -> str:
    """Inline factories and unpack tuples, and keep each step for which the predicate holds."""
    for step in (
        inline_calls.inline_all,
        inline_calls.inline_one,
        _tuples,
        _dicts,
        _keywords,
        _lists,
        _lists,
        _single_loops,
        inline_calls.inline_one,
        _tuples,
        _stars,
        _empty_keywords,
        _aliases,
        _results,
        _models,
        _compiled,
        _generators,
    ):
        changed = _safely(step, text)
        if changed != text and test(changed):
            text = changed
    return text


def _safely(step: Callable[[ast.Module], object], text: str) -> str:
    tree = ast.parse(text)
    step(tree)
    return ast.unparse(ast.fix_missing_locations(tree)) + "\n"


def _tuples(tree: ast.Module) -> None:
    """Replace ``a, b = (1, 2)`` by two lines, unless a value reads one of the names."""
    for owner in ast.walk(tree):
        if isinstance(owner, (ast.Module, ast.FunctionDef)):
            owner.body = _without_tuples(owner.body)


def _without_tuples(body: list[ast.stmt]) -> list[ast.stmt]:
    rows: list[ast.stmt] = []
    for node in body:
        if (
            isinstance(node, ast.Assign)
            and isinstance(node.targets[0], ast.Tuple)
            and isinstance(node.value, ast.Tuple)
        ):
            names, values = node.targets[0].elts, node.value.elts
            stored = {n.id for n in names if isinstance(n, ast.Name)}
            read = {n.id for v in values for n in ast.walk(v) if isinstance(n, ast.Name)}
            if len(names) == len(values) and len(stored) == len(names) and not stored & read:
                rows += [
                    ast.Assign(targets=[n], value=v) for n, v in zip(names, values, strict=True)
                ]
                continue
        rows.append(node)
    return rows


def _dicts(tree: ast.Module) -> None:
    """Replace ``made["model"]`` and ``made.get("compile", {})`` by the values of a literal dict."""
    for node in list(tree.body):
        name, value = target_names(node), node.value if isinstance(node, ast.Assign) else None
        if not (name and isinstance(value, ast.Dict)):
            continue
        pairs = zip(value.keys, value.values, strict=True)
        keys: dict[object, ast.expr] = {k.value: v for k, v in pairs if isinstance(k, ast.Constant)}
        uses = reads_name(tree, name)
        looked = _Looked(name, keys)
        changed = looked.visit(copy_tree(tree))
        if uses and looked.count == len(uses) and len(keys) == len(value.keys):
            tree.body = [n for n in changed.body if target_names(n) != name]
            return


class _Looked(ast.NodeTransformer):
    """Replaces reads of the keys of a literal dict, each at most once, because a value must not be
    computed twice.
    """

    def __init__(self, name: str, keys: dict[object, ast.expr]) -> None:
        self._name, self._keys, self.count = name, keys, 0
        self._seen: set[object] = set()

    def _read(self, key: ast.expr, otherwise: ast.expr | None) -> ast.expr | None:
        if not isinstance(key, ast.Constant) or key.value in self._seen:
            return None
        value = self._keys.get(key.value, otherwise)
        if value is not None:
            self._seen.add(key.value)
            self.count += 1
        return value

    def visit_Subscript(self, node: ast.Subscript) -> ast.AST:
        if isinstance(node.value, ast.Name) and node.value.id == self._name:
            return self._read(node.slice, None) or node
        return self.generic_visit(node)

    def visit_Call(self, node: ast.Call) -> ast.AST:
        inner = node.func
        if (
            isinstance(inner, ast.Attribute)
            and ast.unparse(inner) == f"{self._name}.get"
            and node.args
        ):
            return self._read(node.args[0], node.args[1] if len(node.args) > 1 else None) or node
        return self.generic_visit(node)


def _keywords(tree: ast.Module) -> None:
    """Replace ``f(x, **{"mode": 1})`` by ``f(x, mode=1)``, and ``f(*(a, b))`` by ``f(a, b)``."""
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call):
            continue
        keywords: list[ast.keyword] = []
        for keyword in node.keywords:
            value = keyword.value
            names = (
                [k.value for k in value.keys if isinstance(k, ast.Constant)]
                if isinstance(value, ast.Dict)
                else []
            )
            if (
                keyword.arg is None
                and isinstance(value, ast.Dict)
                and len(names) == len(value.keys)
            ):
                keywords += [
                    ast.keyword(str(k), v) for k, v in zip(names, value.values, strict=True)
                ]
            else:
                keywords.append(keyword)
        node.keywords = keywords
        arguments: list[ast.expr] = []
        for argument in node.args:
            is_literal = isinstance(argument, ast.Starred) and isinstance(
                argument.value, (ast.Tuple, ast.List)
            )
            parts = argument.value.elts if is_literal else [argument]  # type: ignore[attr-defined]
            arguments += parts
        node.args = arguments


def _lists(tree: ast.Module) -> None:
    """Replace ``rows = []`` and ``rows.append(x)`` by ``rows = [x]``, and that and a loop over
    ``rows``, where nothing else reads it, by a loop over ``[x]``.
    """
    for place, node in enumerate(tree.body):
        name, value = target_names(node), node.value if isinstance(node, ast.Assign) else None
        if not name or not isinstance(value, ast.List):
            continue
        uses = [(n, later) for n in tree.body if n is not node and (later := reads_name(n, name))]
        if not uses:
            continue
        first, reads = uses[0]
        appended = _appended(first, name)
        if not value.elts and appended is not None and tree.body.index(first) > place:
            filled = ast.Assign([ast.Name(name, ast.Store())], ast.List([appended], ast.Load()))
            tree.body[tree.body.index(first)] = filled
            del tree.body[place]
            return
        is_loop = isinstance(first, ast.For) and first.iter is reads[0]
        if len(uses) == len(reads) == 1 and is_loop and len(value.elts) == 1:
            assert isinstance(first, ast.For)
            first.iter = value
            del tree.body[place]
            return


def _appended(node: ast.stmt, name: str) -> ast.expr | None:
    """Return what a statement appends to the list ``name``; None for a different statement."""
    call = node.value if isinstance(node, ast.Expr) else None
    if not isinstance(call, ast.Call) or len(call.args) != 1 or call.keywords:
        return None
    (argument,) = call.args
    is_append = ast.unparse(call.func) == f"{name}.append" and not reads_name(argument, name)
    return argument if is_append else None


def _generators(tree: ast.Module) -> None:
    """Replace a generator that nothing reads by what it iterates over, of which only that runs."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.GeneratorExp):
            node.value = node.value.generators[0].iter


def _single_loops(tree: ast.Module) -> None:
    """Replace a loop over one item by its body."""
    rows: list[ast.stmt] = []
    for node in tree.body:
        is_single = (
            isinstance(node, ast.For)
            and isinstance(node.iter, (ast.List, ast.Tuple))
            and len(node.iter.elts) == 1
        )
        if is_single:
            assert isinstance(node, ast.For) and isinstance(node.iter, (ast.List, ast.Tuple))
            rows += [ast.Assign(targets=[node.target], value=node.iter.elts[0]), *node.body]
        else:
            rows.append(node)
    tree.body = rows


def _stars(tree: ast.Module) -> None:
    """Replace ``args = (a, b)`` and ``f(*args)`` by ``x = a``, ``y = b`` and ``f(x, y)``."""
    outside = [r for r in tree.body if not isinstance(r, (ast.FunctionDef, ast.ClassDef))]
    taken = {n.id for r in outside for n in ast.walk(r) if isinstance(n, ast.Name)}
    for place, node in enumerate(tree.body):
        name = target_names(node)
        value = node.value if isinstance(node, ast.Assign) else None
        if not name or not isinstance(value, ast.Tuple):
            continue
        uses = reads_name(tree, name)
        calls = [
            n
            for n in ast.walk(tree)
            if isinstance(n, ast.Call)
            and any(
                isinstance(a, ast.Starred) and isinstance(a.value, ast.Name) and a.value.id == name
                for a in n.args
            )
        ]
        if not (len(uses) == len(calls) == 1 and len(calls[0].args) == 1):
            continue
        free = [
            n
            for n in (
                "x",
                "y",
                "z",
                "w",
                *(f"x{i}" for i in range(2, len(taken) + len(tree.body) + 999)),
            )
            if n not in taken
        ]
        rows: list[ast.stmt] = []
        names: list[ast.expr] = []
        for element in value.elts:
            if isinstance(element, ast.Name):
                names.append(element)
                continue
            new_name = free.pop(0)
            rows.append(ast.Assign(targets=[ast.Name(new_name, ast.Store())], value=element))
            names.append(ast.Name(new_name, ast.Load()))
        calls[0].args = names
        tree.body[place : place + 1] = rows
        return


def _empty_keywords(tree: ast.Module) -> None:
    """Replace ``kwargs = {}`` and ``f(x, **kwargs)`` by ``f(x)``."""
    for row in list(tree.body):
        name = target_names(row)
        if not (
            name
            and isinstance(row, ast.Assign)
            and isinstance(row.value, ast.Dict)
            and not row.value.keys
        ):
            continue
        for node in ast.walk(tree):
            if isinstance(node, ast.Call):
                node.keywords = [k for k in node.keywords if k.arg or ast.unparse(k.value) != name]
        if not reads_name(tree, name):
            tree.body.remove(row)


def _aliases(tree: ast.Module) -> None:
    """Remove aliases such as ``model = function``."""
    for row in list(tree.body):
        name = target_names(row)
        if not (name and isinstance(row, ast.Assign) and isinstance(row.value, ast.Name)):
            continue
        stored = [
            n
            for n in ast.walk(tree)
            if isinstance(n, ast.Name) and n.id == name and isinstance(n.ctx, ast.Store)
        ]
        if len(stored) == 1:
            tree.body.remove(row)
            ReplacedNode({name: row.value}).visit(tree)


def _results(tree: ast.Module) -> None:
    """Replace ``out = f(x)`` by ``f(x)`` if nothing reads ``out``."""
    read = {n.id for n in ast.walk(tree) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Load)}
    for place, row in enumerate(tree.body):
        if (
            target_names(row)
            and target_names(row) not in read
            and isinstance(row, ast.Assign)
            and isinstance(row.value, ast.Call)
        ):
            tree.body[place] = ast.Expr(row.value)


def _models(tree: ast.Module) -> None:
    """Replace ``net = Net()`` and ``torch.compile(net)`` by ``torch.compile(Net())``."""
    classes = {n.name for n in tree.body if isinstance(n, ast.ClassDef)}
    for place, node in enumerate(tree.body[:-1]):
        called = (
            node.value.func
            if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call)
            else None
        )
        name, after = target_names(node), tree.body[place + 1]
        if not (
            name
            and isinstance(called, ast.Name)
            and called.id in classes
            and isinstance(node, ast.Assign)
        ):
            continue
        if len(reads_name(tree, name)) == len(reads_name(after, name)) == 1 and isinstance(
            after, (ast.Assign, ast.Expr)
        ):
            ReplacedNode({name: node.value}).visit(after)
            del tree.body[place]
            return


def _compiled(tree: ast.Module) -> None:
    """Replace ``compiled = torch.compile(f)`` and ``compiled(x)`` by one line."""
    for place, node in enumerate(tree.body):
        name = target_names(node)
        if not name or "compile" not in ast.unparse(node):
            continue
        uses = reads_name(tree, name)
        inside = [r for r in tree.body[place + 1 :] if any(u in set(ast.walk(r)) for u in uses)]
        if (
            len(uses) == 1
            and len(inside) == 1
            and not isinstance(inside[0], (ast.For, ast.While, ast.FunctionDef))
        ):
            assert isinstance(node, ast.Assign)
            ReplacedNode({name: node.value}).visit(inside[0])
            del tree.body[place]
            return
