"""Find where in the compiler the wrong results of a program begin.

The program is a target, or a reduced program of one.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from reprokit.core.experiments.ablation import (
    BACKENDS,
    EAGER,
    KNOWN_ANSWERS,
    NOTHING_TRIED,
    CompileVariant,
    ProgramAblation,
    faster_overrides,
    own_variants,
)
from reprokit.core.judge import same_failure
from reprokit.core.judge.signature import sign_verdict
from reprokit.core.judge.verdict import judge_run
from reprokit.core.records.finding import Signature
from reprokit.core.records.observation import Observation
from reprokit.core.shared import result_comparison
from reprokit.core.shared.operators import plain_operator
from reprokit.host.experiments import run_ablation
from reprokit.host.experiments.run_ablation import SUBSYSTEMS, AblationRunner, Show
from reprokit.host.minimize.answers.oracle import BudgetExhausted, Oracle
from reprokit.host.minimize.starts.starting_points import StartingPoint
from reprokit.host.probe.candidate import CandidateResult, ProbeLimits
from reprokit.host.probe.client import ProbeServer, ServerLost
from reprokit.host.probe.forked_child import run_in_forked_child
from reprokit.host.system import host_log
from reprokit.host.system.progress import OperationStatus

OWN = {"backend": "backend", "passes": "fx-passes"}
"""The user's own code that the failure needs -> its phase."""


def locate_first_failing_part(
    runner: AblationRunner, seen: Observation, show: Show
) -> tuple[Observation, ProgramAblation]:
    """Return ``seen`` with the part of the compiler and the operator where wrong results begin.

    Return also the ablation that found them.
    """
    ablation = run_ablation.ablate_for_capture(runner, seen, show)
    located = _inside(runner, seen, ablation, show)
    with host_log.suppress(ServerLost):
        if located.failing_part and runner.is_whole_target:
            why = "which graph and which operator in it differ from eager first"
            show(OperationStatus(run_ablation.LOCATING, why))
            if (departs := runner.find_departure()) is not None:
                located = dataclasses.replace(
                    located,
                    departure=result_comparison.first_departure(departs),
                    departs_first=departs.op,
                    departs_at=departs.place,
                )
    if located.departs:
        ablation = dataclasses.replace(
            ablation, blamed=run_ablation.describe_blamed(located.departs_in, located.departs)
        )
    return located, ablation


def first_wrong_program(
    starts: Sequence[StartingPoint],
    server: ProbeServer,
    wanted: Signature,
    limits: ProbeLimits,
    python: str,
    show: Show,
) -> str:
    """Return the first program with wrong results of the same kind; empty where none has them."""
    status = OperationStatus(
        run_ablation.LOCATING,
        "which recorded graph gives wrong results by itself",
        total=len(starts),
    )
    for status.done, start in enumerate(starts, 1):
        show(status)
        with host_log.suppress(ServerLost):
            judged = run_in_forked_child(server, start.text, wanted, limits, python)
            if judged.answer == same_failure.SAME:
                return start.text
    return ""


def isolating_overrides(seen: Observation) -> Iterator[dict[str, Any]]:
    """Yield overrides under which only the part that the signature names can make results wrong.

    The strictest overrides come first.
    """
    part = seen.failing_part
    variant = next((r for r in BACKENDS if r.part == part and r.name != 'backend="inductor"'), None)
    backend = dict(variant.overrides if variant is not None else faster_overrides(seen, part))
    if seen.departs and seen.departs_in:
        only = {"subsystem": seen.departs_in, "only": seen.departs}
        others = [name for name in SUBSYSTEMS.get(part, ()) if name != seen.departs_in]
        if others:
            yield {**backend, "bisect": {**only, "without": others}}
        yield {**backend, "bisect": only}
    if backend:
        yield backend


def isolate_signature(oracle: Oracle, seen: Observation, starts: Sequence[StartingPoint]) -> None:
    """Compile each candidate with only the part at work that the signature names.

    Do so only where a starting point still shows the failure that way. Of two wrong operators in
    one graph, the reduction then keeps the one that the signature names. Where the budget ends
    first, candidates are compiled as usual.
    """
    if not oracle.limits.compares:
        return
    usual = oracle.limits
    with host_log.suppress(BudgetExhausted):
        for overrides in isolating_overrides(seen):
            oracle.limits = dataclasses.replace(usual, alone=overrides)
            for start in starts:
                oracle.status.trying = "whether the part that the signature names is wrong alone"
                oracle.begin_program(start.text)
                if oracle.shows_failure(start.text):
                    return
    oracle.limits = usual


