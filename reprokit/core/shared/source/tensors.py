"""The Python text that makes a tensor anew from its metadata.

Floats are drawn from a normal distribution; integers are 0 or 1, so that they can index.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

from . import process_group

_DEVICE, _DTYPE = re.compile(r"[a-z]+(:\d+)?"), re.compile(r"torch\.\w+")
_INTEGER = re.compile(r"torch\.u?int\d+")
_DRAWN = re.compile(r"torch\.(bfloat16|float16|float32|float64|complex\d+)")


def tensor_text(facts: Mapping[str, Any]) -> str:
    """``torch.randn(2, 3, dtype=torch.float16)`` for ``facts``: shape and stride in elements,
    dtype, device, requires_grad.

    An unknown size (None) is taken as 2. ``data``, as nested lists, are values to stand in it;
    ``placements`` make it a distributed tensor.
    """
    if facts.get("placements"):
        whole = tensor_text({**facts, "placements": None, "requires_grad": False})
        return process_group.distributed(whole, facts["placements"], bool(facts["requires_grad"]))
    shape = [2 if s is None else int(s) for s in facts["shape"]]
    stride = facts["stride"]
    is_plain = stride is None or None in stride or list(stride) == contiguous(shape)
    size = shape if is_plain else [_extent(shape, stride)]
    device, dtype = str(facts["device"]), str(facts["dtype"])
    if not _DEVICE.fullmatch(device) or not _DTYPE.fullmatch(dtype):
        raise ValueError(
            f"{device!r} and {dtype!r} are no device and dtype"
        )  # they become program text
    where = "" if device == "cpu" else f', device="{device}"'
    of_type = "" if dtype == "torch.float32" else f", dtype={dtype}"
    grad = bool(facts["requires_grad"])
    in_call = ", requires_grad=True" if grad and is_plain else ""
    if facts.get("data") is not None and is_plain:
        of_type = "" if dtype in ("torch.int64", "torch.bool") else of_type  # what the literals say
        made = f"torch.tensor({_literal(facts['data'])}{of_type}{where}{in_call})"
    elif dtype == "torch.bool" or _INTEGER.fullmatch(dtype):
        of_type = "" if dtype == "torch.int64" else of_type
        made = f"torch.randint(0, 2, {_tuple(size)}{of_type}{where})"
    elif _DRAWN.fullmatch(dtype):
        made = f"torch.randn({_sizes(size)}{of_type}{where}{in_call})"
    elif dtype.startswith("torch.float8"):
        made = f"torch.randn({_sizes(size)}{where}).to({dtype})"
    else:
        made = f"torch.zeros({_sizes(size)}{of_type}{where})"
    if not is_plain:
        made += f".as_strided({_tuple(shape)}, {_tuple(stride)})" + (
            ".requires_grad_()" if grad else ""
        )
    return made


def _literal(data: Any) -> str:
    if isinstance(data, list):
        return f"[{', '.join(map(_literal, data))}]"
    if isinstance(data, float) and not math.isfinite(data):
        return f'float("{data}")'
    if not isinstance(data, (bool, int, float)):
        raise ValueError(f"{data!r} is no number")  # it becomes program text
    return repr(data)


def contiguous(shape: Sequence[int]) -> list[int]:
    """The strides of a tensor of this shape that is laid out row by row."""
    stride, step = [], 1
    for size in reversed(shape):
        stride.append(step)
        step *= max(size, 1)
    return stride[::-1]


def _extent(shape: Sequence[int], stride: Sequence[int]) -> int:
    return 0 if 0 in shape else 1 + sum((n - 1) * s for n, s in zip(shape, stride, strict=True))


def _sizes(sizes: Sequence[int]) -> str:
    return ", ".join(map(str, sizes)) if sizes else "()"


def _tuple(sizes: Sequence[int]) -> str:
    return f"({sizes[0]},)" if len(sizes) == 1 else f"({', '.join(map(str, sizes))})"
