"""Say whether integers of a run leave the range of their type."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import torch

from ..results.conversions import is_integer, leaves_range
from .wide_results import WideMode


@contextlib.contextmanager
def watching_integers() -> Iterator[list[str]]:
    """Yield a list that gets the name of each operator whose integer result does not fit.

    Each operator with integer results is repeated with float64 in place of integers. Also a float
    that is converted to an integer type and does not fit there counts.
    """
    seen: list[str] = []
    with _IntegerMode(seen):
        yield seen


class _IntegerMode(WideMode):
    def __init__(self, seen: list[str]) -> None:
        super().__init__()
        self._seen = seen

    def widened(self, func: Any, args: Any, kwargs: Any) -> tuple[Any, Any] | None:
        wide: tuple[Any, Any] = torch.utils._pytree.tree_map(_copied, (args, kwargs))
        dtype = wide[1].get("dtype")
        if dtype is not None and not dtype.is_floating_point:
            wide[1]["dtype"] = torch.float64
        return wide

    def compare(self, func: Any, got: Any, exact: Any) -> None:
        if _leaves_type(got, exact):
            self._seen.append(str(func))


def _is_integer(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and is_integer(value.dtype)


def _copied(value: Any) -> Any:
    if _is_integer(value):
        return value.double()
    return value.clone() if isinstance(value, torch.Tensor) else value


def _leaves_type(got: Any, exact: Any) -> bool:
    if not _is_integer(got) or not isinstance(exact, torch.Tensor) or got.shape != exact.shape:
        return False
    if not exact.is_floating_point() or not exact.numel():
        return False
    return leaves_range(exact, got.dtype)
