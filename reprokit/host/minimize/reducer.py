"""The ladder of one reduction: which program to begin with, what to leave out of it first, and what
of each is kept.
"""

from __future__ import annotations

import contextlib
import dataclasses
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from reprokit.core.judge import same_failure
from reprokit.core.records.finding import Verdict
from reprokit.core.records.observation import Observation
from reprokit.core.reduce import ast_edits, graph_units, readable, subgraph, subsets
from reprokit.core.reduce.passes import (
    dead_code,
    inline_classes,
    kernel_arguments,
    statements,
    straight_line,
)
from reprokit.core.shared import cuts
from reprokit.core.shared.errors import BadInput
from reprokit.host.minimize.minimize_result import MinimizeResult, repro_cost
from reprokit.host.minimize.oracle import BudgetExhausted, Oracle, lines_of
from reprokit.host.minimize.starting_points import NAMES, StartingPoint, hinted_graphs
from reprokit.host.probe.client import ServerLost
from reprokit.host.system import files

TRACED = frozenset({"dynamo-trace", "guards"})
"""Phases of failures that any backend shows; the one that only runs the graph answers soonest."""
FLAKY_TRIES = 10
GOOD_LINES = 14
"""A repro from a graph that is not longer needs no rival from the source."""
HEALTHY_MULTIPLE = 4.0
LEAST_HANG_S = 4.0
ENDLESS_S = 15.0
"""Served seconds to trace one line as often as is called endless."""
LEAST_PASS_S = 15.0
"""Served seconds that a compile may take behind the phase of the failure."""
LEAST_DEADLINE_S = 60.0


