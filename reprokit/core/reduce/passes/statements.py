"""Make a Python program smaller while a predicate on its text holds: statements, blocks, arguments,
expressions, numbers.

Each pass is a function of a text and a predicate. It returns a text for which the predicate held,
or the original text. A pass does not know what the program does; the predicate must refuse edits
that make no sense.
"""

from __future__ import annotations

import ast
import builtins
from collections.abc import Iterator

from reprokit.core.reduce.ast_edits import (
    NodePlace,
    Test,
    calls_of,
    compile_calls,
    keep_some,
    node_at,
    one_by_one,
    owner_of,
    reads_name,
    replace_node,
    target_names,
    walk_places,
    walk_statements,
    without_node,
)

MAX_ELEMENTS = 2
"""The length of a list, tuple or dict that one of its elements may replace. Longer ones are
shortened first.
"""
MIN_NUMBER = 4
"""A number up to this is reduced only everywhere at once, and not at a single position."""


def drop_statements(text: str, test: Test) -> str:
    """Leave out statements, the outermost first, because they include the inner ones."""
    depth = 0
    while True:
        tree = ast.parse(text)
        places = [p for p in walk_statements(tree) if len(p.path) == depth + 1]
        if not places and not any(len(p.path) > depth for p in walk_statements(tree)):
            return text
        text = keep_some(text, tree, places, without_node, test)
        depth += 1


def unwrap_blocks(text: str, test: Test) -> str:
    """Replace an if, with, for, while or try by its body."""

    def edits(tree: ast.Module) -> Iterator[NodePlace]:
        for place in walk_statements(tree):
            for choice, _ in enumerate(_bodies(node_at(tree, place.path))):
                yield NodePlace(place.path, choice)

    def apply(tree: ast.Module, place: NodePlace) -> None:
        block = node_at(tree, place.path)
        replace_node(tree, place.path, _bodies(block)[place.choice])

    return one_by_one(text, edits, apply, test)


def drop_parts(text: str, test: Test) -> str:
    """Leave out keyword arguments, decorators, elements of lists, tuples and dicts, layers of a
    ``Sequential``, and assignment targets.
    """
    tree = ast.parse(text)
    places = [
        NodePlace((*path, (name, i)))
        for path, node in walk_places(tree)
        for name, i in _parts(node)
    ]
    # a function that returns a value must not return nothing
    return keep_some(
        text, tree, places, without_node, lambda new: "return ()" not in new and test(new)
    )


def simplify_expressions(text: str, test: Test) -> str:
    """Replace an expression by one of its own parts, the outermost first."""

    def edits(tree: ast.Module) -> Iterator[NodePlace]:
        for path, node in walk_places(tree):
            if isinstance(node, ast.expr):
                for choice, _ in enumerate(_smaller(node)):
                    yield NodePlace(path, choice)

    def apply(tree: ast.Module, place: NodePlace) -> None:
        replace_node(tree, place.path, [_smaller(node_at(tree, place.path))[place.choice]])

    return one_by_one(text, edits, apply, test)


def shrink_numbers(text: str, test: Test) -> str:
    """Replace each integer by a smaller one: first everywhere at once, with its multiples, and then
    at one position at a time.
    """
    done: set[int] = set()
    while True:
        values = sorted({v for v in _integers(ast.parse(text)) if v > 1} - done, reverse=True)
        if not values:
            break
        value = values[0]
        done.add(value)
        for smaller in _candidates(value):
            for with_multiples in (True, False):
                changed = _with_number(text, value, smaller, with_multiples)
                if changed != text and test(changed):
                    text = changed
                    done.discard(smaller)
                    break
            else:
                continue
            break

    def edits(tree: ast.Module) -> Iterator[NodePlace]:
        fixed = _device_numbers(tree)
        for path, node in walk_places(tree):
            if (
                isinstance(node, ast.Constant)
                and type(node.value) is int
                and node.value > MIN_NUMBER
                and id(node) not in fixed
            ):
                for choice, _ in enumerate(_candidates(node.value)):
                    yield NodePlace(path, choice)

    def apply(tree: ast.Module, place: NodePlace) -> None:
        node = node_at(tree, place.path)
        assert isinstance(node, ast.Constant) and isinstance(node.value, int)
        node.value = _candidates(node.value)[place.choice]

    return one_by_one(text, edits, apply, test)


