"""Turn what loads another file of the program at run time into plain imports.

``importlib.import_module``, ``runpy.run_path``, ``spec_from_file_location`` and ``exec`` of a file
name a module by a text. If that text is written in the program and names one of its own files, an
import does the same, and the files can be joined. Other calls stay as they are.
"""

from __future__ import annotations

import ast
from collections.abc import Callable
from typing import Any

from reprokit.core.reduce.ast_edits import last_name

HasModule = Callable[[str], bool]
"""Dotted name -> whether it is one of the program's own files."""
LOADED = "loaded_module_"
"""How the name of an imported file begins; a joined program has no such name."""
BY_NAME = frozenset({"import_module", "__import__", "run_module"})
BY_PATH = frozenset({"run_path", "spec_from_file_location", "SourceFileLoader"})
NAMESPACES = frozenset({"run_path", "run_module"})
"""Functions that return the names of the module as a dictionary."""
READS = frozenset({"open", "read", "read_text", "compile"})


def loaded_name(module: str) -> str:
    """Return the name by which a program imports one of its files."""
    return LOADED + module.replace(".", "_")


def with_plain_imports(tree: ast.Module, has_module: HasModule) -> ast.Module:
    """Return a program with imports in place of calls that load its own files."""
    if not any(isinstance(n, ast.Call) and last_name(n.func) in _LOADERS for n in ast.walk(tree)):
        return tree
    rewritten = _Rewriter(has_module).visit(tree)
    assert isinstance(rewritten, ast.Module)
    return ast.fix_missing_locations(rewritten)


_LOADERS = BY_NAME | BY_PATH | {"exec"}


class _Rewriter(ast.NodeTransformer):
    """Rewrites statements, and keeps which names stand for a loaded file."""

    def __init__(self, has_module: HasModule) -> None:
        self._has_module = has_module
        self._loaded: dict[str, str] = {}
        """A name that the program gives to a module, its specification or its namespace -> the name
        by which it is imported.
        """
        self._modules: dict[str, str] = {}
        """The name of each import -> its module."""
        self._namespaces: set[str] = set()
        """The imported names that the program uses as dictionaries."""
        self._new: list[ast.stmt] = []

    def visit(self, node: ast.AST) -> Any:
        if not isinstance(node, ast.stmt) or isinstance(
            node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
        ):
            return super().visit(node)
        outer, self._new = self._new, []
        changed = self._statement(node)
        rows, self._new = self._new, outer
        return [*rows, *changed]

    def _statement(self, node: ast.stmt) -> list[ast.stmt]:
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
            call = node.value
            if (
                last_name(call.func) == "exec"
                and len(call.args) == 1
                and (name := self._read_by(call))
            ):
                return [ast.ImportFrom(name, [ast.alias("*")], 0)]
            if last_name(call.func) == "exec_module" and self._is_loaded(call.args):
                return [ast.Pass()]
        if isinstance(node, ast.Assign) and self._is_loaded([node.value]):
            target = ast.unparse(node.targets[0])
            if target.startswith("sys.modules["):
                return [ast.Pass()]
        super().generic_visit(node)
        if isinstance(node, ast.Expr) and ast.unparse(node.value) in self._loaded:
            return [ast.Pass()]
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            value = node.value
            if isinstance(value, ast.Name) and value.id in self._loaded.values():
                self._loaded[node.targets[0].id] = value.id
                # the module under this name too, for what is not a use of one of its names
                return [ast.Import([ast.alias(self._modules[value.id], node.targets[0].id)])]
        return [node]

    def visit_Call(self, node: ast.Call) -> ast.AST:
        name = last_name(node.func)
        if name in BY_NAME | BY_PATH and (module := self._module_of(node)):
            imported = self._import(module)
            if name in NAMESPACES:
                self._namespaces.add(imported.id)
            return imported
        if name == "module_from_spec" and self._is_loaded(node.args):
            return ast.Name(self._loaded[ast.unparse(node.args[0])], ast.Load())
        self.generic_visit(node)
        if name == "getattr" and len(node.args) == 2:
            return self._member(node.args[0], node.args[1], False) or node
        if name == "get" and len(node.args) == 1 and isinstance(node.func, ast.Attribute):
            return self._member(node.func.value, node.args[0], True) or node
        return node

    def visit_Subscript(self, node: ast.Subscript) -> ast.AST:
        self.generic_visit(node)
        return self._member(node.value, node.slice, True) or node

    def visit_Attribute(self, node: ast.Attribute) -> ast.AST:
        self.generic_visit(node)
        if isinstance(node.value, ast.Name) and node.value.id in self._loaded:
            node.value.id = self._loaded[node.value.id]
        return node

    def _member(self, owner: ast.AST, key: ast.AST, is_namespace: bool) -> ast.AST | None:
        """Return ``module.name`` for a name in a module, or in its namespace."""
        if not (isinstance(owner, ast.Name) and isinstance(key, ast.Constant)):
            return None
        module = self._loaded.get(owner.id, owner.id)
        is_loaded = module in self._loaded.values() and isinstance(key.value, str)
        if not is_loaded or (module in self._namespaces) != is_namespace:
            return None
        return ast.Attribute(ast.Name(module, ast.Load()), str(key.value), ast.Load())

    def _is_loaded(self, words: list[ast.expr]) -> bool:
        return bool(words) and ast.unparse(words[0]) in self._loaded

    def _import(self, module: str) -> ast.Name:
        name = loaded_name(module)
        self._loaded[name], self._modules[name] = name, module
        self._new.append(ast.Import([ast.alias(module, name)]))
        return ast.Name(name, ast.Load())

    def _module_of(self, call: ast.Call) -> str:
        """Return the own module that a call names; empty if it names none by a text, or runs it as
        a program.
        """
        if any(word.arg in ("run_name", "init_globals") for word in call.keywords):
            return ""
        if last_name(call.func) in BY_NAME:
            first = call.args[0] if call.args else None
            text = first.value if isinstance(first, ast.Constant) else None
            return text if isinstance(text, str) and self._has_module(text) else ""
        return self._module_at(call)

    def _read_by(self, call: ast.Call) -> str:
        reads = {last_name(n.func) for n in ast.walk(call.args[0]) if isinstance(n, ast.Call)}
        return self._module_at(call) if reads & READS else ""

    def _module_at(self, call: ast.Call) -> str:
        """Return the own module at the path that the texts in a call spell."""
        texts = [
            n.value
            for n in ast.walk(call)
            if isinstance(n, ast.Constant) and isinstance(n.value, str)
        ]
        ends = [n for n, text in enumerate(texts) if text.endswith(".py")]
        if not ends:
            return ""
        parts = [
            part
            for text in texts[: ends[0] + 1]
            for part in text.removesuffix(".py").removeprefix("./").split("/")
        ]
        names = (".".join(parts[start:]) for start in range(len(parts)))
        is_plain = all(part.isidentifier() for part in parts)
        return next(filter(self._has_module, names), "") if is_plain else ""
