"""Join the files of one program into one text, with each module in the position of its import."""

from __future__ import annotations

import ast
import contextlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from reprokit.core.reduce.ast_edits import is_main
from reprokit.core.reduce.project.computed_imports import Namespaces, with_tables
from reprokit.core.reduce.project.dynamic_imports import LOADED, loaded_name, with_plain_imports


@dataclass(frozen=True)
class ModuleSource:
    """The source of one module of the program."""

    text: str
    is_package: bool = False
    """It is the ``__init__.py`` of a package, to which its relative imports refer."""
    place: str = ""
    """The file, relative to the folder of the program; empty if that is not known."""


Find = Callable[[str], "ModuleSource | None"]
"""Dotted name -> that module, or None if it is not one of the program's own files."""
Every = Callable[[], Sequence[str]]
"""Returns the dotted names of all files of the program."""
MAX_FILES = 100


_BLOCKS = (ast.If, ast.Try, ast.With, ast.For, ast.While)


class Unjoinable(Exception):
    """The files cannot be joined; the message is the reason."""


def join_modules(text: str, find: Find, module: str = "", every: Every = tuple) -> str:
    """Return the program as one file; raises Unjoinable, or an exception of ``ast.parse``, if that
    is not possible.

    ``module`` is the dotted name of the program itself, if it is in a package.
    """
    with contextlib.suppress(Unjoinable):
        joined = _joined(text, _Joiner(find, every, has_plain_imports=True), module)
        if LOADED not in joined:
            return joined
    # a name of a module may be used in a way that only the module itself allows
    return _joined(text, _Joiner(find, every, has_plain_imports=False), module)


def _joined(text: str, joiner: _Joiner, module: str) -> str:
    tree = joiner.parse(text)
    joiner.keep_names(tree)
    words = tree.body[:1] if ast.get_docstring(tree) is not None else []
    body = joiner.rewrite_module(tree, module)[len(words) :]
    place = len(joiner.body)
    while rest := [name for name in joiner.needed if name not in joiner.exported]:
        before = len(joiner.body)
        for name in rest:
            if not joiner.add_module(name):
                raise Unjoinable(f"{name} is no file of the program")
        # a file that is looked up may look up others, which come before it
        new, joiner.body[before:] = joiner.body[before:], []
        joiner.body[place:place] = new
    if not joiner.exported:
        return text
    head = [n for n in (*joiner.body, *body) if _is_future(n)]
    imports = [n for n in joiner.body if isinstance(n, (ast.Import, ast.ImportFrom))]
    rows = [
        n
        for n in (*imports, *(n for n in joiner.body if n not in imports), *body)
        if not _is_future(n)
    ]
    namespaces = Namespaces(joiner.certain)
    rows = [namespaces.visit(row) for row in rows]
    if namespaces.count:
        rows.insert(0, ast.Import([ast.alias("types")]))
    joined = ast.Module([*words, *head[:1], *rows], [])
    return ast.unparse(ast.fix_missing_locations(joined)) + "\n"


