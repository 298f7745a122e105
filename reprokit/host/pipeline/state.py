"""The state of one run directory, which the steps pass on."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

from reprokit.core.experiments.ablation import NOTHING_TRIED, AnyAblation, ProgramAblation
from reprokit.core.experiments.remedies import remedy_table
from reprokit.core.judge.signature import sign_verdict
from reprokit.core.records.finding import Signature, Verdict
from reprokit.core.records.observation import Missing, Observation
from reprokit.core.records.process_state import unmet_need
from reprokit.core.triage.known_failures import KnownFailure
from reprokit.host.environment import machine_facts
from reprokit.host.experiments import run_ablation
from reprokit.host.minimize import cases
from reprokit.host.minimize.minimize_result import MinimizeResult
from reprokit.host.pipeline.capture_result import CaptureResult
from reprokit.host.probe.candidate import ProbeLimits
from reprokit.host.probe.client import ProbeServer
from reprokit.host.report import users_line
from reprokit.host.request.run_request import Request
from reprokit.host.run import observation_reader, run_directory, supervise
from reprokit.host.run.observation_reader import Journals
from reprokit.host.run.run_directory import RunDir
from reprokit.host.run.run_outcome import RunOutcome
from reprokit.host.system import deletion, interrupts
from reprokit.host.system.progress import OperationStatus

UNJUDGED = Verdict("unknown", None, None, "The run could not be judged; `missing` says why.")

SLOWER = 4.0
"""The deadline of an ablation step, as a multiple of the time of the run that failed."""

Say = Callable[[str], None]


@dataclass(frozen=True)
class Callbacks:
    """How the steps report to the user."""

    say: Say
    show: supervise.Show | None = None
    """Called with the progress of a run of the target."""
    echo: tuple[IO[bytes] | None, IO[bytes] | None] | None = None
    """Where the target's stdout and stderr go."""
    show_status: Callable[[OperationStatus], None] | None = None
    """Called with the progress of a step that makes many probes."""


@dataclass(frozen=True)
class State:
    """One run directory, and the results of the steps so far."""

    request: Request
    run_dir: RunDir
    callbacks: Callbacks
    study: StudyTools
    """Runs programs that are made from the target."""
    may_run: bool = True
    """The target may be run. False when a run directory is judged again."""
    may_study: bool = True
    """Programs that are made from the target may be run."""
    is_given_up: bool = False
    """The user interrupted a step: later steps run no more programs."""
    catalogue: Sequence[KnownFailure] | None = None
    """The entries of known failures; None for those of reprokit."""
    outcome: RunOutcome | None = None
    """How the run ended; None before it."""
    journals: Journals = field(default_factory=lambda: Journals({}, 0, {}))
    seen: Observation = field(default_factory=Observation)
    verdict: Verdict = UNJUDGED
    missing: tuple[Missing, ...] = ()
    minimized: MinimizeResult | None = None
    ablation: AnyAblation | None = None
    phases: dict[str, float] = field(default_factory=dict)
    """CPU seconds of the compile by phase."""
    environment: machine_facts.MachineFacts = field(
        default_factory=lambda: machine_facts.MachineFacts({}, "", ())
    )
    captured: CaptureResult | None = None
    began: float = field(default_factory=time.monotonic)
    """Monotonic time at which the work on the run directory began."""

    @property
    def run_path(self) -> Path:
        """The run directory."""
        return self.run_dir.path

    @property
    def ended(self) -> RunOutcome:
        """How the run ended; only for steps after the run."""
        assert self.outcome is not None
        return self.outcome

    @property
    def is_command(self) -> bool:
        """True for a target that is a whole command, which runs only once."""
        return self.request.target.kind == "command"

    @property
    def has_failed_by_itself(self) -> bool:
        """True for a target that ended by an exception or an exit status of its own code, and not
        by what this machine lacks.
        """
        verdict, seen = self.verdict, self.seen
        is_exit = verdict.kind == "unknown" and verdict.cause == "exit" and bool(seen.exit_status)
        is_exit &= not unmet_need(seen.exit_status, seen.stderr_tail)
        is_compared = seen.eager == "passes" and verdict.kind == "exception" and not verdict.phase
        return verdict.kind == "error-in-eager" or is_exit or is_compared

    @property
    def has_run(self) -> bool:
        """True for a run that ended without an interrupt by the user."""
        return self.outcome is not None and not self.outcome.is_interrupted

    @property
    def wants_study(self) -> bool:
        """True for a run that ended, where the options ask for a study of the failure."""
        request = self.request
        return self.has_run and (request.minimizes or request.ablation_steps != "none")

    @property
    def signature(self) -> Signature:
        """The signature of the verdict so far."""
        return sign_verdict(self.verdict, self.seen)

    def with_missing(self, what: str, why: str) -> State:
        """Return the state with one more row in ``missing``, unless it is there already."""
        row = Missing(what, why)
        return (
            self if row in self.missing else dataclasses.replace(self, missing=(*self.missing, row))
        )

    def with_all_missing(self, rows: tuple[Missing, ...] | list[Missing]) -> State:
        """Return the state with more rows in ``missing``, each of them once."""
        new = tuple(row for row in rows if row not in self.missing)
        return dataclasses.replace(self, missing=(*self.missing, *new))


