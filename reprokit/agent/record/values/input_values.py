"""Describe the values of a graph's inputs, because a failure may depend on them.

A description has the range, mean and standard deviation, whether the values are sorted or unique,
and where NaN, infinities and zeros are. Small inputs are recorded with their values. All of it is
the user's data and stays on this machine; a repro takes only the properties that a failure needs.
"""

from __future__ import annotations

import contextlib
import math
import re
import time
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, TypedDict

if TYPE_CHECKING:
    import torch

MAX_ELEMENTS = 1 << 20
"""Elements of one input that are examined; of a larger input, the first ones."""
MAX_VALUES, MAX_GRAPH_VALUES = 4_096, 16_384
"""Elements of the largest input whose values are recorded, sorted or compared for equality, and of
all such inputs of a graph.
"""
MAX_POSITIONS = 16
"""Positions that are recorded for each special value."""
MAX_GRAPH_S, MAX_PROCESS_S = 0.3, 5.0
"""Limits of the time that the inputs of one graph, and of all graphs of a process, may take."""
CHUNK = 1 << 14
"""Elements in one operation: so few that torch starts no threads for it."""
_IN_MODULE = re.compile(r"(.*?)(?:modules|parameters|buffers)_")
_left_s = MAX_PROCESS_S


class SpecialValue(TypedDict):
    """Where NaN, an infinity, zero, minus zero or a limit of an integer type is."""

    count: int
    positions: list[int]
    """The first of them, in the flat tensor."""


class ValueDescription(TypedDict, total=False):
    """What is known about the values of one input; numbers are of finite values."""

    count: int
    """The elements that were examined."""
    low: float
    high: float
    mean: float
    std: float
    is_sorted: bool
    """In the last dimension."""
    is_unique: bool
    special: dict[str, SpecialValue]
    """By ``nan``, ``inf``, ``-inf``, ``zero`` and ``-zero``, and of integers of more
    than a byte ``lowest`` and ``highest``; the lowest one of an unsigned type is only ``zero``.
    """
    values: list[float]
    """The values of the flat tensor, if it is small and surely no weight."""


def describe_input_values(
    gm: torch.fx.GraphModule, example_inputs: Sequence[Any]
) -> dict[str, ValueDescription]:
    """Return the descriptions of the inputs of ``gm``, by name.

    Only plain CPU tensors are included, and neither parameters nor other tensors of a module.
    """
    global _left_s
    import torch

    began, described = time.thread_time(), dict[str, ValueDescription]()
    names = [n.name for n in gm.graph.nodes if n.op == "placeholder"]
    of_modules, room = tuple(_module_prefixes(names)), MAX_GRAPH_VALUES
    for name, value in zip(names, example_inputs, strict=False):
        ends = began + min(MAX_GRAPH_S, _left_s)
        if (
            type(value) is not torch.Tensor
            or value.device.type != "cpu"
            or value.layout is not torch.strided
            or name.startswith(of_modules)
            or time.thread_time() > ends
        ):
            continue
        # some operations are not defined for quantized and sub-byte types
        with contextlib.suppress(Exception), torch.no_grad():
            if description := _describe(value.detach(), ends):
                is_weight = value.requires_grad and value.is_leaf
                if value.numel() <= min(MAX_VALUES, room) and not is_weight:
                    room -= value.numel()
                    description["values"] = value.detach().reshape(-1).tolist()
                described[name] = description
    _left_s -= time.thread_time() - began
    return described


def _module_prefixes(names: Iterable[str]) -> set[str]:
    """Return how the names of tensors begin that a module has: ``l_self_`` for ``l_self_w_``.

    In an exported graph, ``p_``, ``b_`` and ``c_`` are parameters, buffers and constants.
    """
    return {
        "l_self_",
        "p_",
        "b_",
        "c_",
        *(match[1] for n in names if (match := _IN_MODULE.match(n))),
    }


def _describe(tensor: torch.Tensor, ends: float) -> ValueDescription:
    """Return the description of a tensor; an empty one if the time ends before that."""
    import torch

    count = tensor.numel()
    is_whole = count <= MAX_ELEMENTS
    if not count or tensor.is_complex() or not (is_whole or tensor.is_contiguous()):
        return {}
    flat = tensor.reshape(-1)[:MAX_ELEMENTS]
    is_float = tensor.is_floating_point()
    found: dict[str, SpecialValue] = {}
    low, high, total, squares, finite = math.inf, -math.inf, 0.0, 0.0, 0
    for start in range(0, flat.numel(), CHUNK):
        if time.thread_time() > ends:
            return {}
        part = flat[start : start + CHUNK].to(torch.float64 if is_float else torch.int64)
        zero = part == 0
        masks = {"zero": zero}
        if is_float:
            minus = zero & torch.signbit(part)
            masks = {
                "zero": zero & ~minus,
                "-zero": minus,
                "nan": torch.isnan(part),
                "inf": part == math.inf,
                "-inf": part == -math.inf,
            }
            part = part[torch.isfinite(part)]
        elif tensor.itemsize > 1 and tensor.dtype is not torch.uint64:
            # drawn numbers of one byte have the limits anyway
            limits = torch.iinfo(tensor.dtype)
            masks |= {"lowest": part == limits.min} if limits.min else {}
            masks["highest"] = part == limits.max
        for kind, mask in masks.items():
            _add_special(found, kind, mask, start)
        if part.numel():
            low, high = min(low, part.min().item()), max(high, part.max().item())
            wide = part.to(torch.float64)
            total, squares = total + wide.sum().item(), squares + (wide * wide).sum().item()
            finite += part.numel()
    described: ValueDescription = {"count": flat.numel(), "special": found}
    if finite:
        mean = total / finite
        variance = max(squares / finite - mean * mean, 0.0)
        described["low"], described["high"] = low, high
        described["mean"], described["std"] = mean, math.sqrt(variance)
    if count <= MAX_VALUES:
        rows = tensor.reshape(-1, tensor.shape[-1] if tensor.dim() else 1)
        rows = rows.to(torch.float64 if is_float else torch.int64)
        described["is_sorted"] = bool((rows[:, 1:] >= rows[:, :-1]).all())
        described["is_unique"] = len(set(rows.reshape(-1).tolist())) == count
    return described


def _add_special(found: dict[str, SpecialValue], kind: str, mask: torch.Tensor, start: int) -> None:
    count = int(mask.sum().item())
    if not count:
        return
    special = found.setdefault(kind, {"count": 0, "positions": []})
    special["count"] += count
    if missing := MAX_POSITIONS - len(special["positions"]):
        places = mask.nonzero().reshape(-1)[:missing].tolist()
        special["positions"] += [start + int(place) for place in places]