def shrink_knobs(text: str, test: Test) -> str:
    """Reduce the integer arguments and defaults of a factory: layers, sizes, batch."""

    def edits(tree: ast.Module) -> Iterator[NodePlace]:
        called = {_callee(n.value) for n in tree.body if isinstance(n, ast.Assign)} - {""}
        for path, node in walk_places(tree):
            if (
                isinstance(node, ast.Constant)
                and type(node.value) is int
                and _is_knob(tree, path, called)
            ):
                for choice, _ in enumerate(_knob_sizes(node.value)):
                    yield NodePlace(path, choice)

    def apply(tree: ast.Module, place: NodePlace) -> None:
        node = node_at(tree, place.path)
        node.value = _knob_sizes(node.value)[place.choice]

    return one_by_one(text, edits, apply, test)


def _callee(node: ast.AST) -> str:
    return node.func.id if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) else ""


def _is_knob(tree: ast.Module, path: tuple[tuple[str, int], ...], called: set[str]) -> bool:
    """Return whether a constant is a keyword argument of a factory's call, or a default of the
    factory.
    """
    if [field for field, _ in path[-2:]] == ["keywords", "value"]:
        return _callee(node_at(tree, path[:-2])) in called
    if len(path) >= 3 and path[-1][0] == "defaults":
        function = node_at(tree, path[:-2])
        return isinstance(function, ast.FunctionDef) and function.name in called
    return False


def _knob_sizes(value: int) -> list[int]:
    """Return smaller values to try: 1 and 2, which save most, and then halves, because the number
    of heads must divide sizes.
    """
    halves = [value >> shift for shift in range(value.bit_length() - 1, 0, -1)]
    return list(dict.fromkeys([n for n in (1, 2, *halves) if 0 < n < value]))


def bypass_calls(text: str, test: Test) -> str:
    """Leave out an assignment, and replace its name afterwards by one of the names that it read."""

    def edits(tree: ast.Module) -> Iterator[NodePlace]:
        for place in reversed(list(walk_statements(tree))):
            node = node_at(tree, place.path)
            for choice, _ in enumerate(_sources(node)):
                yield NodePlace(place.path, choice)

    def apply(tree: ast.Module, place: NodePlace) -> None:
        node = node_at(tree, place.path)
        source = _sources(node)[place.choice]
        owner, field, index = owner_of(tree, place.path)
        for row in getattr(owner, field)[index + 1 :]:
            for name in reads_name(row, target_names(node)):
                name.id = source
        replace_node(tree, place.path, [])

    return one_by_one(text, edits, apply, test)


def _bodies(node: ast.AST) -> list[list[ast.stmt]]:
    if isinstance(node, (ast.If, ast.For, ast.While)):
        return [b for b in (node.body, node.orelse) if b]
    if isinstance(node, (ast.With, ast.Try)):
        return [node.body]
    return []


def _parts(node: ast.AST) -> Iterator[tuple[str, int]]:
    fields: tuple[str, ...] = ()
    if isinstance(node, ast.Call):
        is_list = ast.unparse(node.func).rpartition(".")[2] == "Sequential"
        fields = ("args", "keywords") if is_list else ("keywords",)
    elif isinstance(node, (ast.List, ast.Set)) or (
        isinstance(node, ast.Tuple) and isinstance(node.ctx, ast.Load)
    ):
        fields = ("elts",)
    elif isinstance(node, ast.Dict):
        fields = ("keys",)
    elif isinstance(node, (ast.FunctionDef, ast.ClassDef)):
        fields = ("decorator_list",)
    elif isinstance(node, ast.With) and len(node.items) > 1:
        fields = ("items",)
    elif isinstance(node, ast.Assign) and len(node.targets) > 1:
        fields = ("targets",)
    for field in fields:
        for index, _ in enumerate(getattr(node, field)):
            yield field, index


