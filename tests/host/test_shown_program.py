"""The recorded program of a run is proved as the compiler got it, with a check of its own."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from reprokit.core.judge import same_failure
from reprokit.core.records.finding import Signature, Verdict
from reprokit.core.records.observation import Observation
from reprokit.core.records.rank_graphs import GraphRecord
from reprokit.core.redaction.redactor import Redactor
from reprokit.core.shared.result_comparison import Comparison, Difference
from reprokit.host.minimize import cases
from reprokit.host.minimize.proofs.proof import Proof
from reprokit.host.pack import shown_program
from reprokit.host.request.run_request import Request
from reprokit.host.request.target import parse_command
from reprokit.host.run.observation_reader import Journals

GRAPH = """
import torch
class Repro(torch.nn.Module):
    def forward(self, l_x_):
        a = torch.sin(l_x_)
        return (a,)
"""
X = {
    "kind": "tensor",
    "shape": [4],
    "stride": None,
    "symbols": [None],
    "dtype": "torch.float32",
    "device": "cpu",
    "layout": "torch.strided",
    "requires_grad": False,
    "is_parameter": False,
}
RECORD = GraphRecord(number=1, level="dynamo", cid="0/0", nodes=1)
WRONG = Comparison((Difference(0, "output[0]", "values", "compiled"),), leaves=1, tensors=1)
ALIASED = Comparison((Difference(0, "output[0]", "aliasing", "compiled"),), leaves=1, tensors=1)


def case_of(run: Path, kind: str, comparison: Comparison | None = None) -> cases.MinimizeCase:
    """Return the case of a command whose one graph was compiled with a backend and options."""
    folder = run / "graphs" / "0001"
    folder.mkdir(parents=True)
    (folder / "graph.py").write_text(GRAPH)
    settings = {"grad": True, "backend": "'aot_eager'", "dynamic": True}
    (folder / "values.json").write_text(json.dumps({"values": {"l_x_": X}, "settings": settings}))
    verdict = Verdict(kind, "lowering", None, "")
    seen = Observation(exit_status=1, graphs=(RECORD,), comparison=comparison)
    return cases.MinimizeCase(verdict, Signature("", "", 9), seen, run, "python")


def prove(
    case: cases.MinimizeCase, answer: str, monkeypatch: pytest.MonkeyPatch
) -> tuple[str, shown_program.RecordedProof]:
    """Prove the program of a case. Return what was run (empty if nothing was) and what was saved."""
    ran = [""]

    def run(text: str, *_: object) -> Proof:
        ran.append(text)
        return Proof(answer, "the title", "", runs=3 * (answer == same_failure.SAME))

    monkeypatch.setattr(shown_program.proof, "prove_program", run)
    request = Request(parse_command(("python", "train.py")))
    shown_program.prove_recorded_program(request, case, Journals({}, 0, {}), Redactor())
    saved = shown_program.load_recorded_proof(case.run_path)
    assert saved is not None
    return ran[-1], saved


def test_a_recorded_graph_is_compiled_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The program that is shown has neither the backend nor the options of the compile, and the
    proof needs both.
    """
    ran, saved = prove(case_of(tmp_path, "exception"), same_failure.SAME, monkeypatch)
    assert "backend='aot_eager'" in ran and "dynamic=True" in ran and "torch.sin" in ran
    assert saved.text == ran and not saved.unproved


def test_without_a_starting_point_the_recorded_text_is_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The text that the pack would show is better than none."""
    monkeypatch.setattr(shown_program.cases, "starting_points_of_case", lambda case: [])
    ran, saved = prove(case_of(tmp_path, "exception"), same_failure.SAME, monkeypatch)
    assert "torch.sin" in ran and "aot_eager" not in ran and saved.text == ran


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (same_failure.SAME, ""),
        (same_failure.OTHER, ""),
        (
            same_failure.PASSES,
            "with new inputs it passes: the failure depends on the values of the inputs,"
            " which the program does not have, or on"
            " the code around the graph",
        ),
    ],
)
def test_a_graph_with_new_inputs_gets_an_assertion(
    answer: str, reason: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If it passes, the wrong results may need the recorded values."""
    ran, saved = prove(case_of(tmp_path, "wrong-result", WRONG), answer, monkeypatch)
    assert "torch.testing.assert_close(compiled, eager" in ran and saved.text == ran
    assert saved.unproved == reason


@pytest.mark.parametrize("comparison", [None, ALIASED])
def test_wrong_results_without_an_assertion_are_not_run(
    comparison: Comparison | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No run of the program by itself could fail. It is shown as it was recorded."""
    case = case_of(tmp_path, "wrong-result", comparison)
    ran, saved = prove(case, same_failure.SAME, monkeypatch)
    assert not ran and saved.proof is None and saved.unproved == shown_program.NO_CHECK
    assert "class Repro" in saved.text or "torch.sin" in saved.text
    assert "assert" not in saved.text


def test_a_failure_that_needs_no_values_is_not_excused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An exception that does not come back has no such reason."""
    _, saved = prove(case_of(tmp_path, "exception"), same_failure.PASSES, monkeypatch)
    assert not saved.unproved
