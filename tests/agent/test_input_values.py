"""The values of a graph's inputs are described without a change of the program."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch

from reprokit.agent.record.values import input_values


class Weighted(torch.nn.Module):
    """A module with a parameter, a buffer and a plain tensor."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(4, 4)
        self.register_buffer("mask", torch.ones(4))
        self.plain = torch.full((4,), 77.5)

    def forward(self, x: Any, more: Any) -> Any:
        return self.linear(x) * self.mask + self.plain + more["scale"].sum()


def describe(function: Any, *args: Any) -> dict[str, Any]:
    """Return the descriptions of the inputs of the last graph of a compiled call."""
    described: list[Any] = []

    def backend(gm: Any, inputs: Any) -> Any:
        described.append(input_values.describe_input_values(gm, inputs))
        return gm

    torch._dynamo.reset()
    torch.compile(function, backend=backend)(*args)
    return described[-1]


def test_a_description_has_range_order_and_special_values() -> None:
    """The numbers are those of finite values; positions are those of the flat tensor."""
    x = torch.tensor([[1.0, -0.0, math.nan, 0.0], [2.0, math.inf, -math.inf, 4.0]])
    (found,) = describe(lambda t: t + 1, x).values()
    assert found["count"] == 8 and (found["low"], found["high"]) == (0.0, 4.0)
    assert found["mean"] == pytest.approx(1.4) and found["std"] == pytest.approx(1.4967, abs=1e-4)
    assert not found["is_sorted"] and found["special"] == {
        "zero": {"count": 1, "positions": [3]},
        "-zero": {"count": 1, "positions": [1]},
        "nan": {"count": 1, "positions": [2]},
        "inf": {"count": 1, "positions": [5]},
        "-inf": {"count": 1, "positions": [6]},
    }
    big = torch.tensor([[2**53 + 1, 2**60 + 1], [5, 7]])
    (found,) = describe(lambda t: t + 1, big).values()
    assert (found["low"], found["high"]) == (5, 2**60 + 1)
    assert found["is_sorted"] and found["is_unique"] and found["values"] == big.flatten().tolist()
    limits = torch.tensor([5, -(2**15), 2**15 - 1, -(2**15)], dtype=torch.int16)
    (found,) = describe(lambda t: t + 1, limits).values()
    assert found["special"] == {
        "lowest": {"count": 2, "positions": [1, 3]},
        "highest": {"count": 1, "positions": [2]},
    }
    for dtype in (torch.uint8, torch.uint16, torch.bool, torch.bfloat16, torch.float8_e4m3fn):
        (found,) = describe(lambda t: t.clone(), torch.ones(3).to(dtype)).values()
        assert found["low"] == found["high"] == 1 and found["values"] == [1, 1, 1], dtype


def test_weights_and_large_inputs_have_no_values() -> None:
    """Tensors of a module are not described; a large input and a leaf that requires a gradient,
    which may be a weight, have no single values.
    """
    described = describe(Weighted(), torch.zeros(2, 4), {"scale": torch.ones(2)})
    assert sorted(described) == ["l_more_scale_", "l_x_"] and "77.5" not in str(described)
    (large,) = describe(lambda t: t + 1, torch.arange(100_000.0)).values()
    assert "values" not in large and large["high"] == 99_999
    leaf = torch.ones(4, requires_grad=True)
    (found,) = describe(lambda t: t + 1, leaf).values()
    assert "values" not in found and found["low"] == 1


def test_a_description_leaves_the_program_as_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    """No random number is drawn, no gradient is recorded, and the time is limited."""
    x = torch.randn(200_000, requires_grad=True)
    before = torch.get_rng_state()
    graph = torch.fx.symbolic_trace(lambda t: t + 1)
    assert input_values.describe_input_values(graph, [x])["t"]["count"] == 200_000
    assert torch.equal(before, torch.get_rng_state()) and x._version == 0 and x.grad is None
    monkeypatch.setattr(input_values, "MAX_GRAPH_S", 0.0)
    assert input_values.describe_input_values(graph, [x]) == {}
