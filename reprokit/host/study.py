"""Study a failure: the smallest program that shows it, and the rung of the ladder where it begins, on one warm server."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable

from ..core.ablation import Ablation
from ..core.records import Missing, Observation, Verdict
from ..core.redact import Redactor
from ..core.signature import sign
from ..core.verdict import judge
from . import ablate, files, interrupts, minimize, private, shown
from .forked import Server
from .launch import Request
from .minimized import Minimized
from .observe import Journals
from .oracle import Standing
from .rundir import RunDir

SLOWER = 4.0
"""A rung may take so much longer than the run that failed."""


@dataclasses.dataclass
class Study:
    """One failing run, and what more is asked of it."""

    request: Request
    verdict: Verdict
    seen: Observation
    journals: Journals
    place: RunDir
    missing: list[Missing]
    say: Callable[[str], None]
    show: Callable[[Standing], None] | None = None
    python: str | None = None
    """Another interpreter than the one that failed."""
    ablation: Ablation | None = None

    def run(self, resume: bool = False) -> None:
        """Locate wrong results, minimize, ablate: each as far as it can be done, and why not where it cannot."""
        why = minimize.why_not(self.verdict)
        if why and self.verdict.kind != "ok":
            self.missing.append(Missing("minimization", why))
        if why and (self.request.rungs != "all" or not self._is_factory):
            return
        # read once: it joins the target's source and looks for its interpreter
        case = minimize.case_of(
            self.request, self.verdict, sign(self.verdict, self.seen), self.seen, self.journals, self.place.path
        )
        case = dataclasses.replace(case, python=self.python or case.python)
        with minimize.server_of(case) as server, interrupts.heard():
            if self.verdict.kind == "wrong-result" and self._is_factory:
                self.say("asking where in the compiler it begins")
                with contextlib.closing(self._ladder(case, server, self.request)) as ladder:
                    self.seen, self.ablation = ablate.locate(ladder, self.seen, self._trying)
                self.verdict = judge(self.seen)
                signature = sign(self.verdict, self.seen)
                case = dataclasses.replace(case, verdict=self.verdict, signature=signature, seen=self.seen)
            found = self._minimized(case, server, resume) if self.request.minimizes and not why else None
            if self.request.minimizes and not why and not _is_done(found):
                self.say("running the recorded program alone, in fresh processes")
                shown.try_recorded(self.request, case, self.journals, Redactor(private.gather()))
            is_of_inductor = self.seen.kernel or self.verdict.kind == "cudagraph-skip"
            if self.request.rungs != "none" and not is_of_inductor:
                self._ablate(case, server, found)

    def _minimized(self, case: minimize.Case, server: Server, resume: bool) -> Minimized:
        self.say(f"minimizing, for at most {self.request.budget_s:g} s")
        found = minimize.minimize(case, server, self.request.budget_s, resume, self.show, self.say)
        if not found.text:
            self.missing += [Missing("minimization", note) for note in found.notes]
        return found

    def _ablate(self, case: minimize.Case, server: Server, found: Minimized | None) -> None:
        """Ask the rungs of the small program, which is quick, or of the target where there is none."""
        program = found.text if found is not None and found.has_shown else self.request if self._is_factory else None
        if program is None:
            self.missing.append(
                Missing("ablation", "a whole command is run again only in small parts, and there are none")
            )
            return
        if self.ablation is not None and isinstance(program, str):
            self._check_begin(case, server, program)
        climb = ablate.everything if self.request.rungs == "all" else ablate.in_capture
        if self.ablation is None or self.request.rungs == "all":
            self.say("climbing the ablation ladder")
            with contextlib.closing(self._ladder(case, server, program)) as ladder:
                self.ablation = climb(ladder, self._trying)
        files.write_json(self.place.path / ablate.FILE, self.ablation.to_json())

    def _check_begin(self, case: minimize.Case, server: Server, program: str) -> None:
        """Ask where the small program begins to be wrong: of its candidates only the family was asked."""
        with contextlib.closing(self._ladder(case, server, program)) as ladder:
            first = ladder.climb(ablate.IN_CAPTURE, self._trying).first
        part = first.part if first else "nowhere"
        if part != self.seen.first_rung:
            why = f"the small program begins to be wrong in {part}, the target in {self.seen.first_rung}: look at both"
            self.missing.append(Missing("minimization", why))

    def _ladder(self, case: minimize.Case, server: Server, program: Request | str) -> ablate.Ladder:
        limits = minimize.limits_of(case).eased()
        if not isinstance(program, str) and self.verdict.kind != "hang":  # the whole target takes as long as it took
            limits = dataclasses.replace(limits, deadline_s=max(limits.deadline_s, SLOWER * self.seen.seconds))
        return ablate.Ladder(server, program, case.signature, limits, case.python)

    @property
    def _is_factory(self) -> bool:
        return self.request.target.kind != "command"

    def _trying(self, name: str) -> None:
        if self.show:
            self.show(Standing(trying=name))


def _is_done(found: Minimized | None) -> bool:
    """A repro was proved, or somebody ended the reduction."""
    return found is not None and (found.is_proved or found.is_interrupted)
