"""Which scripts may be run again and again, changed each time: those that touch nothing but their own memory."""

from __future__ import annotations

import ast
import sys

COMPILERS = frozenset({"torch", "triton"})
HARMLESS = frozenset(
    "__future__ abc argparse bisect cmath collections contextlib copy dataclasses decimal enum fractions functools gc "
    "heapq inspect io itertools json logging math numbers operator os random re statistics string sys textwrap time "
    "timeit traceback types typing typing_extensions warnings weakref".split()
)
"""Modules of the standard library that neither write, nor start, nor reach anything."""
_OF_OS = frozenset({"environ", "getenv", "path", "sep", "linesep", "getpid", "cpu_count", "name"})
_CALLS = frozenset({"open", "exec", "eval", "compile", "__import__", "input", "breakpoint"})
_ATTRIBUTES = frozenset(
    "save export write write_text write_bytes mkdir makedirs unlink remove_file rmtree rename touch download hub "
    "distributed cpp_extension multiprocessing tensorboard dump tofile fork system popen FileHandler".split()
)


def foreign_imports(tree: ast.Module) -> list[str]:
    """Modules that neither Python nor torch brings along, by name."""
    return sorted(_imports(tree) - set(sys.stdlib_module_names) - COMPILERS)


def why_not_again(tree: ast.Module) -> str:
    """What in a script speaks against running changed copies of it unasked; empty when nothing does.

    A rule of thumb that errs to the safe side: somebody's training script writes checkpoints, and a candidate with
    another path in it must not.
    """
    if others := sorted(_imports(tree) - HARMLESS - COMPILERS):
        return f"it imports {', '.join(others[:6])}"
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in _CALLS:
            return f"it calls {node.func.id}"
        if isinstance(node, ast.Attribute):
            is_of_os = isinstance(node.value, ast.Name) and node.value.id == "os"
            if node.attr in _ATTRIBUTES or (is_of_os and node.attr not in _OF_OS):
                owner = node.value.id if isinstance(node.value, ast.Name) else ""
                return f"it uses {owner}.{node.attr}"
        if isinstance(node, ast.ImportFrom) and {a.name for a in node.names} & (_ATTRIBUTES | {"*"}):
            return f"it has {ast.unparse(node)}"
        if isinstance(node, ast.ImportFrom) and node.module == "os":
            return "it imports names from os"
    return ""


def with_arguments(text: str, arguments: list[str]) -> str:
    """The script with the command line that it was given, as its own first lines."""
    if not arguments:
        return text
    tree = ast.parse(text)
    head = [n for n in tree.body if isinstance(n, ast.ImportFrom) and n.module == "__future__"]
    body = [n for n in tree.body if n not in head]
    given = ast.parse(f"import sys\nsys.argv = {['repro.py', *arguments]!r}").body
    tree.body = [*head, *given, *body]
    return ast.unparse(tree) + "\n"


def _imports(tree: ast.Module) -> set[str]:
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            found.add("(a relative import)" if node.level else (node.module or "").split(".")[0])
    return found
