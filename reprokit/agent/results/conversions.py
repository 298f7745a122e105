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
MAX_ELEMENTS, MAX_CHECKS = 1 << 24, 1_000
"""Larger tensors and later conversions are not read."""


def note_conversions() -> None:
    """Journal the first conversion in this process whose result is undefined."""
    checks_left = MAX_CHECKS

    def with_check(real: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(real)
        def convert(self: torch.Tensor, /, *args: Any, **kwargs: Any) -> Any:
            nonlocal checks_left
            out = real(self, *args, **kwargs)
            if not checks_left or not _is_to_integer(self, out):
                return out
            checks_left -= 1
            if _leaves_range(self, out.dtype):
                checks_left = 0
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


def _is_to_integer(value: Any, out: Any) -> bool:
    return (
        isinstance(out, torch.Tensor)
        and is_integer(out.dtype)
        and bool(value.is_floating_point())
        and value.numel() <= MAX_ELEMENTS
    )


def _leaves_range(value: torch.Tensor, dtype: torch.dtype) -> bool:
    try:
        with torch.no_grad():
            return leaves_range(value, dtype)
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
