"""What the rungs of the ladder mean together."""

import json

import pytest

from reprokit.core.experiments import ablation
from reprokit.core.experiments.ablation import Ablation, AblationStep
from reprokit.core.records.observation import Observation

BACKENDS = [r for r in ablation.VARIANTS if r.group == "backends"]


def climbed(failing_from: int, **others: str) -> Ablation:
    steps = [
        AblationStep(r.name, r.group, "same" if i >= failing_from else "passes", "", "")
        for i, r in enumerate(BACKENDS)
    ]
    steps += [
        AblationStep(name.replace("_", "="), "switches", answer, "", "")
        for name, answer in others.items()
    ]
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
def test_the_first_backend_that_fails_gives_the_maintainers_label(
    failing_from: int, label: str
) -> None:
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
    steps = tuple(AblationStep(r.name, r.group, "other", "", "") for r in BACKENDS)
    assert Ablation(steps).first is None and Ablation(steps).label == ""


def test_it_comes_back_from_its_file() -> None:
    """What a pack has is what was found."""
    found = climbed(4, dynamic_False="same")
    assert ablation.read_ablation(json.loads(json.dumps(found.to_json()))) == found


@pytest.mark.parametrize(
    "told",
    [
        {"steps": [{"name": 1}]},
        {"steps": [dict.fromkeys(AblationStep.__annotations__, 1)]},
        {"steps": 5},
    ],
)
def test_a_damaged_file_is_refused(told: dict[str, object]) -> None:
    """Rather than told as if it were a ladder."""
    with pytest.raises(ValueError):
        ablation.read_ablation(told)


def with_own(*answers: tuple[ablation.CompileVariant, str], failing_from: int) -> Ablation:
    own = tuple(AblationStep(rung.name, rung.group, answer, "", "") for rung, answer in answers)
    return Ablation((*own, *climbed(failing_from).steps))


def test_the_programs_own_passes_are_a_step() -> None:
    """What passes without them is not torch's: no label, and no cure."""
    found = with_own((ablation.OWN_PASSES, "passes"), failing_from=4)
    assert (found.own, found.label, found.cures) == ("passes", "", ())
    assert (
        "it passes without the program's own passes" in found.sentence
        and "it is for" not in found.sentence
    )
    assert with_own((ablation.OWN_PASSES, "same"), failing_from=4).label == "module: inductor"
    needs = [
        with_own((ablation.OWN_PASSES, answer), failing_from=4).needs
        for answer in ("passes", "same", "unresolved")
    ]
    assert needs == ["passes", "torch", ""]


def test_the_programs_own_backend_is_a_step() -> None:
    """What fails with it alone is that backend's; what fails with one of torch's, too, is that
    one's.
    """
    found = with_own((ablation.OWN_BACKEND, "same"), failing_from=5)
    assert (found.own, found.label) == ("backend", "")
    assert found.sentence.startswith(
        "It fails with the program's own backend and passes with no torch.compile, "
    )
    assert with_own((ablation.OWN_BACKEND, "same"), failing_from=4).label == "module: inductor"


def test_only_what_the_program_has_is_asked() -> None:
    """A program with neither has neither step."""
    assert ablation.of_own(Observation()) == ()
    assert ablation.of_own(Observation(own_passes=("a.py:1",))) == (ablation.OWN_PASSES,)
    assert ablation.of_own(Observation(own_backend="a.py:1")) == (ablation.OWN_BACKEND,)


def test_a_label_is_for_what_is_torchs() -> None:
    """The verdict may know better than the ablation steps."""
    found = Ablation(climbed(4).steps, responsible="user")
    assert found.label == "" and "it is for" not in found.sentence
