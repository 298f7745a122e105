"""One reduction: the order of the starting points, and the order of the passes over a program."""

from __future__ import annotations

import dataclasses
import time
from pathlib import Path
from typing import Any

from reprokit.core.judge import same_failure
from reprokit.core.records.finding import Verdict
from reprokit.core.records.observation import Observation
from reprokit.core.reduce import graph_units, readable, subgraph, subsets
from reprokit.core.reduce.pass_table import PASSES
from reprokit.core.reduce.passes import statements
from reprokit.core.shared import cuts
from reprokit.core.shared.errors import BadInput
from reprokit.host.minimize.minimize_result import MinimizeResult, repro_cost
from reprokit.host.minimize.oracle import BudgetExhausted, Oracle, count_code_lines
from reprokit.host.minimize.starting_points import LEVEL_NAMES, StartingPoint, hinted_units
from reprokit.host.probe.client import ServerLost
from reprokit.host.system import files, host_log

TRACED = frozenset({"dynamo-trace", "guards"})
"""Phases of failures that every backend shows; the backend "eager" is the fastest to probe."""
FLAKY_TRIES = 10
GOOD_LINES = 14
"""If a repro from a graph is not longer than this, the source is not tried."""
HEALTHY_MULTIPLE = 4.0
MIN_HANG_DEADLINE_S = 4.0
ENDLESS_S = 15.0
"""Seconds that a probe may take to trace one line until that counts as an endless loop."""
MIN_PASS_S = 15.0
"""Seconds that a compile may take after the phase of the failure."""
MIN_DEADLINE_S = 60.0


