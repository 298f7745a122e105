"""Find where in the compiler wrong results begin, of a target or of a program that was cut from
one.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from reprokit.core.experiments.ablation import EAGER, VARIANTS, Ablation, of_own
from reprokit.core.judge import same_failure
from reprokit.core.judge.signature import sign
from reprokit.core.judge.verdict import judge
from reprokit.core.records.finding import Signature
from reprokit.core.records.observation import Observation
from reprokit.core.shared.contract import run_names
from reprokit.core.shared.operators import plain_operator
from reprokit.host.experiments import run_ablation
from reprokit.host.experiments.run_ablation import SUBSYSTEMS, AblationRunner, Show
from reprokit.host.minimize.oracle import BudgetExhausted, Oracle
from reprokit.host.minimize.starting_points import StartingPoint
from reprokit.host.probe.candidate import (
    PLAIN,
    RESULTS,
    CandidateResult,
    ProbeLimits,
    ask_roles,
    judge_candidate,
    overrides_for,
    request_for,
)
from reprokit.host.probe.client import ProbeServer, ServerLost
from reprokit.host.system import deletion

BACKENDS = tuple(rung for rung in VARIANTS if rung.group == "backends")
OWN = {"backend": "backend", "passes": "fx-passes"}
"""What of the program's own the failure needs -> the phase of it."""


def locate_begin(
    ladder: AblationRunner, seen: Observation, show: Show
) -> tuple[Observation, Ablation]:
    """Give ``seen`` of wrong results with the first part of the compiler, and the operator, with
    which they begin.
    """
    found = run_ablation.in_capture(ladder, seen, show)
    located = _inside(ladder, seen, found, show)
    with contextlib.suppress(ServerLost):
        if located.first_rung and ladder.is_whole:
            show("which graph departs first, and which operator in it")
            located = dataclasses.replace(located, departure=ladder.departure())
    if located.departs:
        found = dataclasses.replace(
            found, blamed=run_ablation.one_of(located.departs_in, located.departs)
        )
    return located, found


def first_wrong(
    starts: Sequence[StartingPoint],
    server: ProbeServer,
    wanted: Signature,
    limits: ProbeLimits,
    python: str,
    show: Show,
) -> str:
    """The first program that gives wrong results of the same family; empty where none does."""
    for start in starts:
        show("which recorded graph gives wrong results by itself")
        with contextlib.suppress(ServerLost):
            if _ask(server, start.text, wanted, limits, python).answer == same_failure.SAME:
                return start.text
    return ""


def isolating_overrides(seen: Observation) -> Iterator[dict[str, Any]]:
    """Overrides under which only what the signature names can make results wrong; those that leave
    out most, first.
    """
    part = seen.first_rung
    rung = next((r for r in BACKENDS if r.part == part and r.name != 'backend="inductor"'), None)
    backend = dict(rung.overrides) if rung is not None and rung is not EAGER else {}
    if seen.departs and seen.departs_in:
        asked = {"subsystem": seen.departs_in, "only": seen.departs}
        others = [name for name in SUBSYSTEMS.get(part, ()) if name != seen.departs_in]
        if others:
            yield {**backend, "bisect": {**asked, "without": others}}
        yield {**backend, "bisect": asked}
    if backend:
        yield backend


def leave_out_others(asker: Oracle, seen: Observation, starts: Sequence[StartingPoint]) -> None:
    """Have each candidate compiled so that only what the signature names can be wrong, where a
    first program shows it so.

    Of two wrong operators in one graph, the reduction then keeps the one that was signed. Where the
    budget ends first, candidates are compiled as usual.
    """
    if not asker.limits.compares:
        return
    usual = asker.limits
    with contextlib.suppress(BudgetExhausted):
        for overrides in isolating_overrides(seen):
            asker.limits = dataclasses.replace(usual, alone=overrides)
            for start in starts:
                asker.status.trying = "whether what the signature names is wrong alone"
                asker.begin(start.text)
                if asker.holds(start.text):
                    return
    asker.limits = usual


