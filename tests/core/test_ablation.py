"""What the rungs of the ladder mean together."""

import json

import pytest

from reprokit.core import ablation
from reprokit.core.ablation import Ablation, Step

BACKENDS = [r for r in ablation.RUNGS if r.group == "backends"]


def climbed(failing_from: int, **others: str) -> Ablation:
    steps = [Step(r.name, r.group, "same" if i >= failing_from else "passes", "", "") for i, r in enumerate(BACKENDS)]
    steps += [Step(name.replace("_", "="), "switches", answer, "", "") for name, answer in others.items()]
    return Ablation(tuple(steps))


@pytest.mark.parametrize(
    ("failing_from", "label"),
    [
        (1, "module: dynamo"),
        (2, "module: pt2-dispatcher"),
        (3, "module: pt2-dispatcher"),
        (4, "module: inductor"),
        (0, ""),
        (5, ""),
    ],
)
def test_the_first_backend_that_fails_gives_the_maintainers_label(failing_from: int, label: str) -> None:
    """Their rubric: inductor, not aot_eager; aot_eager, not eager; while tracing."""
    found = climbed(failing_from)
    assert found.label == label
    assert (label in found.sentence) if label else ("`" not in found.sentence)


def test_dynamic_false_as_the_cure_is_a_label_of_its_own() -> None:
    """``module: dynamic shapes`` whatever the backend."""
    found = climbed(4, dynamic_False="passes", dynamic_True="same")
    assert found.label == "module: dynamic shapes" and found.cures == ("dynamic=False",)
    assert found.sentence.endswith("it passes with dynamic=False.")


def test_another_failure_is_not_the_failure() -> None:
    """A rung that fails otherwise says nothing of where this one begins."""
    steps = tuple(Step(r.name, r.group, "other", "", "") for r in BACKENDS)
    assert Ablation(steps).first is None and Ablation(steps).label == ""


def test_it_comes_back_from_its_file() -> None:
    """What a pack has is what was found."""
    found = climbed(4, dynamic_False="same")
    assert ablation.read(json.loads(json.dumps(found.to_json()))) == found


@pytest.mark.parametrize(
    "told", [{"steps": [{"name": 1}]}, {"steps": [dict.fromkeys(Step.__annotations__, 1)]}, {"steps": 5}]
)
def test_a_damaged_file_is_refused(told: dict[str, object]) -> None:
    """Rather than told as if it were a ladder."""
    with pytest.raises(TypeError):
        ablation.read(told)
