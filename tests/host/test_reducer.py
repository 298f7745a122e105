"""A reduction tries its starting points in several ways, and tells the user what it learns."""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import json
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from reprokit.core.experiments.ablation import CompileVariant
from reprokit.core.judge import same_failure
from reprokit.core.records.dumps import Link, Raised
from reprokit.core.records.finding import Verdict
from reprokit.core.records.observation import Observation
from reprokit.core.shared.contract import run_names
from reprokit.host.minimize.answers.budget import Budget
from reprokit.host.minimize.answers.oracle import BudgetExhausted
from reprokit.host.minimize.minimize_result import MinimizeResult
from reprokit.host.minimize.reducer import FLAKY_TRIES, Reducer
from reprokit.host.minimize.starts.starting_points import StartingPoint
from reprokit.host.probe.candidate import CandidateResult, ProbeLimits
from reprokit.host.probe.client import ProbeServer
from tests.support.candidates import ScriptedOracle, judged

SAME, OTHER, PASSES = same_failure.SAME, same_failure.OTHER, same_failure.PASSES
PROGRAM = "import torch\ntorch.compile(torch.relu)(torch.ones(2))\n"
RANDOM = "import torch\ntorch.compile(torch.relu)(torch.randn(2))\n"


def reduce_from(oracle: ScriptedOracle, folder: Path, *starts: StartingPoint) -> MinimizeResult:
    result = MinimizeResult()
    verdict = Verdict("exception", "lowering", "KeyError", "KeyError was raised.")
    job = Reducer(oracle, result, folder, verdict, Observation(), lambda line: None)
    with contextlib.closing(oracle):
        job.reduce_from(list(starts))
    return result


def test_a_flaky_failure_is_reduced_with_repeated_probes(tmp_path: Path) -> None:
    """A program that passes first is run ten more times, and the share of hits is the rate of the
    later probes.
    """
    answers = itertools.cycle([PASSES, PASSES, SAME])
    oracle = ScriptedOracle(tmp_path, lambda text: next(answers) if "relu" in text else PASSES)
    result = reduce_from(oracle, tmp_path, StartingPoint("source", PROGRAM))
    assert oracle.ran[: FLAKY_TRIES + 1] == [PROGRAM] * 11
    assert "flaky: 3 of 11 runs of the first program showed it" in result.notes
    assert oracle.rate == 3 / 11
    assert result.is_complete and "relu" in result.text


@pytest.mark.parametrize(
    ("backend", "hidden", "is_kept"),
    [("aot_eager", "aot_eager", True), ("aot_eager", "", False), ("inductor", "aot_eager", False)],
)
@pytest.mark.parametrize("is_alone", [False, True])
def test_a_backend_stays_if_no_answer_shows_whether_it_is_needed(
    backend: str, hidden: str, is_kept: bool, is_alone: bool, tmp_path: Path
) -> None:
    """The usual backend is what a program without one has."""
    oracle = ScriptedOracle(tmp_path, lambda text: SAME if "relu" in text else PASSES)
    overrides = {"compile": {"backend": hidden}} if hidden else {}
    if is_alone:
        oracle.limits = dataclasses.replace(oracle.limits, alone=overrides)
    else:
        oracle.ways.candidates = CompileVariant(hidden, "backends", overrides)
    program = PROGRAM.replace("relu)", f"relu, backend={backend!r})")
    result = reduce_from(oracle, tmp_path, StartingPoint("source", program))
    assert ("backend=" in result.text) == is_kept


def test_a_program_that_always_passes_is_not_flaky(tmp_path: Path) -> None:
    """It is run ten more times, and the result says that no program shows the failure."""
    oracle = ScriptedOracle(tmp_path, lambda text: PASSES)
    result = reduce_from(oracle, tmp_path, StartingPoint("source", PROGRAM))
    assert oracle.ran == [PROGRAM] * (1 + FLAKY_TRIES + 1)  # the last one in a fresh process
    assert oracle.rate == 1.0 and not result.text and not result.is_complete
    assert [note.partition(":")[0] for note in result.notes] == [
        "the source of the target alone does not show it",
        "no self-contained program shows the failure",
    ]


def test_a_failure_of_fresh_processes_is_reduced_in_them(tmp_path: Path) -> None:
    """Forked children fail differently, so only fresh processes answer from then on."""

    def fresh(text: str) -> str:
        return SAME if "relu" in text else PASSES

    oracle = ScriptedOracle(tmp_path, lambda text: OTHER, fresh)
    result = reduce_from(oracle, tmp_path, StartingPoint("source", PROGRAM))
    assert oracle.is_cold and result.is_complete and "relu" in result.text
    assert "so reprokit used only fresh processes" in result.notes[-1]


