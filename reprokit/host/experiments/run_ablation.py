"""The ablation: the same program compiled in other ways, each in a forked child of the warm
server.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from reprokit.core.experiments.ablation import (
    EAGER,
    OWN_PASSES,
    VARIANTS,
    Ablation,
    AblationStep,
    CompileVariant,
    of_own,
    read_ablation,
)
from reprokit.core.judge import same_failure
from reprokit.core.records.finding import Signature
from reprokit.core.records.journal_reader import SomeEvent
from reprokit.core.records.observation import Observation
from reprokit.core.shared import cuts, result_comparison
from reprokit.core.shared.contract import run_names
from reprokit.core.shared.contract.events import Bisected, Departs
from reprokit.host.probe.candidate import (
    PLAIN,
    RESULTS,
    SAME_RANDOM,
    CandidateResult,
    ProbeLimits,
    judge_candidate,
    request_for,
)
from reprokit.host.probe.client import ProbeServer, ServerLost
from reprokit.host.request.run_request import Request
from reprokit.host.run import observation_reader
from reprokit.host.run.run_outcome import RunOutcome
from reprokit.host.system import deletion, files

IN_CAPTURE = tuple(r for r in VARIANTS if r.group == "backends" or r.name == "dynamic=False")
GRAPH_PASSES = ("pre_grad_passes", "joint_graph_passes", "post_grad_passes")
SUBSYSTEMS = {
    "inductor": (*GRAPH_PASSES, "lowerings"),
    "fx-passes": GRAPH_PASSES,
    "decompositions": ("decomposition",),
}
"""What PyTorch's CompilerBisector can switch off, one application after the other, in the order of
a compile.
"""
MOST_BISECTIONS = 12
WHOLE_S = 60.0
"""Served seconds for a program without its own passes: where those hang, nothing says how long a
whole compile takes.
"""
FILE = run_names.ABLATION_FILE
Show = Callable[[str], None]
"""Called with the name of what is tried now."""


class AblationRunner:
    """The ladder of one failure, of a factory target or of a program's text."""

    def __init__(
        self,
        server: ProbeServer,
        program: Request | str,
        wanted: Signature,
        limits: ProbeLimits,
        python: str,
    ) -> None:
        self._server, self._program, self._wanted, self._python = server, program, wanted, python
        self._limits = dataclasses.replace(limits, stop=None)
        self._plain: CandidateResult | None = None
        """The eager run, when the results that the others are compared with are there."""

    def climb(self, rungs: Iterable[CompileVariant], show: Show = lambda name: None) -> Ablation:
        """Ask every ablation step; one whose server is lost has no answer."""
        steps = []
        for rung in rungs:
            show(rung.name)
            try:
                found = self.ask(rung)
                step = AblationStep(
                    rung.name,
                    rung.group,
                    found.answer,
                    found.verdict.kind,
                    found.signature.title,
                    round(found.seconds, 2),
                    round(found.cpu_s, 2),
                )
            except ServerLost as problem:
                step = AblationStep(
                    rung.name,
                    rung.group,
                    same_failure.UNRESOLVED,
                    "unknown",
                    cuts.cut_head(str(problem), 200),
                )
            steps.append(step)
        return Ablation(tuple(steps))

    def ask(self, rung: CompileVariant) -> CandidateResult:
        """Judge the program as ``rung`` compiles it."""
        if not self._limits.compares:
            least_s = WHOLE_S if rung is OWN_PASSES else 0.0
            return self._run("", rung.overrides, is_eager=rung is EAGER, least_s=least_s)
        if self._plain is None:
            deletion.delete(self._server.folder / RESULTS, inside=self._server.folder)
            self._plain, *_ = [self._run(role, {}, is_eager=True) for role in PLAIN]
        if rung is EAGER or self._plain.verdict.kind != "ok":
            return self._plain
        return self._run("compiled", rung.overrides)

    def close(self) -> None:
        """Delete what the runs gave, which is the user's."""
        deletion.delete(self._server.folder / RESULTS, inside=self._server.folder)

    def blame(
        self, subsystem: str, show: Show = lambda name: None, without: Sequence[str] = ()
    ) -> str:
        """The one application of ``subsystem`` (``lowerings``, ``post_grad_passes`` ...) with which
        the failure begins.

        Empty when the failure does not depend on it. The hooks are those of PyTorch's
        CompilerBisector. Nothing of the subsystems in ``without`` is applied.
        """
        show(f"whether it is one of the {subsystem}")
        asked = {"subsystem": subsystem, "without": list(without)}
        count, _ = self._bisected(asked, None)
        if not count or self._answer_at(asked, 0) != same_failure.PASSES:
            return ""
        if without and self._answer_at(asked, count) != same_failure.SAME:
            return ""
        low, high = 0, count  # passes with the first ``low`` of them, fails with ``high``
        for _ in range(MOST_BISECTIONS):
            if high - low <= 1:
                break
            middle = (low + high) // 2
            show(f"which of {high - low} {subsystem}")
            if self._answer_at(asked, middle) == same_failure.SAME:
                high = middle
            else:
                low = middle
        return self._bisected(asked, high)[1] if high - low == 1 else ""

    def _answer_at(self, asked: Mapping[str, Any], most: int) -> str:
        return self.ask(CompileVariant("", "", {"bisect": {**asked, "most": most}})).answer

    def _bisected(self, asked: Mapping[str, Any], most: int | None) -> tuple[int, str]:
        """How often the subsystem is applied, and what was applied at number ``most``."""
        role = "compiled" if self._limits.compares else ""
        found = self._heard(Bisected, role, {"bisect": {**asked, "most": most}})
        told = next((e.info for e in found if e.n == most), "")
        return max((e.n for e in found), default=0), told

    @property
    def is_whole(self) -> bool:
        """It is the user's whole target, whose lines the user knows."""
        return not isinstance(self._program, str)

    def departure(self) -> str:
        """The first graph that departs from eager by itself, and the first operator in it, as
        words.
        """
        found = self._heard(Departs, "compiled", {"graphs": True})
        return result_comparison.first_departure(found[0]) if found else ""

    def _heard(self, kind: type[SomeEvent], role: str, overrides: Any) -> list[SomeEvent]:
        """The events of one kind of a compiled run."""
        found: list[SomeEvent] = []
        self._run(role, overrides, read=lambda journals: found.extend(journals.all(kind)))
        return found

    def _run(
        self,
        role: str,
        overrides: Any,
        is_eager: bool = False,
        read: Callable[[observation_reader.Journals], None] | None = None,
        least_s: float = 0.0,
    ) -> CandidateResult:
        limits = dataclasses.replace(self._limits, deadline_s=max(self._limits.deadline_s, least_s))
        if role:
            overrides = {
                **overrides,
                "configs": {**overrides.get("configs", {}), **SAME_RANDOM["configs"]},
            }
        outcome: RunOutcome
        folder: Path
        if isinstance(self._program, str):
            outcome, folder = self._server.run(self._program, limits, is_eager, role, overrides)
            request = request_for(folder / run_names.REPRO_FILE, self._python, limits)
        else:
            outcome, folder = self._server.run_target(
                self._program, limits, is_eager, role, overrides
            )
            request = dataclasses.replace(self._program, deadline_s=limits.wall_s)
        try:
            if read:
                read(observation_reader.read_journals(folder))
            return judge_candidate(request, outcome, folder, self._wanted)
        finally:
            deletion.delete(folder, inside=self._server.folder)


def one_of(subsystem: str, name: str) -> str:
    """What the bisector found, as a clause."""
    return f"it takes one of the {subsystem.replace('_', ' ')}: `{name}`"


def load_ablation(run_path: Path) -> Ablation | None:
    """What an earlier climb left in a run directory."""
    if told := files.read_object(run_path / FILE):
        with contextlib.suppress(ValueError):
            return read_ablation(told)
    return None


def in_capture(ladder: AblationRunner, seen: Observation, show: Show) -> Ablation:
    """The ablation steps that every capture of a failure asks."""
    return ladder.climb((*of_own(seen), *IN_CAPTURE), show)


def ablate_everything(ladder: AblationRunner, seen: Observation, show: Show) -> Ablation:
    """All ablation steps, and below the first backend that fails the one pass, decomposition or
    lowering that it takes.
    """
    found = ladder.climb((*of_own(seen), *VARIANTS), show)
    if found.own:
        return found
    with contextlib.suppress(ServerLost):
        for subsystem in SUBSYSTEMS.get(found.first.part if found.first else "", ()):
            if said := ladder.blame(subsystem, show):
                return dataclasses.replace(found, blamed=one_of(subsystem, said))
    return found
