"""A program with one size: as it is at other sizes, and as a loop over several that fails where
they cost too much.
"""

from __future__ import annotations

import ast
from collections.abc import Sequence

from reprokit.core.reduce import ast_edits

_WARM = "torch.compile(lambda x: x + 1)(torch.ones(1))"
"""What the compiler needs to start is not measured."""
LEAST_S = 0.1
LEAST_BUILD_S = 0.4
"""Seconds below which a first cost says nothing: of the compiler, and of the C++ compiler, which is
started first.
"""


def least_s(is_built: bool) -> float:
    """The smallest first cost that says something; ``is_built``: of the C++ compiler."""
    return LEAST_BUILD_S if is_built else LEAST_S


def with_size(text: str, knob: str) -> str:
    """The program with its size as a name: ``n = 8`` and ``make(n=n)``; empty where it calls
    nothing with that size.
    """
    tree = ast.parse(text)
    words = [
        k
        for n in ast.walk(tree)
        if isinstance(n, ast.Call)
        for k in n.keywords
        if k.arg == knob and _size(k.value)
    ]
    if len(words) != 1 or knob in _given(tree):
        return ""
    size = words[0].value
    words[0].value = ast.Name(knob, ast.Load())
    tree.body.insert(
        ast_edits.behind_imports(tree), ast.Assign([ast.Name(knob, ast.Store())], size)
    )
    return ast.unparse(ast.fix_missing_locations(tree)) + "\n"


def at_size(text: str, knob: str, size: int) -> str:
    """The program at another size, or its loop over sizes with this one alone; empty for a program
    without that size.
    """
    tree = ast.parse(text)
    for node in tree.body:
        if _assigns(node, knob):
            node.value = ast.Constant(size)  # type: ignore[attr-defined]
            return ast.unparse(tree) + "\n"
        if (
            isinstance(node, ast.For)
            and isinstance(node.target, ast.Name)
            and node.target.id == knob
        ):
            node.iter = ast.Tuple([ast.Constant(size)], ast.Load())
            tree.body = [
                n for n in tree.body if ast.unparse(n) != _WARM
            ]  # its cost is none of this size's
            return ast.unparse(tree) + "\n"
    return ""


def loop_over_sizes(
    text: str, knob: str, sizes: Sequence[int], ratio: float, is_built: bool = False
) -> str:
    """The program at each of several sizes, with an assertion that the compile grows no faster than
    they do.

    ``ratio`` is what all of it may cost at the largest size, in multiples of the smallest.
    ``is_built``: what costs is the C++ compiler, which is another process, so that only the clock
    on the wall tells.
    """
    tree = ast.parse(text)
    clock = "time.perf_counter()" if is_built else "time.process_time()"
    main = [n for n in tree.body if not (ast_edits.defines(n) or _assigns(n, knob))]
    if not main or len(main) == len(tree.body):
        return text
    place = ast_edits.behind_imports(tree)
    rows = [
        "import time",
        *map(ast.unparse, tree.body[:place]),
        "import torch._inductor.config",
        "torch._inductor.config.fx_graph_cache = False",
        *(ast.unparse(n) for n in tree.body[place:] if ast_edits.defines(n)),
        _WARM,
        "seconds = []",
        f"for {knob} in {tuple(sorted(sizes))!r}:",
        "    torch._dynamo.reset()",
        f"    began = {clock}",
        *(f"    {line}" for node in main for line in ast.unparse(node).splitlines()),
        f"    seconds.append({clock} - began)",
        f"    print({knob}, seconds[-1])",
        f"assert seconds[-1] < {ratio:.1f} * max(seconds[0], {least_s(is_built):g})",
    ]
    return ast.unparse(ast.parse("\n".join(rows))) + "\n"


def _size(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and type(node.value) is int


def _assigns(node: ast.stmt, knob: str) -> bool:
    """The row gives the size, as a number."""
    return (
        ast_edits.target_names(node) == knob and isinstance(node, ast.Assign) and _size(node.value)
    )


def _given(tree: ast.Module) -> set[str]:
    """The names that the program's own rows give, outside its functions and classes."""
    found = set[str]()
    for node in tree.body:
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            found.add(node.name)
        else:
            found |= {
                n.id
                for n in ast.walk(node)
                if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)
            }
    return found
