"""Count how many small errors in host, core and agent the tests find.

``python -m tests.support.mutants sample --count 300 --seed 38`` prints mutants of this checkout as JSON
lines: a place in the source, and what is there instead. ``run`` writes one mutant after the other
into a checkout, runs the tests that execute its line, and prints whether one of them fails:

    python -m tests.support.mutants run mutants.jsonl --checkout DIR --coverage FOLDER --costs LOG

The checkout is a clone of its own with a virtual environment ``.venv``. FOLDER has the combined data of
``nox -s coverage``, and LOG is the output of pytest with ``--cpu-times 9999``. The tests of a line run in
the order of their CPU seconds, up to ``--cpu-limit`` in all, and at least one.
"""

from __future__ import annotations

import argparse
import ast
import copy
import json
import os
import random
import re
import sqlite3
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
LAYERS = ("core", "host", "agent")
OPPOSITE: dict[type[ast.AST], type[ast.AST]] = {
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.And: ast.Or,
    ast.Or: ast.And,
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.FloorDiv,
}
TEST_LIMIT_S = 600
_time = int(time.time())


def mutants_of(path: Path) -> Iterator[dict[str, Any]]:
    """Yield the mutants of a file: all small changes of the expressions in its functions."""
    text = path.read_text()
    tree = ast.parse(text)
    in_functions = {
        inner
        for node in ast.walk(tree)
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))
        for statement in node.body
        for inner in _mutable_nodes(statement)
    }
    for node in ast.walk(tree):
        if node in in_functions:
            for place, after in _changes(node):
                yield {
                    "file": path.relative_to(ROOT).as_posix(),
                    "begin": [place.lineno, place.col_offset],
                    "end": [place.end_lineno, place.end_col_offset],
                    "before": ast.get_source_segment(text, place),
                    "after": after,
                }


def _mutable_nodes(statement: ast.AST) -> Iterator[Any]:
    """Yield a node and all below it, except format strings, whose positions are unknown."""
    if isinstance(statement, (ast.JoinedStr, ast.arguments)):
        return
    yield statement
    for name, value in ast.iter_fields(statement):
        if name in ("annotation", "returns", "decorator_list"):
            continue
        for child in value if isinstance(value, list) else [value]:
            if isinstance(child, ast.AST):
                yield from _mutable_nodes(child)


def _changes(node: Any) -> Iterator[tuple[Any, str]]:
    """Yield each node to replace, and its new text."""
    changed = copy.deepcopy(node)
    if isinstance(node, ast.Compare) and type(node.ops[0]) in OPPOSITE:
        changed.ops[0] = OPPOSITE[type(node.ops[0])]()
        yield node, f"({ast.unparse(changed)})"
    elif isinstance(node, (ast.BoolOp, ast.BinOp)) and type(node.op) in OPPOSITE:
        changed.op = OPPOSITE[type(node.op)]()
        yield node, f"({ast.unparse(changed)})"
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        yield node, f"({ast.unparse(node.operand)})"
    elif isinstance(node, ast.Constant) and isinstance(node.value, bool):
        yield node, repr(not node.value)
    elif isinstance(node, ast.Constant) and isinstance(node.value, (int, float)):
        yield node, f"({node.value!r} + 1)"
    elif isinstance(node, ast.Return) and node.value and ast.unparse(node.value) != "None":
        yield node, "return None"
    elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
        yield node, "pass"
    elif isinstance(node, (ast.If, ast.While, ast.IfExp)) and isinstance(
        node.test, (ast.Name, ast.Attribute, ast.Call)
    ):
        yield node.test, f"(not {ast.unparse(node.test)})"


def print_sample(count: int, seed: int) -> None:
    """Print mutants that are drawn from all of them."""
    paths = [path for layer in LAYERS for path in sorted((ROOT / "reprokit" / layer).rglob("*.py"))]
    everything = [mutant for path in paths for mutant in mutants_of(path)]
    for mutant in random.Random(seed).sample(everything, count):
        print(json.dumps(mutant))


