"""Whole programs that fail under torch.compile, for the measurement ``programs``.

Each folder of ``benchmarks/cases/programs`` has a program with a failure on the CPU, of torch 2.13,
and with torchvision, timm, lightning, torchao, diffusers or einops of torch 2.14.1. Most failures
of the first ten are those of a public issue; the causes of the others were not matched to issues. Around
them is what people write: a package, data, a configuration, a checkpoint, a library, a training loop. Its ``case.json`` has the fields of
:class:`ProgramCase`, and ``make_data.py`` makes its data.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parent / "programs"
CASE, MAKE_DATA = "case.json", "make_data.py"
PLACE = "my programs"
"""The folder in which a program runs, below its own name."""


@dataclass(frozen=True)
class ProgramCase:
    """A folder with a program."""

    folder: Path
    kind: str
    """The kind of the verdict."""
    words: tuple[str, ...] = ()
    """The arguments of Python; empty for a factory."""
    target: str = ""
    """The factory, instead of a command."""
    options: tuple[str, ...] = ()
    """More options of ``capture``."""
    needs: tuple[str, ...] = ()
    """Packages that it needs besides torch and numpy."""

    @property
    def files(self) -> list[Path]:
        """The files of the program."""
        return [path for path in sorted(self.folder.rglob("*.py")) if path.name != MAKE_DATA]


def read_cases() -> dict[str, ProgramCase]:
    """Return the programs by their names."""
    cases = {}
    for path in sorted(FOLDER.glob(f"*/{CASE}")):
        fields: dict[str, Any] = json.loads(path.read_text())
        values: dict[str, Any] = {
            k: tuple(v) if isinstance(v, list) else v for k, v in fields.items()
        }
        cases[path.parent.name] = ProgramCase(path.parent, **values)
    return cases
