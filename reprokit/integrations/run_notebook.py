"""Run the code cells of a notebook as one script: ``python run_notebook.py NOTEBOOK``.

Each cell has a file name of its own, ``NOTEBOOK#cell-3``, so each message names the cell and the
line in it. ``--check`` runs nothing and reports what cannot run, in one line. This file runs in the
interpreter of the target, so it imports only the standard library.
"""

from __future__ import annotations

import builtins
import json
import linecache
import os
import re
import sys
import traceback
import types
from dataclasses import dataclass
from typing import Any

_PYTHON_CELLS = frozenset(("capture", "prun", "reprokit", "time", "timeit"))
"""Cell magics whose cell is Python."""
_MAGIC = re.compile(r"\s*[%!?]|.*\w\?{1,2}\s*$")
_ASSIGNED_MAGIC = re.compile(r"\s*[\w.,\s\[\]'\"]+=\s*[%!]")


class NotebookProblem(ValueError):
    """The notebook cannot run; the text is one line that says why."""


@dataclass(frozen=True)
class Cell:
    """One code cell, as Python."""

    name: str
    """``cell-3`` for the third code cell."""
    source: str
    dropped: tuple[str, ...] = ()
    """One line for each magic that does not run."""


@dataclass(frozen=True)
class Notebook:
    """The code of a notebook."""

    cells: tuple[Cell, ...]
    folder: str
    """The folder whose modules can be imported: that of the notebook, or that of the kernel."""


def read_notebook(path: str) -> Notebook:
    """Return the code of a notebook. Raises NotebookProblem."""
    try:
        with open(path, encoding="utf-8") as file:
            document = json.load(file)
    except OSError as problem:
        raise NotebookProblem(f"{path} cannot be read: {problem.strerror}") from problem
    except (ValueError, RecursionError) as problem:
        raise NotebookProblem(f"{path} is not a notebook: {problem}") from problem
    cells = document.get("cells") if isinstance(document, dict) else None
    if not isinstance(cells, list):
        raise NotebookProblem(
            f"{path} has no list of cells; convert it: jupyter nbconvert --to notebook --nbformat 4"
        )
    language = _language(document)
    if language != "python":
        raise NotebookProblem(f"{path} is a notebook of {language}, and only Python can run")
    found: list[Cell] = []
    for cell in cells:
        if isinstance(cell, dict) and cell.get("cell_type") == "code":
            source = cell.get("source")
            text = "".join(map(str, source)) if isinstance(source, list) else str(source or "")
            name = _dict(_dict(cell.get("metadata")).get("reprokit")).get("name")
            found.append(_as_python(path, str(name or f"cell-{len(found) + 1}"), text))
    if not any(cell.source.strip() for cell in found):
        raise NotebookProblem(f"{path} has no code cells")
    kernel = _dict(_dict(document.get("metadata")).get("reprokit")).get("folder")
    return Notebook(tuple(found), str(kernel or os.path.dirname(os.path.abspath(path))))


def _language(document: dict[str, Any]) -> str:
    metadata = _dict(document.get("metadata"))
    info, kernel = _dict(metadata.get("language_info")), _dict(metadata.get("kernelspec"))
    return str(info.get("name") or kernel.get("language") or "python").lower()


def _dict(value: object) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _as_python(path: str, name: str, text: str) -> Cell:
    """Comment out the magics of a cell; the lines keep their numbers. Raises NotebookProblem."""
    where = f"{os.path.basename(path)}, {name}"
    lines = text.split("\n")
    dropped = []
    first = next((i for i, line in enumerate(lines) if line.strip()), 0)
    if lines[first].startswith("%%"):
        words = lines[first][2:].split()
        if (words[0] if words else "") not in _PYTHON_CELLS:
            return Cell(name, "", (f"{where} does not run: {lines[first].strip()}",))
        lines[first] = f"# {lines[first]}"
    while True:
        try:
            compile("\n".join(lines), f"{path}#{name}", "exec", dont_inherit=True)
        except (SyntaxError, ValueError) as problem:
            number = getattr(problem, "lineno", None) or 1
            line = lines[min(number, len(lines)) - 1]
            if _ASSIGNED_MAGIC.match(line):
                raise NotebookProblem(
                    f"{where}, line {number}: {line.strip()!r} needs IPython; write it in Python"
                ) from None
            if not _MAGIC.match(line):
                message = getattr(problem, "msg", None) or problem
                raise NotebookProblem(f"{where}, line {number}: {message}") from None
            dropped.append(f"{where}, line {number} does not run: {line.strip()}")
            _comment_out(lines, number - 1)
            continue
        return Cell(name, "\n".join(lines), tuple(dropped))


def _comment_out(lines: list[str], position: int) -> None:
    """Replace a magic, with its continuation lines, by ``pass``, which may be a whole block."""
    line = lines[position]
    indent = line[: len(line) - len(line.lstrip())]
    is_continued = line.rstrip().endswith("\\")
    lines[position] = f"{indent}pass  # {line.strip().rstrip(chr(92))}"
    while is_continued and position + 1 < len(lines):
        position += 1
        is_continued = lines[position].rstrip().endswith("\\")
        lines[position] = f"{indent}# {lines[position].strip().rstrip(chr(92))}"


def run_cells(path: str, cells: tuple[Cell, ...]) -> None:
    """Run the cells in one new ``__main__``, in their order, until one raises."""
    sys.excepthook = _print_exception
    main = types.ModuleType("__main__")
    main.__dict__["__builtins__"] = builtins
    main.__dict__["display"] = print
    sys.modules["__main__"] = main
    for cell in cells:
        for line in cell.dropped:
            sys.stderr.write(f"reprokit: {line}\n")
        file = f"{os.path.abspath(path)}#{cell.name}"
        lines = [line + "\n" for line in cell.source.split("\n")]
        # without a modification time, linecache keeps the lines, for tracebacks and inspect
        linecache.cache[file] = (len(cell.source), None, lines, file)
        exec(compile(cell.source, file, "exec", dont_inherit=True), main.__dict__)  # noqa: S102


def _print_exception(
    kind: type[BaseException], error: BaseException, trace: types.TracebackType | None
) -> None:
    """Print a traceback with the lines of the cells, which the interpreter does not find."""
    while trace is not None and trace.tb_frame.f_code.co_filename == __file__:
        trace = trace.tb_next
    traceback.print_exception(kind, error, trace)


def main() -> None:
    """Run or check the notebook of the command line; exit status 2 if it cannot run."""
    path = sys.argv[-1]
    try:
        notebook = read_notebook(path)
    except NotebookProblem as problem:
        sys.stderr.write(f"{problem}\n")
        sys.exit(2)
    if sys.argv[1] == "--check":
        return
    # as for a script, and as in a kernel, modules beside the notebook can be imported
    if sys.path and sys.path[0] == os.path.dirname(os.path.abspath(__file__)):
        sys.path[0] = notebook.folder
    sys.argv[:] = [path]
    run_cells(path, notebook.cells)


if __name__ == "__main__":
    main()
