"""Write values as Python expressions, and collect the definitions that the expressions use."""

from __future__ import annotations

import ast
import builtins
import contextlib
import dataclasses
import enum
import functools
import inspect
import math
import sys
import types
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from .source_trees import NoText, Tree, class_tree, closure_values, function_tree

PUBLIC_PACKAGES = frozenset({"torch", "triton", *sys.stdlib_module_names})
"""Packages that a program imports. Definitions of any other package are copied."""
MAX_ELEMENTS = 200
"""Elements of the largest container that is written."""

Special = Callable[["DefinitionWriter", Any], "str | None"]
"""Returns the expression of a value of a special type, or None for other values."""
SPECIAL: list[Special] = []
"""Writers of kernels, operators and tensors, which need torch or Triton."""


class DefinitionWriter:
    """Collects definitions, each under a name of its own.

    ``local`` has the local variables of the graph, which hide definitions that it reads.
    """

    keeps_constants = False
    """Whether a number or text that a function reads by a name keeps that name."""

    def __init__(self, local: Iterable[str] = ()) -> None:
        self._taken = {"torch", "Repro", "repro", "make_inputs", "compiled", "inputs"}
        self._local = frozenset(local)
        self._rows: dict[str, str] = {}
        self._needs: dict[str, set[str]] = {}
        self._names: dict[int, tuple[str, Any]] = {}
        self._open: list[set[str]] = []

    def rows_for(self, names: Iterable[str]) -> list[str]:
        """Return the definitions that the names need, each after those that it uses itself."""
        wanted, waiting = set[str](), list(names)
        while waiting:
            if (name := waiting.pop()) not in wanted:
                wanted.add(name)
                waiting += self._needs.get(name, ())
        return [text for name, text in self._rows.items() if name in wanted]

    @contextlib.contextmanager
    def collect(self) -> Iterator[set[str]]:
        """Collect the names of the definitions that are used inside the context."""
        self._open.append(set())
        try:
            yield self._open[-1]
        finally:
            self._open.pop()

    def is_defined(self, value: Any) -> bool:
        """Return whether a definition of a value exists or is being written; it is then used."""
        if known := self._names.get(id(value)):
            self._use(known[0])
        return known is not None

    def expression(self, value: Any, name: str = "") -> str:
        """Return an expression whose value equals ``value``, and add the definitions that it needs.

        ``name`` is the name under which the user's program has it. Raises NoText if the value
        cannot be written.
        """
        if (known := self._names.get(id(value), ("", None))[0]).isidentifier():
            return self._use(known)
        text = self._plain(value)
        if text is not None:
            return text
        for special in SPECIAL:
            if (text := special(self, value)) is not None:
                return text
        if inspect.ismodule(value):
            return self._import(value, name)
        if inspect.isfunction(value) or inspect.isclass(value) or inspect.isbuiltin(value):
            return self._public(value) or self.define_source(value, name)
        if isinstance(value, functools.partial):
            parts = [*map(self.expression, (value.func, *value.args))]
            parts += [f"{k}={self.expression(v)}" for k, v in value.keywords.items()]
            self.add_row("functools", "import functools")
            return f"functools.partial({', '.join(parts)})"
        return self._object(value, name)

    def is_imported(self, module: str) -> bool:
        """Return whether a program imports a module, and does not copy what it uses of it."""
        return module.split(".")[0] in PUBLIC_PACKAGES

    def define_source(self, value: Any, name: str = "") -> str:
        """Add the source of a function or class, and return its name, or the text of a lambda.

        A decorator that returned the function itself, such as one that registers it, is left out.
        """
        inner = inspect.unwrap(value) if inspect.isfunction(value) else value
        tree, known = source_of(inner)
        if isinstance(tree, ast.Lambda):
            return self.resolve(tree, known)
        if not isinstance(tree, ast.ClassDef) and inner is value:
            tree.decorator_list = []
        drop_annotations(tree)
        own = tree.name
        with self.defining(value, name or own) as (chosen, add):
            tree.name = chosen
            add(self.resolve(tree, {**known, own: value}))
        return chosen

    def resolve(self, tree: Tree, known: Mapping[str, Any]) -> str:
        """Return the text of a tree with the names in ``known`` replaced by definitions."""
        return ast.unparse(ast.fix_missing_locations(_Resolver(self, tree, known).visit(tree)))

    @contextlib.contextmanager
    def defining(
        self, value: Any, name: str, is_of_graph: bool = False
    ) -> Iterator[tuple[str, Callable[[str], None]]]:
        """Give ``value`` a name, and return it with a function that takes the defining text.

        The name of an operator (``mine::scale``) is no variable. A definition that the graph itself
        reads (``is_of_graph``) has none of the graph's names.
        """
        chosen = name if "::" in name else self.free_name(name, is_of_graph)
        # a function may use itself, or a function that uses it
        self._names[id(value)] = chosen, value
        try:
            with self.collect() as needed:

                def add(text: str) -> None:
                    self._rows[chosen] = text
                    self._needs[chosen] = set(needed)

                yield chosen, add
        except BaseException:
            del self._names[id(value)]
            raise
        self._use(chosen)

    def add_row(self, name: str, text: str) -> str:
        """Add a definition that uses no others, and return its name, which may be changed."""
        if self._rows.get(name) != text:
            name = self.free_name(name)
            self._rows[name] = text
            self._needs[name] = set()
        return self._use(name)

    def add_constant(self, name: str, value: object) -> str:
        """Add a variable with a value that ``repr()`` writes, and return its name."""
        if self._rows.get(name) != f"{name} = {value!r}":
            name = self.free_name(name)
            self._rows[name] = f"{name} = {value!r}"
            self._needs[name] = set()
        return self._use(name)

    def free_name(self, name: str, is_of_graph: bool = False) -> str:
        """Return the name, with a number if it is taken, and take it."""
        taken = self._taken | (self._local if is_of_graph else set())
        name = name if name.isidentifier() else "value"
        chosen, number = name, 1
        while chosen in taken or hasattr(builtins, chosen):
            number += 1
            chosen = f"{name}_{number}"
        self._taken.add(chosen)
        return chosen

    def _use(self, name: str) -> str:
        if self._open:
            self._open[-1].add(name)
        return name

    def _plain(self, value: Any) -> str | None:
        import torch

        # not isinstance: a member of an Enum may be an int too
        if value is None or value is Ellipsis or type(value) in (bool, int, str, bytes, complex):
            return repr(value) if value is not Ellipsis else "..."
        if type(value) is float:
            return repr(value) if math.isfinite(value) else f'float("{value}")'
        if type(value) in (list, tuple, set, frozenset, dict) and len(value) >= MAX_ELEMENTS:
            raise NoText(f"a {type(value).__name__} of {len(value)} elements is too long")
        if type(value) is dict:
            rows = (f"{self.expression(k)}: {self.expression(v)}" for k, v in value.items())
            return "{" + ", ".join(rows) + "}"
        if type(value) in (list, tuple, set, frozenset):
            inner = ", ".join(map(self.expression, value))
            if type(value) is list:
                return f"[{inner}]"
            if type(value) is tuple:
                return f"({inner}{',' if len(value) == 1 else ''})"
            text = f"{{{inner}}}" if value else "set()"
            return f"frozenset({text})" if type(value) is frozenset else text
        if isinstance(value, (torch.dtype, torch.layout, torch.memory_format)):
            return str(value)
        return repr(str(value)) if isinstance(value, torch.device) else None

    def _import(self, module: types.ModuleType, name: str) -> str:
        whole = module.__name__
        if whole == "torch":
            return "torch"
        if not self.is_imported(whole):
            raise NoText(f"it uses the module {whole}")
        first = whole.split(".")[0]
        name = name or whole.rpartition(".")[2]
        if whole == first and name == whole:
            return self.add_row(name, f"import {whole}")
        text = f"import {whole} as {{}}"
        for taken, row in self._rows.items():
            if row == text.format(taken):
                return self._use(taken)
        chosen = self.free_name(name)
        self._rows[chosen] = text.format(chosen)
        self._needs[chosen] = set()
        return self._use(chosen)

    def _public(self, value: Any) -> str:
        """Return the expression of a function or class of torch, Triton or Python; empty for
        others.
        """
        import torch

        name = getattr(value, "__qualname__", "") or getattr(value, "__name__", "")
        module = getattr(value, "__module__", None) or ""
        if module == "builtins" and hasattr(builtins, name):
            return str(name)
        for owner in (torch, torch.nn, torch.nn.functional):
            if getattr(owner, name, None) is value:
                return f"{owner.__name__}.{name}"
        if not self.is_imported(module) or "<" in name:
            return ""
        found: Any = sys.modules.get(module)
        for part in name.split("."):
            found = getattr(found, part, None)
        if found is not value:
            return ""
        first, *rest = name.split(".")
        imported = self.add_row(first, f"from {module} import {first}")
        if imported != first:  # the name is taken
            self._rows[imported] = f"from {module} import {first} as {imported}"
        return ".".join([imported, *rest])

    def _object(self, value: Any, name: str) -> str:
        kind = type(value)
        if isinstance(value, enum.Enum):
            return f"{self.expression(kind)}.{value.name}"
        if dataclasses.is_dataclass(kind):
            names = [f.name for f in dataclasses.fields(kind) if f.init]
            parts = (f"{n}={self.expression(getattr(value, n))}" for n in names)
            return f"{self.expression(kind)}({', '.join(parts)})"
        has_state = "__init__" in vars(kind) or getattr(value, "__dict__", None)
        if kind.__module__.split(".")[0] != "torch" and not has_state:
            return f"{self.expression(kind)}()"
        raise NoText(f"{kind.__qualname__} cannot be written as Python text")


