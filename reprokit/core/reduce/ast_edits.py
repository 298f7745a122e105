"""Positions in a program's syntax tree, and edits at them that are tried against a predicate on the
text.
"""

from __future__ import annotations

import ast
import builtins
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from reprokit.core.reduce import subsets

Test = Callable[[str], bool]
Tree = TypeVar("Tree", bound=ast.AST)
Path = tuple[tuple[str, int], ...]
"""The position of a node: field and index (or -1 for a single child) from the module down."""
NO_PROGRAM = (
    SyntaxError,
    ValueError,
    AttributeError,
    TypeError,
    IndexError,
    KeyError,
    RecursionError,
)
"""The exceptions of unparsing or parsing a tree that an edit made invalid."""


@dataclass(frozen=True)
class NodePlace:
    """The position that an edit changes."""

    path: Path
    choice: int = 0
    """Which of several edits at this position."""


def copy_tree(node: Tree) -> Tree:
    """Return a copy of a tree; ``copy.deepcopy`` takes three times as long."""
    copied = node.__class__.__new__(node.__class__)
    fields = copied.__dict__
    for name, value in node.__dict__.items():
        if isinstance(value, ast.AST):
            fields[name] = copy_tree(value)
        elif type(value) is list:
            fields[name] = [copy_tree(v) if isinstance(v, ast.AST) else v for v in value]
        else:
            fields[name] = value
    return copied


def keep_some(
    text: str,
    tree: ast.Module,
    places: list[NodePlace],
    without: Callable[[ast.Module, list[Path]], None],
    test: Test,
) -> str:
    """Leave out as many of ``places`` as the predicate ``test`` allows; ``without`` deletes
    nodes.
    """
    if not places:
        return text
    every = {p.path for p in places}

    def built(kept: list[NodePlace]) -> str:
        changed = copy_tree(tree)
        without(changed, sorted(every - {p.path for p in kept}, reverse=True))
        return text_of(changed)

    def holds(kept: list[NodePlace]) -> bool:
        try:
            new = built(kept)
        except NO_PROGRAM:
            return False
        return test(new)

    def weight(place: NodePlace) -> float:
        node = node_at(tree, place.path)
        return float(len(ast.unparse(node))) if node is not None else 1.0  # ``**`` in a dict

    kept = subsets.leave_out(places, holds, weight)
    return built(kept) if len(kept) < len(places) else text


def one_by_one(
    text: str,
    edits: Callable[[ast.Module], Iterator[NodePlace]],
    apply: Callable[[ast.Module, NodePlace], None],
    test: Test,
) -> str:
    """Try each edit in turn; after a successful edit, continue at the same position."""
    index = 0
    while True:
        tree = ast.parse(text)
        every = list(edits(tree))
        while index < len(every):
            try:
                changed = copy_tree(tree)
                apply(changed, every[index])
                new = text_of(changed)
            except NO_PROGRAM:
                new = text
            if len(new) <= len(text) and new != text and test(new):
                text = new
                break
            index += 1
        else:
            return text


def keep_proposals(
    text: str, proposals: Callable[[ast.Module], Iterator[ast.Module]], test: Test
) -> str:
    """Replace the program by a proposal for which the predicate ``test`` holds, until there is
    none. No text is proposed twice.
    """
    refused = {text, text_of(ast.parse(text))}
    while True:
        for changed in proposals(ast.parse(text)):
            try:
                new = text_of(changed)
            except NO_PROGRAM:
                continue
            if new not in refused:
                refused.add(new)
                if test(new):
                    text = new
                    break
        else:
            return text


def text_of(tree: ast.Module) -> str:
    """Return the text of a tree; raises one of ``NO_PROGRAM`` if it is not a program."""
    text = ast.unparse(ast.fix_missing_locations(tree)) + "\n"
    ast.parse(text)
    return text


def walk_statements(tree: ast.Module) -> Iterator[NodePlace]:
    """Yield every statement except the last return of a function, which readers expect in a
    repro.
    """
    for path, node in walk_places(tree):
        if isinstance(node, ast.stmt) and not _is_last_return(tree, path, node):
            yield NodePlace(path)


def _is_last_return(tree: ast.Module, path: Path, node: ast.AST) -> bool:
    if not isinstance(node, ast.Return):
        return False
    owner, field, index = owner_of(tree, path)
    return isinstance(owner, ast.FunctionDef) and field == "body" and index == len(owner.body) - 1


def walk_places(tree: ast.AST, path: Path = ()) -> Iterator[tuple[Path, ast.AST]]:
    """Yield every node with its path, each node before its children."""
    for field, value in ast.iter_fields(tree):
        rows = value if isinstance(value, list) else [value]
        for index, node in enumerate(rows):
            if isinstance(node, ast.AST) and not isinstance(node, (ast.expr_context, ast.operator)):
                here = (*path, (field, index if isinstance(value, list) else -1))
                yield here, node
                yield from walk_places(node, here)


def node_at(tree: ast.AST, path: Path) -> Any:
    """Return the node at ``path``."""
    node: Any = tree
    for field, index in path:
        node = getattr(node, field)
        if index >= 0:
            node = node[index]
    return node


def owner_of(tree: ast.AST, path: Path) -> tuple[Any, str, int]:
    """Return the parent of the node at ``path``, and the field and index of the node in it."""
    return node_at(tree, path[:-1]), path[-1][0], path[-1][1]


def replace_node(tree: ast.AST, path: Path, new: list[Any]) -> None:
    """Replace the node at ``path`` by other nodes."""
    owner, field, index = owner_of(tree, path)
    if index < 0:
        setattr(owner, field, new[0])
        return
    rows = getattr(owner, field)
    rows[index : index + 1] = new
    _fill_block(owner, field, rows)


