"""What a suite comes to: cells, each a target with one choice of every setting, run once a
night.
"""

from __future__ import annotations

import fnmatch
import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from reprokit.core.shared.errors import BadInput


@dataclass(frozen=True)
class JobLimits:
    """How long, how often and with how much a target is run."""

    timeout_s: float = 600.0
    stall_s: float = 60.0
    budget_s: float = 300.0
    """For making a failure small that the ledger has no repro of."""
    retries: int = 1
    """A failure is run so often again: how reliably it shows is known then."""
    cores: int = 1
    memory_gb: float = 0.0
    """0: what the ledger says it took, or 2 GB."""
    gpus: int = 0


@dataclass(frozen=True)
class SuiteEnvironment:
    """An interpreter with a torch: one that is there, or one to be built."""

    name: str
    python: str = ""
    torch: str = ""
    """A version to be installed in an environment of its own; empty where ``python`` is given."""
    packages: tuple[str, ...] = ()
    """What else is installed there."""
    index_url: str = ""
    find_links: tuple[str, ...] = ()


@dataclass(frozen=True)
class SuiteCell:
    """One target with one choice of each setting: what is run once a night."""

    target: str
    """As ``reprokit capture`` takes it; for a command its words."""
    command: tuple[str, ...] = ()
    settings: dict[str, Any] = field(default_factory=dict)
    knobs: dict[str, Any] = field(default_factory=dict)
    limits: JobLimits = field(default_factory=JobLimits)
    tags: tuple[str, ...] = ()
    expect: tuple[str, ...] = ("ok",)
    device: str = ""

    @property
    def key(self) -> str:
        """The identity of a cell from night to night."""
        return json.dumps([self.target, self.settings, self.knobs, self.device], sort_keys=True)

    def label(self, hidden: tuple[str, ...] = ()) -> str:
        """The target and what is unusual about the cell, for people."""
        words = settings_words({**self.settings, **self.knobs}, hidden)
        return " ".join([self.target, *words])


def settings_words(settings: dict[str, Any], hidden: tuple[str, ...] = ()) -> list[str]:
    """Settings as people write them: ``mode=max-autotune``, ``train``."""
    return [
        name if value is True else f"{name}={value}"
        for name, value in sorted(settings.items())
        if value not in (None, False) and name not in hidden
    ]


@dataclass(frozen=True)
class SlurmSettings:
    """What a cluster is asked for."""

    partition: str = ""
    most_at_once: int = 256
    parameters: dict[str, Any] = field(default_factory=dict)
    """Any other option of sbatch, such as ``account``."""


@dataclass(frozen=True)
class Suite:
    """What is run every night."""

    path: Path
    name: str
    text: str
    cells: tuple[SuiteCell, ...]
    environments: dict[str, SuiteEnvironment]
    keep_nights: int = 14
    """Run directories of failures are kept so long; packs of bugs that are not fixed always are."""
    keep_healthy_nights: int = 2
    fixed_nights: int = 30
    """Packs of fixed bugs are kept so long."""
    slurm: SlurmSettings = field(default_factory=SlurmSettings)

    def chosen(self, tags: tuple[str, ...], only: tuple[str, ...]) -> tuple[SuiteCell, ...]:
        """The cells with one of ``tags`` whose target matches one of the patterns ``only``; empty
        means any.
        """
        found = [
            c
            for c in self.cells
            if (not tags or set(tags) & set(c.tags))
            and (not only or any(fnmatch.fnmatchcase(c.target, p) for p in only))
        ]
        if not found:
            raise BadInput(
                f"{self.path}: no target has"
                f" {'the tags ' + ', '.join(tags) if tags else 'a name like ' + ', '.join(only)}"
            )
        return tuple(found)
