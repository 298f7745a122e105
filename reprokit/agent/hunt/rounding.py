"""Run a program with other roundings, to see whether rounding alone explains a difference."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

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


class _RoundingMode(TorchDispatchMode):
    def __init__(self, sign: int) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._sign = sign

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        tree_map = torch.utils._pytree.tree_map
        is_random = torch.Tag.nondeterministic_seeded in func.tags
        wide: Any = None
        if not func.is_view and not is_random:
            wide_args, wide_kwargs = tree_map(_widened, (args, kwargs))
            with contextlib.suppress(Exception):
                wide = func(*wide_args, **wide_kwargs)
        out = func(*args, **kwargs)
        if wide is not None:
            leaves = torch.utils._pytree.tree_leaves
            for got, exact in zip(leaves(out), leaves(wide), strict=False):
                if isinstance(got, torch.Tensor) and isinstance(exact, torch.Tensor):
                    self._move(got, exact)
        return out

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
