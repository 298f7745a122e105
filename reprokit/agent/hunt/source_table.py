"""The sources of a hunt: each writes the texts of programs from a seed.

A source is a module with ``write_program(draw)``. It draws all choices from ``draw``, so that the
seed reproduces each program exactly. The program has a factory ``make``, so that ``reprokit capture
FILE:make`` runs it unchanged.
"""

from __future__ import annotations

import importlib
import itertools
import random
from collections.abc import Iterator

MODULES = {
    "opinfo": "operator_chains",
    "python": "python_programs",
    "config": "option_pairs",
    "types": "mixed_types",
    "views": "aliases",
}


def write_target(source: str, seed: int, number: int) -> str:
    """Return the text of target ``number`` of a source; each target has its own random numbers.

    Raises:
        ImportError: the environment lacks a package that the source needs.
    """
    module = importlib.import_module(f".{MODULES[source]}", __package__)
    text: str = module.write_program(random.Random(f"{source} {seed} {number}"))  # noqa: S311
    return text


def targets(source: str, seed: int, first: int = 0) -> Iterator[str]:
    """Yield the texts of the targets of a source without end, from number ``first``."""
    return (write_target(source, seed, number) for number in itertools.count(first))
