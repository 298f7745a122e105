"""The start of a program: the command line that it sets, and the libraries that it imports."""

from __future__ import annotations

import ast
import sys

from reprokit.core.shared.contract import run_names

COMPILERS = frozenset({"torch", "triton"})
"""Packages that are never one of the program's own files."""


def with_arguments(text: str, arguments: list[str]) -> str:
    """Return the script with first lines that set its command line."""
    if not arguments:
        return text
    tree = ast.parse(text)
    head = head_of(tree)
    body = [n for n in tree.body if n not in head]
    argv = ast.parse(f"import sys\nsys.argv = {[run_names.REPRO_FILE, *arguments]!r}").body
    tree.body = [*head, *argv, *body]
    return ast.unparse(tree) + "\n"


def head_of(tree: ast.Module) -> list[ast.stmt]:
    """Return the statements that must come first: the docstring, and imports of the future."""
    return [
        node
        for number, node in enumerate(tree.body)
        if (isinstance(node, ast.ImportFrom) and node.module == "__future__")
        or (number == 0 and isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant))
    ]


def library_imports(text: str) -> list[str]:
    """Return the import statements of a program, without those of Python and the compilers."""
    try:
        body = ast.parse(text).body
    except (SyntaxError, ValueError, RecursionError):
        return []
    known = {*sys.stdlib_module_names, *COMPILERS}
    found = []
    for node in body:
        if isinstance(node, ast.ImportFrom):
            names = [node.module or ""]
        else:
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        if any(name and name.split(".")[0] not in known for name in names):
            found.append(ast.unparse(node))
    return found