def source_of(value: Any) -> tuple[Tree, dict[str, Any]]:
    """Return the tree of a function or class, and the values of the names outside of it."""
    if isinstance(value, types.FunctionType):
        return function_tree(value), {**value.__globals__, **closure_values(value)}
    if not inspect.isclass(value):
        raise NoText(f"{type(value).__qualname__} has no source")
    known = dict(vars(sys.modules.get(value.__module__, builtins)))
    for member in _functions_of(value):
        known.update(closure_values(member))
    return class_tree(value), known


def drop_annotations(tree: Tree) -> None:
    """Remove the annotations of functions, which need imports and change nothing."""
    for node in ast.walk(tree):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            node.returns = None
        elif isinstance(node, ast.arg):
            node.annotation = None


class _Resolver(ast.NodeTransformer):
    """Replaces the names that a function takes from outside."""

    def __init__(self, writer: DefinitionWriter, tree: Tree, known: Mapping[str, Any]) -> None:
        self._writer, self._known = writer, known
        self._local = {
            n.id for n in ast.walk(tree) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)
        }
        self._local |= {n.arg for n in ast.walk(tree) if isinstance(n, ast.arg)}
        inner = (n for n in ast.walk(tree) if n is not tree)
        self._local |= {n.name for n in inner if isinstance(n, (ast.FunctionDef, ast.ClassDef))}
        for node in ast.walk(tree):
            if isinstance(node, (ast.Import, ast.ImportFrom)):
                self._local |= {a.asname or a.name.split(".")[0] for a in node.names}
            elif isinstance(node, ast.Global):
                raise NoText(f"it changes the global variable {node.names[0]}")
            elif isinstance(node, ast.Nonlocal) and node.names[0] in known:
                raise NoText(f"it changes the outer variable {node.names[0]}")

    def _is_outer(self, name: str) -> bool:
        return name in self._known and name not in self._local

    def visit_Name(self, node: ast.Name) -> ast.AST:
        if not isinstance(node.ctx, ast.Load) or not self._is_outer(node.id):
            return node
        value = self._known[node.id]
        if id(value) not in self._writer._names and type(value) in (
            list,
            dict,
            set,
        ):  # it may be changed, or be compared by identity
            with self._writer.defining(value, node.id) as (name, add):
                add(f"{name} = {self._writer._plain(value)}")
            return ast.Name(name, ast.Load())
        if self._writer.keeps_constants and type(value) in (bool, int, str):
            return ast.Name(self._writer.add_constant(node.id, value), ast.Load())
        return _parsed(self._writer.expression(value, node.id))

    def visit_Attribute(self, node: ast.Attribute) -> ast.AST:
        found, path = node.value, [node.attr]
        while isinstance(found, ast.Attribute):
            path.append(found.attr)
            found = found.value
        if isinstance(found, ast.Name) and self._is_outer(found.id):
            value = self._known[found.id]
            while inspect.ismodule(value) and path and not self._is_imported(value):
                value = getattr(value, path.pop())
                if not inspect.ismodule(value) or self._is_imported(value):
                    changed = _parsed(self._writer.expression(value))
                    for name in reversed(path):
                        changed = ast.Attribute(changed, name, ast.Load())
                    return changed
        return self.generic_visit(node)

    def _is_imported(self, module: types.ModuleType) -> bool:
        return self._writer.is_imported(module.__name__)


def _parsed(text: str) -> ast.expr:
    return ast.parse(text, mode="eval").body


def _functions_of(value: type) -> Iterator[types.FunctionType]:
    for member in vars(value).values():
        found = member.fget if isinstance(member, property) else member
        found = getattr(found, "__func__", found)
        if isinstance(found, types.FunctionType):
            yield found
