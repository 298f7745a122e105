"""How fast Dynamo traces the iterations of a loop, and how many of them the program asks for."""

from __future__ import annotations

import ast
import contextlib
import re
from collections.abc import Sequence
from pathlib import Path

from reprokit.core.judge.stacks import phases
from reprokit.core.records.journal_reader import open_events
from reprokit.core.shared.contract.events import Event, Progress
from reprokit.host.system import files


def loop_pace(events: Sequence[Event], line: str, count: int) -> str:
    """What was seen of a loop whose ``line`` was traced ``count`` times, as words; ``events`` are
    those of its process.

    For example ``in 50 s (2.0 ms each); the loop has 1000000 iterations: about 32 min more at this
    rate``.
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
    most = loop_bound(line)
    return (
        f"{text}; the loop has {most} iterations: about {_rest((most - count) * each)} more at this"
        " rate"
        if most > count
        else text
    )


def loop_bound(line: str) -> int:
    """How often the innermost ``for`` loop around a ``FILE:LINE in FUNCTION`` runs its body; 0
    where its text does not say.
    """
    found = re.match(r"(?P<file>.+):(?P<line>\d+) in ", line)
    if found is None:
        return 0
    number = int(found["line"])
    with contextlib.suppress(OSError, SyntaxError, ValueError, RecursionError, OverflowError):
        tree = ast.parse(files.read_text(Path(found["file"])))
        loops = [
            n
            for n in ast.walk(tree)
            if isinstance(n, ast.For) and n.lineno <= number <= (n.end_lineno or n.lineno)
        ]
        if loops:
            return _length(max(loops, key=lambda n: n.lineno).iter, _constants(tree))
    return 0


def _constants(tree: ast.Module) -> dict[str, int]:
    """Integers that the module gives a name to, once."""
    found: dict[str, int] = {}
    for node in tree.body:
        if (
            isinstance(node, ast.Assign)
            and isinstance(node.value, ast.Constant)
            and type(node.value.value) is int
        ):
            for target in node.targets:
                if isinstance(target, ast.Name):
                    found[target.id] = 0 if target.id in found else node.value.value
    return found


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
