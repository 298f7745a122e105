"""Find the qualified names of the user's functions on stacks, in the source of the program.

faulthandler, and exceptions in Python 3.10, have only the last part of a name. Without the class,
three passes with a ``__call__`` would be one failure.
"""

from __future__ import annotations

import ast
import dataclasses
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence

from reprokit.core.judge.stacks import frames as fr
from reprokit.core.records.dumps import Frame, Raised
from reprokit.core.records.observation import Observation

Functions = Sequence[tuple[int, int, str]]
"""The first line, the last line and the qualified name of each function of a file."""


def own_frames(seen: Observation) -> set[Frame]:
    """Return the frames of the user's code in all stacks of an observation."""
    return {frame for frame in _frames_of(seen) if fr.normalise_file(frame.file) == fr.USER}


def place_of(frame: Frame) -> str:
    """Return ``file:line:function``, the key of a frame in :func:`with_names`."""
    return f"{frame.file}:{frame.line}:{frame.function.rpartition('.')[2]}"


def find_name(frame: Frame, functions: Functions) -> str:
    """Return the qualified name of the innermost function of this name around the line of a frame;
    empty if there is none.
    """
    last = frame.function.rpartition(".")[2]
    around = [
        (begin, name)
        for begin, end, name in functions
        if begin <= frame.line <= end and name.rpartition(".")[2] == last
    ]
    return max(around)[1] if around else ""


def functions_of(source: str) -> Functions:
    """Return the functions of a source text; raises ValueError for a text that is not Python."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # those of the program's own text
            tree = ast.parse(source)
    except (SyntaxError, RecursionError, MemoryError) as problem:
        raise ValueError(str(problem)) from problem
    return [*_functions_in(tree, "")]


def with_names(seen: Observation, names: Mapping[str, str]) -> Observation:
    """Return the observation with these names of functions in all stacks."""

    def named(frames: Iterable[Frame]) -> tuple[Frame, ...]:
        return tuple(
            dataclasses.replace(frame, function=names.get(place_of(frame), frame.function))
            for frame in frames
        )

    def of_raised(raised: Raised) -> Raised:
        chain = (dataclasses.replace(link, frames=named(link.frames)) for link in raised.chain)
        return dataclasses.replace(raised, chain=tuple(chain))

    return dataclasses.replace(
        seen,
        raised=of_raised(seen.raised) if seen.raised else None,
        compile_failures=tuple(map(of_raised, seen.compile_failures)),
        faults=tuple(dataclasses.replace(f, frames=named(f.frames)) for f in seen.faults),
        dumps=tuple(
            dataclasses.replace(
                dump,
                threads=tuple(
                    dataclasses.replace(thread, frames=named(thread.frames))
                    for thread in dump.threads
                ),
            )
            for dump in seen.dumps
        ),
    )


def _frames_of(seen: Observation) -> Iterator[Frame]:
    raised = [*seen.compile_failures, *([seen.raised] if seen.raised else [])]
    yield from (frame for one in raised for link in one.chain for frame in link.frames)
    yield from (frame for fault in seen.faults for frame in fault.frames)
    yield from (frame for dump in seen.dumps for thread in dump.threads for frame in thread.frames)


def _functions_in(node: ast.AST, prefix: str) -> Iterator[tuple[int, int, str]]:
    for child in ast.iter_child_nodes(node):
        inner = prefix
        if isinstance(child, ast.ClassDef):
            inner = f"{prefix}{child.name}."
        elif isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef)):
            yield child.lineno, child.end_lineno or child.lineno, f"{prefix}{child.name}"
            inner = f"{prefix}{child.name}.<locals>."
        yield from _functions_in(child, inner)
