"""Make a Python program smaller while a predicate on its text holds: statements, blocks, arguments,
expressions, numbers.

Each pass is a plain function of a text and a predicate, and gives a text for which the predicate
held (or the text it got). A pass knows nothing of what the program does; edits that make no sense
are the predicate's to refuse.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from reprokit.core.reduce.ast_edits import (
    NodePlace,
    Test,
    calls_of,
    compiles,
    keep_some,
    node_at,
    one_by_one,
    owner_of,
    reads_name,
    replace_node,
    statements,
    target_names,
    walk_places,
    without_node,
)

MOST_ELEMENTS = 2
"""Of a display that any one of them may stand for; longer ones are shortened first."""
LEAST_NUMBER = 4
"""Down to here a number is made smaller wherever it stands, and left alone in a single place."""


def drop_statements(text: str, test: Test) -> str:
    """Leave out statements, the outermost first: what goes early takes its inside along."""
    depth = 0
    while True:
        tree = ast.parse(text)
        places = [p for p in statements(tree) if len(p.path) == depth + 1]
        if not places and not any(len(p.path) > depth for p in statements(tree)):
            return text
        text = keep_some(text, tree, places, without_node, test)
        depth += 1


def unwrap_blocks(text: str, test: Test) -> str:
    """Put the body of an if, with, for, while or try in its place."""

    def edits(tree: ast.Module) -> Iterator[NodePlace]:
        for place in statements(tree):
            for choice, _ in enumerate(_bodies(node_at(tree, place.path))):
                yield NodePlace(place.path, choice)

    def apply(tree: ast.Module, place: NodePlace) -> None:
        block = node_at(tree, place.path)
        replace_node(tree, place.path, _bodies(block)[place.choice])

    return one_by_one(text, edits, apply, test)


def drop_parts(text: str, test: Test) -> str:
    """Leave out keyword arguments, decorators, elements of displays, assignment targets."""
    tree = ast.parse(text)
    places = [
        NodePlace((*path, (name, i)))
        for path, node in walk_places(tree)
        for name, i in _parts(node)
    ]
    # a function that returned something returns something
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
    """Replace each integer, everywhere at once and with its multiples, by a smaller one; then one
    place at a time.
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
        held = _of_devices(tree)
        for path, node in walk_places(tree):
            is_held = id(node) in held
            if (
                isinstance(node, ast.Constant)
                and type(node.value) is int
                and node.value > LEAST_NUMBER
                and not is_held
            ):
                for choice, _ in enumerate(_candidates(node.value)):
                    yield NodePlace(path, choice)

    def apply(tree: ast.Module, place: NodePlace) -> None:
        node = node_at(tree, place.path)
        assert isinstance(node, ast.Constant) and isinstance(node.value, int)
        node.value = _candidates(node.value)[place.choice]

    return one_by_one(text, edits, apply, test)


def shrink_knobs(text: str, test: Test) -> str:
    """Make the integers smaller that a factory is called with, or that are its defaults: layers,
    sizes, batch.
    """

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
    """The constant is a keyword argument of a factory's call, or a default of the factory."""
    if [field for field, _ in path[-2:]] == ["keywords", "value"]:
        return _callee(node_at(tree, path[:-2])) in called
    if len(path) >= 3 and path[-1][0] == "defaults":
        function = node_at(tree, path[:-2])
        return isinstance(function, ast.FunctionDef) and function.name in called
    return False


def _knob_sizes(value: int) -> list[int]:
    """The smallest first, for what it saves; then by halves, since heads must divide sizes."""
    halves = [value >> shift for shift in range(value.bit_length() - 1, 0, -1)]
    return list(dict.fromkeys([n for n in (1, 2, *halves) if 0 < n < value]))


def bypass_calls(text: str, test: Test) -> str:
    """Leave out an assignment and read one of the names it was made from instead, in every place
    after it.
    """

    def edits(tree: ast.Module) -> Iterator[NodePlace]:
        for place in reversed(list(statements(tree))):
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
        fields = ("keywords",)
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
    """Expressions that might stand for ``node``."""
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
        ]
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
        and len(node.elts) <= MOST_ELEMENTS
    ):
        return list(node.elts)
    if isinstance(node, ast.Dict) and len(node.values) <= MOST_ELEMENTS:
        return list(node.values)
    return []


def _is_module(node: ast.expr) -> bool:
    while isinstance(node, ast.Attribute):
        node = node.value
    return isinstance(node, ast.Name) and node.id in ("torch", "nn", "F", "math")


def _sources(node: ast.AST) -> list[str]:
    """Names that the value of a plain assignment reads."""
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


def _of_devices(tree: ast.Module) -> set[int]:
    """Numbers that say what a device is: there is none with others."""
    return {id(n) for call in calls_of(tree, "GPUTarget") for n in ast.walk(call)}


def _candidates(value: int) -> list[int]:
    """Smaller numbers worth a question; small ones read as well as smaller ones."""
    if value <= LEAST_NUMBER:
        return [1] if value > 1 else []
    return sorted({1, 2, value // 2})


def _with_number(text: str, value: int, smaller: int, with_multiples: bool) -> str:
    tree = ast.parse(text)
    held = _of_devices(tree)
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and type(node.value) is int and id(node) not in held:
            if node.value == value:
                node.value = smaller
            elif with_multiples and node.value > value and node.value % value == 0:
                node.value = node.value // value * smaller
    return ast.unparse(tree) + "\n"


def with_backend(text: str, name: str) -> str:
    """The program with another backend, and without what went with the old one."""
    tree = ast.parse(text)
    for call in compiles(tree):
        call.keywords = [k for k in call.keywords if k.arg in ("fullgraph", "dynamic")]
        call.keywords.append(ast.keyword("backend", ast.Constant(name)))
    return ast.unparse(tree) + "\n"
