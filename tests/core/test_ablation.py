"""The ablation steps together give a label, a sentence and the settings that make the run pass."""

import dataclasses
import json

import pytest

from reprokit.core.experiments import ablation
from reprokit.core.experiments.ablation import AblationStep, ProgramAblation
from reprokit.core.records.observation import Observation

BACKENDS = [r for r in ablation.VARIANTS if r.group == "backends"]


def backend_ablation(failing_from: int, **others: str) -> ProgramAblation:
    steps = [
        AblationStep(r.name, r.group, "same" if i >= failing_from else "passes", "", "")
        for i, r in enumerate(BACKENDS)
    ]
    steps += [
        AblationStep(name.replace("_", "="), "switches", answer, "", "")
        for name, answer in others.items()
    ]
    return ProgramAblation(tuple(steps))


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
    """The label follows the rubric of the maintainers: the first failing backend decides between
    inductor, AOTAutograd and Dynamo.
    """
    found = backend_ablation(failing_from)
    assert found.label == label
    assert (label in found.sentence) if label else ("`" not in found.sentence)


def test_a_backend_that_fails_in_a_different_way_leaves_the_label_open() -> None:
    """It may be where the failure begins, and the sentence says so; pytorch#193932."""
    steps = list(backend_ablation(4).steps)
    steps[2] = dataclasses.replace(steps[2], answer="other")
    found = ProgramAblation(tuple(steps))
    assert found.label == ""
    assert found.sentence.endswith('and in a different way with backend="aot_eager".')
    unclear = dataclasses.replace(steps[2], answer="unresolved")
    assert ProgramAblation((*steps[:2], unclear, *steps[3:])).label == "module: inductor"


def test_dynamic_false_as_the_cure_is_a_label_of_its_own() -> None:
    """The label is ``module: dynamic shapes``, whatever the backend."""
    found = backend_ablation(4, dynamic_False="passes", dynamic_True="same")
    assert found.label == "module: dynamic shapes" and found.cures == ("dynamic=False",)
    assert found.sentence.endswith("it passes with dynamic=False.")


@pytest.mark.parametrize(
    ("entry", "label"),
    [("torch.export", "oncall: export"), ("AOTInductor", "module: aotinductor")],
)
def test_an_entry_that_fails_alone_gives_its_own_label(entry: str, label: str) -> None:
    """If torch.compile passes, the label is that of the entry, and the sentence says both."""
    steps = [AblationStep(r.name, r.group, "passes", "", "") for r in BACKENDS]
    steps += [
        AblationStep(v.name, v.group, "same" if v.name == entry else "passes", "", "")
        for v in ablation.ENTRIES
    ]
    found = ProgramAblation(tuple(steps))
    assert found.label == label
    assert found.sentence.startswith(f"It fails with {entry} and passes with torch.compile, so")
    both = ProgramAblation(
        (*backend_ablation(4).steps, AblationStep("AOTInductor", "entries", "same", "", ""))
    )
    assert both.label == "module: inductor"
    assert both.sentence.endswith("; it fails with AOTInductor too.")


def test_another_failure_is_not_the_failure() -> None:
    """A step that fails in a different way does not show where this failure begins."""
    steps = tuple(AblationStep(r.name, r.group, "other", "", "") for r in BACKENDS)
    assert ProgramAblation(steps).first_failing is None and ProgramAblation(steps).label == ""


def test_it_comes_back_from_its_file() -> None:
    """An ablation that is written to JSON and read back is unchanged."""
    found = backend_ablation(4, dynamic_False="same")
    assert ablation.read_ablation(json.loads(json.dumps(found.to_json()))) == found


@pytest.mark.parametrize(
    "document",
    [
        {"steps": [{"name": 1}]},
        {"steps": [dict.fromkeys(AblationStep.__annotations__, 1)]},
        {"steps": 5},
    ],
)
def test_a_damaged_file_is_refused(document: dict[str, object]) -> None:
    """A file of the wrong shape raises ValueError."""
    with pytest.raises(ValueError):
        ablation.read_ablation(document)


