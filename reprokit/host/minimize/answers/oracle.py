"""Answer whether a program still shows the failure: run it eager first, then compiled.

The answers are kept in a file by the program's canonical text. So no program is run twice, and a
reduction that was interrupted goes on where it was: it repeats its probes and gets the known
answers at once.
"""

from __future__ import annotations

import ast
import dataclasses
import hashlib
import json
import math
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from reprokit.core.experiments.ablation import CompileVariant, ProgramAblation
from reprokit.core.judge import same_failure as core
from reprokit.core.judge.stacks.location import plural
from reprokit.core.records.finding import Signature, Verdict
from reprokit.core.reduce import guarded_raises
from reprokit.core.reduce.ast_edits import unknown_names
from reprokit.core.shared.contract import run_names
from reprokit.core.shared.errors import BadInput
from reprokit.host.minimize.answers.budget import Budget
from reprokit.host.minimize.answers.compile_ways import CompileWays
from reprokit.host.minimize.answers.known_answers import KnownAnswers
from reprokit.host.minimize.candidate_text import (
    count_code_lines,
    parse_program,
    top_level_definitions,
)
from reprokit.host.probe.candidate import (
    UNCOMPILED_ROLES,
    CandidateResult,
    ProbeLimits,
    candidate_request,
    judge_candidate,
    judge_growth,
    judge_results,
    role_overrides,
)
from reprokit.host.probe.client import ProbeServer, ServerLost
from reprokit.host.probe.fresh_process import run_in_fresh_process
from reprokit.host.run.run_directory import RESULTS_FOLDER
from reprokit.host.system import deletion, host_log
from reprokit.host.system.progress import OperationStatus

SLOW_EAGER_S = 1.0
"""If an eager run takes longer, later programs run eager only after they show the failure compiled.
"""
EAGER_S = 5.0
"""The most seconds of later eager runs, if an eager run of the program does not take longer than
``SLOW_EAGER_S``. A change of the condition of a loop often makes it endless.
"""
MAX_RESTARTS = 5


class BudgetExhausted(Exception):
    """The budget is used up."""


@dataclass(frozen=True)
class ProbeResult:
    """What the runs of one program gave."""

    answer: str
    last: CandidateResult | None
    """The run that decided the answer."""
    has_failed_eager: bool
    is_eager_slow: bool