def run_mutants(options: argparse.Namespace) -> None:
    """Run the tests of each mutant, and print its row with the answer."""
    rows = [json.loads(line) for line in options.mutants.read_text().splitlines()]
    part, parts = map(int, options.part.split("/"))
    costs = {
        name: float(seconds)
        for seconds, name in re.findall(
            r"^ +(\d+\.\d) (tests/\S.*)$", options.costs.read_text(), re.M
        )
    }
    with sqlite3.connect(options.coverage / "data") as covered:
        for row in rows[part - 1 :: parts]:
            tests = [name for name in _tests_of(covered, row, options.checkout) if name in costs]
            row["tests"] = len(tests)
            row["answer"] = _try_mutant(row, _affordable(tests, costs, options.cpu_limit), options)
            print(json.dumps(row), flush=True)


def _tests_of(covered: sqlite3.Connection, row: dict[str, Any], checkout: Path) -> set[str]:
    """Return the tests that execute the line of a mutant, also in processes that they start."""
    query = """
        SELECT DISTINCT context.context FROM arc JOIN file ON file.id = arc.file_id
        JOIN context ON context.id = arc.context_id
        WHERE file.path LIKE ? AND (arc.fromno BETWEEN ? AND ? OR arc.tono BETWEEN ? AND ?)"""
    lines = (row["begin"][0], row["end"][0])
    found = covered.execute(query, (f"%{row['file']}", *lines, *lines))
    return {re.sub(r" \(\w+\)$", "", name.rsplit("|", 1)[-1]) for (name,) in found} - {""}


def _affordable(tests: list[str], costs: dict[str, float], limit_s: float) -> list[str]:
    chosen, total = [], 0.0
    for name in sorted(tests, key=lambda name: (costs[name], name)):
        total += costs[name]
        if chosen and total > limit_s:
            break
        chosen.append(name)
    return chosen


def _try_mutant(row: dict[str, Any], tests: list[str], options: argparse.Namespace) -> str:
    if not tests:
        return "survived"
    path: Path = options.checkout / row["file"]
    text = path.read_text()
    lines = text.splitlines(keepends=True)
    (first, begin), (last, end) = row["begin"], row["end"]
    # the columns are those of the encoded lines
    head = lines[first - 1].encode()[:begin].decode()
    tail = lines[last - 1].encode()[end:].decode()
    changed = "".join([*lines[: first - 1], head, row["after"], tail, *lines[last:]])
    _write(path, changed)
    python = options.checkout / ".venv" / "bin" / "python"
    command = [python, "-m", "pytest", "-x", "-q", "-n", "0", "--timeout", str(TEST_LIMIT_S // 2)]
    try:
        done = subprocess.run(
            [*command, *tests[:400]],
            cwd=options.checkout,
            capture_output=True,
            text=True,
            check=False,
            timeout=TEST_LIMIT_S,
        )
    except subprocess.TimeoutExpired:
        return "killed"
    finally:
        _write(path, text)
    return {0: "survived", 1: "killed", 2: "killed"}.get(
        done.returncode, f"error: {done.stdout[-300:]}"
    )


def _write(path: Path, text: str) -> None:
    """Write a source file with a time of its own, which says that its compiled file is old."""
    global _time
    _time += 2
    path.write_text(text)
    os.utime(path, (_time, _time))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    sample = commands.add_parser("sample")
    sample.add_argument("--count", type=int, default=300)
    sample.add_argument("--seed", type=int, default=38)
    run = commands.add_parser("run")
    run.add_argument("mutants", type=Path)
    run.add_argument("--checkout", type=Path, required=True)
    run.add_argument("--coverage", type=Path, required=True)
    run.add_argument("--costs", type=Path, required=True)
    run.add_argument("--cpu-limit", type=float, default=60)
    run.add_argument("--part", default="1/1", help="the part of the mutants, such as 2/4")
    options = parser.parse_args()
    if options.command == "sample":
        print_sample(options.count, options.seed)
    else:
        run_mutants(options)


if __name__ == "__main__":
    main()