class Reducer:
    """One reduction: the best so far, and the steps that make it smaller."""

    def __init__(
        self,
        oracle: Oracle,
        result: MinimizeResult,
        folder: Path,
        verdict: Verdict,
        seen: Observation,
    ) -> None:
        self._oracle, self._result, self._folder = oracle, result, folder
        self._verdict, self._seen = verdict, seen
        self._level = ""
        self._passing: set[str] = set()
        self.finished = ""
        """The program as the pack has it, once the proof has run."""
        self.ends = float("inf")
        """Monotonic time at which the budget ends."""
        oracle.on_same = self.keep_best

    def keep_best(self, text: str) -> None:
        """Keep a program that shows the failure, if it is the best so far."""
        result = self._result
        if result.text and repro_cost(text) >= repro_cost(result.text):
            return
        result.text, result.level, result.proof = (
            text,
            "dynamo" if self._level == "values" else self._level,
            None,
        )
        self._oracle.status.lines = count_code_lines(text)
        with host_log.suppress(OSError):
            files.write_atomically(self._folder / "best.py", text)

    def reduce_from(self, starts: list[StartingPoint]) -> None:
        """Reduce each starting point, and keep the best program.

        Raises:
            BudgetExhausted: the budget ended.
        """
        result, oracle = self._result, self._oracle
        usual, is_done = oracle.limits, False
        carried = [text for s in starts if s.graph for text in s.graph.settings.get("sources", ())]
        oracle.ends = self.ends
        for begins in (self._begins, self._is_flaky, self._begins_cold):
            for start in starts:
                if is_done and (start.level in ("aten", "values", self._level) or self._is_good()):
                    continue
                self._level, oracle.limits = start.level, usual
                oracle.status.trying = f"the {LEVEL_NAMES[start.level]} as it is"
                is_own = self._verdict.phase == "backend" and "backend=" in start.text
                oracle.begin_program(start.text, carried, "backend=" if is_own else "")
                lacks = [f"the program does not have {what}" for what in start.missing]
                result.notes += [note for note in lacks if note not in result.notes]
                if not begins(start):
                    continue
                result.began_lines = result.began_lines or count_code_lines(start.text)
                text = start.text if start.graph is None else self._cut(start)
                if self._verdict.phase in TRACED:
                    oracle.status.trying = "whether it needs a compiler after Dynamo"
                    if oracle.shows_failure(plain := statements.with_backend(text, "eager")):
                        # the reader sees that only Dynamo matters, and probes cost less
                        text, oracle.word = (
                            plain,
                            "backend=",
                        )
                before = ""
                while text != before:
                    before, text = text, self._pass_over(text)
                is_done = True
            if is_done or oracle.is_cold or oracle.rate < 1.0:
                break
        result.is_complete = is_done
        if not is_done:
            result.notes.append(
                "no self-contained program shows the failure: neither a recorded graph nor the"
                " source"
            )

    def _is_good(self) -> bool:
        return bool(self._result.text) and repro_cost(self._result.text)[0] <= GOOD_LINES

    def _begins(self, start: StartingPoint) -> bool:
        """Return True when the program as it is shows the failure in forked children.

        Try it first with the compile stopped after the phase of the failure, then without.
        """
        oracle, text = self._oracle, start.text
        for change in ({}, {"stop": None}) if oracle.limits.stop else ({},):
            self._limit(**change)
            oracle.forget_answers(text)
            if oracle.shows_failure(text):
                self._settle()
                return True
            if oracle.has_failed_eager:
                self._result.notes.append(
                    f"the {LEVEL_NAMES[start.level]} alone fails in eager: {oracle.last_outcome}"
                )
                return False
        if oracle.last_outcome.startswith(same_failure.PASSES):
            self._passing.add(text)
        self._result.notes.append(
            f"the {LEVEL_NAMES[start.level]} alone does not show it: {oracle.last_outcome}"
        )
        return False

    def _is_flaky(self, start: StartingPoint) -> bool:
        """Return True when a program that passed shows the failure in some of many runs."""
        oracle = self._oracle
        if start.text not in self._passing:
            return False
        oracle.status.trying = "whether it is flaky"
        self._limit(stop=None)
        answers: list[str] = []
        while len(answers) < FLAKY_TRIES and time.monotonic() < oracle.ends:
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
            or time.monotonic() > oracle.ends
            or oracle.run_fresh(start.text).answer != same_failure.SAME
        ):
            return False
        self.use_fresh_processes()
        return oracle.shows_failure(start.text)

    def use_fresh_processes(self) -> None:
        """Run every later probe in a fresh process."""
        self._result.notes.append(
            "forked children answered differently from fresh processes, so only fresh processes"
            " were used"
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
            self._limit(deadline_s=MIN_PASS_S + HEALTHY_MULTIPLE * last.seconds)

    def _cut(self, start: StartingPoint) -> str:
        """Return the smallest program of units of the graph that shows the failure."""
        result, oracle = self._result, self._oracle
        graph, places = start.graph, list(start.units)
        assert graph is not None
        if start.data:
            graph = self._needed_values(graph, start)
        result.began_nodes = result.began_nodes or len(places)
        hints = hinted_units(graph, self._verdict, self._seen)
        oracle.status.trying = f"which of {len(places)} nodes are needed"
        kept = subsets.smallest_subset(
            places,
            lambda some: (
                bool(some) and oracle.shows_failure(subgraph.program_of_units(graph, some))
            ),
            hints,
            lambda i: graph.units[i].kind,
        )
        # probe the final layout now, so that its answer is known later
        bare = subgraph.program_of_units(graph, kept, is_bare=True)
        text = bare if oracle.shows_failure(bare) else subgraph.program_of_units(graph, kept)
        return readable.plain_names(text, oracle.shows_failure)

    def _needed_values(
        self, graph: graph_units.GraphProgram, start: StartingPoint
    ) -> graph_units.GraphProgram:
        """Return the graph with the values of only those inputs that the failure needs.

        The values are the user's data.
        """
        oracle = self._oracle
        oracle.status.trying = "whose values are needed"

        def with_some(names: list[str]) -> graph_units.GraphProgram:
            return graph_units.with_data(graph, {n: start.data[n] for n in names})

        kept = subsets.leave_out(
            list(start.data),
            lambda names: oracle.shows_failure(
                subgraph.program_of_units(with_some(names), start.units)
            ),
        )
        return with_some(kept)

    def _pass_over(self, text: str) -> str:
        """Apply every pass once; a pass that raises leaves the program as it was."""
        for name, step in PASSES:
            self._oracle.status.trying = name
            try:
                text = step(text, self._oracle.shows_failure)
            except (BudgetExhausted, BadInput, ServerLost, OSError):
                raise
            except Exception as problem:
                self._result.notes.append(
                    cuts.cut_head(
                        f"{name} could not be tried, by a defect of reprokit: {problem!r}", 300
                    )
                )
        return text
