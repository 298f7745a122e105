"""The start of a program: the command line that it sets, and the libraries that it imports."""

from __future__ import annotations

import ast
import sys

from reprokit.core.shared.contract import run_names

ONLY_RANK = {
    "RANK": "0",
    "LOCAL_RANK": "0",
    "WORLD_SIZE": "1",
    "LOCAL_WORLD_SIZE": "1",
    "MASTER_ADDR": "127.0.0.1",
    "MASTER_PORT": "0",
}
"""The variables of ``torchrun --nproc-per-node 1``; port 0 is any free port."""
COMPILERS = frozenset({"torch", "triton"})
"""Packages that are never one of the program's own files."""


def with_arguments(text: str, arguments: list[str]) -> str:
    """Return the script with first lines that set its command line."""
    argv = f"import sys\nsys.argv = {[run_names.REPRO_FILE, *arguments]!r}"
    return _begin_with(text, argv) if arguments else text


def as_only_rank(text: str) -> str:
    """Return a script that torchrun started as its only rank, with first lines that set the
    variables that torchrun set.
    """
    return _begin_with(text, f"import os\nos.environ.update({ONLY_RANK!r})")


def _begin_with(text: str, lines: str) -> str:
    tree = ast.parse(text)
    head = head_of(tree)
    body = [n for n in tree.body if n not in head]
    tree.body = [*head, *ast.parse(lines).body, *body]
    return ast.unparse(tree) + "\n"


def head_of(tree: ast.Module) -> list[ast.stmt]:
    """Return the statements that must come first: the docstring, and imports of the future."""
    return [
        node
        for number, node in enumerate(tree.body)
        if (isinstance(node, ast.ImportFrom) and node.module == "__future__")
        or (number == 0 and isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant))
    ]


def is_standard(module: str) -> bool:
    """Return whether a module is part of Python or of the compilers."""
    return module.split(".")[0] in {*sys.stdlib_module_names, *COMPILERS}


def library_aliases(node: ast.stmt) -> list[ast.alias]:
    """Return what a statement imports, without what is part of Python and the compilers."""
    if isinstance(node, ast.ImportFrom):
        return [] if not node.module or is_standard(node.module) else node.names
    names = node.names if isinstance(node, ast.Import) else []
    return [alias for alias in names if not is_standard(alias.name)]


def libraries_of(text: str) -> list[str]:
    """Return the packages that a program imports, without Python and the compilers, sorted."""
    found: set[str] = set()
    for node in _nodes_of(text):
        if isinstance(node, (ast.Import, ast.ImportFrom)) and library_aliases(node):
            names = [a.name for a in node.names] if isinstance(node, ast.Import) else [node.module]
            found |= {str(name).split(".")[0] for name in names if not is_standard(str(name))}
    return sorted(found)


def library_imports(text: str) -> list[str]:
    """Return the import statements of a program, without those of Python and the compilers."""
    rows = (node for node in _nodes_of(text) if isinstance(node, ast.Module))
    return [ast.unparse(node) for tree in rows for node in tree.body if library_aliases(node)]


def _nodes_of(text: str) -> list[ast.AST]:
    """Return the nodes of a program, the module first; none for a text that is no program."""
    try:
        return list(ast.walk(ast.parse(text)))
    except (SyntaxError, ValueError, RecursionError):
        return []
