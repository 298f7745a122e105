"""What is known of one run directory while steps go over it."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

from ..core.ablation import Ablation
from ..core.records import Missing, Observation, Signature, Verdict
from ..core.signature import sign
from . import environment, run
from .captured import Captured
from .launch import Request
from .minimized import Minimized
from .observe import Journals
from .oracle import Standing
from .run import Outcome
from .rundir import RunDir
from .study import Study

UNJUDGED = Verdict("unknown", None, None, "The run could not be judged; what is missing says why.")

Say = Callable[[str], None]


@dataclass(frozen=True)
class Callbacks:
    """How the steps tell the user what they do."""

    say: Say
    show: run.Show | None = None
    """Hears of the progress of a run of the target."""
    echo: tuple[IO[bytes], IO[bytes]] | None = None
    """Where the target's stdout and stderr go."""
    show_status: Callable[[Standing], None] | None = None
    """Hears of the progress of everything that asks many small questions."""


@dataclass(frozen=True)
class State:
    """One run directory, and what the steps so far know of it."""

    request: Request
    place: RunDir
    callbacks: Callbacks
    study: Study
    """Runs programs that are cut from the target."""
    may_run: bool = True
    """The target may be run. False when a run directory is judged again."""
    may_study: bool = True
    """Programs that are cut from the target may be run."""
    is_given_up: bool = False
    """The user interrupted a step: what would run more programs is left out."""
    outcome: Outcome | None = None
    """How the run ended; None before it."""
    journals: Journals = field(default_factory=lambda: Journals({}, 0, {}))
    seen: Observation = field(default_factory=Observation)
    verdict: Verdict = UNJUDGED
    missing: tuple[Missing, ...] = ()
    minimized: Minimized | None = None
    ablation: Ablation | None = None
    phases: dict[str, float] = field(default_factory=dict)
    """CPU seconds of the compile by phase."""
    environment: environment.Environment = field(default_factory=lambda: environment.Environment({}, "", ()))
    captured: Captured | None = None

    @property
    def run_path(self) -> Path:
        """The run directory."""
        return self.place.path

    @property
    def ended(self) -> Outcome:
        """How the run ended, in a step that comes after it."""
        assert self.outcome is not None
        return self.outcome

    @property
    def is_command(self) -> bool:
        """The target is a whole command, which is run only once."""
        return self.request.target.kind == "command"

    @property
    def has_run(self) -> bool:
        """The run came to an end of its own or was ended for what it did, not by the user."""
        return self.outcome is not None and not self.outcome.is_interrupted

    @property
    def signature(self) -> Signature:
        """The identity of what is known so far."""
        return sign(self.verdict, self.seen)

    def lacks(self, what: str, why: str) -> State:
        """The same, with one thing more that is missing."""
        row = Missing(what, why)
        return self if row in self.missing else dataclasses.replace(self, missing=(*self.missing, row))

    def lacks_all(self, rows: tuple[Missing, ...] | list[Missing]) -> State:
        """The same, with more that is missing; what is known to be is not listed twice."""
        new = tuple(row for row in rows if row not in self.missing)
        return dataclasses.replace(self, missing=(*self.missing, *new))
