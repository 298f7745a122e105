"""Results of candidates without a process: an oracle whose runs a function answers, and an ablation
runner.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

from reprokit.core.experiments.ablation import AblationStep, CompileVariant, ProgramAblation
from reprokit.core.judge import same_failure
from reprokit.core.judge.signature import ALGORITHM
from reprokit.core.records.finding import Identity, Signature, Verdict
from reprokit.core.records.observation import Observation
from reprokit.host.minimize.answers.oracle import Oracle
from reprokit.host.probe.candidate import CandidateResult, ProbeLimits
from reprokit.host.probe.client import ProbeServer

KINDS = {
    same_failure.SAME: "exception",
    same_failure.OTHER: "exception",
    same_failure.PASSES: "ok",
    same_failure.UNRESOLVED: "unknown",
}
"""The kind of the verdict of each answer."""
WANTED = Signature("", "exception: lowering | KeyError", ALGORITHM)


def signature_of(kind: str, phase: str, what: str, place: str = "") -> Signature:
    """Return the signature with these parts."""
    parts = Identity(kind, phase, what, place)
    return Signature(parts.title, parts.title, ALGORITHM, parts=parts)


def judged(
    answer: str, kind: str = "", title: str = "", seen: Observation | None = None
) -> CandidateResult:
    """Return the judged run of a candidate with this answer."""
    verdict = Verdict(kind or KINDS[answer], "lowering", None, "")
    signature = Signature("", title or f"the title of {answer}", ALGORITHM)
    return CandidateResult(answer, verdict, signature, seen=seen or Observation())


class ScriptedOracle(Oracle):
    """An oracle whose runs are answered by functions; each eager run passes."""

    def __init__(
        self,
        folder: Path,
        forked: Callable[[str], str],
        fresh: Callable[[str], str] = lambda text: same_failure.PASSES,
        limits: ProbeLimits | None = None,
        wanted: Signature = WANTED,
    ) -> None:
        """``forked`` and ``fresh`` return the answer of a compiled run, or ``eager`` for a program
        that fails without torch.compile too.
        """
        server = ProbeServer(folder / "server", sys.executable, "aot")
        super().__init__(folder, server, wanted, limits or ProbeLimits(60.0), sys.executable)
        self.ran: list[str] = []
        """The compiled programs, in their order."""
        self._forked, self._fresh = forked, fresh

    def run_once(self, text: str, is_eager: bool = False) -> CandidateResult:
        """Return the scripted result of one run."""
        return self._scripted(text, is_eager, self._fresh if self.is_cold else self._forked)

    def run_fresh(self, text: str, is_eager: bool = False) -> CandidateResult:
        """Return the scripted result of a fresh process."""
        return self._scripted(text, is_eager, self._fresh)

    def _scripted(
        self, text: str, is_eager: bool, answer_for: Callable[[str], str]
    ) -> CandidateResult:
        if is_eager:
            return judged(same_failure.PASSES)
        self.ran.append(text)
        return judged(answer_for(text))


class FakeRunner:
    """An ablation runner in which the failure begins with one backend, and in one application."""

    first = 'backend="aot_eager_decomp_partition"'
    found: ClassVar[Mapping[tuple[str, tuple[str, ...]], str]] = {}
    """A subsystem and those that are off meanwhile -> the application that is wrong."""
    searches: ClassVar[list[tuple[str, tuple[str, ...]]]] = []
    """The searches of the runner that was made last."""

    def __init__(self, *_: Any) -> None:
        FakeRunner.searches = []

    def run_variants(self, variants: Sequence[CompileVariant]) -> ProgramAblation:
        """Return the steps of these variants."""
        steps = (
            AblationStep(
                v.name,
                v.group,
                same_failure.SAME if v.name == self.first else same_failure.PASSES,
                "",
                "",
            )
            for v in variants
        )
        return ProgramAblation(tuple(steps))

    def find_application(
        self, subsystem: str, show: object, without: Sequence[str], overrides: object
    ) -> str:
        """Return the application, and note the search."""
        self.searches.append((subsystem, tuple(without)))
        return self.found.get((subsystem, tuple(without)), "")

    def close(self) -> None:
        """Do nothing."""
