"""Compile a model in parts: its repeated layers one by one, as one region, or the first half."""

from __future__ import annotations

import collections
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from ...core.shared.errors import BadTarget

if TYPE_CHECKING:
    import torch

    LayerPosition: TypeAlias = tuple[torch.nn.ModuleList | torch.nn.Sequential, int]
    """A container and the index of a layer in it."""

Region: TypeAlias = Literal["modules", "half", "nested"]
"""``modules`` compiles each layer, ``half`` the first half of them; ``nested`` compiles the model
with its layers as one nested region.
"""


def compile_parts(
    real: Callable[..., Any], model: Any, region: Region, options: Mapping[str, Any]
) -> Any:
    """Return a model whose ``region`` is compiled by ``real``, which is ``torch.compile``.

    Raises BadTarget for a model without repeated layers.
    """
    import torch

    layers = repeated_layers(model)
    if not layers:
        raise BadTarget("it has no repeated layers that could be compiled one by one")
    if region == "nested":
        container, index = layers[0]
        layer_class: Any = type(container[index])
        if layer_class.__module__.startswith("torch."):
            raise BadTarget(
                "the class of its layers belongs to torch, so other parts of the model may use it"
            )
        layer_class.forward = torch.compiler.nested_compile_region(layer_class.forward)
        return real(model, **options)
    for container, index in layers[: len(layers) // 2] if region == "half" else layers:
        container[index] = real(container[index], **options)
    return model


def repeated_layers(model: Any) -> list[LayerPosition]:
    """Return the largest set of submodules that have one class and are in one container.

    The result is empty if no container has two submodules of one class.
    """
    import torch

    layers: list[LayerPosition] = []
    for module in model.modules() if isinstance(model, torch.nn.Module) else ():
        groups: dict[type, list[LayerPosition]] = collections.defaultdict(list)
        if isinstance(module, (torch.nn.ModuleList, torch.nn.Sequential)):
            for index, child in enumerate(module):
                groups[type(child)].append((module, index))
        longest = max(groups.values(), key=len, default=[])
        if len(longest) > max(len(layers), 1):
            layers = longest
    return layers
