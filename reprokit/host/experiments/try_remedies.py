"""Try every remedy of a failure, and measure its cost in compile time, speed and accuracy."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from reprokit.core.experiments import ablation, speedup
from reprokit.core.experiments.remedies import remedy_table as remedies
from reprokit.core.experiments.remedies.remedy_table import Remedy
from reprokit.core.judge import same_failure
from reprokit.core.judge.stacks import frames
from reprokit.core.records.finding import Signature, Verdict
from reprokit.core.records.observation import Observation
from reprokit.core.shared.contract.events import Begin, CallsTimed, End
from reprokit.host.experiments import run_ablation
from reprokit.host.probe.candidate import ProbeLimits
from reprokit.host.probe.client import ProbeServer, ServerLost
from reprokit.host.request.run_request import Request
from reprokit.host.run import observation_reader
from reprokit.host.system import deletion
from reprokit.host.system.progress import OperationStatus

MEASURE_S = 3.0
AS_GOOD_RATIO = 0.95


@dataclass(frozen=True)
class RemedyResult:
    """The result of one remedy."""

    name: str
    code: str
    """The code that the user writes; empty where the remedy does not avoid the failure."""
    answer: str
    """One of ``same_failure.ANSWERS``, with ``passes`` for a remedy that avoids the failure; empty
    when the remedy does not apply.
    """
    why: str = ""
    """The failure with the remedy, or why it does not apply."""
    compile_cpu_s: float = 0.0
    """CPU seconds of its run."""
    gain: speedup.Gain | None = None
    results: str = ""
    """How its results compare with those of eager."""

    def to_json(self) -> dict[str, Any]:
        """Return the row for ``--json``."""
        row = dataclasses.asdict(self)
        return {
            **row,
            "says": str(self.gain) if self.gain else "",
            "advice": self.gain.advice if self.gain else "",
        }


@dataclass
class Workarounds:
    """The results of all remedies."""

    tried: list[RemedyResult] = field(default_factory=list)
    as_it_is: speedup.Gain | None = None
    """The gain by the compile of a healthy target."""
    compile_s: float = 0.0
    parameters: int = 0

    @property
    def advice(self) -> str:
        """The advice to the user, in one sentence."""
        if self.as_it_is is not None:
            calls = self.as_it_is.calls_to_pay(self.compile_s)
            gain = f"compiled, it is {self.as_it_is}"
            if self.as_it_is.advice == "compile":
                return f"{gain}: compile it; {calls} passes save the time of the compile."
            if self.as_it_is.advice == "eager":
                return f"{gain}: run it eager; a gain below 5 % is not worth a compile."
            return f"{gain}: that is too close to 5 % to decide; measure it on an idle machine."
        ways = [
            t
            for t in self.tried
            if t.answer == same_failure.PASSES and t.name != remedies.EAGER.name
        ]
        if not ways:
            return "Of all remedies, only eager avoids it."
        max_ratio = max(t.gain.ratio if t.gain else 0.0 for t in ways)
        # of the remedies with about the same gain, the first changes the user's code least
        best = next(
            t for t in ways if (t.gain.ratio if t.gain else 0.0) >= AS_GOOD_RATIO * max_ratio
        )
        if best.gain is not None and best.gain.ratio < speedup.MIN_GAIN:
            return f"{best.name} avoids it and is {best.gain}: run it eager until it is fixed."
        return f"{best.name} avoids it" + (f" and is {best.gain}." if best.gain else ".")


class RemedyRunner:
    """Tries remedies on one program, in forked children of a server."""

    def __init__(
        self,
        server: ProbeServer,
        program: Request | str,
        wanted: Signature,
        limits: ProbeLimits,
        python: str,
        show: Callable[[OperationStatus], None],
    ) -> None:
        self._server, self._program, self._show = server, program, show
        self._wanted = wanted
        self._compares = dataclasses.replace(limits, compares=True)
        self._ablation_runner = run_ablation.AblationRunner(
            server, program, wanted, self._compares, python
        )

    def try_all_remedies(
        self, verdict: Verdict, seen: Observation, compile: dict[str, Any]
    ) -> Workarounds:
        """Try the remedies of a failure; for a healthy program, measure the gain of its compile."""
        workarounds = Workarounds()
        if verdict.kind == "ok":
            workarounds.as_it_is, workarounds.compile_s = self._measured({})
            return workarounds
        with contextlib.closing(self._ablation_runner):
            tries = [*remedies.remedies_for(verdict, seen, compile)]
            status = OperationStatus("trying workarounds", total=len(tries))
            for status.done, remedy in enumerate(tries, 1):
                status.trying = remedy.name
                self._show(status)
                try:
                    workarounds.tried.append(self._try(remedy))
                except ServerLost as problem:
                    workarounds.tried.append(
                        RemedyResult(
                            remedy.name, remedy.code, same_failure.UNRESOLVED, str(problem)
                        )
                    )
        return workarounds

    def _try(self, remedy: Remedy) -> RemedyResult:
        if remedy.overrides.get("region") and isinstance(self._program, str):
            return RemedyResult(remedy.name, "", "", "a small program has no layers")
        if remedy.is_eager:
            judged = self._ablation_runner.run_variant(ablation.EAGER)
            code = remedy.code if judged.answer == same_failure.PASSES else ""
            return RemedyResult(remedy.name, code, judged.answer, "", judged.cpu_s)
        judged = self._ablation_runner.run_variant(
            ablation.CompileVariant(remedy.name, "remedies", remedy.overrides)
        )
        if judged.verdict.cause == "BadTarget" and judged.seen.raised is not None:
            return RemedyResult(remedy.name, "", "", frames.root_cause(judged.seen.raised).message)
        if judged.answer != same_failure.PASSES:
            return RemedyResult(
                remedy.name, "", judged.answer, judged.signature.title, judged.cpu_s
            )
        results = judged.seen.comparison.summary if judged.seen.comparison else ""
        gain, _ = self._measured(remedy.overrides)
        return RemedyResult(
            remedy.name, remedy.code, judged.answer, "", round(judged.cpu_s, 2), gain, results
        )

    def _measured(self, overrides: Any) -> tuple[speedup.Gain | None, float]:
        """Return the gain over eager, and the seconds of the first pass."""
        if isinstance(self._program, str):
            return None, 0.0
        request = dataclasses.replace(self._program, measure_s=MEASURE_S)
        limits = dataclasses.replace(
            self._compares, deadline_s=self._compares.deadline_s + 4 * MEASURE_S
        )
        outcome, folder = self._server.run_target(request, limits, False, "", overrides)
        try:
            journals = observation_reader.read_journals(folder)
            timed = journals.last_event_of_type(CallsTimed)
            if not timed.eager or not timed.compiled:
                return None, outcome.seconds
            return speedup.measure_gain(timed.eager, timed.compiled), _first_pass_s(journals)
        finally:
            deletion.delete_path(folder, inside=self._server.folder)


def _first_pass_s(journals: observation_reader.Journals) -> float:
    began = [e.t for e in journals.events_of_type(Begin) if e.name.startswith("stage:call-")]
    ended = [e.t for e in journals.events_of_type(End) if e.name.startswith("stage:call-")]
    return round(max(ended) - min(began), 3) if began and ended else 0.0
