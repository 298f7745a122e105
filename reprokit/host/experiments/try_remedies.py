"""Try every remedy: which avoids the failure, at what cost in compile time, speed and accuracy."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from reprokit.core.experiments import ablation, remedies, speedup
from reprokit.core.experiments.remedies import Remedy
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

MEASURE_S = 3.0
AS_GOOD = 0.95


@dataclass(frozen=True)
class RemedyResult:
    """What one remedy came to."""

    name: str
    code: str
    """What the user writes; empty where the remedy does not avoid the failure, or makes another
    one.
    """
    answer: str
    """``passes`` when it avoids the failure; else one of ``oracle.ANSWERS``, or empty when it does
    not apply.
    """
    why: str = ""
    """What it did instead, or why it does not apply."""
    compile_cpu_s: float = 0.0
    """Processor seconds of its run."""
    gain: speedup.Gain | None = None
    results: str = ""
    """Its results beside eager's."""

    def to_json(self) -> dict[str, Any]:
        """The row that ``--json`` has."""
        row = dataclasses.asdict(self)
        return {
            **row,
            "says": str(self.gain) if self.gain else "",
            "advice": self.gain.advice if self.gain else "",
        }


@dataclass
class Workarounds:
    """All that was tried."""

    tried: list[RemedyResult] = field(default_factory=list)
    as_it_is: speedup.Gain | None = None
    """Of a healthy target: how much its compile gains."""
    compile_s: float = 0.0
    parameters: int = 0

    @property
    def advice(self) -> str:
        """One sentence."""
        if self.as_it_is is not None:
            pays = self.as_it_is.calls_to_pay(self.compile_s)
            told = f"compiled, it is {self.as_it_is}"
            if self.as_it_is.advice == "compile":
                return f"{told}: compile it; the compile is won back after {pays} passes."
            if self.as_it_is.advice == "eager":
                return f"{told}: run it eager; a gain below 5 % is not worth a compiler."
            return f"{told}: that is too near 5 % to say; measure it on a quiet machine."
        ways = [
            t
            for t in self.tried
            if t.answer == same_failure.PASSES and t.name != remedies.EAGER.name
        ]
        if not ways:
            return "Nothing that was tried avoids it but eager."
        most = max(t.gain.ratio if t.gain else 0.0 for t in ways)
        # of those that are as good, the first is the nearest to what the user wrote
        best = next(t for t in ways if (t.gain.ratio if t.gain else 0.0) >= AS_GOOD * most)
        if best.gain is not None and best.gain.ratio < speedup.LEAST_GAIN:
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
        show: Callable[[str], None],
    ) -> None:
        self._server, self._program, self._show = server, program, show
        self._wanted = wanted
        self._compares = dataclasses.replace(limits, compares=True)
        self._ladder = run_ablation.AblationRunner(server, program, wanted, self._compares, python)

    def all(self, verdict: Verdict, seen: Observation, compile: dict[str, Any]) -> Workarounds:
        """Try what is worth a try; of a healthy program, measure whether its compile is worth
        it.
        """
        found = Workarounds()
        if verdict.kind == "ok":
            found.as_it_is, found.compile_s = self._measured({})
            return found
        with contextlib.closing(self._ladder):
            for remedy in remedies.remedies_for(verdict, seen, compile):
                self._show(remedy.name)
                try:
                    found.tried.append(self._try(remedy))
                except ServerLost as problem:
                    found.tried.append(
                        RemedyResult(
                            remedy.name, remedy.code, same_failure.UNRESOLVED, str(problem)
                        )
                    )
        return found

    def _try(self, remedy: Remedy) -> RemedyResult:
        if remedy.overrides.get("region") and isinstance(self._program, str):
            return RemedyResult(remedy.name, "", "", "a small program has no layers")
        if remedy.is_eager:
            judged = self._ladder.ask(ablation.EAGER)
            code = remedy.code if judged.answer == same_failure.PASSES else ""
            return RemedyResult(remedy.name, code, judged.answer, "", judged.cpu_s)
        judged = self._ladder.ask(
            ablation.CompileVariant(remedy.name, "remedies", remedy.overrides)
        )
        if judged.verdict.cause == "BadTarget" and judged.seen.raised is not None:
            return RemedyResult(remedy.name, "", "", frames.root_cause(judged.seen.raised).message)
        if judged.answer != same_failure.PASSES:
            return RemedyResult(
                remedy.name, "", judged.answer, judged.signature.title, judged.cpu_s
            )
        told = judged.seen.comparison.says if judged.seen.comparison else ""
        gain, _ = self._measured(remedy.overrides)
        return RemedyResult(
            remedy.name, remedy.code, judged.answer, "", round(judged.cpu_s, 2), gain, told
        )

    def _measured(self, overrides: Any) -> tuple[speedup.Gain | None, float]:
        """How fast it is beside eager, and the seconds of its first pass."""
        if isinstance(self._program, str):
            return None, 0.0
        request = dataclasses.replace(self._program, measure_s=MEASURE_S)
        limits = dataclasses.replace(
            self._compares, deadline_s=self._compares.deadline_s + 4 * MEASURE_S
        )
        outcome, folder = self._server.run_target(request, limits, False, "", overrides)
        try:
            journals = observation_reader.read_journals(folder)
            told = journals.last(CallsTimed)
            if not told.eager or not told.compiled:
                return None, outcome.seconds
            return speedup.measure_gain(told.eager, told.compiled), _first_pass_s(journals)
        finally:
            deletion.delete(folder, inside=self._server.folder)


def _first_pass_s(journals: observation_reader.Journals) -> float:
    began = [e.t for e in journals.all(Begin) if e.name.startswith("stage:call-")]
    ended = [e.t for e in journals.all(End) if e.name.startswith("stage:call-")]
    return round(max(ended) - min(began), 3) if began and ended else 0.0
