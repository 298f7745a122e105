"""Find the conditions that a proved program needs of the machine, the process and the settings.

What lines of the program can change is changed in forked children of the probe server. What only
the environment of a process can change was tried by one run of the proof; only if that run did not
fail, more fresh processes find out why.
"""

from __future__ import annotations

import ctypes.util
import dataclasses
import os
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from reprokit.core.experiments import condition_lines, failure_conditions, known_conditions
from reprokit.core.experiments.failure_conditions import Condition, Conditions
from reprokit.core.experiments.known_conditions import Machine
from reprokit.core.judge import same_failure
from reprokit.core.records.finding import Signature
from reprokit.host.probe.candidate import CandidateResult, ProbeLimits
from reprokit.host.probe.client import ProbeServer, ServerLost
from reprokit.host.probe.forked_child import run_in_forked_child
from reprokit.host.probe.fresh_process import run_in_fresh_process
from reprokit.host.system import compiler_cache, deletion, host_log
from reprokit.host.system.progress import OperationStatus

MIN_BUDGET_CPU_S = 20.0
"""CPU seconds that the search may take after a short reduction."""
LINES_BUDGET_CPU_S = 20.0
"""The same for the lines with which a repro sets what the search has found."""
MIN_COMMAND_CPU_S = 60.0
"""The same for ``reprokit conditions``, which also tries each value alone."""
OTHER_COMPILERS = ("clang++", "g++-14", "g++-13", "g++-12", "g++-11")
ALLOCATORS = ("jemalloc", "tcmalloc", "tcmalloc_minimal", "mimalloc")


class _Spent(Exception):
    """The budget is used up."""


@dataclass(frozen=True)
class Program:
    """A program with a failure, and how to run it."""

    text: str
    python: str
    wanted: Signature
    limits: ProbeLimits
    rate: float = 1.0
    """The share of runs in which it fails."""


