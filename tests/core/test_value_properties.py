"""Recorded values become properties of drawn tensors, from which a reduction chooses."""

from __future__ import annotations

from typing import Any

import pytest

from reprokit.core.reduce.graphs import value_properties
from reprokit.core.reduce.graphs.value_properties import ValueProperty


def facts(dtype: str, *shape: int, requires_grad: bool = False) -> dict[str, Any]:
    return {
        "kind": "tensor",
        "shape": list(shape),
        "stride": None,
        "dtype": f"torch.{dtype}",
        "device": "cpu",
        "requires_grad": requires_grad,
    }


def levels_of(dtype: str, *shape: int, **described: Any) -> dict[str, list[str]]:
    """Return the lines that make the tensor with all properties of each level."""
    values = {"l_x_": facts(dtype, *shape)}
    found = value_properties.recorded_properties(values, {"l_x_": {"special": {}, **described}})
    return {
        level: value_properties.maker_rows("x", {**values["l_x_"], "properties": properties})
        for level, properties in found.items()
    }


def special(count: int, *positions: int) -> dict[str, Any]:
    return {"count": count, "positions": list(positions)}


@pytest.mark.parametrize(
    ("dtype", "low", "high", "line"),
    [
        ("uint8", 100, 249, "torch.randint(64, 256, (4, 67), dtype=torch.uint8)"),
        ("int8", -128, 127, "torch.randint(-128, 128, (4, 67), dtype=torch.int8)"),
        ("int64", 2**53 + 1, 2**60, f"torch.randint({2**53}, {2**61}, (4, 67))"),
        ("int64", -3, 0, "torch.randint(-3, 1, (4, 67))"),
        ("float32", 0.01, 0.93, "torch.rand((4, 67)) * 0.99 + 0.01"),
        ("float16", -40.0, 12.0, "(torch.rand((4, 67), dtype=torch.float16) * 2 - 1) * 40.0"),
        ("float32", 1e30, 1e30, "torch.full((4, 67), 1e+30)"),
    ],
)
def test_a_range_is_rounded_outward(dtype: str, low: float, high: float, line: str) -> None:
    """The range in a program is that of the run, with powers of two or numbers of one digit, so
    that it reveals no value of the user.
    """
    levels = levels_of(dtype, 4, 67, low=low, high=high)
    assert levels["descriptor"] == [f"x = {line}"]


def test_usual_values_have_no_descriptor() -> None:
    """Values like those that a program draws anyway are no further starting point."""
    assert levels_of("float32", 64, low=-2.5, high=3.1, mean=0.1, std=0.9) == {}
    binary = {"low": 0, "high": 1, "count": 64, "special": {"zero": special(30, 0)}}
    assert levels_of("int64", 64, **binary) == levels_of("bool", 64, **binary) == {}


def test_an_index_keeps_its_exact_range_as_a_second_choice() -> None:
    """A rounded range may be out of bounds for an index; large numbers are never exact."""
    levels = levels_of("int64", 4, low=0, high=9, is_sorted=True, is_unique=True)
    assert levels["descriptor"] == [
        "x = (torch.randperm(16)[:4].reshape((4,)))",
        "x = x.sort().values",
    ]
    assert levels["exact"][0] == "x = (torch.randperm(10)[:4].reshape((4,)))"
    assert "exact" not in levels_of("int64", 4, low=0, high=2**40 + 5)


