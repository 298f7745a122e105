"""Compile a model in parts: its repeated layers one by one, as one region, or only the first of them."""

from __future__ import annotations

import collections
from collections.abc import Callable
from typing import Any

from .factory import BadTarget


def compile_parts(torch: Any, real: Callable[..., Any], model: Any, kind: str, options: dict[str, Any]) -> Any:
    """Give a model of which parts are compiled: ``modules`` (each layer), ``half`` (the first half), ``nested``.

    Raises BadTarget for what has no repeated layers.
    """
    layers = layers_of(torch, model)
    if not layers:
        raise BadTarget("it has no repeated layers that could be compiled one by one")
    if kind == "nested":
        for layer in layers:
            layer.forward = torch.compiler.nested_compile_region(layer.forward)
        return real(model, **options)
    for layer in layers[: len(layers) // 2] if kind == "half" else layers:
        layer._compiled_call_impl = real(layer._call_impl, **options)
    return model


def layers_of(torch: Any, model: Any) -> list[Any]:
    """The longest run of submodules of one class, in one list; empty where there are not two."""
    found: list[Any] = []
    for module in model.modules() if isinstance(model, torch.nn.Module) else ():
        groups: dict[type, list[Any]] = collections.defaultdict(list)
        if isinstance(module, (torch.nn.ModuleList, torch.nn.Sequential)):
            for child in module:
                groups[type(child)].append(child)
        longest = max(groups.values(), key=len, default=[])
        if len(longest) > max(len(found), 1):
            found = longest
    return found
