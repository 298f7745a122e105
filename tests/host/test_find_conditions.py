"""The search for the conditions of a failure, with runs whose answers and costs are given."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from reprokit.core.experiments import known_conditions
from reprokit.core.experiments.failure_conditions import Conditions
from reprokit.core.experiments.known_conditions import Machine
from reprokit.core.judge import same_failure
from reprokit.core.records.finding import Signature, Verdict
from reprokit.host.experiments import find_conditions
from reprokit.host.experiments.find_conditions import ConditionFinder, Program
from reprokit.host.probe.candidate import CandidateResult, ProbeLimits

TEXT = "import torch\n\ntorch.compile(torch.relu)(torch.ones(8))\n"
MACHINE = Machine(threads=2, cpus=2)
CPU_S = 2.0
"""What each run costs."""
WANTED = Signature("exception", "exception: backend | RuntimeError", 1)


class Runs:
    """Runs of the program, which fails unless one of ``needs`` is changed."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *needs: str, fails_in_child: bool = True):
        self.needs, self.fails_in_child = needs, fails_in_child
        self.server = SimpleNamespace(cpu_s=0.0)
        self.forked: list[str] = []
        self.fresh: list[tuple[str, Mapping[str, str]]] = []
        self.caches: list[list[str]] = []
        monkeypatch.setattr(find_conditions, "run_in_forked_child", self.run_forked)
        monkeypatch.setattr(find_conditions, "run_in_fresh_process", self.run_fresh)

    def run_forked(self, server: Any, text: str, *rest: Any) -> CandidateResult:
        self.forked.append(text)
        server.cpu_s += CPU_S
        return self._judged(self.fails_in_child and self._fails(text, {}))

    def run_fresh(
        self, text: str, python: str, folder: Path, *rest: Any, variables: Mapping[str, str]
    ) -> CandidateResult:
        self.fresh.append((text, variables))
        if cache := variables.get("TORCHINDUCTOR_CACHE_DIR"):
            Path(cache).mkdir(parents=True, exist_ok=True)
            self.caches.append(sorted(path.name for path in Path(cache).iterdir()))
            (Path(cache) / "entry").touch()
        return self._judged(self._fails(text, variables))

    def _fails(self, text: str, variables: Mapping[str, str]) -> bool:
        return not any(need in text or need in variables for need in self.needs)

    def _judged(self, fails: bool) -> CandidateResult:
        answer = same_failure.SAME if fails else same_failure.PASSES
        verdict = Verdict("exception" if fails else "ok", None, "test", "")
        return CandidateResult(answer, verdict, WANTED, cpu_s=CPU_S)

    def find(
        self, folder: Path, budget_cpu_s: float = 1000, is_thorough: bool = False
    ) -> Conditions:
        """Return what the search finds."""
        program = Program(TEXT, "python", WANTED, ProbeLimits(10))
        finder = ConditionFinder(
            program,
            MACHINE,
            self.server,  # type: ignore[arg-type]
            folder / "run",
            budget_cpu_s,
            is_thorough=is_thorough,
        )
        return finder.find()


@pytest.fixture
def names() -> set[str]:
    """The names of all conditions that a search without ``is_thorough`` asks."""
    asked = (
        *known_conditions.conditions_of(MACHINE, TEXT),
        *known_conditions.conditions_of_environment(MACHINE, TEXT),
    )
    return {condition.name for condition in asked}


def test_two_runs_show_that_nothing_is_needed(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, names: set[str]
) -> None:
    """A forked child with all lines and a fresh process with all variables both fail."""
    runs = Runs(monkeypatch)
    found = runs.find(tmp_path)
    assert not found.needed and set(found.irrelevant) == names
    assert (len(runs.forked), len(runs.fresh)) == (1, 1)


def test_a_needed_value_is_set_by_lines_of_the_program(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, names: set[str]
) -> None:
    runs = Runs(monkeypatch, "torch.set_num_threads(1)")
    found = runs.find(tmp_path)
    assert list(found.needed) == [("OpenMP threads", "2 threads")]
    assert "torch.set_num_threads(2)" in found.lines
    assert set(found.irrelevant) == names - {"OpenMP threads"}


def test_a_program_that_fails_in_no_forked_child_runs_in_fresh_processes(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, names: set[str]
) -> None:
    """A child that passes with changes may pass without them too: then it says nothing."""
    runs = Runs(monkeypatch, fails_in_child=False)
    found = runs.find(tmp_path)
    assert not found.needed and set(found.irrelevant) == names
    assert [TEXT in text for text in runs.forked] == [False, True]


def test_a_thorough_search_also_tries_each_value_and_a_filled_cache(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The second run with a cache finds the entry of the first one. The cache is deleted."""
    runs = Runs(monkeypatch, "MALLOC_PERTURB_")
    found = runs.find(tmp_path, is_thorough=True)
    answers = {row.changed: row.answer for row in found.tried if len(row.changed) == 1}
    assert answers["compiler cache: filled by a run before",] == same_failure.SAME
    assert answers["OpenMP threads: 1 thread",] == same_failure.SAME
    assert answers["OpenMP threads: 5 threads",] == same_failure.SAME
    assert answers["contents of new memory: filled",] == same_failure.PASSES
    assert runs.caches == [[], ["entry"]]
    assert not list(tmp_path.rglob("*-cache*"))


def test_lines_of_a_needed_value_do_not_raise_the_budget_of_the_values_alone(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A search whose budget ends with its first answer still writes the lines, and tries no more."""
    budget_cpu_s = 0.0
    while True:
        runs = Runs(monkeypatch, "torch.set_num_threads(1)")
        found = runs.find(tmp_path, budget_cpu_s, is_thorough=True)
        if found.needed:
            break
        budget_cpu_s += CPU_S
    assert "torch.set_num_threads(2)" in found.lines
    spent = runs.server.cpu_s + CPU_S * len(runs.fresh)
    assert spent <= budget_cpu_s + CPU_S, found.tried


def test_no_budget_leaves_all_conditions_unknown(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, names: set[str]
) -> None:
    runs = Runs(monkeypatch)
    found = runs.find(tmp_path, budget_cpu_s=-1)
    assert set(found.unknown) == names and not found.needed and not runs.forked
