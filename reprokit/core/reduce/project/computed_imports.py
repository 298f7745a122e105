"""Look up files of the program whose names are computed, instead of loading them at run time.

``importlib.import_module(f"models.{name}")`` and ``spec_from_file_location(key, path)`` load one of
the files whose names fit what is written of the name. Those are joined, and the call becomes a
lookup in a table of them.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Sequence
from typing import Any

from reprokit.core.reduce.ast_edits import last_name
from reprokit.core.reduce.project.dynamic_imports import BY_NAME, NAMESPACES, loaded_name

MAX_MATCHES = 12
"""With more files that fit, the calls stay as they are."""
BY_FILE = frozenset({"run_path", "spec_from_file_location"})
_ANY = ".*"


def with_tables(tree: ast.Module, every: Callable[[], Sequence[str]]) -> list[str]:
    """Replace the calls of a program that load files with computed names, and return the dotted
    names of the files that are needed.

    ``every`` returns the dotted names of all files of the program.
    """
    calls = [n for n in ast.walk(tree) if isinstance(n, ast.Call) and n.args]
    loaders = [call for call in calls if last_name(call.func) in BY_NAME | BY_FILE]
    if all(isinstance(call.args[-1], ast.Constant) for call in loaders):
        return []
    rewriter = _Rewriter(tree, every())
    rewriter.visit(tree)
    ast.fix_missing_locations(tree)
    return sorted(rewriter.needed)


class _Rewriter(ast.NodeTransformer):
    def __init__(self, tree: ast.Module, every: Sequence[str]) -> None:
        self._every = every
        self._values: dict[str, list[ast.expr]] = {}
        for node in ast.walk(tree):
            if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
                self._values.setdefault(node.targets[0].id, []).append(node.value)
        self.needed: set[str] = set()
        self._has_specification = False

    def visit_Call(self, node: ast.Call) -> ast.AST:
        self.generic_visit(node)
        name = last_name(node.func)
        if any(word.arg in ("run_name", "init_globals") for word in node.keywords):
            return node
        if name in BY_NAME and node.args and not isinstance(node.args[0], ast.Constant):
            found = self._table(node.args[0], {n: n for n in self._every})
            return node if found is None else _namespace(found) if name in NAMESPACES else found
        if name in BY_FILE and node.args:
            place = node.args[-1] if name == "spec_from_file_location" else node.args[0]
            bases = [f"{n.rpartition('.')[2]}.py" for n in self._every]
            pairs = zip(bases, self._every, strict=True)
            # a table has the names of files without their folders
            files = {base: n for base, n in pairs if bases.count(base) == 1}
            found = self._table(place, files, is_path=True)
            if found is not None:
                self._has_specification |= name == "spec_from_file_location"
                return _namespace(found) if name in NAMESPACES else found
        if name == "module_from_spec" and self._has_specification:
            return node.args[0]
        return node

    def visit_Expr(self, node: ast.Expr) -> ast.AST:
        self.generic_visit(node)
        if isinstance(node.value, ast.Subscript) and isinstance(node.value.value, ast.Dict):
            return ast.Pass()  # it was imported for what it registers
        is_run = isinstance(node.value, ast.Call) and last_name(node.value.func) == "exec_module"
        return ast.Pass() if is_run and self._has_specification else node

    def _table(
        self, written: ast.expr, files: dict[str, str], is_path: bool = False
    ) -> ast.expr | None:
        """Return the expression that looks up a module; None if too few or too many files fit."""
        pattern = re.sub(r"(?:\.\*)+", _ANY, self._pattern(written))
        if is_path:
            pattern = pattern.rpartition("/")[2]
        if not pattern.replace(_ANY, "").replace("\\", ""):
            return None
        fits = {key: name for key, name in files.items() if re.fullmatch(pattern, key)}
        if not 0 < len(fits) <= MAX_MATCHES:
            return None
        self.needed |= set(fits.values())
        table = ast.Dict(
            [ast.Constant(key) for key in fits],
            [ast.Name(loaded_name(n), ast.Load()) for n in fits.values()],
        )
        key = f"str({ast.unparse(written)}).rpartition('/')[2]" if is_path else ast.unparse(written)
        return ast.Subscript(table, ast.parse(key, mode="eval").body, ast.Load())

    def _pattern(self, node: ast.expr, depth: int = 0) -> str:
        """Return a pattern of the texts that an expression may give."""
        if isinstance(node, ast.Constant):
            return re.escape(str(node.value))
        if isinstance(node, ast.JoinedStr):
            parts = (v for v in node.values)
            return "".join(
                re.escape(str(v.value)) if isinstance(v, ast.Constant) else _ANY for v in parts
            )
        if isinstance(node, ast.BinOp) and isinstance(node.op, (ast.Add, ast.Div)):
            between = "/" if isinstance(node.op, ast.Div) else ""
            sides = (self._pattern(side, depth) for side in (node.left, node.right))
            return between.join(sides)
        if isinstance(node, ast.Call):
            if last_name(node.func) in ("str", "Path", "abspath", "resolve") and node.args:
                return self._pattern(node.args[0], depth)
            if last_name(node.func) in ("join", "joinpath") and node.args:
                return "/".join(self._pattern(word, depth) for word in node.args)
            if last_name(node.func) == "format" and isinstance(node.func, ast.Attribute):
                return re.sub(r"\\\{.*?\\\}", _ANY, self._pattern(node.func.value, depth))
        if isinstance(node, ast.Name) and len(self._values.get(node.id, [])) == 1 and depth < 3:
            return self._pattern(self._values[node.id][0], depth + 1)
        return _ANY


def _namespace(module: ast.expr) -> ast.expr:
    return ast.Call(ast.Name("vars", ast.Load()), [module], [])


class Namespaces(ast.NodeTransformer):
    """Replaces the names of loaded modules by objects with the names of the modules."""

    def __init__(self, members: dict[str, dict[str, str]]) -> None:
        """``members`` has for each module its names and their names in the program."""
        self._members = {loaded_name(n): names for n, names in members.items()}
        self.count = 0

    def visit_Name(self, node: ast.Name) -> ast.AST:
        names: dict[str, Any] | None = self._members.get(node.id)
        if names is None:
            return node
        self.count += 1
        words = [ast.keyword(n, ast.Name(new, ast.Load())) for n, new in sorted(names.items())]
        made = ast.Attribute(ast.Name("types", ast.Load()), "SimpleNamespace", ast.Load())
        return ast.Call(made, [], words)