class _Joiner:
    def __init__(self, find: Find, every: Every, has_plain_imports: bool) -> None:
        """With ``has_plain_imports``, files that are loaded at run time are joined too."""
        self._find, self._every = find, every
        self._has_plain_imports = has_plain_imports
        self.body: list[ast.stmt] = []
        self.exported: dict[str, dict[str, str]] = {}
        """Module -> its names -> their names in the joined file."""
        self.needed: dict[str, None] = {}
        """The modules that are joined after all others, because a program looks them up."""
        self._taken: dict[str, str] = {}
        self._uncertain: set[tuple[str, str]] = set()

    @property
    def certain(self) -> dict[str, dict[str, str]]:
        """The names of each module without those that it may not define."""
        return {
            module: {n: new for n, new in names.items() if (module, n) not in self._uncertain}
            for module, names in self.exported.items()
        }

    def parse(self, text: str) -> ast.Module:
        """Return the tree of one file."""
        tree = _Untyped().visit(ast.parse(text))
        assert isinstance(tree, ast.Module)
        if not self._has_plain_imports:
            return tree
        tree = with_plain_imports(tree, lambda name: self._find(name) is not None)
        self.needed |= dict.fromkeys(with_tables(tree, self._every))
        return tree

    def keep_names(self, program: ast.Module) -> None:
        """Give other names to what a module calls as the program calls a variable of its own."""
        own = (name for name, row in _assigned_names(program.body) if not _imported(row, name))
        self._taken |= dict.fromkeys(own, "the program")

    def rewrite_module(
        self, tree: ast.Module, module: str, is_package: bool = False
    ) -> list[ast.stmt]:
        """Return the body of a module without imports of the program's own files, which are added
        before it.
        """
        aliases: dict[str, str] = {}
        changed = _Imports(self, module, is_package, aliases).visit(tree)
        changed = _Members(self.exported, aliases, _bound_names(tree)).visit(changed)
        assert isinstance(changed, ast.Module)
        return changed.body

    def add_module(self, module: str) -> bool:
        """Add the body of a module to the joined file; return False if it is not one of the
        program's own.
        """
        if module in self.exported:
            return True
        if package := module.rpartition(".")[0]:
            self.add_module(package)  # Python runs it first
        if module in self.exported:
            return True
        source = self._find(module)
        if source is None:
            return False
        if len(self.exported) >= MAX_FILES:
            raise Unjoinable(f"the program has more than {MAX_FILES} files")
        names = self.exported[module] = {}
        tree = self.parse(source.text)
        tree.body = [n for n in tree.body if not _is_main_or_words(n)]
        if source.place:
            tree = _Placed(source.place).visit(tree)
        body = self.rewrite_module(tree, module, source.is_package)
        for name, row in _assigned_names(body):
            same = _imported(row, name) or module
            new = name
            while self._taken.get(new, same) != same:
                new += "_2"
            self._taken[new] = same
            names[name] = new
        plain: list[ast.stmt] = [row for row in body if not isinstance(row, _BLOCKS)]
        certain = {name for name, _ in _assigned_names(plain)}
        in_blocks: list[ast.stmt] = [row for row in body if isinstance(row, _BLOCKS)]
        self._uncertain |= {
            (module, name) for name, _ in _assigned_names(in_blocks) if name not in certain
        }
        renamed = {old: new for old, new in names.items() if old != new}
        self.body += [_Renamed(renamed).visit(row) for row in body] if renamed else body
        return True


class _Imports(ast.NodeTransformer):
    def __init__(
        self, joiner: _Joiner, module: str, is_package: bool, aliases: dict[str, str]
    ) -> None:
        self._joiner, self._module, self._aliases = joiner, module, aliases
        self._names = [*module.split("."), *([""] if is_package else [])]

    def visit_Import(self, node: ast.Import) -> list[ast.stmt]:
        kept = []
        for alias in node.names:
            if self._joiner.add_module(alias.name):
                self._aliases[alias.asname or alias.name] = alias.name
            else:
                kept.append(alias)
        return [ast.Import(kept)] if kept else [ast.Pass()]

    def visit_ImportFrom(self, node: ast.ImportFrom) -> list[ast.stmt]:
        package = self._names[: -node.level] if node.level else []
        whole = ".".join([*package, *([node.module] if node.module else [])])
        rows: list[ast.stmt] = []
        kept = []
        is_own = bool(whole) and self._joiner.add_module(whole)
        for alias in node.names:
            below = f"{whole}.{alias.name}".strip(".")
            if is_own and (alias.name == "*" or alias.name in self._joiner.exported[whole]):
                new = self._joiner.exported[whole].get(alias.name, alias.name)
                wanted = alias.asname or alias.name
                if alias.name == "*":
                    self._reexport(self._joiner.exported[whole])
                elif wanted != new:
                    rows.append(ast.Assign([ast.Name(wanted, ast.Store())], _joined_name(new)))
                else:
                    self._reexport({wanted: new})
            elif self._joiner.add_module(below):
                self._aliases[alias.asname or alias.name] = below
            else:
                kept.append(alias)
        if kept and (is_own or node.level):
            raise Unjoinable(f"{whole or 'a relative import'} has no {kept[0].name}")
        return [*([ast.ImportFrom(node.module, kept, 0)] if kept else []), *rows] or [ast.Pass()]

    def _reexport(self, names: dict[str, str]) -> None:
        """Note names that this module imports from the program's own files: others may import them
        from it.
        """
        self._joiner.exported.get(self._module, {}).update(names)