def test_special_values_are_at_their_positions_or_have_a_share() -> None:
    """A few special values are set one by one, so that each can be left out; many are drawn."""
    few = {"nan": special(2, 3, 9), "-zero": special(1, 0)}
    levels = levels_of("float32", 2, 5, count=10, low=-1.0, high=1.0, special=few)
    assert levels["descriptor"] == [
        "x = torch.randn(2, 5)",
        "x[0, 3] = torch.nan",
        "x[1, 4] = torch.nan",
        "x[0, 0] = -0.0",
    ]
    many = {"inf": special(30, *range(16)), "zero": special(70, *range(16))}
    levels = levels_of("float32", 100, count=100, special=many)
    assert levels["descriptor"] == [
        "x = torch.randn(100)",
        "x[torch.rand(x.shape) < 0.3] = torch.inf",
        "x[torch.rand(x.shape) < 0.7] = 0",
    ]
    limits = {"lowest": special(1, 7), "highest": special(40, *range(16))}
    levels = levels_of("int16", 100, count=100, low=-(2**15), high=2**15 - 1, special=limits)
    assert levels["descriptor"] == [
        "x = torch.randint(-32768, 32768, (100,), dtype=torch.int16)",
        "x[torch.rand(x.shape) < 0.4] = 32767",
        "x[7] = -32768",
    ]
    every = levels_of("float32", 20, count=20, special={"nan": special(20, *range(16))})
    assert every["descriptor"][1:] == ["x[...] = torch.nan"]


def test_statistics_are_rounded() -> None:
    """A mean and a standard deviation have two digits."""
    levels = levels_of("float32", 8, low=-1.0, high=1.0, mean=0.1234, std=0.4567)
    assert levels["statistics"] == ["x = torch.randn((8,)) * 0.46 + 0.12"]


def test_values_are_written_one_by_one_from_zero() -> None:
    """Of a large tensor a few values are set; a small one is a literal; zeros need no line."""
    small = levels_of("int64", 2, 2, values=[3, 0, 9, 1])
    assert small["values"] == ["x = torch.tensor([[3, 0], [9, 1]])"]
    large = levels_of("bfloat16", 20, values=[0.0] * 18 + [float("nan"), -2.5])
    assert large["values"] == [
        "x = torch.zeros((20,), dtype=torch.bfloat16)",
        "x[18] = torch.nan",
        "x[19] = -2.5",
    ]
    mask = levels_of("bool", 2, values=[True, False])
    assert mask["values"] == ["x = torch.tensor([True, False])"]
    scalar = levels_of("float32", values=[2.5])
    assert scalar["values"] == ["x = torch.tensor(2.5)"]
    many = value_properties.recorded_properties(
        {"x": facts("int64", 20)}, {"x": {"values": list(range(20))}}
    )["values"]
    assert value_properties.written_values(many) == 19


def test_only_numbers_become_program_text() -> None:
    """A value that is not a number is refused, and so is an input that the graph does not have."""
    with pytest.raises(ValueError, match="is not a number"):
        levels_of("int64", 1, values=["__import__('os')"])
    with pytest.raises(ValueError, match="is not a number"):
        levels_of("int64", 1, low="0", high=1)
    assert value_properties.recorded_properties({}, {"l_x_": {"values": [1]}}) == {}


def test_a_leaf_requires_its_gradient_after_its_values_are_set() -> None:
    """A leaf that requires a gradient cannot be changed in place."""
    leaf = facts("float32", 4, requires_grad=True)
    rows = value_properties.maker_rows(
        "x", {**leaf, "properties": [ValueProperty("x", "nan", (), 1)]}
    )
    assert rows == ["x = torch.randn(4)", "x[1] = torch.nan", "x.requires_grad_()"]


def test_the_sentences_name_the_input_as_the_user_does() -> None:
    """A sentence has the user's name of the input, its type and shape, and each property."""
    values = {"l_x_": facts("float32", 2, 5), "l_args_0_": facts("int64", 8)}
    properties = [
        ValueProperty("l_x_", "nan", (), 3),
        ValueProperty("l_x_", "nan", (), 9),
        ValueProperty("l_args_0_", "range", (2**53, 2**61 - 1)),
        ValueProperty("l_args_0_", "sorted"),
    ]
    assert value_properties.describe_properties(values, properties) == [
        "The failure depends on the values of input `x` (float32, shape [2, 5]): NaN at positions"
        " [0, 3] and [1, 4].",
        "The failure depends on the values of input `args_0` (int64, shape [8]): integers from"
        f" {2**53} to {2**61 - 1}; they are sorted.",
    ]
