"""The argument of ``--set`` becomes a value, and a value becomes the argument again."""

from __future__ import annotations

from typing import Any

import pytest

from reprokit.core.shared import target_options

VALUES = {
    "64": 64,
    "true": True,
    "None": None,
    "[1, 2]": [1, 2],
    "{'a': 'b'}": {"a": "b"},
    '"64"': "64",
    "gelu": "gelu",
    "two words": "two words",
    "{1}": "{1}",
    "[" * 5_000: "[" * 5_000,
}
"""Text -> its value: a literal of JSON or Python that JSON can have, or the text itself."""


@pytest.mark.parametrize("text", VALUES, ids=lambda text: text[:12])
def test_a_value_is_a_literal_or_the_text_itself(text: str) -> None:
    """The words of the value have the same value."""
    assert target_options.read_options([f"name={text}"]) == {"name": VALUES[text]}
    words = target_options.option_words("name", VALUES[text])
    assert words[0] == "--set"
    assert target_options.read_options(words[1:]) == {"name": VALUES[text]}


@pytest.mark.parametrize(
    ("value", "default", "is_right"),
    [
        ("text", None, True),
        (None, 3, True),
        (3, 3, True),
        (3, 0.5, True),
        (0.5, 3, False),
        (True, 3, False),
        (1, False, False),
        ("big", 3, False),
        ([1, 2], 3, True),
        ([1, "a"], 3, False),
        (3, [1], False),
        ((3,), [1], True),
    ],
)
def test_a_value_replaces_one_of_its_own_type(value: Any, default: Any, is_right: bool) -> None:
    """No value has no type. A list has one value for each layer."""
    assert target_options.can_replace_value(value, default) is is_right
