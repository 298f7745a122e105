"""The Python text that makes a tensor with the same metadata.

Floats are drawn from a normal distribution. Integers are 0 or 1, so that they can be indices.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from . import process_group

_DEVICE, _DTYPE = re.compile(r"[a-z]+(:\d+)?"), re.compile(r"torch\.\w+")
_INTEGER = re.compile(r"torch\.u?int\d+")
_DRAWN = re.compile(r"torch\.(bfloat16|float16|float32|float64|complex\d+)")


def tensor_text(facts: Mapping[str, Any], draw: Callable[[str, str], str] | None = None) -> str:
    """Return the text that makes a tensor, such as ``torch.randn(2, 3, dtype=torch.float16)``.

    ``facts`` has the shape and stride in elements, dtype, device and requires_grad. An unknown size
    (None) becomes 2. With ``placements`` it is a distributed tensor. ``made_by`` is the whole text
    of a tensor of the user's own class. ``ValueFacts`` of ``agent/record/values/value_facts.py``
    explains ``is_computed`` and the other facts. ``draw`` makes the values instead: it gets the
    texts of the size and of the device, which may be empty.
    """
    if facts.get("made_by"):
        text = str(facts["made_by"])
        if not isinstance(ast.parse(text, mode="eval").body, ast.Call):
            raise ValueError(f"{text!r} does not make a tensor")
        return text
    if facts.get("placements"):
        whole = tensor_text({**facts, "placements": None, "requires_grad": False})
        return process_group.distributed_tensor_text(
            whole, facts["placements"], bool(facts["requires_grad"])
        )
    shape = [2 if s is None else int(s) for s in facts["shape"]]
    stride = facts["stride"]
    is_plain = stride is None or None in stride or list(stride) == contiguous_strides(shape)
    size = shape if is_plain else [extent(shape, stride)]
    device, dtype = str(facts["device"]), str(facts["dtype"])
    if not _DEVICE.fullmatch(device) or not _DTYPE.fullmatch(dtype):
        # they become program text
        raise ValueError(f"{device!r} is not a device, or {dtype!r} is not a dtype")
    where = "" if device == "cpu" else f', device="{device}"'
    of_type = "" if dtype == "torch.float32" else f", dtype={dtype}"
    grad = bool(facts["requires_grad"])
    is_computed = grad and bool(facts.get("is_computed"))
    in_call = ", requires_grad=True" if grad and (is_plain or is_computed) else ""
    if facts.get("is_zero"):
        return f"torch._efficientzerotensor({_sizes(shape)}{of_type}{where})"
    if draw is not None:
        text = draw(size_text(size), where)
    elif dtype == "torch.bool" or _INTEGER.fullmatch(dtype):
        of_type = "" if dtype == "torch.int64" else of_type
        text = f"torch.randint(0, 2, {size_text(size)}{of_type}{where})"
    elif _DRAWN.fullmatch(dtype):
        text = f"torch.randn({_sizes(size)}{of_type}{where}{in_call})"
    elif dtype.startswith("torch.float8"):
        text = f"torch.randn({_sizes(size)}{where}).to({dtype})"
    else:
        text = f"torch.zeros({_sizes(size)}{of_type}{where})"
    if not is_plain:
        text += f".as_strided({size_text(shape)}, {size_text(stride)})" + (
            ".requires_grad_()" if grad and not is_computed else ""
        )
    elif is_computed:
        text += ".clone()"
    text += ".conj()" if facts.get("is_conjugate") else ""
    return text + ("._neg_view()" if facts.get("is_negative") else "")


def contiguous_strides(shape: Sequence[int]) -> list[int]:
    """Return the strides of a contiguous tensor of this shape."""
    stride, step = [], 1
    for size in reversed(shape):
        stride.append(step)
        step *= max(size, 1)
    return stride[::-1]


def extent(shape: Sequence[int], stride: Sequence[int]) -> int:
    """Return how many elements of its storage a strided tensor spans."""
    return 0 if 0 in shape else 1 + sum((n - 1) * s for n, s in zip(shape, stride, strict=True))


def _sizes(sizes: Sequence[int]) -> str:
    return ", ".join(map(str, sizes)) if sizes else "()"


def size_text(sizes: Sequence[int]) -> str:
    """Return the text of a size as a tuple."""
    return f"({sizes[0]},)" if len(sizes) == 1 else f"({', '.join(map(str, sizes))})"
