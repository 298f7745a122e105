"""Where a simulated GPU and a real one disagree: what each run compiled, and how it ended."""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from reprokit.core.records.cudagraph_skips import CudagraphSkip
from reprokit.core.records.finding import Signature, Verdict
from reprokit.core.records.observation import Observation
from reprokit.core.reduce.passes import kernel_arguments
from reprokit.core.shared.source import triton_programs

MOST_ROWS = 6
"""Of one sort; the rest is counted."""
_OPERATOR = re.compile(r"\b(?:extern_kernels\.\w+|torch\.ops\.\w+\.\w+\.\w+|aten\.\w+\.\w+)(?=\()")


@dataclass(frozen=True)
class RunSummary:
    """What one side did."""

    kind: str
    title: str
    graphs: tuple[tuple[str, str, bool, int], ...]
    """Level, compile id, whether backward, and nodes of each."""
    kernels: Mapping[str, str]
    """Triton kernels: what they are, whatever they are called -> a name."""
    operators: Mapping[str, int]
    """Operators that generated code calls -> how often."""
    skips: tuple[CudagraphSkip, ...]


def summarise_run(
    verdict: Verdict, signature: Signature, seen: Observation, modules: Sequence[str]
) -> RunSummary:
    """Read one side; ``modules`` are what Inductor generated."""
    graphs = tuple(sorted((g.level, g.cid, g.is_backward, g.nodes) for g in seen.graphs))
    found: dict[str, str] = {}
    operators: Counter[str] = Counter()
    for text in modules:
        try:
            found.update(
                {
                    _body(name, source): name
                    for name, source in triton_programs.find_kernels(text).items()
                }
            )
        except (SyntaxError, ValueError, RecursionError):
            continue  # cut short
        operators.update(_OPERATOR.findall(text))
    return RunSummary(verdict.kind, signature.title, graphs, found, operators, seen.skips)


def disagreements(real: RunSummary, simulated: RunSummary) -> tuple[str, ...]:
    """Sentences, the ending first; empty where both did the same."""
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
            f"{len(real.graphs)} graphs on the device, {len(simulated.graphs)} in the simulation"
        )
    else:
        for one, two in zip(real.graphs, simulated.graphs, strict=True):
            if one != two:
                what = f"the {'backward' if one[2] else 'forward'} {one[0]} graph {one[1]}"
                rows.append(
                    f"{what} has {one[3]} nodes on the device and {two[3]} in the simulation"
                )
    for where, here, there in (
        ("on the device", real, simulated),
        ("in the simulation", simulated, real),
    ):
        own = [name for body, name in here.kernels.items() if body not in there.kernels]
        rows += _some([f"the kernel {name} is generated {where} only" for name in own])
    names = sorted(set(real.operators) | set(simulated.operators))
    rows += _some(
        [
            f"{name} is called {real.operators.get(name, 0)} times on the device and"
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


def _some(rows: list[str]) -> list[str]:
    more = len(rows) - MOST_ROWS
    return rows[:MOST_ROWS] + ([f"and {more} more of that sort"] if more > 0 else [])


def _body(name: str, source: str) -> str:
    """The kernel without its decorators, which tell of the device, and without its name."""
    tree = ast.parse(source)
    functions = [n for n in tree.body if isinstance(n, ast.FunctionDef)]
    for function in functions:
        function.decorator_list = []
    return "\n".join(map(ast.unparse, functions)).replace(name, kernel_arguments.PLAIN)