def _smaller(node: ast.AST) -> list[ast.expr]:
    """Return the parts of an expression that may replace it."""
    if isinstance(node, ast.Call):
        inner = (
            [node.func.value]
            if isinstance(node.func, ast.Attribute) and not _is_module(node.func.value)
            else []
        )
        return [
            *inner,
            *(
                a
                for a in node.args
                if not isinstance(a, ast.Starred) and not isinstance(a, ast.Constant)
            ),
            *_plain_operator(node),
        ]
    if isinstance(node, ast.Attribute) and isinstance(node.value, (ast.Call, ast.Subscript)):
        return [node.value, *_smaller(node.value)]
    if isinstance(node, ast.BinOp):
        return [s for s in (node.left, node.right) if not isinstance(s, ast.Constant)]
    if isinstance(node, ast.BoolOp):
        return list(node.values)
    if isinstance(node, ast.UnaryOp):
        return [node.operand]
    if isinstance(node, ast.IfExp):
        return [node.body, node.orelse]
    if isinstance(node, ast.Compare):
        return [node.left]
    if isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Load):
        return [node.value]
    if (
        isinstance(node, (ast.List, ast.Tuple))
        and isinstance(node.ctx, ast.Load)
        and len(node.elts) <= MAX_ELEMENTS
    ):
        return list(node.elts)
    if isinstance(node, ast.Dict) and len(node.values) <= MAX_ELEMENTS:
        return list(node.values)
    return []


def _plain_operator(node: ast.Call) -> list[ast.expr]:
    """Return ``x + 1`` for a call ``self.encoder(x)`` of a module or function that is not torch's.

    A graph without an operator is not compiled, so ``x`` alone may not do.
    """
    is_plain = isinstance(node.func, (ast.Attribute, ast.Name)) and not _is_module(node.func)
    if not is_plain or len(node.args) != 1 or not isinstance(node.args[0], ast.Name):
        return []
    if isinstance(node.func, ast.Name) and node.func.id in dir(builtins):
        return []
    return [ast.BinOp(node.args[0], ast.Add(), ast.Constant(1))]


def _is_module(node: ast.expr) -> bool:
    while isinstance(node, ast.Attribute):
        node = node.value
    return isinstance(node, ast.Name) and node.id in ("torch", "nn", "F", "math")


def _sources(node: ast.AST) -> list[str]:
    """Return the names that the value of a plain assignment reads."""
    if not (
        target_names(node)
        and isinstance(node, ast.Assign)
        and isinstance(node.value, (ast.Call, ast.BinOp))
    ):
        return []
    names = [
        n.id
        for n in ast.walk(node.value)
        if isinstance(n, ast.Name) and n.id not in ("torch", "nn", "F")
    ]
    return [n for n in dict.fromkeys(names) if n != target_names(node)]


def _integers(tree: ast.Module) -> Iterator[int]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and type(node.value) is int:
            yield node.value


def _device_numbers(tree: ast.Module) -> set[int]:
    """Return the ids of numbers that describe a device and must not change."""
    return {id(n) for call in calls_of(tree, "GPUTarget") for n in ast.walk(call)}


def _candidates(value: int) -> list[int]:
    """Return the smaller numbers to try; a small number is only reduced to 1."""
    if value <= MIN_NUMBER:
        return [1] if value > 1 else []
    return sorted({1, 2, value // 2})


def _with_number(text: str, value: int, smaller: int, with_multiples: bool) -> str:
    tree = ast.parse(text)
    fixed = _device_numbers(tree)
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and type(node.value) is int and id(node) not in fixed:
            if node.value == value:
                node.value = smaller
            elif with_multiples and node.value > value and node.value % value == 0:
                node.value = node.value // value * smaller
    return ast.unparse(tree) + "\n"


def with_backend(text: str, name: str) -> str:
    """Return the program with a different backend, and without the arguments of the old one."""
    tree = ast.parse(text)
    for call in compile_calls(tree):
        call.keywords = [k for k in call.keywords if k.arg in ("fullgraph", "dynamic")]
        call.keywords.append(ast.keyword("backend", ast.Constant(name)))
    return ast.unparse(tree) + "\n"