class ConditionFinder:
    """The search for the conditions of one program."""

    def __init__(
        self,
        program: Program,
        machine: Machine,
        server: ProbeServer,
        folder: Path,
        budget_cpu_s: float,
        show: Callable[[OperationStatus], None] = lambda status: None,
        is_thorough: bool = False,
    ) -> None:
        """``folder`` is deleted and written; the search ends after ``budget_cpu_s``.

        With ``is_thorough``, it also asks conditions that take two runs each, and each value of
        each condition alone.
        """
        self._is_thorough = is_thorough
        self._program, self._server, self._folder, self._show = program, server, folder, show
        self._status = OperationStatus("looking for the conditions of the failure")
        self._limits = dataclasses.replace(program.limits, stop=None, alone={})
        self._of_program = known_conditions.conditions_of(machine, program.text)
        self._of_process = known_conditions.conditions_of_environment(machine, program.text)
        self._of_one = known_conditions.conditions_asked_alone(machine) if is_thorough else ()
        self._fresh_cpu_s, self._server_cpu_s = 0.0, server.cpu_s
        self._budget_cpu_s = budget_cpu_s
        self._asked = (
            (self._of_program, self._answer_with_lines),
            (self._of_process, self._answer_with_variables),
        )
        self._is_cold = False
        self._fails_there: bool | None = None
        """Whether the unchanged program fails in a forked child; None before it was asked."""

    @property
    def cpu_s(self) -> float:
        """CPU seconds that the search has taken."""
        return self._fresh_cpu_s + self._server.cpu_s - self._server_cpu_s

    def run_unchanged(self) -> CandidateResult:
        """Run the program as it is in fresh processes, until one shows the failure."""
        for _ in range(same_failure.repeats_for(self._program.rate)):
            judged = self._run_fresh(self._program.text, {})
            if judged.answer == same_failure.SAME:
                break
        return judged

    def find(self, changed: str = "") -> Conditions:
        """Return what the program needs.

        ``changed`` is the answer of a run with ``CHANGED_VARIABLES``, where there was one.
        """
        of_program = self._search(self._of_program, self._answer_with_lines)
        of_process = self._of_process
        if known_conditions.INSTRUCTIONS in dict(of_program.needed):
            # ATEN_CPU_CAPABILITY also changes those of generated code
            of_process = tuple(c for c in of_process if c.name != known_conditions.OF_ATEN)

        def answer(some: tuple[Condition, ...]) -> str:
            is_changed = changed and len(some) == len(self._of_process)
            return changed if is_changed else self._answer_with_variables(some)

        lines: list[str] = []
        found = failure_conditions.merged(of_program, self._search(of_process, answer))
        for one in self._of_one:
            alone = self._search((one,), self._answer_with_variables)
            found = failure_conditions.merged(found, alone)
        if found.needed:
            budget_cpu_s = self._budget_cpu_s
            self._budget_cpu_s = max(budget_cpu_s, self.cpu_s + LINES_BUDGET_CPU_S)
            try:
                for some, ask in self._asked:
                    lines += condition_lines.program_lines(some, found, ask)
            except (_Spent, ServerLost) as problem:
                host_log.log_ignored(problem)
            self._budget_cpu_s = budget_cpu_s
        more = self._every_value() if self._is_thorough else ()
        return dataclasses.replace(found, lines=tuple(lines), tried=(*found.tried, *more))

    def _search(
        self, some: tuple[Condition, ...], answer: Callable[[tuple[Condition, ...]], str]
    ) -> Conditions:
        try:
            return failure_conditions.find_conditions(some, answer)
        except (_Spent, ServerLost) as problem:
            host_log.log_ignored(problem)
            return Conditions(unknown=tuple(c.name for c in some))

    def _every_value(self) -> tuple[failure_conditions.Tried, ...]:
        tried = []
        try:
            for some, ask in self._asked:
                for one in (one for condition in some for one in condition.each_change()):
                    tried.append(failure_conditions.Tried((one.changed_to,), ask((one,))))
        except (_Spent, ServerLost) as problem:
            host_log.log_ignored(problem)
        return tuple(tried)

    def _answer_with_lines(self, changed: tuple[Condition, ...]) -> str:
        text = condition_lines.with_lines(self._program.text, condition_lines.lines_of(changed))
        self._status.trying = ", ".join(c.changed_to for c in changed)
        answer = self._run(lambda: self._run_lines(text))
        if answer != same_failure.SAME and not self._is_cold and not self._fails_in_child():
            self._is_cold = True
            answer = self._run(lambda: self._run_lines(text))
        return answer

    def _fails_in_child(self) -> bool:
        """Return whether the unchanged program fails in a forked child too."""
        if self._fails_there is None:
            answer = self._run(lambda: self._run_lines(self._program.text))
            self._fails_there = answer == same_failure.SAME
        return self._fails_there

    def _run_lines(self, text: str) -> CandidateResult:
        program = self._program
        if self._is_cold:
            return self._run_fresh(text, {})
        return run_in_forked_child(self._server, text, program.wanted, self._limits, program.python)

    def _answer_with_variables(self, changed: tuple[Condition, ...]) -> str:
        self._status.trying = ", ".join(c.changed_to for c in changed)
        variables = condition_lines.variables_of(changed)
        if not any(condition.changes[0].is_warm for condition in changed):
            return self._run(lambda: self._run_fresh(self._program.text, variables))
        cache = self._folder.with_name(f"{self._folder.name}-cache")
        named = compiler_cache.plain_path(cache)
        variables |= {
            "TORCHINDUCTOR_CACHE_DIR": str(named),
            "TRITON_CACHE_DIR": str(named / "triton"),
        }

        def run_twice() -> CandidateResult:
            self._run_fresh(self._program.text, variables)
            return self._run_fresh(self._program.text, variables)

        try:
            return self._run(run_twice)
        finally:
            deletion.delete_path(cache, inside=self._folder.parent)

    def _run_fresh(self, text: str, variables: Mapping[str, str]) -> CandidateResult:
        program = self._program
        judged = run_in_fresh_process(
            text,
            program.python,
            self._folder,
            program.wanted,
            self._limits,
            variables=variables,
        )
        self._fresh_cpu_s += judged.cpu_s
        return judged

    def _run(self, run: Callable[[], CandidateResult]) -> str:
        """Return the answer of a run; a flaky program passes only if all repeats do."""
        answer = same_failure.PASSES
        for _ in range(same_failure.repeats_for(self._program.rate)):
            if self.cpu_s > self._budget_cpu_s:
                raise _Spent("the budget of CPU seconds is used up")
            self._show(self._status)
            self._status.done += 1
            judged = run()
            # the program itself checks the condition
            answer = same_failure.PASSES if judged.unmet else judged.answer
            if answer == same_failure.SAME:
                break
        return answer


def other_compilers() -> tuple[str, ...]:
    """Return the C++ compilers of this machine besides the usual one."""
    usual = os.path.realpath(shutil.which("g++") or "")
    found = {name: shutil.which(name) for name in OTHER_COMPILERS}
    return tuple(name for name, path in found.items() if path and os.path.realpath(path) != usual)


def machine_of(facts: Mapping[str, Any], is_thorough: bool = False) -> Machine | None:
    """Return the machine of an inventory; None if it does not know the CPU.

    ``is_thorough`` looks for other C++ compilers and allocators.
    """
    torch_facts, cpu = facts.get("torch"), facts.get("cpu")
    if not isinstance(torch_facts, Mapping) or not isinstance(cpu, Mapping):
        return None
    return Machine(
        str(torch_facts.get("cpu_capability") or "DEFAULT"),
        int(torch_facts.get("threads") or 1),
        int(cpu.get("usable") or 1),
        other_compilers() if is_thorough else (),
        tuple(filter(None, map(ctypes.util.find_library, ALLOCATORS))) if is_thorough else (),
    )
