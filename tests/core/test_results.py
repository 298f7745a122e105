"""What one comparison came to, in words and for the rules."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from reprokit.core.judge.signature import sign
from reprokit.core.judge.verdict import judge
from reprokit.core.records import journal_reader
from reprokit.core.records.observation import Observation
from reprokit.core.records.rank_graphs import GraphRecord
from reprokit.core.shared import result_comparison
from reprokit.core.shared.contract import events
from reprokit.core.shared.contract.serialize import to_json
from reprokit.core.shared.result_comparison import Comparison, Difference

WRONG = Difference(
    0, "output", "values", "compiled", "1.0", "2.0", "1.0", (3,), 2, 24, 1.0, 0.1, 1.0
)
LITTLE = dataclasses.replace(WRONG, name="argument[0]", side="unclear")
EAGERS = dataclasses.replace(WRONG, side="eager", what="nan")
HEALTHY = Observation(
    exit_status=0,
    has_finished=True,
    has_instrumentation=True,
    graphs=(GraphRecord(1, "dynamo", "0/0", 3, is_done=True),),
)


def verdict_of(comparison: Comparison, **more: Any) -> Any:
    return judge(dataclasses.replace(HEALTHY, comparison=comparison, **more))


@pytest.mark.parametrize(
    ("comparison", "kind", "words"),
    [
        (
            Comparison((WRONG,), 1, 2, 2),
            "wrong-result",
            "eager gives 1.0, compiled code 2.0, float64 1.0; 2 of 24 elements",
        ),
        (
            Comparison((), 0, 2, 2),
            "ok",
            "2 tensors that it gave, changed or accumulated are eager's within tolerance",
        ),
        (
            Comparison((EAGERS,), 1, 2, 2),
            "ok",
            "nearer to float64 than eager's, which is the side that departs",
        ),
        (Comparison((LITTLE,), 1, 2, 2), "ok", "differ a little, and there is no float64 run"),
        (
            Comparison((WRONG,), 1, 2, 2, unsteady=("output",)),
            "ok",
            "eager itself gives another output each time",
        ),
        (
            Comparison((WRONG, LITTLE), 2, 2, 2, unsteady=("argument[0]",)),
            "wrong-result",
            "output: values at [3]",
        ),
        (Comparison((), 0, 0, 0), "ok", "no call of a compiled callable gave a result"),
        (
            Comparison((), 0, 2, 2, skipped_calls=3, skipped_tensors=1),
            "ok",
            "tolerance; 3 calls and 1 tensor were not compared",
        ),
        (
            Comparison((WRONG,), 1, 2, 2, skipped_tensors=1),
            "wrong-result",
            "1 tensor was not compared",
        ),
    ],
)
def test_only_what_is_steady_and_compiled_codes_fault_is_wrong(
    comparison: Comparison, kind: str, words: str
) -> None:
    """One unsteady result acquits itself, not the others; a small difference without a judge is
    told, not accused.
    """
    found = verdict_of(comparison)
    assert found.kind == kind
    assert words.lower() in (found.reason + " ".join(found.evidence)).lower()


def test_another_exception_is_a_story_of_its_own() -> None:
    """An AssertionError may be the program's own check of its results; a TypeError is not."""
    from reprokit.core.records.dumps import Link, Raised

    wrong = Comparison((WRONG,), 1, 2, 2)
    for name, kind in (("AssertionError", "wrong-result"), ("TypeError", "error-in-eager")):
        raised = Raised((Link(f"builtins.{name}", "it says so"),), "uncaught")
        assert verdict_of(wrong, raised=raised, exit_status=1).kind == kind


def test_wrong_numbers_are_one_family_wherever_they_are_looked_at() -> None:
    """An infinity is a NaN a few operators further; a gradient is of the backward."""
    titles = set()
    for what in ("values", "nan", "inf", "integers"):
        seen = dataclasses.replace(
            HEALTHY,
            comparison=Comparison((dataclasses.replace(WRONG, what=what),), 1, 1, 1),
            first_rung="inductor",
            departs="acosh",
        )
        titles.add(sign(judge(seen), seen).title)
    assert titles == {"wrong-result: inductor | numbers @ acosh"}
    gradient = dataclasses.replace(WRONG, name="gradient of argument[0]")
    assert result_comparison.difference_family((gradient,)) == "numbers of the backward"
    assert result_comparison.difference_family((gradient, WRONG)) == "numbers"
    assert (
        result_comparison.difference_family((dataclasses.replace(WRONG, what="stride"),))
        == "stride"
    )


def read(**told: object) -> Comparison:
    event = journal_reader.event_from_json({"ev": "compared", **told})
    assert isinstance(event, events.Compared)
    return result_comparison.comparison_of_event(event)


def test_it_comes_back_from_its_event_and_damage_is_left_out() -> None:
    """A run directory is read again; a stranger's may hold anything."""
    whole = Comparison((WRONG, LITTLE), 2, 3, 3, True, ("output",), True, True)
    assert read(**to_json(whole)) == whole
    for damaged in (
        {"differences": 5},
        {"unsteady": 5},
        {"differences": [{"name": 1}, None, 7]},
        {"count": "x"},
        {},
    ):
        assert read(**damaged) == Comparison()
    assert (
        read(differences=[{**to_json(WRONG), "index": 5, "max_abs": None}]).differences[0].index
        == ()
    )
