"""The records of a suite: cells, limits, environments and settings of Slurm."""

from __future__ import annotations

import fnmatch
import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from reprokit.core.shared.errors import BadInput


@dataclass(frozen=True)
class JobLimits:
    """The limits and resources of the runs of a target."""

    timeout_s: float = 600.0
    stall_s: float = 60.0
    budget_s: float = 300.0
    """The time to minimize a failure that has no repro in the ledger."""
    retries: int = 1
    """How many times a failure is run again, to learn how reliably it shows."""
    cores: int = 1
    memory_gb: float = 0.0
    """0: the usual memory according to the ledger, or 2 GB."""
    gpus: int = 0


@dataclass(frozen=True)
class SuiteEnvironment:
    """An interpreter with a torch: an existing one, or one to be built."""

    name: str
    python: str = ""
    torch: str = ""
    """A version to be installed in a new environment; empty where ``python`` is given."""
    packages: tuple[str, ...] = ()
    """Further packages to be installed there."""
    index_url: str = ""
    find_links: tuple[str, ...] = ()


@dataclass(frozen=True)
class SuiteCell:
    """One target with one choice of each setting, which runs once in each nightly run."""

    target: str
    """The target as an argument of ``reprokit capture``, or the words of a command."""
    command: tuple[str, ...] = ()
    settings: dict[str, Any] = field(default_factory=dict)
    knobs: dict[str, Any] = field(default_factory=dict)
    limits: JobLimits = field(default_factory=JobLimits)
    tags: tuple[str, ...] = ()
    expect: tuple[str, ...] = ("ok",)
    device: str = ""

    @property
    def key(self) -> str:
        """The identity of a cell in all nightly runs."""
        return json.dumps([self.target, self.settings, self.knobs, self.device], sort_keys=True)

    def label(self, hidden: tuple[str, ...] = ()) -> str:
        """Return the target and the settings of the cell, for people."""
        words = settings_words({**self.settings, **self.knobs}, hidden)
        return " ".join([self.target, *words])


def settings_words(settings: dict[str, Any], hidden: tuple[str, ...] = ()) -> list[str]:
    """Return settings as people write them: ``mode=max-autotune``, ``train``."""
    return [
        name if value is True else f"{name}={value}"
        for name, value in sorted(settings.items())
        if value not in (None, False) and name not in hidden
    ]


@dataclass(frozen=True)
class SlurmSettings:
    """The options of jobs on a Slurm cluster."""

    partition: str = ""
    most_at_once: int = 256
    parameters: dict[str, Any] = field(default_factory=dict)
    """Any other option of sbatch, such as ``account``."""


@dataclass(frozen=True)
class Suite:
    """A suite of targets for nightly runs."""

    path: Path
    name: str
    text: str
    cells: tuple[SuiteCell, ...]
    environments: dict[str, SuiteEnvironment]
    keep_nights: int = 14
    """For how many nightly runs run directories of failures are kept; packs of bugs that are not
    fixed are always kept.
    """
    keep_healthy_nights: int = 2
    fixed_nights: int = 30
    """For how many nightly runs packs of fixed bugs are kept."""
    slurm: SlurmSettings = field(default_factory=SlurmSettings)

    def choose_cells(self, tags: tuple[str, ...], only: tuple[str, ...]) -> tuple[SuiteCell, ...]:
        """Return the cells with one of ``tags`` whose target matches one of the patterns ``only``.

        An empty tuple means any.

        Raises:
            BadInput: there is no such cell.
        """
        cells = [
            c
            for c in self.cells
            if (not tags or set(tags) & set(c.tags))
            and (not only or any(fnmatch.fnmatchcase(c.target, p) for p in only))
        ]
        if not cells:
            raise BadInput(
                f"{self.path}: no target has"
                f" {'the tags ' + ', '.join(tags) if tags else 'a name like ' + ', '.join(only)}"
            )
        return tuple(cells)
