"""Compare a run on a simulated GPU with a run on a real one: what each compiled, and how it
ended.
"""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from reprokit.core.judge.stacks.location import plural
from reprokit.core.records.finding import Signature, Verdict
from reprokit.core.records.observation import Observation
from reprokit.core.records.remarks.cudagraph_skips import CudagraphSkip
from reprokit.core.reduce.passes import kernel_arguments
from reprokit.core.shared.source import triton_programs

MAX_ROWS = 6
"""The number of differences of one kind that are listed; the others are counted."""
_OPERATOR = re.compile(r"\b(?:extern_kernels\.\w+|torch\.ops\.\w+\.\w+\.\w+|aten\.\w+\.\w+)(?=\()")


@dataclass(frozen=True)
class RunSummary:
    """The summary of one run."""

    kind: str
    title: str
    graphs: tuple[tuple[str, str, bool, int], ...]
    """Level, compile id, whether backward, and number of nodes of each graph."""
    kernels: Mapping[str, str]
    """The text of each Triton kernel without its name -> its name."""
    operators: Mapping[str, int]
    """The operators that generated code calls -> the number of calls."""
    skips: tuple[CudagraphSkip, ...]


def summarise_run(
    verdict: Verdict, signature: Signature, seen: Observation, modules: Sequence[str]
) -> RunSummary:
    """Summarise one run; ``modules`` are the texts that Inductor generated."""
    graphs = tuple(sorted((g.level, g.cid, g.is_backward, g.nodes) for g in seen.graphs))
    kernels: dict[str, str] = {}
    operators: Counter[str] = Counter()
    for text in modules:
        try:
            kernels.update(
                {
                    _body(name, source): name
                    for name, source in triton_programs.find_kernels(text).items()
                }
            )
        except (SyntaxError, ValueError, RecursionError):
            continue  # the text is cut
        operators.update(_OPERATOR.findall(text))
    return RunSummary(verdict.kind, signature.title, graphs, kernels, operators, seen.skips)


def list_disagreements(real: RunSummary, simulated: RunSummary) -> tuple[str, ...]:
    """Return a clause for each difference, with the verdict first; empty if both runs did the
    same.
    """
    rows = []
    if real.kind != simulated.kind:
        rows.append(f"the device ends as {real.kind}, the simulation as {simulated.kind}")
    if real.title != simulated.title:
        rows.append(
            f"the signature is {real.title!r} on the device and {simulated.title!r} in the"
            " simulation"
        )
    if len(real.graphs) != len(simulated.graphs):
        rows.append(
            f"{plural(len(real.graphs), 'graph')} on the device, {len(simulated.graphs)} in the"
            " simulation"
        )
    else:
        for graph, other in zip(real.graphs, simulated.graphs, strict=True):
            if graph != other:
                what = f"the {'backward' if graph[2] else 'forward'} {graph[0]} graph {graph[1]}"
                rows.append(
                    f"{what} has {plural(graph[3], 'node')} on the device and {other[3]} in the"
                    " simulation"
                )
    for where, here, there in (
        ("on the device", real, simulated),
        ("in the simulation", simulated, real),
    ):
        own = [name for body, name in here.kernels.items() if body not in there.kernels]
        rows += _limited([f"the kernel {name} is generated {where} only" for name in own])
    names = sorted(set(real.operators) | set(simulated.operators))
    rows += _limited(
        [
            f"{name} is called {plural(real.operators.get(name, 0), 'time')} on the device and"
            f" {simulated.operators.get(name, 0)} in the simulation"
            for name in names
            if real.operators.get(name, 0) != simulated.operators.get(name, 0)
        ]
    )
    reasons = [{s.reason for s in side.skips} for side in (real, simulated)]
    rows += [
        f"CUDA graphs are skipped on the device only: {reason}"
        for reason in sorted(reasons[0] - reasons[1])
    ]
    rows += [
        f"CUDA graphs are skipped in the simulation only: {reason}"
        for reason in sorted(reasons[1] - reasons[0])
    ]
    return tuple(rows)


def count_alike(real: RunSummary, simulated: RunSummary) -> dict[str, int]:
    """Return how many graphs and how many kernels both runs have."""
    graphs = Counter(real.graphs) & Counter(simulated.graphs)
    kernels = real.kernels.keys() & simulated.kernels.keys()
    return {"graphs": graphs.total(), "kernels": len(kernels)}


def _limited(rows: list[str]) -> list[str]:
    more = len(rows) - MAX_ROWS
    return rows[:MAX_ROWS] + ([f"and {more} more of this kind"] if more > 0 else [])


def _body(name: str, source: str) -> str:
    """Return the kernel without its decorators, which depend on the device, and without its
    name.
    """
    tree = ast.parse(source)
    functions = [n for n in tree.body if isinstance(n, ast.FunctionDef)]
    for function in functions:
        function.decorator_list = []
    return "\n".join(map(ast.unparse, functions)).replace(name, kernel_arguments.PLAIN_NAME)