class LocationCheck:
    """Checks whether the failure of a program is in the part of the compiler where that of the
    original is: the same backends fail, and wrong results begin where the signature says.

    The location is found once for each program.
    """

    def __init__(
        self,
        server: ProbeServer,
        text: str,
        wanted: Signature,
        limits: ProbeLimits,
        python: str,
        profile: ProgramAblation = NOTHING_TRIED,
        original: Observation | None = None,
    ) -> None:
        """``original`` has the location of the original; without it, the location is searched. The
        limits have the overrides of :func:`isolate_signature`.
        """
        self._server, self._text, self._wanted, self._python = server, text, wanted, python
        self._profile, self._original, self._alone = profile, original, limits.alone
        self.why = ""
        """How the failure differs, as a clause."""
        self.differs_with: CompileVariant | None = None
        """A backend with which the program fails and the original passes, or the reverse."""
        self._limits = dataclasses.replace(limits, alone={})
        self._located: Observation | None = None
        self._answer = ""

    @property
    def is_elsewhere(self) -> bool:
        """True when the wrong results begin elsewhere than those of the signature."""
        return self._answer == same_failure.OTHER

    def __call__(self, judged: CandidateResult) -> CandidateResult:
        """Return ``judged`` with the place where it begins, and with the answer that follows."""
        if judged.answer != same_failure.SAME:
            return judged
        if not same_failure.is_located(self._wanted):
            return self._with_profile(judged)
        if self._located is None:
            with contextlib.closing(
                AblationRunner(
                    self._server, self._text, self._wanted, self._limits.relaxed(), self._python
                )
            ) as runner:
                try:
                    if self._original is not None and self._begins_as_original(runner):
                        self._located = self._original
                    else:
                        backend = _first_backend(runner, judged.seen)
                        self._located = _inside(runner, judged.seen, backend)
                except ServerLost as problem:
                    host_log.log_ignored(problem)
                    return dataclasses.replace(judged, answer=same_failure.UNRESOLVED)
        seen = dataclasses.replace(
            judged.seen,
            failing_part=self._located.failing_part,
            departs=self._located.departs,
            departs_in=self._located.departs_in,
            fails_only_with=self._located.fails_only_with,
        )
        verdict = judge_run(seen)
        signature = sign_verdict(verdict, seen)
        self._answer = same_failure.SAME
        if not same_failure.begins_alike(self._wanted, signature):
            self._answer = same_failure.OTHER
            self.why = f"it is wrong elsewhere in the compiler: {signature.title}"
        return dataclasses.replace(
            judged, answer=self._answer, verdict=verdict, signature=signature, seen=seen
        )

    def _begins_as_original(self, runner: AblationRunner) -> bool:
        """Return whether the results are wrong with only the operator of the original at work, and
        right with the last backend that gives right results for the original.
        """
        passing, alone = self._profile.last_passing, CompileVariant("", "", {**self._alone})
        return (
            passing is not None
            and "bisect" in self._alone
            and runner.run_variant(passing).answer == same_failure.PASSES
            and runner.run_variant(alone).answer == same_failure.SAME
        )

    def _with_profile(self, judged: CandidateResult) -> CandidateResult:
        """Return ``judged``, with the answer that follows from the backends that fail."""
        tried = [v for v in BACKENDS if self._profile.answer_of(v.name) in KNOWN_ANSWERS]
        if not self._answer and tried and self._profile.first_failing in BACKENDS[1:]:
            runner = AblationRunner(
                self._server, self._text, self._wanted, self._limits.relaxed(), self._python
            )
            with contextlib.closing(runner):
                ablation = runner.run_variants(tried)
            self.why = ablation.difference(self._profile)
            self.differs_with = ablation.differing_backend(self._profile)
            self._answer = same_failure.OTHER if self.why else same_failure.SAME
        return dataclasses.replace(judged, answer=self._answer or judged.answer)


def _first_backend(runner: AblationRunner, seen: Observation) -> ProgramAblation:
    """Return the ablation up to the first backend that shows the failure.

    The program's own entry, which runs first, shows it too.
    """
    ablation = ProgramAblation()
    for variant in (*own_variants(seen), *BACKENDS):
        ablation = ProgramAblation((*ablation.steps, *runner.run_variants((variant,)).steps))
        if ablation.first_failing in BACKENDS:
            break
    return ablation


def _inside(
    runner: AblationRunner,
    seen: Observation,
    ablation: ProgramAblation,
    show: Show = lambda status: None,
) -> Observation:
    """Return ``seen`` with the part of the compiler that the ablation names.

    Add also the one application in that part which makes the results wrong.
    """
    first = ablation.first_failing
    part = OWN.get(ablation.own, first.part if first is not None and first is not EAGER else "")
    if not part:
        return seen
    operator, subsystem = "", ""
    subsystems, overrides = SUBSYSTEMS.get(part, ()), faster_overrides(seen, part)
    with host_log.suppress(ServerLost):  # then only the part is known
        for name, without in _searches(subsystems):
            found = runner.find_application(name, show, without, overrides)
            if operator := plain_operator(found):
                subsystem = name
                break
    return dataclasses.replace(
        seen,
        failing_part=part,
        departs=operator,
        departs_in=subsystem,
        fails_only_with=ablation.needs,
    )


def _searches(subsystems: Sequence[str]) -> Iterable[tuple[str, Sequence[str]]]:
    """Yield each subsystem to search, with the subsystems that are switched off meanwhile.

    First all others stay at work; then, for a graph in which several subsystems are wrong, the
    later ones are off.
    """
    yield from ((name, ()) for name in reversed(subsystems))
    yield from ((name, subsystems[n + 1 :]) for n, name in enumerate(subsystems[:-1]))
