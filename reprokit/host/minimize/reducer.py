"""One reduction: the order of the starting points, and the order of the passes over a program."""

from __future__ import annotations

import ast
import dataclasses
import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from reprokit.core.experiments.ablation import TRACED
from reprokit.core.judge import same_failure
from reprokit.core.judge.responsible import ownership
from reprokit.core.judge.stacks.location import plural
from reprokit.core.records.finding import Verdict
from reprokit.core.records.observation import Observation
from reprokit.core.reduce import assertions, readable, sized_program, subsets
from reprokit.core.reduce.graphs import graph_units, subgraph
from reprokit.core.reduce.graphs import value_properties as properties
from reprokit.core.reduce.passes import statements
from reprokit.core.reduce.project import origins
from reprokit.core.shared.contract.measured_kinds import PEAK_MEMORY
from reprokit.host.minimize import apply_passes, cut_by_run
from reprokit.host.minimize.answers.oracle import BudgetExhausted, Oracle
from reprokit.host.minimize.candidate_text import count_code_lines
from reprokit.host.minimize.minimize_result import MinimizeResult, repro_cost
from reprokit.host.minimize.starts.starting_points import (
    LEVEL_NAMES,
    SEEDS,
    StartingPoint,
    hinted_units,
    with_seeds,
)
from reprokit.host.system import files, host_log

FLAKY_TRIES = 10
GOOD_LINES = 14
"""If a repro from a graph is not longer than this, the source is not tried."""
HEALTHY_MULTIPLE = 4.0
MIN_HANG_DEADLINE_S = 4.0
ENDLESS_S = 15.0
"""Seconds that a probe may take to trace one line until that counts as an endless loop."""
MIN_PASS_S = 15.0
"""Seconds that a probe may always take, if the failure is not a hang."""
PASS_MULTIPLE = 2.5
MIN_LARGER_S, LARGER_MULTIPLE = 3.0, 2.5
"""A candidate that takes these CPU seconds more than this multiple of the first one is larger: it
runs more than the program that it comes from. A C++ compile takes fewer.
"""
MIN_DEADLINE_S = 60.0
EAGER_SEEDS = 3, 4, 5, 6
"""The seeds with which a program that draws values must pass in eager."""
OWN_BACKEND = re.compile(r"\bbackend=(?!['\"]inductor['\"])")
INTEGER_RANGE = re.compile(r"torch\.randint\(-?\d+, -?\d+, ")
USUAL_RANGE = "torch.randint(0, 2, "