class RecordingServer:
    """A probe server whose runs in eager leave one record."""

    def __init__(self, folder: Path, row: dict[str, object]) -> None:
        self.folder, self._row, self.waited_s = folder, row, 0.0

    def run_program(
        self, text: str, limits: ProbeLimits, is_eager: bool = False
    ) -> tuple[SimpleNamespace, Path]:
        assert is_eager and "value_recorder" in text
        probe = self.folder / "probe"
        probe.mkdir(parents=True, exist_ok=True)
        (probe / run_names.OUTSIDE_VALUES_FILE).write_text(json.dumps(self._row))
        return SimpleNamespace(exit_status=0), probe


@pytest.mark.parametrize("phase", ["dynamo-trace", "lowering"])
def test_an_inner_function_is_compiled_alone_if_dynamo_failed_in_it(
    phase: str, tmp_path: Path
) -> None:
    """Its program comes right after the whole one; if a later phase failed, there is none."""
    program = (
        "import torch\ndef inner(x):\n    return x.relu()\n"
        "def outer(x):\n    y = inner(x)\n    z = y + 1\n    return z\n"
        "torch.compile(outer)(torch.ones(2))\n"
    )
    x = {"shape": [2], "dtype": "torch.float32", "is_float": True}
    row = {"what": "called", "number": 0, "arguments": {"x": x}}
    oracle = ScriptedOracle(tmp_path, lambda text: SAME if "relu" in text else PASSES)
    oracle.server = cast(ProbeServer, RecordingServer(tmp_path / "server", row))
    message = 'from user code:\n  File "/home/me/train.py", line 3, in inner\n'
    seen = Observation(raised=Raised((Link("X", message),)))
    verdict = Verdict("exception", phase, "X", "X was raised.")
    with contextlib.closing(oracle):
        Reducer(oracle, MinimizeResult(), tmp_path, verdict, seen, lambda line: None).reduce_from(
            [StartingPoint("source", program)]
        )
    alone = "def inner(x):\n    return x.relu()\nx = torch.randn(2)\ntorch.compile(inner"
    assert any(alone in text for text in oracle.ran[:4]) == (phase == "dynamo-trace")


@pytest.mark.parametrize("level", ["aten", "source"])
def test_a_fresh_process_is_not_always_tried(level: str, tmp_path: Path) -> None:
    """It is not for the graph that Inductor got, nor after the end of the budget."""
    fresh: list[str] = []

    def forked(text: str) -> str:
        oracle.budget = Budget(-1.0 if level == "source" else 60.0)
        return OTHER

    oracle = ScriptedOracle(tmp_path, forked, lambda text: fresh.append(text) or SAME)
    result = reduce_from(oracle, tmp_path, StartingPoint(level, PROGRAM))
    assert not fresh and not oracle.is_cold and not result.text


def test_a_flaky_compile_is_not_stopped(tmp_path: Path) -> None:
    """The first program is run with the compile stopped after its phase, and then, like each run
    that shows whether it is flaky, without.
    """
    stops: list[str | None] = []

    def forked(text: str) -> str:
        stops.append(oracle.limits.stop)
        return PASSES

    oracle = ScriptedOracle(tmp_path, forked, limits=ProbeLimits(60.0, stop="lowering"))
    reduce_from(oracle, tmp_path, StartingPoint("source", PROGRAM))
    assert stops == ["lowering", *[None] * (1 + FLAKY_TRIES)]


def test_a_program_that_fails_in_eager_is_named(tmp_path: Path) -> None:
    """It is not tried again as a flaky one."""

    class FailsInEager(ScriptedOracle):
        def run_once(self, text: str, is_eager: bool = False) -> CandidateResult:
            self.ran.append(text)
            return judged(OTHER, title="exception: no phase | KeyError")

    oracle = FailsInEager(tmp_path, lambda text: PASSES)
    result = reduce_from(oracle, tmp_path, StartingPoint("source", PROGRAM))
    assert result.notes[0] == (
        "the source of the target alone fails in eager: other: exception: no phase | KeyError"
    )
    assert oracle.ran == [PROGRAM, PROGRAM]  # once in eager, and once in a fresh process


