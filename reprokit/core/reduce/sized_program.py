"""Programs with one size: the program at other sizes, and a loop over several sizes that fails if
the cost grows too fast.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from typing import Any

from reprokit.core.reduce import ast_edits

_WARM = "torch.compile(lambda x: x + 1)(torch.ones(1))"
"""A first compile, so that the start of the compiler is not measured."""
MIN_COMPILE_S = 0.1
MIN_BUILD_S = 0.4
"""The smallest cost of the smallest size that is used, in seconds: of the compiler, and of the C++
compiler, which includes the start of a process.
"""


GROWTH = 16
"""How many times larger a size becomes, to see whether a rare failure shows in more runs."""
DIVISORS, MIN_DIVIDED = (256, 64, 16, 4, 2), 8
"""How many times smaller a size becomes, and the smallest size that results. The passes over
literals try still smaller ones.
"""
_MAKERS = frozenset({"rand", "randn", "ones", "zeros", "empty", "arange"})


def min_cost_s(is_built: bool) -> float:
    """Return the smallest first cost that is used, in seconds; ``is_built``: of the C++
    compiler.
    """
    return MIN_BUILD_S if is_built else MIN_COMPILE_S


def with_size(text: str, knob: str) -> str:
    """Return the program with its size in a variable: ``n = 8`` and ``make(n=n)``; empty if it does
    not have exactly one call with that size.
    """
    tree = ast.parse(text)
    words = [
        k
        for n in ast.walk(tree)
        if isinstance(n, ast.Call)
        for k in n.keywords
        if k.arg == knob and _size(k.value)
    ]
    if len(words) != 1 or knob in _assigned_names(tree):
        return ""
    size = words[0].value
    words[0].value = ast.Name(knob, ast.Load())
    tree.body.insert(
        ast_edits.index_after_imports(tree), ast.Assign([ast.Name(knob, ast.Store())], size)
    )
    return ast.unparse(ast.fix_missing_locations(tree)) + "\n"


def at_size(text: str, knob: str, size: int) -> str:
    """Return the program at a different size, or its loop over sizes with only this one; empty if
    the program does not have the size.
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
            # the cost of the first compile does not depend on the size
            tree.body = [n for n in tree.body if ast.unparse(n) != _WARM]
            return ast.unparse(tree) + "\n"
    return ""


def loop_over_sizes(
    text: str, knob: str, sizes: Sequence[int], ratio: float, is_built: bool = False
) -> str:
    """Return a program that runs at each of several sizes, and asserts that the cost of the compile
    does not grow faster than the size.

    ``ratio`` is the largest cost that is allowed at the largest size, in multiples of the cost at
    the smallest. ``is_built``: the cost is that of the C++ compiler, a separate process, so the
    program measures wall time.
    """
    tree = ast.parse(text)
    clock = "time.perf_counter()" if is_built else "time.process_time()"
    main = [n for n in tree.body if not (ast_edits.is_definition(n) or _assigns(n, knob))]
    if not main or len(main) == len(tree.body):
        return text
    first = ast_edits.index_after_imports(tree)
    rows = [
        "import time",
        *map(ast.unparse, tree.body[:first]),
        "import torch._inductor.config",
        "torch._inductor.config.fx_graph_cache = False",
        *(ast.unparse(n) for n in tree.body[first:] if ast_edits.is_definition(n)),
        _WARM,
        "seconds = []",
        f"for {knob} in {tuple(sorted(sizes))!r}:",
        "    torch._dynamo.reset()",
        f"    began = {clock}",
        *(f"    {line}" for node in main for line in ast.unparse(node).splitlines()),
        f"    seconds.append({clock} - began)",
        f"    print({knob}, seconds[-1])",
        f"assert seconds[-1] < {ratio:.1f} * max(seconds[0], {min_cost_s(is_built):g})",
    ]
    return ast.unparse(ast.parse("\n".join(rows))) + "\n"


def larger_programs(text: str) -> Iterator[tuple[str, str]]:
    """Yield the program with larger tensors, and what was changed in words: each size alone, and
    then all of them.

    A size is a number in the arguments of a call that makes a tensor. The same number changes in
    the arguments of all calls, so that shapes still fit.
    """
    sizes = sorted({node.value for node in _numbers(ast.parse(text), _MAKERS)})
    every = [(size,) for size in sizes] + ([tuple(sizes)] if len(sizes) > 1 else [])
    for chosen in every:
        tree = ast.parse(text)
        for node in _numbers(tree):
            if node.value in chosen:
                node.value *= GROWTH
        words = " and ".join(f"{size * GROWTH} instead of {size}" for size in chosen)
        yield f"it has sizes of {words}", ast.unparse(tree) + "\n"


def with_smaller_tensors(text: str, test: ast_edits.Test) -> str:
    """Return the program with tensors as small as the predicate ``test`` allows, the largest sizes
    first. The same number changes in the arguments of all calls.
    """
    for size in sorted({n.value for n in _numbers(ast.parse(text), _MAKERS)}, reverse=True):
        for divisor in DIVISORS:
            tree = ast.parse(text)
            for node in _numbers(tree):
                if node.value == size:
                    node.value //= divisor
            if size >= MIN_DIVIDED * divisor and test(new := ast.unparse(tree) + "\n"):
                text = new
                break
    return text


def _numbers(tree: ast.AST, names: frozenset[str] = frozenset()) -> Iterator[Any]:
    """Yield the numbers from 1 in the positional arguments of calls, and in lists there.

    ``names`` are the functions whose calls count; empty for all of them.
    """
    for call in ast.walk(tree):
        if not isinstance(call, ast.Call):
            continue
        if names and ast.unparse(call.func).removeprefix("torch.") not in names:
            continue
        parts = [part for a in call.args for part in getattr(a, "elts", [a])]
        yield from (part for part in parts if _size(part) and part.value > 0)


def _size(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and type(node.value) is int


def _assigns(node: ast.stmt, knob: str) -> bool:
    """Return whether the statement assigns a number to the size."""
    return (
        ast_edits.target_names(node) == knob and isinstance(node, ast.Assign) and _size(node.value)
    )


def _assigned_names(tree: ast.Module) -> set[str]:
    """Return the names that the program assigns or defines at its top level."""
    names = set[str]()
    for node in tree.body:
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            names.add(node.name)
        else:
            names |= {
                n.id
                for n in ast.walk(node)
                if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)
            }
    return names
