"""The cell magic ``%%reprokit``: capture a cell of a notebook, in a new process.

    %load_ext reprokit

    %%reprokit [--cells 1-3,5|all] [OPTIONS OF reprokit capture]
    torch.compile(model)(x)

The new process does not have the variables of the kernel. ``--cells`` names the inputs, ``In[1]``
and so on, that run there before the cell. All of them are kept as a notebook in ``reprokit-out``,
so that the capture can be repeated.
"""

from __future__ import annotations

import ast
import json
import os
import re
import shlex
import subprocess
import sys
import time
import warnings
from pathlib import Path
from typing import Any

from reprokit.core.reduce.ast_edits import own_nodes, unknown_names


class _UsageProblem(ValueError):
    """The line of the magic is wrong; the text says why."""


def register_magic(shell: Any) -> None:
    """Add ``%%reprokit`` to an IPython shell."""

    def reprokit(line: str, cell: str) -> None:
        """Capture this cell: %%reprokit [--cells 1-3,5|all] [OPTIONS OF reprokit capture]."""
        capture_cell(shell, line, cell)

    shell.register_magic_function(reprokit, magic_kind="cell", magic_name="reprokit")


def capture_cell(shell: Any, line: str, cell: str) -> None:
    """Run ``reprokit capture`` on a cell, and print what it prints.

    A wrong line prints one line. A failure of the cell raises nothing: it is the result.
    """
    history: list[str] = shell.history_manager.input_hist_raw
    try:
        numbers, options = read_line(line, len(history) - 1)
    except _UsageProblem as problem:
        print(f"reprokit: {problem}")  # noqa: T201 - the output of the cell
        return
    inputs: list[str] = shell.history_manager.input_hist_parsed  # without magics
    if not numbers and (why := _unset_names(shell.transform_cell(cell), inputs[:-1])):
        print(f"reprokit: {why}")  # noqa: T201
        return
    named = [(f"In[{number}]", history[number]) for number in numbers]
    notebook = Path("reprokit-out") / f"cell-{time.strftime('%Y%m%d-%H%M%S')}.ipynb"
    text = notebook_text([*named, (f"In[{len(history) - 1}]", cell)], os.getcwd())
    try:
        notebook.parent.mkdir(parents=True, exist_ok=True)
        notebook.write_text(text, "utf-8")
    except OSError as problem:
        print(f"reprokit: {notebook} cannot be written: {problem.strerror}")  # noqa: T201
        return
    words = ["capture", str(notebook), "--python", sys.executable, *options]
    child = subprocess.Popen(
        [sys.executable, "-m", "reprokit", *words],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
    )
    _print_output(child)


def _unset_names(cell: str, history: list[str]) -> str:
    """Return which names of earlier inputs a cell reads, and the option that sets them; empty if
    there is none, or if the cell is not plain Python.
    """
    missing = _names_in(cell)[1]
    found: dict[str, int] = {}
    for number, text in enumerate(history):
        found |= dict.fromkeys(missing & _names_in(text)[0], number)
    if not found:
        return ""
    numbers = ",".join(map(str, sorted({*found.values()})))
    inputs = ", ".join(f"`{name}` of In[{number}]" for name, number in sorted(found.items()))
    return f"the cell reads {inputs}; add --cells {numbers}, or --cells all for all inputs"


def _names_in(text: str) -> tuple[set[str], set[str]]:
    """Return the names that a cell sets, and those that it reads but does not set."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError):
        return set(), set()  # a magic, or a mistake that the run names
    nodes = [*own_nodes(tree.body)]  # without local names
    names = {n.id for n in nodes if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
    names |= {n.name for n in nodes if isinstance(n, (ast.FunctionDef, ast.ClassDef))}
    names |= {
        alias.asname or alias.name.split(".")[0]
        for n in nodes
        if isinstance(n, (ast.Import, ast.ImportFrom))
        for alias in n.names
    }
    return names, unknown_names(tree)


def read_line(line: str, last: int) -> tuple[list[int], list[str]]:
    """Return the numbers of ``--cells``, and the other words of the line.

    ``last`` is the number of the cell itself, which runs in any case. Raises ValueError.
    """
    try:
        words = shlex.split(line)
    except ValueError as problem:
        raise _UsageProblem(f"{line!r}: {problem}") from None
    numbers: list[int] = []
    options: list[str] = []
    position = 0
    while position < len(words):
        word = words[position]
        position += 1
        name, equals, value = word.partition("=")
        if name != "--cells":
            options.append(word)
            continue
        if not equals:
            value = words[position] if position < len(words) else ""
            position += 1
        numbers += _read_ranges(value, last)
    return numbers, options


def _read_ranges(text: str, last: int) -> list[int]:
    if text == "all":
        return list(range(1, last))
    numbers: list[int] = []
    for part in text.split(","):
        match = re.fullmatch(r"(\d+)(?:-(\d+))?", part.strip())
        first, end = (int(match[1]), int(match[2] or match[1])) if match else (0, 0)
        if not 1 <= first <= end < last:
            raise _UsageProblem(
                f"--cells {text!r}: {part!r} names no inputs before In[{last}]; write a number, a"
                " range such as 1-3, or all"
            )
        numbers += range(first, end + 1)
    return numbers


def notebook_text(cells: list[tuple[str, str]], folder: str) -> str:
    """Return a notebook with these code cells, each a pair of its name and its source.

    ``folder`` is that of the kernel, where the cells find their modules.
    """
    rows = [
        {"cell_type": "code", "metadata": {"reprokit": {"name": name}}, "source": source}
        for name, source in cells
    ]
    metadata = {"reprokit": {"folder": folder}}
    return json.dumps({"nbformat": 4, "nbformat_minor": 5, "metadata": metadata, "cells": rows})


def _print_output(child: subprocess.Popen[str]) -> None:
    """Print the lines of a child until it ends.

    An interrupt of the kernel reaches the child too. It then writes its pack and ends.
    """
    assert child.stdout is not None
    while True:
        try:
            for line in child.stdout:
                print(line, end="")  # noqa: T201 - the output of the cell
            child.wait()
            return
        except KeyboardInterrupt:
            continue
