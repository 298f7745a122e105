"""A candidate is judged by the results of as many runs as its answer needs."""

from __future__ import annotations

import pytest

from reprokit.core.judge import same_failure
from reprokit.core.records.observation import Observation
from reprokit.core.records.verdict_kinds import NONDETERMINISTIC
from reprokit.core.shared.result_comparison import Comparison, Difference
from reprokit.host.probe.candidate import CandidateResult, judge_results
from tests.support.candidates import judged, signature_of

WRONG = Comparison((Difference(0, "output[0]", "values", "compiled"),), leaves=1, tensors=1)
EQUAL = Comparison(leaves=1, tensors=1)


@pytest.mark.parametrize(
    ("wanted", "compared", "roles", "answer"),
    [
        (NONDETERMINISTIC, WRONG, ["eager", "compiled", "again", "float64", "repeated"], "same"),
        ("crash", WRONG, ["eager", "compiled", "again", "float64"], "other"),
        (NONDETERMINISTIC, EQUAL, ["eager", "compiled"], "other"),
    ],
)
def test_wrong_results_are_compiled_again_where_they_may_change(
    wanted: str, compared: Comparison, roles: list[str], answer: str
) -> None:
    """Only a second compiled run shows that results are different each time, and its answer
    decides.
    """
    ran: list[str] = []

    def run(role: str) -> CandidateResult:
        ran.append(role)
        if role == "repeated":
            return judged(same_failure.SAME, NONDETERMINISTIC)
        if role != "compiled":
            seen = Observation(exit_status=0, comparison=compared)
            return judged(same_failure.PASSES, seen=seen)
        seen = Observation(exit_status=0, has_instrumentation=True, comparison=compared)
        return judged(same_failure.OTHER, "wrong-result", seen=seen)

    assert judge_results(run, signature_of(wanted, "lowering", "numbers")).answer == answer
    assert ran == roles