def test_the_user_reads_what_a_program_lacks(tmp_path: Path) -> None:
    """Each missing operator is named once, also by two starting points that lack it."""
    starts = [
        StartingPoint(n, PROGRAM, missing=("mine.split: it has no text",))
        for n in ("dynamo", "source")
    ]
    result = reduce_from(ScriptedOracle(tmp_path, lambda text: OTHER), tmp_path, *starts)
    note = "the program does not have mine.split: it has no text"
    assert result.notes.count(note) == 1


@pytest.mark.parametrize(
    ("seeds", "sentence", "line"),
    [
        ({1}, "it fails with seed 1 and not with seeds 0 and 2.", "torch.manual_seed(1)"),
        ({0, 2}, "it fails with seeds 0 and 2 and not with seed 1.", "torch.manual_seed(0)"),
        ({1, 2}, "", ""),
        (set(), "", ""),
    ],
)
def test_a_seed_is_kept_where_the_failure_depends_on_the_draw(
    seeds: set[int], sentence: str, line: str, tmp_path: Path
) -> None:
    """The program gets the first seed with which it fails. Where both other seeds fail, or none
    does, no seed is added.
    """

    def answer(text: str) -> str:
        is_drawn = "relu" in text and "randn" in text
        is_seeded = "manual_seed" in text
        fails = not is_seeded or any(f"manual_seed({n})" in text for n in seeds)
        return SAME if is_drawn and fails else PASSES

    oracle = ScriptedOracle(tmp_path, answer)
    result = reduce_from(oracle, tmp_path, StartingPoint("source", RANDOM))
    assert [row.partition("draws: ")[2] for row in result.depends_on] == [sentence] * bool(sentence)
    assert (line in result.text) if line else ("manual_seed" not in result.text)


@pytest.mark.parametrize("seed", [3, 6, 7])
def test_a_program_whose_draws_may_be_invalid_gets_a_seed(seed: int, tmp_path: Path) -> None:
    """With some values it fails without the compiler too, such as with a label that is no class."""

    class FailsInEager(ScriptedOracle):
        def run_once(self, text: str, is_eager: bool = False) -> CandidateResult:
            if is_eager and f"manual_seed({seed})" in text:
                return judged(OTHER, "exception")
            return super().run_once(text, is_eager)

    def answer(text: str) -> str:
        return SAME if "relu" in text and "randn" in text else PASSES

    result = reduce_from(FailsInEager(tmp_path, answer), tmp_path, StartingPoint("source", RANDOM))
    is_found = seed in (3, 6)
    assert ("manual_seed(1)" in result.text) == is_found
    assert any("may draw values" in row for row in result.depends_on) == is_found


def test_the_end_of_the_budget_ends_a_pass(tmp_path: Path) -> None:
    """It is not taken for a defect of reprokit, and the best program so far is kept."""

    def answer(text: str) -> str:
        oracle.budget = Budget(-1.0)
        return SAME

    oracle = ScriptedOracle(tmp_path, answer)
    result = MinimizeResult()
    verdict = Verdict("exception", "lowering", "KeyError", "KeyError was raised.")
    job = Reducer(oracle, result, tmp_path, verdict, Observation(), lambda line: None)
    with contextlib.closing(oracle), pytest.raises(BudgetExhausted):
        job.reduce_from([StartingPoint("source", PROGRAM)])
    assert result.text == PROGRAM and not result.notes


def test_a_lost_property_is_searched_for_by_halves(tmp_path: Path) -> None:
    """The smallest program that still has it is the start of the next reduction; with none, there
    is no such start.
    """
    rows = [f"x{number} = {number}\n" for number in range(12)]
    head, call = "import torch\n", "torch.compile(torch.relu)(torch.ones(2))\n"
    needed = ["x5 = 5"]
    oracle = ScriptedOracle(tmp_path, lambda text: SAME if needed[0] in text else OTHER)
    verdict = Verdict("exception", "lowering", "KeyError", "KeyError was raised.")
    job = Reducer(oracle, MinimizeResult(), tmp_path, verdict, Observation(), lambda line: None)
    texts = [head + "".join(rows[number:]) + call for number in range(12)]
    for text in texts:
        job.keep_best(text)
    with contextlib.closing(oracle):
        assert [start.text for start in job.best_with_profile()] == [texts[5]]
        assert len(oracle.ran) <= 4
        needed[0] = "nothing has this"
        oracle.forget_answers()
        assert job.best_with_profile() == []