class LocationCheck:
    """Asks of a program that gives wrong results whether they begin where the signature says; of
    each program once.
    """

    def __init__(
        self, server: ProbeServer, text: str, wanted: Signature, limits: ProbeLimits, python: str
    ) -> None:
        self._server, self._text, self._wanted, self._python = server, text, wanted, python
        self._limits = dataclasses.replace(limits, alone={})
        self._located: Observation | None = None
        self._answer = ""

    @property
    def is_elsewhere(self) -> bool:
        """The program gives wrong results, and they begin elsewhere than those that are looked
        for.
        """
        return self._answer == same_failure.OTHER

    def __call__(self, found: CandidateResult) -> CandidateResult:
        """Give ``found`` with where it begins, and with the answer that follows."""
        if found.answer != same_failure.SAME or not same_failure.is_located(self._wanted):
            return found
        if self._located is None:
            with contextlib.closing(
                AblationRunner(
                    self._server, self._text, self._wanted, self._limits.eased(), self._python
                )
            ) as ladder:
                try:
                    self._located = _inside(ladder, found.seen, _first_backend(ladder, found.seen))
                except ServerLost:
                    return dataclasses.replace(found, answer=same_failure.UNRESOLVED)
        told = self._located
        seen = dataclasses.replace(
            found.seen,
            first_rung=told.first_rung,
            departs=told.departs,
            departs_in=told.departs_in,
            fails_only_with=told.fails_only_with,
        )
        verdict = judge(seen)
        signature = sign(verdict, seen)
        self._answer = (
            same_failure.SAME
            if same_failure.begins_alike(self._wanted, signature)
            else same_failure.OTHER
        )
        return dataclasses.replace(
            found, answer=self._answer, verdict=verdict, signature=signature, seen=seen
        )


def _first_backend(ladder: AblationRunner, seen: Observation) -> Ablation:
    """The ablation up to the first backend that shows the failure."""
    found = Ablation()
    for rung in (*of_own(seen), *BACKENDS):
        found = Ablation((*found.steps, *ladder.climb((rung,)).steps))
        if found.first is not None:
            break
    return found


def _inside(
    ladder: AblationRunner, seen: Observation, found: Ablation, show: Show = lambda name: None
) -> Observation:
    """``seen`` with the part of the compiler that the ablation names, and the one application in it
    that it takes.
    """
    first = found.first.part if found.first is not None and found.first is not EAGER else ""
    part = OWN.get(found.own, first)
    if not part:
        return seen
    told, place = "", ""
    subsystems = SUBSYSTEMS.get(part, ())
    with contextlib.suppress(ServerLost):  # then only the part is known
        for name, without in _searches(subsystems):
            if told := plain_operator(ladder.blame(name, show, without)):
                place = name
                break
    return dataclasses.replace(
        seen, first_rung=part, departs=told, departs_in=place, fails_only_with=found.needs
    )


def _searches(subsystems: Sequence[str]) -> Iterable[tuple[str, Sequence[str]]]:
    """Each subsystem with all others at work; then, for a graph in which several are wrong, without
    those that follow.
    """
    yield from ((name, ()) for name in reversed(subsystems))
    yield from ((name, subsystems[n + 1 :]) for n, name in enumerate(subsystems[:-1]))


def _ask(
    server: ProbeServer, text: str, wanted: Signature, limits: ProbeLimits, python: str
) -> CandidateResult:
    def run(role: str) -> CandidateResult:
        outcome, folder = server.run(text, limits, role in PLAIN, role, overrides_for(role, limits))
        try:
            return judge_candidate(
                request_for(folder / run_names.REPRO_FILE, python, limits), outcome, folder, wanted
            )
        finally:
            deletion.delete(folder, inside=server.folder)

    deletion.delete(server.folder / RESULTS, inside=server.folder)
    try:
        return ask_roles(run, wanted)
    finally:
        deletion.delete(server.folder / RESULTS, inside=server.folder)
