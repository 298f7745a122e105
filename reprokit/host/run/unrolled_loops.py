"""Estimate how long Dynamo needs to trace all iterations of a loop that it unrolls."""

from __future__ import annotations

import ast
import re
from collections.abc import Sequence
from pathlib import Path

from reprokit.core.judge.stacks import phases
from reprokit.core.records.journal_reader import open_events
from reprokit.core.shared.contract.event_base import Event
from reprokit.core.shared.contract.events import Progress
from reprokit.host.system import files, host_log


def loop_pace(events: Sequence[Event], line: str, count: int) -> str:
    """Describe the progress of a loop whose ``line`` was traced ``count`` times.

    ``events`` are those of its process. For example ``in 50 s (2.0 ms each); the loop has 1000000
    iterations: about 32 min more at this rate``.
    """
    opened = [
        e
        for e in open_events(events)
        if (phases.phase_of_events((e.name,)) or ("",))[0] == "dynamo-trace"
    ]
    lines = [e.t for e in events if isinstance(e, Progress) and e.unit == "line"]
    if not opened or not lines or count < 1:
        return ""
    seconds = max(lines[-1] - opened[0].t, 0.0)
    each = seconds / count
    text = f"in {seconds:.0f} s ({_each(each)} each)"
    bound = loop_bound(line)
    if bound <= count:
        return text
    rest = _rest((bound - count) * each)
    return f"{text}; the loop has {bound} iterations: about {rest} more at this rate"


def loop_bound(line: str) -> int:
    """Return the number of iterations of the innermost ``for`` loop around ``FILE:LINE in
    FUNCTION``.

    Return 0 if the program text does not determine it.
    """
    match = re.match(r"(?P<file>.+):(?P<line>\d+) in ", line)
    if match is None:
        return 0
    number = int(match["line"])
    with host_log.suppress(OSError, SyntaxError, ValueError, RecursionError, OverflowError):
        tree = ast.parse(files.read_text(Path(match["file"])))
        loops = [
            n
            for n in ast.walk(tree)
            if isinstance(n, ast.For) and n.lineno <= number <= (n.end_lineno or n.lineno)
        ]
        if loops:
            return _length(max(loops, key=lambda n: n.lineno).iter, _constants(tree))
    return 0


def _constants(tree: ast.Module) -> dict[str, int]:
    """Return the integer constants of a module; 0 for a name that is assigned twice."""
    constants: dict[str, int] = {}
    for node in tree.body:
        if (
            isinstance(node, ast.Assign)
            and isinstance(node.value, ast.Constant)
            and type(node.value.value) is int
        ):
            for target in node.targets:
                if isinstance(target, ast.Name):
                    constants[target.id] = 0 if target.id in constants else node.value.value
    return constants


def _length(iterated: ast.expr, known: dict[str, int]) -> int:
    if not (
        isinstance(iterated, ast.Call)
        and isinstance(iterated.func, ast.Name)
        and iterated.func.id == "range"
    ):
        return 0
    values = []
    for argument in iterated.args:
        value = (
            known.get(argument.id) if isinstance(argument, ast.Name) else ast.literal_eval(argument)
        )
        if type(value) is not int:
            return 0
        values.append(value)
    return len(range(*values)) if 1 <= len(values) <= 3 and not iterated.keywords else 0


def _each(seconds: float) -> str:
    return f"{seconds:.1f} s" if seconds >= 1 else f"{seconds * 1e3:.1f} ms"


def _rest(seconds: float) -> str:
    return (
        f"{seconds:.0f} s"
        if seconds < 120
        else f"{seconds / 60:.0f} min"
        if seconds < 7200
        else f"{seconds / 3600:.1f} h"
    )
