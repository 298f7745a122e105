"""The configuration, the class and the inputs of a model of transformers."""

from __future__ import annotations

import importlib.util
import json
import os
import sys
import types
from typing import Any

import pytest

from reprokit.agent.target.hf import build_model, configuration
from reprokit.agent.target.hf.example_inputs import InputMaker
from reprokit.core.shared.errors import BadTarget

HAS_IT = importlib.util.find_spec("transformers") is not None
needs_it = pytest.mark.skipif(not HAS_IT, reason=f"{sys.executable} has no transformers")


@pytest.fixture(scope="module")
def library() -> Any:
    """The library, imported once. The environment stays as it was."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "environ", os.environ.copy())
        return configuration.load_transformers()


OWN_FIELDS = {
    "model_type": "llama",
    "hidden_size": 64,
    "own": {"list": [1], "table": {"a": 1}},
}


WRONG_VALUES: dict[str, tuple[Any, str]] = {
    "hidden_size": ("big", "llama has 64 there, which is an integer"),
    "rms_norm_eps": ("small", "there, which is a number"),
    "hidden_act": (3, 'llama has "silu" there, which is a string'),
    "attention_bias": (1, "llama has false there, which is true or false"),
    "own.list": (3, "llama has [1] there, which is a list"),
    "own.table": (3, 'llama has {"a": 1} there, which is a table'),
}
"""Field -> a value of another type, and the end of the line."""


@needs_it
@pytest.mark.parametrize("knob", WRONG_VALUES)
def test_a_value_of_the_wrong_type_is_one_line(knob: str, library: Any, write: Any) -> None:
    """The line has the value in the configuration and the name of its type."""
    value, says = WRONG_VALUES[knob]
    path = write("config.json", json.dumps(OWN_FIELDS))
    with pytest.raises(BadTarget) as error:
        configuration.make_configuration(library, str(path), "", {knob: value})
    line = str(error.value)
    assert line.startswith(f"--set {knob}={json.dumps(value)}: llama has ") and line.endswith(says)


@pytest.mark.parametrize("text", ["{}", "[]", '{"model_type": 3}'])
def test_a_file_without_a_model_type_is_no_configuration(text: str, write: Any) -> None:
    """The line names the file. The library is not needed."""
    path = write("no_type.json", text)
    with pytest.raises(BadTarget) as error:
        configuration.make_configuration(None, str(path), "", {})
    assert str(error.value) == (
        f'{path} is not a configuration of transformers: it has no "model_type"'
    )


@needs_it
def test_a_class_that_the_library_lacks_is_one_line(library: Any) -> None:
    """The line has the version of the library and the name of the class."""
    with pytest.raises(BadTarget) as error:
        build_model.plan_model(library, "", "llama", {"architectures": "NoSuchModel"})
    assert str(error.value) == (
        f"transformers {library.__version__} has no class 'NoSuchModel', which the configuration"
        " names"
    )


@needs_it
def test_a_model_of_images_gets_images(library: Any) -> None:
    """The class is that of the task, and the size of its input that of the configuration."""
    knobs = {"image_size": 32, "patch_size": 8, "hidden_size": 16, "intermediate_size": 16}
    plan = build_model.plan_model(library, "", "vit", {**knobs, "layers": 1})
    described = build_model.describe_model(plan)
    assert described["class"] == "ViTForImageClassification"
    assert described["inputs"] == {"pixel_values": [2, 3, 32, 32]}
    assert described["layers"] == ["num_hidden_layers"]


def part(**fields: Any) -> types.SimpleNamespace:
    """Return a configuration, or a part of one, as transformers has it."""
    return types.SimpleNamespace(model_type="made", to_dict=dict, **fields)


@pytest.mark.parametrize(
    ("config", "shape"),
    [
        (part(image_size=32), (2, 3, 32, 32)),
        (part(), (2, 3, 224, 224)),
        (part(img_size={"height": 8, "width": 16}, in_chans=1), (2, 1, 8, 16)),
        (part(image_size={"height": 8}), (2, 3, 8, 224)),
        (part(input_size=[4, 8, 16]), (2, 3, 8, 16)),
        (part(crop_size=(8,)), (2, 3, 8, 8)),
        (part(image_size=8, num_frames=5, num_channels=4), (2, 5, 4, 8, 8)),
        (part(image_size=8, vision_config=part(image_size=16)), (2, 3, 16, 16)),
    ],
)
def test_the_sizes_of_an_image_come_from_the_configuration(config: Any, shape: Any) -> None:
    """A size is a number, a list or a table; a video has frames; and the part for images comes
    first.
    """
    recipe = InputMaker(config, None, None).input_recipe("pixel_values", object)
    assert recipe is not None and (recipe.function, recipe.shape) == ("randn", shape)