def without_node(tree: ast.Module, gone: list[Path]) -> None:
    """Delete nodes; ``gone`` is in reverse order, so that indices stay valid."""
    for path in gone:
        owner, field, index = owner_of(tree, path)
        if isinstance(owner, ast.Dict):
            del owner.keys[index], owner.values[index]
            continue
        rows = getattr(owner, field)
        del rows[index]
        _fill_block(owner, field, rows)


def _fill_block(owner: ast.AST, field: str, rows: list[ast.stmt]) -> None:
    if field == "body" and not rows and not isinstance(owner, ast.Module):
        rows.append(ast.Pass())
    if isinstance(owner, ast.Try) and not owner.handlers and not owner.finalbody:
        owner.finalbody = [ast.Pass()]


def calls_of(tree: ast.Module, name: str) -> Iterator[ast.Call]:
    """Yield the calls of ``name``, also in the form ``torch.compile(name)(...)``."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            inner = node.func
            is_compiled = isinstance(inner, ast.Call) and any(
                isinstance(a, ast.Name) and a.id == name for a in inner.args
            )
            if is_compiled or (isinstance(inner, ast.Name) and inner.id == name):
                yield node


def compile_calls(tree: ast.Module) -> list[ast.Call]:
    """Return every call of ``torch.compile``."""
    return [
        n
        for n in ast.walk(tree)
        if isinstance(n, ast.Call) and ast.unparse(n.func) == "torch.compile"
    ]


def last_name(node: ast.AST) -> str:
    """Return the last part of a dotted name; empty for any other expression."""
    return str(getattr(node, "attr", getattr(node, "id", "")))


def is_import(node: ast.stmt) -> bool:
    """Return whether a statement is an import."""
    return isinstance(node, (ast.Import, ast.ImportFrom))


def is_definition(node: ast.stmt) -> bool:
    """Return whether a statement is a function, a class or an import."""
    return isinstance(node, (ast.FunctionDef, ast.ClassDef)) or is_import(node)


def index_after_imports(tree: ast.Module) -> int:
    """Return the index of the first statement that is not an import."""
    return next((i for i, n in enumerate(tree.body) if not is_import(n)), len(tree.body))


def own_nodes(rows: list[ast.stmt]) -> Iterator[ast.AST]:
    """Yield the nodes of statements, without those inside nested functions and classes."""
    waiting: list[ast.AST] = list(rows)
    while waiting:
        node = waiting.pop()
        yield node
        if not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ClassDef)):
            waiting += ast.iter_child_nodes(node)


class ReplacedNode(ast.NodeTransformer):
    """Replaces names by copies of expressions."""

    def __init__(self, values: Mapping[str, ast.expr]) -> None:
        self._values = values

    def visit_Name(self, node: ast.Name) -> ast.AST:
        value = self._values.get(node.id)
        return copy_tree(value) if value is not None and isinstance(node.ctx, ast.Load) else node


def reads_name(tree: ast.AST, name: str) -> list[ast.Name]:
    """Return every node that reads ``name``."""
    return [
        n
        for n in ast.walk(tree)
        if isinstance(n, ast.Name) and n.id == name and isinstance(n.ctx, ast.Load)
    ]


def call_arguments(
    function: ast.FunctionDef, call: ast.Call, skip: int
) -> dict[str, ast.expr] | None:
    """Return the argument of a call for each parameter, with defaults, without the first ``skip``
    parameters; None if that cannot be determined.
    """
    takes = function.args
    if (
        takes.vararg
        or takes.kwarg
        or takes.posonlyargs
        or any(isinstance(a, ast.Starred) for a in call.args)
    ):
        return None
    names = [a.arg for a in takes.args[skip:]]
    defaults = takes.args[len(takes.args) - len(takes.defaults) :]
    values = {a.arg: v for a, v in zip(defaults, takes.defaults, strict=True)}
    values |= {
        a.arg: v for a, v in zip(takes.kwonlyargs, takes.kw_defaults, strict=True) if v is not None
    }
    values |= dict(zip(names, call.args, strict=False))
    values |= {k.arg: k.value for k in call.keywords if k.arg}
    known = {*names, *(a.arg for a in takes.kwonlyargs)}
    is_plain = len(call.args) <= len(names) and all(k.arg for k in call.keywords)
    return values if is_plain and values.keys() == known else None


def is_main(node: ast.stmt) -> bool:
    """Return whether a statement is ``if __name__ == "__main__":``."""
    return isinstance(node, ast.If) and "__name__" in ast.unparse(node.test)


def target_names(node: ast.AST) -> str:
    """Return the name to which a plain assignment assigns; empty for any other node."""
    if (
        isinstance(node, ast.Assign)
        and len(node.targets) == 1
        and isinstance(node.targets[0], ast.Name)
    ):
        return node.targets[0].id
    return ""


def unknown_names(tree: ast.Module) -> set[str]:
    """Return the names that the program reads but does not define: each raises a NameError."""
    defined = set(dir(builtins)) | {"__file__", "__name__", "__builtins__", "__class__"}
    read: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Name):
            (read if isinstance(node.ctx, ast.Load) else defined).add(node.id)
        elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            defined.add(node.name)
        elif isinstance(node, ast.arg):
            defined.add(node.arg)
        elif isinstance(node, (ast.Import, ast.ImportFrom)):
            if any(a.name == "*" for a in node.names):
                return set()
            defined |= {a.asname or a.name.split(".")[0] for a in node.names}
        elif isinstance(node, (ast.ExceptHandler, ast.MatchAs, ast.MatchStar)) and node.name:
            defined.add(node.name)
        elif isinstance(node, ast.MatchMapping) and node.rest:
            defined.add(node.rest)
    return read - defined
