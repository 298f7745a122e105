"""The sources of a hunt: each writes the texts of programs from a seed.

A source is a module with ``write_program(draw)``. It draws all choices from ``draw``, so that the
seed reproduces each program. A program has a factory ``make``, so that ``reprokit capture
FILE:make`` runs it unchanged, or is a script that calls ``torch.compile``.
"""

from __future__ import annotations

import importlib
from typing import NamedTuple

from ...core.shared.hunted_programs import Steering
from .drawing import Drawing

MODULES = {
    "opinfo": "operator_chains",
    "python": "python_programs",
    "config": "option_pairs",
    "types": "type_programs",
    "views": "view_programs",
    "mutate": "mutants",
    "models": "model_programs",
}


class WrittenTarget(NamedTuple):
    """A program of a source."""

    text: str
    chosen: list[str]
    """The names of its choices."""


def write_target(
    source: str, seed: int, number: int, steering: Steering | None = None
) -> WrittenTarget:
    """Return target ``number`` of a source; each target has its own random numbers.

    ``source`` is a name, or ``NAME=PLACE`` with the argument of the source. The same ``steering``
    gives the same program.

    Raises:
        ImportError: the environment lacks a package that the source needs.
    """
    name, _, place = source.partition("=")
    module = importlib.import_module(f".{MODULES[name]}", __package__)
    draw = Drawing(f"{name} {seed} {number}", steering, place)
    text: str = module.write_program(draw)
    return WrittenTarget(text, [*draw.chosen])
