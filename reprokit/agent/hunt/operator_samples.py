"""The operators of ``op_db`` and their samples, from ``torch.testing._internal``.

Operators whose result is not defined, or is random, are left out: a difference of theirs is no
failure.
"""

from __future__ import annotations

import functools
import itertools
import math
import random
import re
from collections.abc import Callable, Sequence
from typing import Any

import torch

from ...core.shared.source import tensors

MAX_SAMPLES = 24
MAX_ELEMENTS = 4096
SEED = 0
DTYPES = {
    torch.float32: 12,
    torch.float64: 2,
    torch.int64: 3,
    torch.int32: 1,
    torch.uint8: 1,
    torch.bool: 1,
    torch.bfloat16: 1,
    torch.float16: 1,
    torch.complex64: 1,
}
"""The weights of the types of the first tensor."""
UNDEFINED = re.compile(
    # uninitialised memory, memory that overlaps, and sizes of storages
    r"empty|new_empty|resize|as_strided|set_|unsafe|"
    # random numbers
    r"rand|normal|bernoulli|multinomial|dropout|uniform|exponential|geometric|cauchy|rrelu|"
    r"fractional_max_pool|gumbel|poisson|scaled_dot_product|multi_head|"
    # private functions, which check nothing and read beyond a tensor of another size
    r"^_|^native_|torch\._|"
    # shifts beyond the width, and conversions of floats to unsigned integers
    r"shift|^byte$|^bool$|"
    # results that are correct with any sign or order
    r"svd|eig|qr$|geqrf|ormqr|lowrank|linalg_lu|lu_|"
    # files, sparse tensors, other front ends, and types for which there is no code
    r"sparse|jiterator|masked\.|_refs|ops\.|torch_ops|__|stft|hash|to_|item|cdist|nonzero_static"
)


class Refused(Exception):
    """A value has no text, or a step does not run."""


@functools.cache
def operators() -> dict[str, Any]:
    """Return the operators of ``op_db`` that have a public name and a defined result."""
    from torch.testing._internal.common_methods_invocations import op_db

    found = {op.name: op for op in reversed(op_db) if not UNDEFINED.search(op.name)}
    return {name: op for name, op in sorted(found.items()) if call_of(name)}


def call_of(name: str) -> str:
    """Return how a program calls an operator; empty if it has no public name."""
    for prefix in ("torch", "torch.Tensor"):
        place: Any = torch if prefix == "torch" else torch.Tensor
        for part in name.split("."):
            place = getattr(place, part, None)
        if callable(place):
            return f"{prefix}.{name}"
    return ""


@functools.lru_cache(maxsize=64)
def samples_of(name: str, dtype: torch.dtype) -> list[Any]:
    """Return the first sample inputs of an operator that are small and have a tensor."""
    torch.manual_seed(SEED)
    random.seed(SEED)
    try:
        found = operators()[name].sample_inputs("cpu", dtype, requires_grad=False)
        rows = list(itertools.islice(found, MAX_SAMPLES))
    except Exception:  # it has no samples of this type
        return []
    return [
        row
        for row in rows
        if isinstance(row.input, torch.Tensor) and row.input.numel() <= MAX_ELEMENTS
    ]


def resize(tensor: torch.Tensor, shape: Sequence[int]) -> torch.Tensor:
    """Return a tensor of a shape with as many dimensions, whose elements are those of ``tensor``
    in turn; zeros if it has none.
    """
    if 0 in tensor.shape:
        return torch.zeros(tuple(shape), dtype=tensor.dtype)
    for dim, (old, new) in enumerate(zip(tensor.shape, shape, strict=True)):
        tensor = tensor.index_select(dim, torch.arange(new) % old)
    return tensor


def tensor_text(tensor: torch.Tensor) -> str:
    """Return an expression for a tensor of this type, shape and layout with values in its range.

    Raises Refused if there is none.
    """
    is_usual = tensor.layout is torch.strided and type(tensor) is torch.Tensor
    if not is_usual or tensor.is_quantized:
        raise Refused
    dtype, values = tensor.dtype, tensor.detach().resolve_conj().resolve_neg()
    shape, stride = list(tensor.shape), list(tensor.stride())
    if 0 not in shape and 0 in stride:
        stride = tensors.contiguous_strides(shape)
    facts = {
        "shape": shape,
        "stride": stride,
        "dtype": str(dtype),
        "device": "cpu",
        "requires_grad": False,
    }
    is_plain = stride == tensors.contiguous_strides(shape)
    if is_plain and 0 < tensor.numel() <= 6 and not dtype.is_floating_point:
        return f"torch.tensor({values.tolist()!r}, dtype={dtype})"
    if not tensor.numel() or dtype.is_complex:
        return tensors.tensor_text(facts)
    return tensors.tensor_text(facts, _values_text(values))


def _values_text(values: torch.Tensor) -> Callable[[str, str], str] | None:
    """Return what writes values in the range of these; None for a normal distribution."""
    dtype = values.dtype
    if not dtype.is_floating_point:
        low, high = int(values.min()), int(values.max())
        return lambda size, where: f"torch.randint({low}, {high + 1}, {size}, dtype={dtype})"
    least, most = (float(one) for one in torch.aminmax(values.double()))
    if not (math.isfinite(least) and math.isfinite(most)):
        raise Refused
    if least < 0 < most:
        return None
    scale = max(round(most - least, 3), 0.001)
    return lambda size, where: f"(torch.rand({size}) * {scale} + {round(least, 3)}).to({dtype})"
