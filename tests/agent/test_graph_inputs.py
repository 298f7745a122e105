"""An input of a recorded graph is made as it was, not only with its shape."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from reprokit.agent.record.definitions.graph_definitions import GraphDefinitions
from reprokit.agent.record.values import value_facts
from reprokit.core.shared.source import tensors

LEAF = torch.randn(4, 6, requires_grad=True)
INPUTS: dict[str, Callable[[], torch.Tensor]] = {
    "leaf": lambda: LEAF,
    "computed": lambda: LEAF * 2,
    "computed transposed": lambda: (LEAF * 2).t(),
    "expanded": lambda: torch.randn(4, 1).expand(4, 6),
    "overlapping": lambda: torch.randn(10).unfold(0, 4, 2),
    "zero": lambda: torch._efficientzerotensor(3, 5, dtype=torch.float64),
    "conjugate": lambda: torch.randn(3, 4, dtype=torch.complex64).conj(),
    "negative": lambda: torch.randn(3, 4, dtype=torch.complex64).conj().imag,
    "plain": lambda: torch.randn(2, 3),
}


def facts_of(value: torch.Tensor) -> tuple[object, ...]:
    """Return what a program can notice about a tensor, apart from its elements."""
    return (
        tuple(value.shape),
        value.stride(),
        value.dtype,
        value.requires_grad,
        value.is_leaf,
        value._is_zerotensor(),
        value.is_conj(),
        value.is_neg(),
    )


def inputs_of(function: Any, *args: Any) -> list[value_facts.ValueFacts]:
    """Return the recorded inputs of the graph of a compiled call."""
    found: list[Any] = []

    def backend(gm: Any, inputs: Any) -> Any:
        definitions = GraphDefinitions(gm)
        described = value_facts.describe_inputs(gm, inputs, definitions)
        by_name = value_facts.describe_values(gm, described, definitions)
        found.extend(by_name[n.name] for n in gm.graph.nodes if n.op == "placeholder")
        return gm

    torch._dynamo.reset()
    torch.compile(function, backend=backend)(*args)
    return found


@pytest.mark.parametrize("kind", INPUTS)
def test_an_input_is_made_as_it_was(kind: str) -> None:
    """Its text makes a tensor of which a program notices no difference."""
    value = INPUTS[kind]()
    (facts,) = inputs_of(lambda x: x + 1, value)
    text = tensors.tensor_text(facts)
    assert facts_of(eval(text, {"torch": torch})) == facts_of(value), text


def test_a_computed_input_may_be_changed_in_place() -> None:
    """A leaf that requires a gradient may not, so the graph alone would fail in eager."""
    (facts,) = inputs_of(lambda x: x.mul_(2), LEAF * 1)
    made = eval(tensors.tensor_text(facts), {"torch": torch})
    made.mul_(2).sum().backward()
