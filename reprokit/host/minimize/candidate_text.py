"""What the text of a candidate says without running it."""

from __future__ import annotations

import ast
import builtins
import threading
import warnings

from reprokit.core.reduce import readable
from reprokit.core.shared.contract import run_names
from reprokit.host.system import host_log

_WARNINGS = threading.Lock()
"""The filters of warnings belong to the process, and several threads parse programs."""


def parse_program(text: str) -> ast.Module | None:
    """Return the tree of a program; None where the text does not compile.

    An example is a ``break`` outside a loop, which parses.
    """
    try:
        with _WARNINGS, warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tree = ast.parse(text)
            compile(tree, run_names.REPRO_FILE, "exec", dont_inherit=True)
        return tree
    except (SyntaxError, ValueError, RecursionError, MemoryError) as problem:
        host_log.log_ignored(problem)
        return None


def top_level_definitions(text: str) -> dict[str, str]:
    """Return the top-level functions and classes by name, as dumps without their layout."""
    with host_log.suppress(SyntaxError, ValueError):
        kinds = (ast.FunctionDef, ast.ClassDef)
        return {
            n.name: ast.dump(n)
            for n in ast.parse(readable.flatten_calls(text)).body
            if isinstance(n, kinds)
        }
    return {}


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


def count_code_lines(text: str) -> int:
    """Return the number of lines that are neither empty nor comments."""
    return sum(1 for row in text.splitlines() if row.strip() and not row.lstrip().startswith("#"))
