"""A stage of a comparison of caches that fails is the failure of the run."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace

import pytest

from reprokit.core.records.caches import cache_stages as records
from reprokit.core.records.dumps import Link, Raised
from reprokit.core.records.observation import Missing, Observation
from reprokit.core.records.rank_graphs import GraphRecord
from reprokit.core.shared.result_comparison import Comparison, Difference
from reprokit.host.experiments import run_cache_stages
from reprokit.host.request.run_request import Request
from reprokit.host.request.target import Target
from reprokit.host.run.observation_reader import Journals

GRAPHS = (GraphRecord(number=1, level="dynamo", cid="0/0", nodes=1),)
FIRST = Observation(
    exit_status=0,
    has_instrumentation=True,
    seconds=3.0,
    graphs=GRAPHS,
    own_backend="train.py:3",
    own_passes=("train.py:9",),
)
WRONG = Comparison((Difference(0, "output[0]", "values", "compiled"),), leaves=1, tensors=1)
RAISED = Raised((Link("builtins.KeyError", "gone"),), where="compile")


def compare(
    run_path: Path, monkeypatch: pytest.MonkeyPatch, stages: Mapping[str, Observation]
) -> tuple[Observation, list[str], list[Missing]]:
    """Return what the stages say if each leaves this observation (healthy by default), which runs
    there were, and which stages are missing.
    """
    folder = run_path / "caches"
    (folder / records.COLD).mkdir(parents=True)
    (folder / run_cache_stages.ARTIFACTS_FILE).write_bytes(b"artifacts")
    ran: list[str] = []
    healthy = Observation(
        exit_status=0, has_instrumentation=True, is_watched=True, has_finished=True, seconds=1.0
    )

    def run(request: Request, folder: Path, show: object) -> object:
        ran.append(folder.name.removeprefix("run-"))
        return SimpleNamespace(is_interrupted=False)

    def read(request: Request, outcome: object, folder: Path, journals: object) -> Observation:
        return stages.get(folder.name.removeprefix("run-"), healthy)

    monkeypatch.delenv("TORCHINDUCTOR_CACHE_DIR", raising=False)
    monkeypatch.setattr(run_cache_stages.supervise, "run_target_once", run)
    monkeypatch.setattr(run_cache_stages.observation_reader, "read_observation", read)
    missing: list[Missing] = []
    seen = run_cache_stages.compare_caches(
        Request(Target("file", "model.py", "make"), checks_caches=True),
        FIRST,
        Journals({}, 0, {}),
        run_path,
        missing,
        None,
    )
    assert not (folder / records.COLD).exists()
    return seen, ran, [row for row in missing if row.what.startswith("stage ")]


@pytest.mark.parametrize(
    ("stage", "failed", "kind"),
    [
        (
            records.WARM,
            Observation(exit_status=0, has_instrumentation=True, comparison=WRONG),
            "wrong-result",
        ),
        (
            records.LOADED,
            Observation(
                exit_status=1,
                has_instrumentation=True,
                raised=RAISED,
                compile_failures=(RAISED,),
            ),
            "exception",
        ),
    ],
)
def test_the_first_stage_that_fails_is_the_failure(
    stage: str, failed: Observation, kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has the stages so far, and the graphs and own code of the first run: a run that finds a
    cache records none.
    """
    seen, ran, missing = compare(tmp_path, monkeypatch, {stage: failed})
    rows = [(row.name, row.ended) for row in seen.stages]
    assert rows[0] == (records.COLD, "ok") and rows[-1] == (stage, kind)
    assert ran == [name for name, _ in rows[1:]]
    assert (seen.comparison, seen.raised) == (failed.comparison, failed.raised)
    assert (seen.graphs, seen.own_backend, seen.own_passes) == (
        GRAPHS,
        "train.py:3",
        ("train.py:9",),
    )
    assert not missing


def test_stages_that_pass_leave_the_first_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each stage that could run has a row, and the observation is that of the first run."""
    seen, ran, missing = compare(tmp_path, monkeypatch, {})
    assert [row.name for row in seen.stages] == [n for n in records.STAGE_WORDS if n != records.OWN]
    assert {row.ended for row in seen.stages} == {"ok"} and not missing
    assert (seen.seconds, seen.graphs) == (3.0, GRAPHS)
    assert ran == ["warm", "loaded", "reference", "changed", "writer", "precompiled"]


def test_a_stage_whose_fresh_compile_fails_too_is_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A setting with which the target fails without a cache says nothing about the cache."""
    failed = Observation(exit_status=1, has_instrumentation=True, raised=RAISED)
    seen, ran, missing = compare(
        tmp_path, monkeypatch, {run_cache_stages.REFERENCE: failed, records.CHANGED: failed}
    )
    assert [row.what for row in missing] == ["stage changed"]
    assert missing[0].why.startswith("a fresh compile fails too: ")
    assert records.CHANGED not in ran and [row.ended for row in seen.stages] == ["ok"] * 4
