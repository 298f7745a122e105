"""What is known of one run directory while steps go over it."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

from reprokit.core.experiments.ablation import Ablation
from reprokit.core.judge.signature import sign
from reprokit.core.records.finding import Signature, Verdict
from reprokit.core.records.observation import Missing, Observation
from reprokit.host.environment import machine_facts
from reprokit.host.experiments import run_ablation
from reprokit.host.minimize import minimization as reducer
from reprokit.host.minimize.minimize_result import MinimizeResult
from reprokit.host.pipeline.capture_result import CaptureResult
from reprokit.host.probe.client import ProbeServer
from reprokit.host.request.run_request import Request
from reprokit.host.run import supervise
from reprokit.host.run.observation_reader import Journals
from reprokit.host.run.run_directory import RunDir
from reprokit.host.run.run_outcome import RunOutcome
from reprokit.host.system.progress import OperationStatus

UNJUDGED = Verdict("unknown", None, None, "The run could not be judged; what is missing says why.")

SLOWER = 4.0
"""An ablation step may take this many times as long as the run that failed."""

Say = Callable[[str], None]


@dataclass(frozen=True)
class Callbacks:
    """How the steps tell the user what they do."""

    say: Say
    show: supervise.Show | None = None
    """Called with the progress of a run of the target."""
    echo: tuple[IO[bytes] | None, IO[bytes] | None] | None = None
    """Where the target's stdout and stderr go."""
    show_status: Callable[[OperationStatus], None] | None = None
    """Called with the progress of a step that asks many small questions."""


@dataclass(frozen=True)
class State:
    """One run directory, and what the steps so far know of it."""

    request: Request
    place: RunDir
    callbacks: Callbacks
    study: StudyTools
    """Runs programs that are cut from the target."""
    may_run: bool = True
    """The target may be run. False when a run directory is judged again."""
    may_study: bool = True
    """Programs that are cut from the target may be run."""
    is_given_up: bool = False
    """The user interrupted a step: what would run more programs is left out."""
    outcome: RunOutcome | None = None
    """How the run ended; None before it."""
    journals: Journals = field(default_factory=lambda: Journals({}, 0, {}))
    seen: Observation = field(default_factory=Observation)
    verdict: Verdict = UNJUDGED
    missing: tuple[Missing, ...] = ()
    minimized: MinimizeResult | None = None
    ablation: Ablation | None = None
    phases: dict[str, float] = field(default_factory=dict)
    """CPU seconds of the compile by phase."""
    environment: machine_facts.MachineFacts = field(
        default_factory=lambda: machine_facts.MachineFacts({}, "", ())
    )
    captured: CaptureResult | None = None

    @property
    def run_path(self) -> Path:
        """The run directory."""
        return self.place.path

    @property
    def ended(self) -> RunOutcome:
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
        return (
            self if row in self.missing else dataclasses.replace(self, missing=(*self.missing, row))
        )

    def lacks_all(self, rows: tuple[Missing, ...] | list[Missing]) -> State:
        """The same, with more that is missing; what is known to be is not listed twice."""
        new = tuple(row for row in rows if row not in self.missing)
        return dataclasses.replace(self, missing=(*self.missing, *new))


class StudyTools:
    """What the steps that run programs share: the case, and one warm server. Close it in the
    end.
    """

    def __init__(self, python: str | None = None, resume: bool = False) -> None:
        """``python`` is another interpreter than the one that failed; ``resume`` goes on with an
        earlier reduction.
        """
        self.resume = resume
        self._python = python
        self._case: reducer.MinimizeCase | None = None
        self._server: ProbeServer | None = None

    def case(self, state: State) -> reducer.MinimizeCase:
        """What is to be studied, as it is known now."""
        if (
            self._case is None
        ):  # made once: it joins the target's source and looks for its interpreter
            case = reducer.case_of(
                state.request,
                state.verdict,
                state.signature,
                state.seen,
                state.journals,
                state.run_path,
            )
            self._case = dataclasses.replace(case, python=self._python or case.python)
        return dataclasses.replace(
            self._case, verdict=state.verdict, signature=state.signature, seen=state.seen
        )

    def server(self, case: reducer.MinimizeCase) -> ProbeServer:
        """The server that runs the programs; it starts when it is asked first."""
        if self._server is None:
            self._server = reducer.server_of(case)
        return self._server

    def ladder(self, state: State, program: Request | str) -> run_ablation.AblationRunner:
        """The ablation of ``program``, which is a text or the whole target."""
        case = self.case(state)
        limits = reducer.limits_of(case).eased()
        if (
            not isinstance(program, str) and state.verdict.kind != "hang"
        ):  # the whole target takes as long as it took
            limits = dataclasses.replace(
                limits, deadline_s=max(limits.deadline_s, SLOWER * state.seen.seconds)
            )
        return run_ablation.AblationRunner(
            self.server(case), program, case.signature, limits, case.python
        )

    def close(self) -> None:
        """End the server."""
        if self._server is not None:
            self._server.close()
            self._server = None
