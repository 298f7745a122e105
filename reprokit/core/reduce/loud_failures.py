"""Make a program with graph breaks or recompiles fail by itself, with an assertion or a setting."""

from __future__ import annotations

import ast

from reprokit.core.records.recompiles import BREAK_MESSAGE, MIN_STORM_RECOMPILES, STORM_MESSAGE
from reprokit.core.reduce import ast_edits

FAIL_SETTINGS = {
    "recompile-limit": ("torch._dynamo", "torch._dynamo.config.fail_on_recompile_limit_hit = True"),
    "cudagraph-skip": (
        "torch._inductor.config",
        "torch._inductor.config.triton.cudagraph_or_error = True",
    ),
}
"""The module and the setting with which torch itself raises an exception, by kind."""
STORM_ASSERTION = "assert torch._dynamo.utils.counters['stats']['unique_graphs'] < {}, {!r}"
"""Counts the graphs. Torch's own setting fails at the first recompile, which is normal."""


BREAK_ASSERTION = (
    "assert not any(torch._dynamo.utils.counters[k] for k in ('graph_break', 'unimplemented')),"
    " {!r}"
)
"""The second counter has the breaks at which Dynamo gives up a function."""


def fail_loudly(text: str, kind: str, graphs: int = 1) -> str:
    """Return the program with an assertion or setting that turns a silent failure into an error;
    ``graphs`` is the number of graphs that it has without the recompiles of a storm.
    """
    if kind == "graph-break":
        tree = ast.parse(text)
        for call in ast_edits.compile_calls(tree):
            call.keywords = [k for k in call.keywords if k.arg != "fullgraph"]
            call.keywords.append(ast.keyword("fullgraph", ast.Constant(True)))
        return ast.unparse(tree) + "\n"
    if kind == "recompile-storm" and STORM_MESSAGE not in text:
        assertion = STORM_ASSERTION.format(graphs + MIN_STORM_RECOMPILES, STORM_MESSAGE)
        return ast.unparse(ast.parse(f"{text}\n{assertion}")) + "\n"
    module, setting = FAIL_SETTINGS.get(kind, ("", ""))
    if not setting or setting in text:
        return text
    tree = ast.parse(text)
    index = ast_edits.index_after_imports(tree)
    tree.body.insert(index, ast.parse(setting).body[0])
    tree.body.insert(index, ast.parse(f"import {module}").body[0])
    return ast.unparse(ast.fix_missing_locations(tree)) + "\n"


def assert_unbroken(text: str) -> str:
    """Return the program with an assertion that it has no graph break, for programs that fail
    differently with ``fullgraph=True``.
    """
    if BREAK_MESSAGE in text:
        return text
    return ast.unparse(ast.parse(f"{text}\n{BREAK_ASSERTION.format(BREAK_MESSAGE)}")) + "\n"
