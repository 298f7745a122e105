"""Lines of a program that change a condition, set its value, or check it."""

from __future__ import annotations

import ast
import dataclasses
import re
import tokenize
from collections.abc import Collection, Sequence

from reprokit.core.experiments.failure_conditions import Answer, Condition, Conditions
from reprokit.core.judge import same_failure
from reprokit.core.records.process_state import UNMET_STATUS, UNMET_WORDS

_HASH_SEED = re.compile(r'os\.environ\["PYTHONHASHSEED"\] = "(\d+)"\n    os\.execv')


def with_lines(text: str, lines: Sequence[str]) -> str:
    """Return a program with more lines after its last import of torch.

    Raises ValueError for a text that is no program.
    """
    if not lines:
        return text
    try:
        body = ast.parse(text).body
    except (SyntaxError, RecursionError) as problem:
        raise ValueError(f"not a program: {problem}") from problem
    last, is_bound = 0, False
    for node in body:
        if not isinstance(node, (ast.Import, ast.ImportFrom)):
            continue
        names = [alias.asname or alias.name for alias in node.names]
        origin = [node.module or ""] if isinstance(node, ast.ImportFrom) else names
        if any(name.partition(".")[0] == "torch" for name in origin):
            last = node.end_lineno or 0
            is_bound |= isinstance(node, ast.Import) and any(n.startswith("torch") for n in names)
    rows = text.splitlines()
    modules = [] if is_bound else ["import torch"]
    modules += [
        f"import {module}"
        for module in ("torch._inductor.config", "torch._dynamo.config")
        if any(f"{module}." in line for line in lines) and f"import {module}" not in text
    ]
    return "\n".join([*rows[:last], *modules, *lines, *rows[last:]]) + "\n"


def on_device(text: str, device: str) -> str:
    """Return a program that uses ``cuda`` instead of ``cpu``, or the reverse.

    The strings that name a device and the calls of ``.cuda()`` and ``.cpu()`` change; a program for
    ``cuda`` also gets this default device. Raises ValueError for a text that is no program.
    """
    other = "cpu" if device == "cuda" else "cuda"
    name = re.compile(rf"(['\"]){other}(:\d+)?\1")
    rows = text.splitlines(keepends=True)
    try:
        tokens = list(tokenize.generate_tokens(iter(rows).__next__))
    except (SyntaxError, tokenize.TokenError) as problem:
        raise ValueError(f"not a program: {problem}") from problem
    for before, token, after in reversed(list(zip(tokens, tokens[1:], tokens[2:], strict=False))):
        new = token.string
        if token.type == tokenize.STRING and name.fullmatch(new):
            new = f'"{device}"'
        elif new == other and before.string == "." and after.string == "(":
            new = device
        (row, start), (_, end) = token.start, token.end
        if new != token.string:
            rows[row - 1] = rows[row - 1][:start] + new + rows[row - 1][end:]
    changed = "".join(rows)
    lines = ['torch.set_default_device("cuda")'] if device == "cuda" else []
    return with_lines(changed, lines)


def hash_seed_of(text: str) -> str:
    """Return the hash seed with which a program starts itself again; empty if it does not."""
    match = _HASH_SEED.search(text)
    return match[1] if match else ""


def lines_of(changed: Collection[Condition]) -> list[str]:
    """Return the lines that change these conditions."""
    return [line for condition in changed for line in condition.changes[0].lines]


def variables_of(changed: Collection[Condition]) -> dict[str, str]:
    """Return the environment variables that change these conditions."""
    return {k: v for condition in changed for k, v in condition.changes[0].variables.items()}


def program_lines(conditions: Sequence[Condition], found: Conditions, answer: Answer) -> list[str]:
    """Return the lines with which a repro sets what the failure needs, or checks that the machine
    has it.
    """
    lines: list[str] = []
    needed = {name for name, _ in found.needed}
    for condition in (c for c in conditions if c.name in needed):
        lines += condition.sets
        each = (dataclasses.replace(condition, changes=(change,)) for change in condition.fixed)
        fails = next((one for one in each if answer((one,)) == same_failure.SAME), None)
        lines += fails.changes[0].fixed_by if fails else ()
        if condition.checks:
            _, *smaller = condition.each_change()
            fails_with_smaller = any(answer((one,)) == same_failure.SAME for one in smaller)
            lines += check_lines(*list(condition.checks.items())[-1 if fails_with_smaller else 0])
    return lines


def check_lines(lacks: str, needs: str) -> list[str]:
    """Return the lines with which a program ends on a machine that cannot show the failure."""
    return [
        f"if {lacks}:",
        f'    print("{UNMET_WORDS}{needs}", file=__import__("sys").stderr)',
        f"    raise SystemExit({UNMET_STATUS})",
    ]