class _Members(ast.NodeTransformer):
    """Replaces ``net.Model`` by ``Model`` if ``net`` is one of the program's own files."""

    def __init__(
        self, exported: dict[str, dict[str, str]], aliases: dict[str, str], bound: set[str]
    ) -> None:
        self._exported, self._aliases, self._bound = exported, aliases, bound

    def visit_Attribute(self, node: ast.Attribute) -> ast.AST:
        owner = ast.unparse(node.value)
        module = self._aliases.get(owner)
        if module is None and (whole := self._aliases.get(ast.unparse(node))):
            return _module_name(whole)
        if module is None:
            return self.generic_visit(node)
        if node.attr == "__dict__":
            return ast.Call(ast.Name("vars", ast.Load()), [_module_name(module)], [])
        if node.attr not in self._exported[module]:
            raise Unjoinable(f"{owner}.{node.attr} is not defined in {module}")
        return ast.copy_location(_joined_name(self._exported[module][node.attr], node.ctx), node)

    def visit_Name(self, node: ast.Name) -> ast.AST:
        if node.id in self._aliases and node.id not in self._bound:
            return _module_name(self._aliases[node.id])
        return node


class _Untyped(ast.NodeTransformer):
    """Leaves out what only type checkers read."""

    def visit_If(self, node: ast.If) -> ast.AST | list[ast.stmt]:
        self.generic_visit(node)
        if ast.unparse(node.test) in ("TYPE_CHECKING", "typing.TYPE_CHECKING"):
            return node.orelse or ast.Pass()
        return node


class _Placed(ast.NodeTransformer):
    """Replaces ``__file__`` by the path of the module beside that of the program."""

    def __init__(self, place: str) -> None:
        self._text = f"__file__.rpartition('/')[0] + {'/' + place!r}"

    def visit_Name(self, node: ast.Name) -> ast.AST:
        return ast.parse(self._text, mode="eval").body if node.id == "__file__" else node


def _module_name(module: str) -> ast.Name:
    """Return the name of a module that is used as an object."""
    return ast.Name(loaded_name(module), ast.Load())


def _bound_names(tree: ast.AST) -> set[str]:
    """Return the names that a module assigns, and those of parameters."""
    names = {
        n.id for n in ast.walk(tree) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)
    }
    return names | {n.arg for n in ast.walk(tree) if isinstance(n, ast.arg)}


class _Renamed(ast.NodeTransformer):
    def __init__(self, names: dict[str, str]) -> None:
        self._names = names

    def visit_alias(self, node: ast.alias) -> ast.AST:
        new = self._names.get(node.asname or node.name)
        return ast.alias(node.name, new or node.asname)

    def visit_Name(self, node: ast.Name) -> ast.AST:
        if not getattr(node, "is_joined", False):
            node.id = self._names.get(node.id, node.id)
        return node

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        node.name = self._names.get(node.name, node.name)
        return self.generic_visit(node)

    def visit_ClassDef(self, node: ast.ClassDef) -> ast.AST:
        node.name = self._names.get(node.name, node.name)
        return self.generic_visit(node)


def _joined_name(name: str, ctx: ast.expr_context | None = None) -> ast.Name:
    """Return a name of the joined file, which names of the module do not hide."""
    node = ast.Name(name, ctx or ast.Load())
    node.is_joined = True  # type: ignore[attr-defined]
    return node


def _assigned_names(body: list[ast.stmt]) -> Iterator[tuple[str, ast.stmt]]:
    """Yield the names that a module defines at its top level, also inside ``if`` and ``try``."""
    for row in body:
        if isinstance(row, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            yield row.name, row
        elif isinstance(row, (ast.Import, ast.ImportFrom)):
            for alias in row.names:
                yield alias.asname or alias.name.split(".")[0], row
        elif isinstance(row, _BLOCKS):
            for field in ("body", "orelse", "finalbody"):
                yield from _assigned_names(getattr(row, field, []))
            for handler in getattr(row, "handlers", []):
                yield from _assigned_names(handler.body)
        else:
            for node in ast.walk(row):
                if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                    yield node.id, row


def _imported(row: ast.stmt, name: str) -> str:
    """Return what a statement imports as ``name``: the same for ``from torch import nn`` and
    ``import torch.nn as nn``; empty for a statement that imports nothing.
    """
    if not isinstance(row, (ast.Import, ast.ImportFrom)):
        return ""
    for alias in row.names:
        if name == alias.asname or (isinstance(row, ast.ImportFrom) and name == alias.name):
            module = f"{row.module}." if isinstance(row, ast.ImportFrom) else ""
            return f"import {module}{alias.name}"
    return f"import {name}"


def _is_future(node: ast.stmt) -> bool:
    return isinstance(node, ast.ImportFrom) and node.module == "__future__"


def _is_main_or_words(node: ast.stmt) -> bool:
    is_words = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    return (
        is_main(node)
        or is_words
        or (isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__")
    )
