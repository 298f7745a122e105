"""The results of a target are compared in as many roles as a decision needs."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace

import pytest

from reprokit.core.records.dumps import Link, Raised
from reprokit.core.records.observation import Missing, Observation
from reprokit.core.shared.contract import run_names
from reprokit.core.shared.result_comparison import Comparison, Difference
from reprokit.host.experiments import eager_vs_compiled
from reprokit.host.probe.candidate import SAME_RANDOM_NUMBERS
from reprokit.host.probe.client import ServerLost
from reprokit.host.request.run_request import Request
from reprokit.host.request.target import Target

EQUAL = Comparison(leaves=1, tensors=1)
WRONG = Comparison((Difference(0, "output[0]", "values", "compiled"),), leaves=1, tensors=1)
DRAWN = dataclasses.replace(WRONG, is_random=True)


def compare(
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    runs: Mapping[str, Observation],
    seen: Observation | None = None,
    interrupted: str = "",
    run_forked: eager_vs_compiled.RunForked | None = None,
) -> tuple[Observation, list[Request], list[Missing]]:
    """Return what a comparison says if each role leaves this observation, and what it ran."""
    (folder / "results").mkdir()
    (folder / "results" / "compiled.pt").touch()
    requests: list[Request] = []

    def run(request: Request, folder: Path, show: object) -> object:
        requests.append(request)
        return SimpleNamespace(
            is_interrupted=request.variables[run_names.RESULTS_VARIABLE] == interrupted
        )

    def read(request: Request, *_: object) -> Observation:
        return runs[request.variables[run_names.RESULTS_VARIABLE]]

    monkeypatch.setattr(eager_vs_compiled.supervise, "run_target_once", run)
    monkeypatch.setattr(eager_vs_compiled.observation_reader, "read_observation", read)
    missing: list[Missing] = []
    request = Request(Target("file", "model.py", "make"))
    try:
        after = eager_vs_compiled.compare_with_eager(
            request, seen or Observation(exit_status=0), folder, missing, None, run_forked
        )
    finally:
        assert not (folder / "results").exists()
    return after, requests, missing


def roles_of(requests: list[Request]) -> list[str]:
    return [request.variables[run_names.RESULTS_VARIABLE] for request in requests]


def passed(comparison: Comparison | None) -> Observation:
    return Observation(exit_status=0, comparison=comparison)


def test_random_results_are_compared_with_the_same_draws(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Compiled code draws other numbers than eager, so it runs again with the numbers of eager. If
    the results are equal then, nothing is wrong.
    """
    runs = {"eager": passed(DRAWN), "compiled": passed(EQUAL)}
    after, requests, missing = compare(tmp_path, monkeypatch, runs)
    assert roles_of(requests) == ["eager", "compiled"]
    assert [request.compile_it for request in requests] == [False, True]
    changes = requests[1].variables[run_names.OVERRIDES_VARIABLE]
    assert json.loads(changes) == SAME_RANDOM_NUMBERS
    assert after.comparison == EQUAL and not missing


def test_random_results_that_stay_wrong_are_repeated_with_the_same_draws(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run that leaves no comparison does not hide the difference."""
    roles = ("eager", "compiled", "again", "float64", "repeated")
    runs = {role: passed(DRAWN if role == "eager" else None) for role in roles}
    after, requests, _ = compare(tmp_path, monkeypatch, runs)
    assert roles_of(requests) == list(roles) and after.comparison == DRAWN
    changed = [run_names.OVERRIDES_VARIABLE in request.variables for request in requests]
    assert changed == [False, True, False, False, True]


def test_results_without_draws_are_not_compiled_again_for_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only a repeated compiled run says whether they are the same each time."""
    roles = ("eager", "again", "float64", "repeated")
    after, requests, _ = compare(tmp_path, monkeypatch, dict.fromkeys(roles, passed(WRONG)))
    assert roles_of(requests) == list(roles) and after.comparison == WRONG
    assert not any(run_names.OVERRIDES_VARIABLE in r.variables for r in requests)


def test_further_roles_run_in_forked_processes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A fresh process runs a role again that leaves no comparison, or whose server ended."""
    forked: list[tuple[str, object]] = []

    def run_forked(role: str, overrides: Mapping[str, object]) -> Observation:
        forked.append((role, overrides))
        if role == "float64":
            raise ServerLost("the process for trial runs ended: killed")
        return passed(None if role == "again" else WRONG)

    roles = ("eager", "compiled", "again", "float64", "repeated")
    runs = {role: passed(DRAWN if role == "eager" else WRONG) for role in roles}
    after, requests, _ = compare(tmp_path, monkeypatch, runs, run_forked=run_forked)
    same = SAME_RANDOM_NUMBERS
    assert forked == [("compiled", same), ("again", {}), ("float64", {}), ("repeated", same)]
    assert roles_of(requests) == ["eager", "again", "float64"] and after.comparison == WRONG


def raised(type_name: str) -> Raised:
    return Raised((Link(f"builtins.{type_name}", "no such key"),))


FAILED = Observation(exit_status=1, raised=raised("KeyError"))


@pytest.mark.parametrize(
    ("eager", "answer", "detail"),
    [
        (passed(EQUAL), "passes", "it passes"),
        (FAILED, "fails", "builtins.KeyError: no such key"),
        (Observation(exit_status=1, raised=raised("ValueError")), "", ""),
        (Observation(exit_status=-9), "", ""),
    ],
)
@pytest.mark.parametrize("comparison", [EQUAL, None])
def test_an_eager_run_explains_a_failure_only_if_it_ends_alike(
    eager: Observation,
    answer: str,
    detail: str,
    comparison: Comparison | None,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A run in eager with another exception, or without one, says nothing about the failure, with
    and without results to compare.
    """
    eager = dataclasses.replace(eager, comparison=comparison)
    after, _, missing = compare(tmp_path, monkeypatch, {"eager": eager}, FAILED)
    assert (after.eager, after.eager_detail) == (answer, detail)
    assert [row.what for row in missing] == ["comparison with eager"] * (comparison is None)
    if missing:
        why = {0: "left no results", 1: "failed: exit status 1", -9: "failed: killed by SIGKILL"}
        assert missing[0].why.startswith(
            f"the run without torch.compile {why[eager.exit_status or 0]}"
        )


@pytest.mark.parametrize("eager", [FAILED, passed(EQUAL)])
def test_an_eager_run_says_nothing_about_a_run_that_passed(
    eager: Observation, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its end is of no interest."""
    after, _, _ = compare(tmp_path, monkeypatch, {"eager": eager})
    assert (after.eager, after.eager_detail) == ("", "")


def test_a_killed_run_is_not_explained_by_an_exception_in_eager(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has no exception to compare."""
    after, _, _ = compare(tmp_path, monkeypatch, {"eager": FAILED}, Observation(exit_status=-11))
    assert after.eager == ""


@pytest.mark.parametrize("role", ["eager", "again"])
def test_an_interrupt_ends_the_comparison(
    role: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No later role runs, and the recorded results are deleted."""
    runs = dict.fromkeys(("eager", "again"), passed(WRONG))
    with pytest.raises(KeyboardInterrupt):
        compare(tmp_path, monkeypatch, runs, interrupted=role)
    assert sorted(path.name for path in (tmp_path / "compare").iterdir()) == (
        ["1-eager", "2-again"] if role == "again" else ["1-eager"]
    )