class Oracle:
    """Answers for one failure, one probe at a time.

    Probes ahead on a second core take less wall-clock time only where most guesses about the next
    answers are right. In whole programs half of them are wrong: on two cores, six captures took 1.1
    to 1.8 times the CPU time with them, and 0.95 to 1.4 times the wall-clock time.
    """

    def __init__(
        self,
        folder: Path,
        server: ProbeServer,
        wanted: Signature,
        limits: ProbeLimits,
        python: str,
        show: Callable[[OperationStatus], None] | None = None,
    ) -> None:
        """``folder`` keeps the answers; ``limits`` hold for each compiled run."""
        self.wanted, self.limits, self.python = wanted, limits, python
        self.status = OperationStatus("reducing", is_search=True)
        self.budget = Budget()
        self.rate = 1.0
        """The share of runs in which a program with the failure shows it."""
        self.is_cold = False
        """Use fresh processes only, because forked children answer differently here."""
        self.last: CandidateResult | None = None
        """The last run that decided an answer."""
        self.has_failed_eager = False
        self.finish: Callable[[str], str] = lambda text: text
        """Adds to each program what it needs to run alone, such as the writer of its cache."""
        self.on_same: Callable[[str], None] = lambda text: None
        self._folder, self.server, self._show = folder, server, show
        self._is_eager_slow = self._has_begun = False
        self._answers = KnownAnswers(folder / "probes.jsonl")
        self._restarts = 0
        self._unknown: set[str] = set()
        self._first = ""
        """The first program with a statement that raises the exception of the failure."""
        self._keeps_guard: bool | None = None
        """Whether eager must reach the statement of the program that raises when it is compiled;
        None if that is not known.
        """
        self.words: tuple[str, ...] = ()
        """Words that every candidate must contain."""
        self._carried: dict[str, str] = {}
        self._canonical: dict[str, str | None] = {}
        """Each text that was examined, without its layout; None if it cannot show the failure."""
        self.ways = CompileWays()
        """With which backends candidates are compiled."""

    def close(self) -> None:
        """Close the file with the answers."""
        self._answers.close()

    def show_progress(self, trying: str = "") -> None:
        """Show the status of the search, with a new part that is running if there is one."""
        self.status.trying = trying or self.status.trying
        if self._show:
            self._show(self.status)

    def begin_program(
        self, text: str, carried: Collection[str] = (), words: Collection[str] = ()
    ) -> None:
        """Set the program whose reduced versions are answered from now on.

        A name that this program does not define may be undefined in its reduced versions too. A
        candidate without all ``words`` is not run: without ``backend=``, for example, it cannot
        show the failure of a custom backend. ``carried`` has the sources of custom passes and
        backends. A candidate has them unchanged or not at all: a smaller backend that always raises
        would show the same failure, but explain nothing.
        """
        self._unknown, self._has_begun = unknown_names(ast.parse(text)), False
        if not self._first and guarded_raises.with_check(text, self.wanted.parts.what):
            self._first = text
        self._carried = {
            name: dumped
            for source in carried
            for name, dumped in top_level_definitions(source).items()
        }
        self.require_words(words)

    def require_words(self, words: Collection[str]) -> None:
        """Set the words that every candidate must contain."""
        self.words = tuple(words)
        self._canonical.clear()

    @property
    def hides_backend(self) -> bool:
        """True while candidates are compiled with a different backend than their own, so that no
        answer shows whether they need it.
        """
        way = self.ways.candidates
        changed = [self.limits.alone] + ([way.overrides] if way is not None else [])
        return any("backend" in overrides.get("compile", {}) for overrides in changed)

    def shows_failure(self, text: str) -> bool:
        """Return True when the program shows the same failure.

        Raises:
            BudgetExhausted: the budget ended.
        """
        return self.answer_for(text) == core.SAME

    def answer_for(self, text: str) -> str:
        """Return one of ``core.judge.same_failure.ANSWERS`` for a program.

        Raises:
            BudgetExhausted: the budget ended.
        """
        key, known = self.examine(text)
        if known is not None:
            return self.accept(text, key, None)
        if self.budget.left_s < 0:
            raise BudgetExhausted
        self.status.probes += 1
        self.status.limit_s = self.budget.limit_s
        self.show_progress()
        return self.accept(text, key, self._probe(text))

    def examine(self, text: str) -> tuple[str, str | None]:
        """Return the key of a program, and its answer if that is known without a run."""
        if text not in self._canonical:
            self._canonical[text] = self._canonical_text(text)
        canonical = self._canonical[text]
        key = self._key(canonical) if canonical is not None else ""
        return key, self._answers.answer_of(key) if key else core.OTHER

    def _canonical_text(self, text: str) -> str | None:
        """Return a program without its layout; None if it cannot show the failure."""
        tree = parse_program(text)
        if tree is None or "compile" not in text or unknown_names(tree) - self._unknown:
            return None  # it does not parse, compiles nothing, or ends in a NameError
        if self._carried:
            defined = top_level_definitions(text)
            if any(self._carried.get(name, dumped) != dumped for name, dumped in defined.items()):
                return None
        with host_log.suppress(RecursionError, ValueError):
            plain = ast.unparse(tree)
            return plain if all(word in text or word in plain for word in self.words) else None
        return None

    def accept(self, text: str, key: str, result: ProbeResult | None) -> str:
        """Return the answer for a program, and note it. ``result`` is None if it was known."""
        self.status.answered += 1
        answer = self._answers.answer_of(key) or core.OTHER
        if result is not None:
            answer = result.answer
            self.last = result.last or self.last
            self.has_failed_eager = result.has_failed_eager
            self._is_eager_slow |= result.is_eager_slow
            facts = {"lines": count_code_lines(text), "trying": self.status.trying}
            if self.last is not None and answer == core.OTHER:
                facts["title"] = self.last.signature.title[:200]
            self._answers.note(key, answer, **facts)
        if answer == core.SAME:
            self._has_begun = True
            self.on_same(text)
        return answer

    def forget_answers(self, text: str = "") -> None:
        """Forget all answers, or that of ``text``, because programs now run in another way."""
        if not text:
            self._answers.forget()
        elif key := self.examine(text)[0]:
            self._answers.forget(key)

    def _key(self, canonical: str) -> str:
        """Return the key of an answer: program, signature, interpreter and isolation."""
        plain = f"{canonical} {self.wanted.id} {self.python}"
        plain += json.dumps([*self.ways.names, self.limits.checks_syntax, self.limits.is_simulated])
        if self.limits.alone:
            plain += json.dumps(self.limits.alone, sort_keys=True)
        return hashlib.sha256(plain.encode("utf-8", "replace")).hexdigest()[:24]

    @property
    def last_outcome(self) -> str:
        """The answer and the title of the last run that decided an answer."""
        return (
            f"{self.last.answer}: {self.last.signature.title}" if self.last else "nothing was run"
        )

    def keep_profile(self, variant: CompileVariant | None, profile: ProgramAblation) -> bool:
        """Require of each program what the original does with a backend; return False if nothing is
        required anew.
        """
        if not self.ways.keep_profile(variant, profile):
            return False
        self.forget_answers()
        return True

    def _has_other_profile(self, text: str) -> bool:
        """Return whether a program fails in a way in which the original passes, or the reverse."""
        if self.is_cold or self.limits.compares:
            return False  # a location is checked for wrong results
        for way, fails in ((self.ways.must_pass, False), (self.ways.must_fail, True)):
            if way is not None:
                judged = self._warm(text, False, overrides=way.overrides)
                is_known = judged.answer != core.UNRESOLVED
                if is_known and (judged.answer == core.SAME) != fails:
                    return True
        return False

    def run_once(self, text: str, is_eager: bool = False) -> CandidateResult:
        """Run the program once, in a forked child or a fresh process as set, and judge it."""
        if self.is_cold:
            return self.run_fresh(text, is_eager)
        if self.limits.sizes and not is_eager:
            return judge_growth(
                lambda program, size: self._warm(program, False), text, self.wanted, self.limits
            )
        if is_eager or not self.limits.compares:
            way = None if is_eager else self.ways.candidates
            return self._warm(text, is_eager, overrides=way.overrides if way else None)
        results = self.server.folder / f"{RESULTS_FOLDER}-search"
        deletion.delete_path(results, inside=self.server.folder)
        try:
            return judge_results(
                lambda role: self._warm(text, role in UNCOMPILED_ROLES, role, results), self.wanted
            )
        finally:
            deletion.delete_path(results, inside=self.server.folder)

    def _probe(self, text: str) -> ProbeResult:
        """Run a program as often as its answer needs: eager first, then compiled."""
        is_eager_slow = self._is_eager_slow
        eager: CandidateResult | None = None

        def fails_in_eager() -> bool:
            nonlocal eager
            eager = self.run_once(self._with_guard(text), is_eager=True)
            return eager.verdict.kind != "ok"

        def eager_result() -> ProbeResult:
            assert eager is not None
            has_failed = eager.verdict.kind != "unknown"
            answer = core.OTHER if has_failed else core.UNRESOLVED
            return ProbeResult(answer, eager, has_failed, eager.cpu_s > SLOW_EAGER_S)

        # a comparison and a simulation have an eager run of their own
        limits = self.limits
        has_eager = not (limits.compares or limits.is_kernel or limits.is_simulated)
        if has_eager and not is_eager_slow and fails_in_eager():
            return eager_result()
        for _ in range(core.repeats_for(self.rate)):
            judged = self.run_once(text)
            if judged.answer not in (core.PASSES, core.UNRESOLVED):
                break
            if self.budget.left_s < 0:
                raise BudgetExhausted
        if judged.answer == core.SAME and is_eager_slow and has_eager and fails_in_eager():
            return eager_result()
        is_larger = judged.cpu_s > self.limits.most_cpu_s
        if judged.answer == core.SAME and (is_larger or self._has_other_profile(text)):
            judged = dataclasses.replace(judged, answer=core.OTHER)
        is_slow = eager is not None and eager.cpu_s > SLOW_EAGER_S
        return ProbeResult(judged.answer, judged, judged.has_failed_eager, is_slow)

    def _with_guard(self, text: str) -> str:
        """Return a program that fails in eager if it does not reach the statement of the program
        that raises when it is compiled, if the first program reaches it.
        """
        if not self._first or self._keeps_guard is False:
            return text
        checked = guarded_raises.with_check(text, self.wanted.parts.what)
        if checked and self._keeps_guard is None:
            first = guarded_raises.with_check(self._first, self.wanted.parts.what)
            self._keeps_guard = bool(first) and self.run_once(first, True).verdict.kind == "ok"
        return checked if checked and self._keeps_guard else text

    def _warm(
        self,
        text: str,
        is_eager: bool,
        role: str = "",
        results: Path | None = None,
        overrides: Mapping[str, Any] | None = None,
    ) -> CandidateResult:
        left_s = max(self.budget.left_s, 0.1)
        is_quick = is_eager and self._has_begun and not self._is_eager_slow
        most_s = min(self.limits.deadline_s, EAGER_S if is_quick else math.inf)
        limits = dataclasses.replace(self.limits, deadline_s=min(most_s, left_s))
        try:
            outcome, folder = self.server.run_program(
                text,
                limits,
                is_eager,
                role,
                overrides or role_overrides(role, limits),
                results,
            )
        except ServerLost as problem:
            self._restarts += 1
            if self._restarts > MAX_RESTARTS:
                raise BadInput(
                    f"{problem}; it was started {plural(self._restarts, 'time')}"
                ) from problem
            gone = Verdict("unknown", None, "server", str(problem))
            return CandidateResult(
                core.UNRESOLVED, gone, Signature("", str(problem), self.wanted.algorithm)
            )
        try:
            if outcome.is_timed_out and limits.deadline_s < most_s:
                raise BudgetExhausted  # the budget ended this run, so it has no answer
            request = candidate_request(folder / run_names.REPRO_FILE, self.python, self.limits)
            return judge_candidate(request, outcome, folder, self.wanted, self.limits)
        finally:
            deletion.delete_path(folder, inside=self.server.folder)

    def run_fresh(self, text: str, is_eager: bool = False) -> CandidateResult:
        """Run the program in a fresh process, and judge it."""
        folder = self._folder / "cold"
        try:
            return run_in_fresh_process(
                self.finish(text), self.python, folder, self.wanted, self.limits, is_eager
            )
        finally:
            deletion.delete_path(folder, inside=self._folder)