class Reducer:
    """One reduction: the best so far, and the steps that make it smaller."""

    def __init__(
        self,
        asker: Oracle,
        found: MinimizeResult,
        folder: Path,
        verdict: Verdict,
        seen: Observation,
    ) -> None:
        self._ask, self._found, self._folder = asker, found, folder
        self._verdict, self._seen = verdict, seen
        self._level = ""
        self._passing: set[str] = set()
        self.finished = ""
        """The program as it leaves, once it has been proved."""
        self.ends = float("inf")
        """Monotonic time at which the budget ends."""
        asker.on_same = self.keep

    def keep(self, text: str) -> None:
        """Note a program that shows the failure, when it is the best so far."""
        found = self._found
        if found.text and repro_cost(text) >= repro_cost(found.text):
            return
        found.text, found.level, found.proof = (
            text,
            "dynamo" if self._level == "values" else self._level,
            None,
        )
        self._ask.status.lines = lines_of(text)
        with contextlib.suppress(OSError):
            files.write_whole(self._folder / "best.py", text)

    def run(self, starts: list[StartingPoint]) -> None:
        """Climb: what each start gives is kept when it is the best; raises Spent when the budget
        has ended.
        """
        found, asker = self._found, self._ask
        usual, is_done = asker.limits, False
        carried = [text for s in starts if s.graph for text in s.graph.settings.get("sources", ())]
        asker.ends = self.ends
        for begins in (self._begins, self._is_flaky, self._begins_cold):
            for start in starts:
                if is_done and (start.level in ("aten", "values", self._level) or self._is_good()):
                    continue
                self._level, asker.limits = start.level, usual
                asker.status.trying = f"the {NAMES[start.level]} as it is"
                is_own = self._verdict.phase == "backend" and "backend=" in start.text
                asker.begin(start.text, carried, "backend=" if is_own else "")
                if not begins(start):
                    continue
                found.began_lines = found.began_lines or lines_of(start.text)
                text = start.text if start.graph is None else self._cut(start)
                if self._verdict.phase in TRACED:
                    asker.status.trying = "whether it takes a compiler behind Dynamo"
                    if asker.holds(plain := statements.with_backend(text, "eager")):
                        text, asker.word = (
                            plain,
                            "backend=",
                        )  # who reads it knows where to look, and probes cost less
                before = ""
                while text != before:
                    before, text = text, self._pass_over(text)
                is_done = True
            if is_done or asker.is_cold or asker.rate < 1.0:
                break
        found.is_complete = is_done
        if not is_done:
            found.notes.append(
                "no program that stands alone shows the failure: neither a recorded graph nor the"
                " source"
            )

    def _is_good(self) -> bool:
        return bool(self._found.text) and repro_cost(self._found.text)[0] <= GOOD_LINES

    def _begins(self, start: StartingPoint) -> bool:
        """The program as it is shows the failure, stopped behind its phase or compiled to the
        end.
        """
        asker, text = self._ask, start.text
        for change in ({}, {"stop": None}) if asker.limits.stop else ({},):
            self._limit(**change)
            asker.forget(text)
            if asker.holds(text):
                self._settle()
                return True
            if asker.has_failed_eager:
                self._found.notes.append(
                    f"the {NAMES[start.level]} alone fails in eager: {asker.said}"
                )
                return False
        if asker.said.startswith(same_failure.PASSES):
            self._passing.add(text)
        self._found.notes.append(f"the {NAMES[start.level]} alone does not show it: {asker.said}")
        return False

    def _is_flaky(self, start: StartingPoint) -> bool:
        """It passed; whether it shows in some of many runs."""
        asker = self._ask
        if start.text not in self._passing:
            return False
        asker.status.trying = "whether it is flaky"
        self._limit(stop=None)
        answers: list[str] = []
        while len(answers) < FLAKY_TRIES and time.monotonic() < asker.ends:
            answers.append(asker.once(start.text).answer)
        hits, tries = answers.count(same_failure.SAME), len(answers) + 1
        if not hits:
            return False
        self._found.notes.append(f"flaky: {hits} of {tries} runs of the first program showed it")
        self.go_patient(hits / tries)
        return asker.holds(start.text)

    def _begins_cold(self, start: StartingPoint) -> bool:
        """No forked child shows it: whether a fresh process does."""
        asker = self._ask
        if (
            start.level == "aten"
            or time.monotonic() > asker.ends
            or asker.cold(start.text).answer != same_failure.SAME
        ):
            return False
        self.go_cold()
        return asker.holds(start.text)

    def go_cold(self) -> None:
        """Ask fresh processes only from now on."""
        self._found.notes.append(
            "forked children answered differently from fresh processes, so only those were asked"
        )
        self._ask.is_cold = True
        self._ask.forget()
        self._found.text, self._found.proof = "", None

    def go_patient(self, rate: float) -> None:
        """The failure shows in ``rate`` of the runs: a pass is believed only after several."""
        self._ask.rate = rate
        self._ask.forget()

    def _limit(self, **changes: Any) -> None:
        self._ask.limits = dataclasses.replace(self._ask.limits, **changes)

    def _settle(self) -> None:
        """Know from the first answer how long others may take."""
        last = self._ask.last
        if last is None:
            return
        if self._seen.endless_line:
            self._limit(deadline_s=ENDLESS_S)
        elif self._ask.limits.is_slow:
            return
        elif self._verdict.kind == "hang":
            self._limit(deadline_s=max(LEAST_HANG_S, HEALTHY_MULTIPLE * last.healthy_s))
        else:
            self._limit(deadline_s=LEAST_PASS_S + HEALTHY_MULTIPLE * last.seconds)

    def _cut(self, start: StartingPoint) -> str:
        """Leave out units of the graph."""
        found, asker = self._found, self._ask
        graph, places = start.graph, list(start.places)
        assert graph is not None
        if start.data:
            graph = self._needed_values(graph, start)
        found.began_nodes = found.began_nodes or len(places)
        hints = hinted_graphs(graph, self._verdict, self._seen)
        asker.status.trying = f"which of {len(places)} nodes are needed"
        kept = subsets.smallest_subset(
            places,
            lambda some: bool(some) and asker.holds(subgraph.program_of_units(graph, some)),
            hints,
            lambda i: graph.units[i].kind,
        )
        # as it will read in the end: what is asked about it then need not be asked again
        bare = subgraph.program_of_units(graph, kept, is_bare=True)
        text = bare if asker.holds(bare) else subgraph.program_of_units(graph, kept)
        return readable.plain_names(text, asker.holds)

    def _needed_values(
        self, graph: graph_units.GraphProgram, start: StartingPoint
    ) -> graph_units.GraphProgram:
        """With the values of no more inputs than the failure needs: they are the user's."""
        asker = self._ask
        asker.status.trying = "whose values are needed"

        def with_some(names: list[str]) -> graph_units.GraphProgram:
            return graph_units.with_data(graph, {n: start.data[n] for n in names})

        kept = subsets.leave_out(
            list(start.data),
            lambda names: asker.holds(subgraph.program_of_units(with_some(names), start.places)),
        )
        return with_some(kept)

    def _pass_over(self, text: str) -> str:
        """Every pass once; one that stumbles over an odd program leaves it as it was."""
        for name, step in PASSES:
            self._ask.status.trying = name
            try:
                text = step(text, self._ask.holds)
            except (BudgetExhausted, BadInput, ServerLost, OSError):
                raise
            except Exception as problem:
                self._found.notes.append(
                    cuts.cut_head(
                        f"{name} could not be tried, by a defect of reprokit: {problem!r}", 300
                    )
                )
        return text


PASSES: tuple[tuple[str, Callable[[str, ast_edits.Test], str]], ...] = (
    ("a straight line", straight_line.straighten),
    ("names that nothing reads", dead_code.drop_unused),
    ("sizes of the model", statements.shrink_knobs),
    ("submodules alone", inline_classes.inline_submodules),
    ("statements", statements.drop_statements),
    ("arguments and elements", statements.drop_parts),
    ("steps between", statements.bypass_calls),
    ("equal inputs", dead_code.merge_arguments),
    ("numbers", statements.shrink_numbers),
    ("blocks", statements.unwrap_blocks),
    ("expressions", statements.simplify_expressions),
    ("loops", inline_classes.unroll_loops),
    ("constants", inline_classes.inline_constants),
    ("modules as functions", inline_classes.inline_functions),
    ("names that nothing reads", dead_code.drop_unused),
    ("arguments of a kernel", kernel_arguments.drop_kernel_arguments),
    ("public names", readable.public_names),
    ("a straight line", straight_line.straighten),
    ("names", readable.plain_names),
)
