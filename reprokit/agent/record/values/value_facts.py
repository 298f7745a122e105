"""Describe the tensors and numbers of a graph by their metadata, as JSON values."""

from __future__ import annotations

import contextlib
import operator
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal, TypedDict

from ....core.shared import cuts
from ....core.shared.source import tensors

if TYPE_CHECKING:
    import torch

    from ..definitions.graph_definitions import GraphDefinitions

_FACTS_OF_INPUTS = ("is_computed", "is_zero", "is_conjugate", "is_negative")


class ValueFacts(TypedDict, total=False):
    """Metadata of an input or a value of a graph, as JSON values."""

    kind: Literal["tensor", "symbol", "number", "mesh", "other"]
    placements: list[str]
    """Of a distributed tensor."""
    made_by: str
    """The text that makes a tensor of a class of the user's from its inner tensors."""
    shape: list[Any]
    """In elements; None for a symbol without a hint."""
    stride: list[Any] | None
    """In elements; None for a tensor that is not strided."""
    symbols: list[str | None]
    """The symbols of the shape."""
    dtype: str
    device: str
    """Of a tensor, or the device type of a mesh."""
    layout: str
    requires_grad: bool
    is_parameter: bool
    is_computed: bool
    """An input that requires a gradient and is no leaf: it may be changed in place."""
    is_zero: bool
    """An input without memory, all of whose elements are zero."""
    is_conjugate: bool
    is_negative: bool
    """An input whose elements are to be conjugated or negated when they are read."""
    symbol: str
    value: float | None
    type: str
    text: str


def describe_inputs(
    gm: torch.fx.GraphModule, example_inputs: Sequence[Any], definitions: GraphDefinitions
) -> list[ValueFacts]:
    """Return the metadata of each input of ``gm``, whose placeholders have the symbolic sizes."""
    placeholders = [n for n in gm.graph.nodes if n.op == "placeholder"]
    traced = [n.meta.get("example_value", n.meta.get("val")) for n in placeholders]
    traced += [None] * (len(example_inputs) - len(traced))
    return [
        {**describe_input(value, as_traced, definitions), **input_facts(value)}
        for value, as_traced in zip(example_inputs, traced, strict=False)
    ]


def input_facts(value: object) -> ValueFacts:
    """Return how an input was made; a value that is cut off has none of this."""
    import torch

    if type(value) not in (torch.Tensor, torch._subclasses.FakeTensor):
        return {}
    assert isinstance(value, torch.Tensor)
    facts: ValueFacts = {
        "is_computed": value.requires_grad and not value.is_leaf,
        "is_zero": value._is_zerotensor(),
        "is_conjugate": value.is_conj(),
        "is_negative": value.is_neg(),
    }
    return {name: fact for name, fact in facts.items() if fact}  # type: ignore[return-value]


def describe_values(
    gm: torch.fx.GraphModule, inputs: Sequence[ValueFacts], definitions: GraphDefinitions
) -> dict[str, ValueFacts]:
    """Return the metadata of each tensor and number of the graph, by its name in the graph's code.

    ``inputs`` is the result of :func:`describe_inputs`; a device mesh among them is included.
    """
    import torch

    described: dict[str, ValueFacts] = {}
    made: dict[str, Any] = {}
    placeholders = [n for n in gm.graph.nodes if n.op == "placeholder"]
    for node, facts in zip(placeholders, inputs, strict=False):
        if facts["kind"] == "mesh":
            described[node.name] = facts
        made[node.name] = {k: v for k, v in facts.items() if k in _FACTS_OF_INPUTS}
    for node in gm.graph.nodes:
        value = node.meta.get("example_value", node.meta.get("val"))
        if value is None and node.op == "get_attr":
            with contextlib.suppress(AttributeError):
                value = operator.attrgetter(str(node.target))(gm)
        if isinstance(
            value, (torch.Tensor, torch.SymInt, torch.SymFloat, torch.SymBool, int, float)
        ):
            described[node.name] = describe_input(value, value, definitions)
            described[node.name].update(made.get(node.name, {}))
    return described


def describe_input(
    value: object, as_traced: object = None, definitions: GraphDefinitions | None = None
) -> ValueFacts:
    """Return the metadata of one input of a graph; sizes and strides in elements, symbols as text.

    ``as_traced`` is the same input as the tracer saw it: a fake tensor whose sizes may be symbolic.
    A class of tensors of the user's is added to ``definitions``.
    """
    import torch

    if isinstance(value, torch.Tensor):
        sizes = as_traced.shape if isinstance(as_traced, torch.Tensor) else value.shape
        placements = getattr(value, "placements", None)
        facts: ValueFacts = {"placements": [repr(p) for p in placements]} if placements else {}
        if definitions is not None and (text := _subclass_text(value, definitions)):
            facts["made_by"] = text
        return {
            **facts,
            "kind": "tensor",
            "shape": [_number(s) for s in value.shape],
            "stride": (
                [_number(s) for s in value.stride()] if value.layout is torch.strided else None
            ),
            "symbols": [_symbol_text(s) for s in sizes],
            "dtype": str(value.dtype),
            "device": str(value.device),
            "layout": str(value.layout),
            "requires_grad": bool(value.requires_grad),
            "is_parameter": isinstance(value, torch.nn.Parameter),
        }
    if isinstance(value, (torch.SymInt, torch.SymFloat, torch.SymBool)):
        return {"kind": "symbol", "symbol": str(value), "value": _number(value)}
    if isinstance(value, (bool, int, float)):
        return {"kind": "number", "value": value}
    if type(value).__name__ == "DeviceMesh":
        mesh: Any = value
        return {"kind": "mesh", "shape": list(mesh.shape), "device": mesh.device_type}
    return {
        "kind": "other",
        "type": f"{type(value).__module__}.{type(value).__qualname__}",
        "text": cuts.cut_head(repr(value), 500),
    }


def _subclass_text(value: Any, definitions: GraphDefinitions) -> str:
    """Return the text that makes a tensor of the user's own class; empty for other tensors."""
    kind = type(value)
    if kind.__module__.split(".")[0] == "torch" or not hasattr(value, "__tensor_flatten__"):
        return ""
    names, context = value.__tensor_flatten__()
    name, context_text = definitions.define_subclass(kind, context)
    if not name:
        return ""
    inner = (
        f"{n!r}: {tensors.tensor_text(describe_input(getattr(value, n), None, definitions))}"
        for n in names
    )
    sizes, strides = (tuple(map(_number, numbers)) for numbers in (value.shape, value.stride()))
    made = (
        f"{name}.__tensor_unflatten__({{{', '.join(inner)}}}, {context_text}, {sizes}, {strides})"
    )
    return f"{made}.requires_grad_()" if value.requires_grad else made


def _symbol_text(size: object) -> str | None:
    import torch

    return str(size) if isinstance(size, torch.SymInt) else None


def _number(value: Any) -> Any:
    """Return a plain number, or the hint of a symbol. It adds no guard to the compile."""
    import torch

    if isinstance(value, (torch.SymInt, torch.SymFloat, torch.SymBool)):
        hint = getattr(value.node, "hint", None)
        return hint if isinstance(hint, (bool, int, float)) else None
    return value