def with_own(*results: tuple[ablation.CompileVariant, str], failing_from: int) -> ProgramAblation:
    own = tuple(
        AblationStep(variant.name, variant.group, result, "", "") for variant, result in results
    )
    return ProgramAblation((*own, *backend_ablation(failing_from).steps))


def test_the_programs_own_passes_are_a_step() -> None:
    """A failure that disappears without the program's own passes is not torch's: no label, and no
    cure.
    """
    found = with_own((ablation.OWN_PASSES, "passes"), failing_from=4)
    assert (found.own, found.label, found.cures) == ("passes", "", ())
    assert (
        "it passes without the program's own passes" in found.sentence
        and "so its label is" not in found.sentence
    )
    assert with_own((ablation.OWN_PASSES, "same"), failing_from=4).label == "module: inductor"
    needs = [
        with_own((ablation.OWN_PASSES, result), failing_from=4).needs
        for result in ("passes", "same", "unresolved")
    ]
    assert needs == ["passes", "torch", ""]


def test_the_programs_own_backend_is_a_step() -> None:
    """A failure with only the program's backend belongs to that backend, and a failure that also occurs
    with a backend of torch belongs to torch.
    """
    found = with_own((ablation.OWN_BACKEND, "same"), failing_from=5)
    assert (found.own, found.label) == ("backend", "")
    assert found.sentence.startswith(
        "It fails with the program's own backend and passes with no torch.compile, "
    )
    assert with_own((ablation.OWN_BACKEND, "same"), failing_from=4).label == "module: inductor"


def test_only_what_the_program_has_is_asked() -> None:
    """A program with neither passes nor a backend of its own has neither step."""
    assert ablation.own_variants(Observation()) == ()
    assert ablation.own_variants(Observation(own_passes=("a.py:1",))) == (ablation.OWN_PASSES,)
    assert ablation.own_variants(Observation(own_backend="a.py:1")) == (ablation.OWN_BACKEND,)


def test_a_label_is_for_what_is_torchs() -> None:
    """The verdict's responsible party takes precedence over the ablation steps."""
    found = ProgramAblation(backend_ablation(4).steps, responsible="user")
    assert found.label == "" and "so its label is" not in found.sentence


@pytest.mark.parametrize(
    ("failing_from", "name"),
    [
        (0, None),
        (1, None),
        (2, 'backend="eager"'),
        (4, 'backend="aot_eager_decomp_partition"'),
        (5, None),
    ],
)
def test_the_last_backend_that_passes(failing_from: int, name: str | None) -> None:
    """A smaller program must pass with it too. Without torch.compile each candidate passes."""
    found = backend_ablation(failing_from).last_passing
    assert (found.name if found else None) == name


def test_two_profiles_differ_where_one_fails_and_the_other_passes() -> None:
    """A step without an answer, or of one of them only, is no difference."""
    original = backend_ablation(4)
    assert original.difference(original) == ""
    assert backend_ablation(3).difference(original) == (
        'with backend="aot_eager_decomp_partition" it fails, and the original passes'
    )
    assert backend_ablation(5).difference(original) == (
        'with backend="inductor" it passes, and the original fails'
    )
    assert ProgramAblation(original.steps[:2]).difference(original) == ""
    lost = AblationStep('backend="inductor"', "backends", "unresolved", "", "")
    assert ProgramAblation((*original.steps[:4], lost)).difference(original) == ""


def test_the_ablation_of_a_part_says_so() -> None:
    """It is no statement about the user's program."""
    part = backend_ablation(4).of_part()
    assert part.sentence.startswith('A part of it fails with backend="inductor"')
    assert ablation.read_ablation(part.to_json()).subject == "part"
    assert backend_ablation(4).sentence.startswith('It fails with backend="inductor"')
