"""What the text of a candidate says without running it."""

from __future__ import annotations

import ast
import warnings

from reprokit.core.reduce import readable
from reprokit.core.shared.contract import run_names
from reprokit.host.system import host_log


def parse_program(text: str) -> ast.Module | None:
    """Return the tree of a program; None where the text does not compile.

    An example is a ``break`` outside a loop, which parses.
    """
    try:
        with warnings.catch_warnings():
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


def count_code_lines(text: str) -> int:
    """Return the number of lines that are neither empty nor comments."""
    return sum(1 for row in text.splitlines() if row.strip() and not row.lstrip().startswith("#"))
