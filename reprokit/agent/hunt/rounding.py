"""Run a program with other roundings, to see whether rounding alone explains a difference."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import torch

from .wide_results import WideMode

WIDE = {
    torch.float16: torch.float64,
    torch.bfloat16: torch.float64,
    torch.float32: torch.float64,
    torch.complex64: torch.complex128,
}


@contextlib.contextmanager
def rounding_otherwise(sign: int) -> Iterator[None]:
    """Move each result that is not exact by one unit in the last place, up or down.

    A result is exact if float64 has the same one. Results in float64 stay as they are.
    """
    with _RoundingMode(sign):
        yield


class _RoundingMode(WideMode):
    def __init__(self, sign: int) -> None:
        super().__init__()
        self._sign = sign

    def widened(self, func: Any, args: Any, kwargs: Any) -> tuple[Any, Any] | None:
        if torch.Tag.nondeterministic_seeded in func.tags:
            return None
        wide: tuple[Any, Any] = torch.utils._pytree.tree_map(_widened, (args, kwargs))
        return wide

    def compare(self, func: Any, got: Any, exact: Any) -> None:
        if isinstance(got, torch.Tensor) and isinstance(exact, torch.Tensor):
            self._move(got, exact)

    def _move(self, got: torch.Tensor, exact: torch.Tensor) -> None:
        if got.dtype not in WIDE or got.shape != exact.shape or not got.numel():
            return
        step = self._sign * torch.finfo(got.dtype).eps
        is_rounded = got.isfinite() & (got.to(exact.dtype) != exact)
        with contextlib.suppress(RuntimeError):  # several elements share memory
            got.copy_(torch.where(is_rounded, got * (1 + step), got))


def _widened(value: Any) -> Any:
    if isinstance(value, torch.dtype):
        return WIDE.get(value, value)
    if not isinstance(value, torch.Tensor):
        return value
    return value.to(WIDE[value.dtype]) if value.dtype in WIDE else value.clone()