class StudyTools:
    """The case and the warm server that several steps share; close it at the end."""

    def __init__(self, python: str | None = None, resume: bool = False) -> None:
        """``python`` replaces the interpreter of the run; ``resume`` continues a reduction."""
        self.resume = resume
        self._python = python
        self._case: cases.MinimizeCase | None = None
        self._server: ProbeServer | None = None

    def case_for(self, state: State) -> cases.MinimizeCase:
        """Return the case with the verdict and the observation of ``state``."""
        # created once, because it joins the target's source and looks for its interpreter
        if self._case is None:
            case = cases.case_of_run(
                state.request,
                state.verdict,
                state.signature,
                state.seen,
                state.journals,
                state.run_path,
            )
            self._case = dataclasses.replace(case, python=self._python or case.python)
        ablation = state.ablation
        return dataclasses.replace(
            self._case,
            verdict=state.verdict,
            signature=state.signature,
            seen=state.seen,
            profile=ablation if isinstance(ablation, ProgramAblation) else NOTHING_TRIED,
        )

    def server_for(self, case: cases.MinimizeCase) -> ProbeServer:
        """Return the server that runs the programs; it starts with its first request."""
        if self._server is None:
            self._server = cases.create_probe_server(case)
        return self._server

    def run_target(
        self,
        state: State,
        verdict: Verdict,
        is_eager: bool,
        role: str = "",
        overrides: Mapping[str, Any] | None = None,
    ) -> tuple[RunOutcome, Observation]:
        """Run a factory target in a forked child of the server that studies ``verdict``.

        In a ``role``, it writes its results to those of the run directory. Return how it ended, and
        what it left.

        Raises:
            ServerLost: the server has ended.
        """
        case = dataclasses.replace(self.case_for(state), verdict=verdict)
        limits = self._limits_for_target(state, case)
        server = self.server_for(case)
        with interrupts.allowed():
            outcome, folder = server.run_target(
                state.request,
                limits,
                is_eager,
                role,
                overrides,
                state.run_path / run_directory.RESULTS_FOLDER,
            )
        try:
            request = dataclasses.replace(state.request, deadline_s=limits.wall_s)
            journals = observation_reader.read_journals(folder)
            return outcome, observation_reader.read_observation(request, outcome, folder, journals)
        finally:
            deletion.delete_path(folder, inside=server.folder)

    def _limits_for_target(self, state: State, case: cases.MinimizeCase) -> ProbeLimits:
        """Return the limits of the whole target, which needs about the time of its first run."""
        limits = dataclasses.replace(cases.probe_limits_of(case).relaxed(), stop=None)
        if case.verdict.kind == "hang":
            return limits
        return dataclasses.replace(
            limits, deadline_s=max(limits.deadline_s, SLOWER * state.seen.seconds)
        )

    def create_ablation_runner(
        self, state: State, program: Request | str
    ) -> run_ablation.AblationRunner:
        """Return the runner of the ablation of ``program``, a text or the whole target."""
        case = self.case_for(state)
        limits = (
            cases.probe_limits_of(case).relaxed()
            if isinstance(program, str)
            else self._limits_for_target(state, case)
        )
        line = users_line.find_text_of_line(state.verdict, state.seen)
        return run_ablation.AblationRunner(
            self.server_for(case),
            program,
            case.signature,
            limits,
            case.python,
            remedy_table.remedies_in_capture(
                state.verdict,
                state.seen,
                program if isinstance(program, str) else case.source,
                line,
            ),
        )

    def close(self) -> None:
        """Stop the server."""
        if self._server is not None:
            self._server.close()
            self._server = None
