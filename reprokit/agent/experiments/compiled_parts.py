"""Compile a model in parts: its repeated layers one by one, as one region, or only the first of
them.
"""

from __future__ import annotations

import collections
from collections.abc import Callable
from typing import Any

from ...core.shared.errors import BadTarget


def compile_parts(
    torch: Any, real: Callable[..., Any], model: Any, kind: str, options: dict[str, Any]
) -> Any:
    """Give a model of which parts are compiled: ``modules`` (each layer), ``half`` (the first
    half), ``nested``.

    Raises BadTarget for what has no repeated layers.
    """
    places = layers_of(torch, model)
    if not places:
        raise BadTarget("it has no repeated layers that could be compiled one by one")
    if kind == "nested":
        owner, place = places[0]
        layer = type(owner[place])
        if layer.__module__.startswith("torch."):
            raise BadTarget(
                "its layers are of a class of torch's own, which other parts of the model may"
                " have too"
            )
        layer.forward = torch.compiler.nested_compile_region(layer.forward)
        return real(model, **options)
    for owner, place in places[: len(places) // 2] if kind == "half" else places:
        owner[place] = real(owner[place], **options)
    return model


def layers_of(torch: Any, model: Any) -> list[tuple[Any, int]]:
    """The most submodules of one class in one list, as list and index; empty where there are not
    two.
    """
    found: list[tuple[Any, int]] = []
    for module in model.modules() if isinstance(model, torch.nn.Module) else ():
        groups: dict[type, list[tuple[Any, int]]] = collections.defaultdict(list)
        if isinstance(module, (torch.nn.ModuleList, torch.nn.Sequential)):
            for place, child in enumerate(module):
                groups[type(child)].append((module, place))
        longest = max(groups.values(), key=len, default=[])
        if len(longest) > max(len(found), 1):
            found = longest
    return found