class Reducer:
    """One reduction: the best so far, and the steps that make it smaller."""

    def __init__(
        self,
        oracle: Oracle,
        result: MinimizeResult,
        folder: Path,
        verdict: Verdict,
        seen: Observation,
        say: Callable[[str], None],
    ) -> None:
        self._oracle, self._result, self._folder = oracle, result, folder
        self._verdict, self._seen, self._say = verdict, seen, say
        self._level = self._graph_level = ""
        self._depends_on: list[str] = []
        self._has_too_many_values = False
        """The program has more recorded values than may leave the machine."""
        self._passing: set[str] = set()
        self._bests: list[StartingPoint] = []
        """The best programs so far, each smaller than the one before."""
        self.passes_in_eager = True
        """Whether the original passes without torch.compile, as far as is known."""
        self.finished = ""
        """The program as the pack has it, once the proof has run."""
        self.began, self.budget = time.monotonic(), oracle.budget
        """Monotonic times: its start, and the end of its budget."""
        oracle.on_same = self.keep_best

    def keep_best(self, text: str) -> None:
        """Keep a program that shows the failure, if it is the best so far."""
        result = self._result
        if self._has_too_many_values or (
            result.text and repro_cost(text) >= repro_cost(result.text)
        ):
            return
        self._replace_best(text)

    def _replace_best(self, text: str) -> None:
        is_valued = self._level in properties.LEVELS
        result = self._result
        result.text, result.proof, result.depends_on = text, None, list(self._depends_on)
        result.level = self._graph_level if is_valued else self._level
        if not is_valued:
            self._bests.append(StartingPoint(self._level, text))
        self._oracle.status.lines = count_code_lines(text)
        with host_log.suppress(OSError):
            files.write_atomically(self._folder / "best.py", text)
        if result.first_s is None:
            result.first_s = round(time.monotonic() - self.began, 1)
            lines = plural(self._oracle.status.lines, "line")
            self._say(f"reducing a program of {lines} that fails: {self._folder / 'best.py'}")

    def best_with_profile(self) -> list[StartingPoint]:
        """Return the smallest of the best programs so far that fails as is now required; none if
        the first one does not, or the budget ended.

        The programs up to some step of the reduction have the property. A binary search finds the
        last of them.
        """
        bests, self._bests = self._bests, []
        low, high = 0, len(bests)
        self._oracle.budget = self.budget
        with host_log.suppress(BudgetExhausted):
            while low < high:
                middle = (low + high) // 2
                self._oracle.begin_program(bests[middle].text)
                is_kept = self._oracle.shows_failure(bests[middle].text)
                low, high = (middle + 1, high) if is_kept else (low, middle)
        return bests[low - 1 : low] if low else []

    def reduce_from(self, starts: list[StartingPoint]) -> None:
        """Reduce each starting point, and keep the best program.

        Raises:
            BudgetExhausted: the budget ended.
        """
        result, oracle = self._result, self._oracle
        usual, is_done = oracle.limits, False
        carried = [text for s in starts if s.graph for text in s.graph.settings.get("sources", ())]
        oracle.budget = self.budget
        for begins in (self._begins, self._is_flaky, self._begins_cold):
            for start in starts:
                is_valued = start.level in properties.LEVELS
                if is_done and (is_valued or start.level in ("aten", self._level)):
                    continue
                if is_done and result.text and repro_cost(result.text)[0] <= GOOD_LINES:
                    continue
                if start.level in properties.DRAWS and begins != self._begins:
                    continue
                self._level, oracle.limits, self._depends_on = start.level, usual, []
                self._has_too_many_values = start.level == "values"
                self._graph_level = start.graph.level if start.graph is not None else ""
                oracle.status.trying = f"the {LEVEL_NAMES[start.level]} as it is"
                is_own = self._verdict.phase == "backend" or oracle.hides_backend
                is_own &= OWN_BACKEND.search(start.text) is not None
                words = ["backend="] * is_own + ["manual_seed"] * (start.level in properties.DRAWS)
                words += _plain_check(self._seen.check, start.text)
                oracle.begin_program(start.text, carried, words)
                for what in start.missing:
                    self._note(f"the program does not have {what}")
                seeded = next((s for s in with_seeds(start) if begins(s)), None)
                if seeded is None:
                    continue
                result.began_lines = result.began_lines or count_code_lines(start.text)
                if not (text := start.text if start.graph is None else self._cut(seeded)):
                    continue
                if is_valued:
                    # a smaller range fails only with some seeds, and is not what is needed
                    ranges = INTEGER_RANGE.findall(text)
                    oracle.require_words([*oracle.words, *(r for r in ranges if r != USUAL_RANGE)])
                if self._verdict.phase in TRACED:
                    oracle.status.trying = "whether it needs a compiler after Dynamo"
                    if oracle.shows_failure(plain := statements.with_backend(text, "eager")):
                        # the reader sees that only Dynamo matters, and probes cost less
                        text = plain
                        oracle.require_words([*oracle.words, "backend="])
                if oracle.limits.measures == PEAK_MEMORY:
                    oracle.status.trying = "smaller tensors"
                    text = sized_program.with_smaller_tensors(text, oracle.shows_failure)
                if start.level == "source":
                    text = cut_by_run.cut_by_run(text, oracle, self._traced_function())
                text = apply_passes.apply_passes(text, oracle, self._note)
                if start.level == "source" and origins.reads_from_outside(text):
                    # such as a file whose contents were needed before the program was small
                    cut = cut_by_run.cut_by_run(text, oracle)
                    if cut != text:
                        text = apply_passes.apply_passes(cut, oracle, self._note)
                is_done = True
                self._settle_seed(text)
            if is_done or oracle.is_cold or oracle.rate < 1.0:
                break
        result.is_complete = is_done
        if not is_done:
            result.notes.append(
                "no self-contained program shows the failure: neither a recorded graph nor the"
                " source"
            )

    def _traced_function(self) -> str:
        """Return the name of the function that Dynamo traced when it failed; empty if unknown."""
        if self._verdict.phase not in TRACED:
            return ""
        place = ownership.traced_own(self._seen)
        return place.function if place is not None else ""

    def _begins(self, start: StartingPoint) -> bool:
        """Return True when the program as it is shows the failure in forked children.

        Try it first with the compile stopped after the phase of the failure, then without; and
        before, if a C++ compiler found an error, with a compiler that only checks the code. A peak
        of the memory is simulated first.
        """
        oracle, text = self._oracle, start.text
        changes: list[dict[str, Any]] = [{}]
        changes += [{"checks_syntax": False}] if oracle.limits.checks_syntax else []
        changes += [{"is_simulated": False}] if oracle.limits.is_simulated else []
        changes += [{"stop": None}] if oracle.limits.stop else []
        for change in changes:
            self._limit(**change)
            oracle.forget_answers(text)
            if oracle.shows_failure(text):
                self._settle()
                return True
            if oracle.has_failed_eager:
                self._note(
                    f"the {LEVEL_NAMES[start.level]} alone fails in eager: {oracle.last_outcome}"
                )
                return False
        if oracle.last_outcome.startswith(same_failure.PASSES):
            self._passing.add(text)
        self._note(f"the {LEVEL_NAMES[start.level]} alone does not show it: {oracle.last_outcome}")
        return False

    def _note(self, note: str) -> None:
        """Add a note, unless it was added before."""
        if note not in self._result.notes:
            self._result.notes.append(note)

    def _is_flaky(self, start: StartingPoint) -> bool:
        """Return True when a program that passed shows the failure in some of many runs."""
        oracle = self._oracle
        if start.text not in self._passing:
            return False
        oracle.status.trying = "whether it is flaky"
        self._limit(stop=None)
        answers: list[str] = []
        while len(answers) < FLAKY_TRIES and oracle.budget.left_s > 0:
            answers.append(oracle.run_once(start.text).answer)
        hits, tries = answers.count(same_failure.SAME), len(answers) + 1
        if not hits:
            return False
        self._result.notes.append(f"flaky: {hits} of {tries} runs of the first program showed it")
        self.repeat_probes(hits / tries)
        return oracle.shows_failure(start.text)

    def _begins_cold(self, start: StartingPoint) -> bool:
        """Return True when a fresh process shows the failure, although no forked child did."""
        oracle = self._oracle
        if (
            start.level == "aten"
            or oracle.budget.left_s < 0
            or oracle.run_fresh(start.text).answer != same_failure.SAME
        ):
            return False
        self.use_fresh_processes()
        return oracle.shows_failure(start.text)

    def use_fresh_processes(self) -> None:
        """Run every later probe in a fresh process."""
        self._result.notes.append(
            "forked processes and fresh processes gave different answers, so reprokit used only"
            " fresh processes"
        )
        self._oracle.is_cold = True
        self._oracle.forget_answers()
        self._result.text, self._result.proof = "", None

    def repeat_probes(self, rate: float) -> None:
        """Repeat each probe that passes, because the failure shows only in ``rate`` of the runs."""
        self._oracle.rate = rate
        self._oracle.forget_answers()

    def _limit(self, **changes: Any) -> None:
        self._oracle.limits = dataclasses.replace(self._oracle.limits, **changes)

    def _settle(self) -> None:
        """Set the deadline of later probes from the time of the first one."""
        last = self._oracle.last
        if last is None:
            return
        if self._seen.endless_line:
            self._limit(deadline_s=ENDLESS_S)
        elif self._oracle.limits.is_slow:
            return
        elif self._verdict.kind == "hang":
            self._limit(deadline_s=max(MIN_HANG_DEADLINE_S, HEALTHY_MULTIPLE * last.healthy_s))
        else:
            self._limit(
                deadline_s=max(MIN_PASS_S, PASS_MULTIPLE * last.seconds),
                most_cpu_s=MIN_LARGER_S + LARGER_MULTIPLE * last.cpu_s,
            )

    def _cut(self, start: StartingPoint) -> str:
        """Return the smallest program of units of the graph that shows the failure.

        Return an empty text if it needs too many recorded values.
        """
        result, oracle = self._result, self._oracle
        assert start.graph is not None
        recorded, graph, places = start.graph, start.graph, list(start.units)
        result.began_nodes = result.began_nodes or len(places)
        hints = hinted_units(graph, self._verdict, self._seen)
        oracle.status.trying = f"which of {len(places)} nodes are needed"

        def holds(some: list[int]) -> bool | None:
            program = subgraph.program_of_units(recorded, some)
            return same_failure.has_failure(oracle.answer_for(program))

        implied = subsets.Implied[int](lambda some: holds(some) if some else False)
        kept = subsets.smallest_subset(
            places, implied.holds, hints, lambda i: recorded.units[i].kind
        )
        if start.properties:
            graph = self._needed_properties(graph, kept, start.properties)
            if self._has_too_many_values:
                result.notes.append(
                    f"the {LEVEL_NAMES[start.level]} shows it, but needs more than"
                    f" {properties.MAX_WRITTEN_VALUES} values, too many to write into a program"
                )
                return ""
        # probe the final layout now, so that its answer is known later
        bare = subgraph.program_of_units(graph, kept, is_bare=True)
        text = bare if oracle.shows_failure(bare) else subgraph.program_of_units(graph, kept)
        return readable.plain_names(text, oracle.shows_failure)

    def _needed_properties(
        self,
        graph: graph_units.GraphProgram,
        units: list[int],
        found: tuple[properties.ValueProperty, ...],
    ) -> graph_units.GraphProgram:
        """Return the graph with only those properties of its inputs' values that the failure needs.

        The values are the user's data.
        """
        oracle = self._oracle
        oracle.status.trying = "which values are needed"

        def holds(some: list[properties.ValueProperty]) -> bool:
            changed = properties.with_properties(graph, some)
            return oracle.shows_failure(subgraph.program_of_units(changed, units))

        kept = subsets.leave_out(found, holds)
        self._has_too_many_values = properties.written_values(kept) > properties.MAX_WRITTEN_VALUES
        if not self._has_too_many_values:
            for index, one in enumerate(kept):
                choices = ([*kept[:index], r, *kept[index + 1 :]] for r in properties.rounded(one))
                kept = next((choice for choice in choices if holds(choice)), kept)
            self._depends_on = properties.describe_properties(graph.values, kept)
        return properties.with_properties(graph, kept)

    def _settle_seed(self, text: str) -> None:
        """Put a seed into the best program only if the failure depends on it."""
        oracle, result = self._oracle, self._result
        is_seeded = "manual_seed" in text
        if result.text != text or oracle.rate < 1.0 or oracle.limits.is_slow:
            return
        plain = readable.with_seed(text, None)
        if not (is_seeded or assertions.draws_random(plain)):
            return
        oracle.status.trying = "whether the seed matters"
        oracle.require_words([word for word in oracle.words if word != "manual_seed"])
        answers: dict[int, bool] = {}
        with host_log.suppress(BudgetExhausted):
            if assertions.draws_random(plain):
                for seed in SEEDS[1:]:
                    answers[seed] = oracle.shows_failure(readable.with_seed(text, seed))
            if all(answers.values()):
                if self._has_invalid_draws(plain):
                    self._depends_on.append(
                        "Without a seed, the program may draw values with which it fails without"
                        " torch.compile."
                    )
                    self._replace_best(readable.with_seed(text, SEEDS[1]))
                elif is_seeded and oracle.shows_failure(plain):
                    self._replace_best(plain)
                return
            answers[SEEDS[0]] = oracle.shows_failure(readable.with_seed(text, SEEDS[0]))
        failing = [seed for seed, is_same in sorted(answers.items()) if is_same]
        passing = [seed for seed, is_same in sorted(answers.items()) if not is_same]
        if failing and passing:
            self._depends_on.append(
                "The failure depends on the random values that the program draws: it fails with"
                f" {_seeds(failing)} and not with {_seeds(passing)}."
            )
            self._replace_best(text if is_seeded else readable.with_seed(text, failing[0]))

    def _has_invalid_draws(self, plain: str) -> bool:
        """Return whether a program fails in eager with some random values, such as a label that is
        no class of the model.
        """
        oracle = self._oracle
        is_asked = self.passes_in_eager and not (oracle.is_cold or oracle.limits.is_kernel)
        if not is_asked or not assertions.draws_random(plain):
            return False
        oracle.status.trying = "whether all of its random values are valid"
        with host_log.suppress(BudgetExhausted):
            return any(
                oracle.run_once(readable.with_seed(plain, seed), is_eager=True).verdict.kind != "ok"
                for seed in EAGER_SEEDS
            )
        return False


def _plain_check(check: str, text: str) -> list[str]:
    """Return the check of a program without its layout, if the line is a whole statement of it.

    A smaller program keeps it, because a different check would be a different failure.
    """
    with host_log.suppress(SyntaxError, ValueError, RecursionError):
        plain = ast.unparse(ast.parse(check))
        return [plain] if plain and plain in ast.unparse(ast.parse(text)) else []
    return []


def _seeds(seeds: list[int]) -> str:
    return f"seed{'s' * (len(seeds) > 1)} {' and '.join(map(str, seeds))}"
