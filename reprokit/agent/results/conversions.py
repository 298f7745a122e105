"""Note floats that do not fit into the integer type to which a program converts them.

C++ leaves the result of such a conversion undefined, so eager and compiled code may differ.
Maintainers closed a report about it for that reason (pytorch/pytorch#131910).
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch

from ...core.shared.contract import result_events
from ..record import journal, program_code

CONVERSIONS = ("to", "type", "type_as", "long", "int", "short", "char", "byte")
"""The methods of a tensor that convert it."""
MAX_ELEMENTS = 1 << 24
"""Larger tensors are not read."""


def note_conversions() -> None:
    """Journal the first conversion in this process whose result is undefined."""
    is_found = False

    def with_check(real: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(real)
        def convert(self: torch.Tensor, /, *args: Any, **kwargs: Any) -> Any:
            nonlocal is_found
            out = real(self, *args, **kwargs)
            if not is_found and _is_undefined(self, out):
                is_found = True
                types = (str(t.dtype).removeprefix("torch.") for t in (self, out))
                journal.write_event(
                    result_events.UndefinedConversion(
                        types=" to ".join(types), where=program_code.users_place()
                    )
                )
            return out

        return convert

    for name in CONVERSIONS:
        setattr(torch.Tensor, name, with_check(getattr(torch.Tensor, name)))


def _is_undefined(value: Any, out: Any) -> bool:
    """Return whether a float of a tensor does not fit into the integer type of the result."""
    if not isinstance(out, torch.Tensor) or not is_integer(out.dtype):
        return False
    if not value.is_floating_point() or value.numel() > MAX_ELEMENTS:
        return False
    try:
        with torch.no_grad():
            return leaves_range(value, out.dtype)
    except Exception:  # a tensor without values, such as one that vmap batches
        return False


def is_integer(dtype: torch.dtype) -> bool:
    """Return whether a type is one of integers; bool is none."""
    return not (dtype.is_floating_point or dtype.is_complex or dtype is torch.bool)


def leaves_range(exact: torch.Tensor, dtype: torch.dtype) -> bool:
    """Return whether a float, without its fraction, is not in the range of an integer type."""
    facts, whole = torch.iinfo(dtype), exact.double().trunc()
    # the largest int64 is not a double, and the number after it is one
    is_outside = ~whole.isfinite() | (whole < float(facts.min)) | (whole >= float(facts.max) + 1)
    return bool(is_outside.any())
