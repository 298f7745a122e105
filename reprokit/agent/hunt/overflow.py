"""Say whether integers of a run leave the range of their type."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode


@contextlib.contextmanager
def watching_integers() -> Iterator[list[str]]:
    """Yield a list that gets the name of each operator whose integer result does not fit.

    Each operator with integer results is repeated with float64 in place of integers. Also a float
    that is converted to an integer type and does not fit there counts.
    """
    seen: list[str] = []
    with _IntegerMode(seen):
        yield seen


class _IntegerMode(TorchDispatchMode):
    def __init__(self, seen: list[str]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._seen = seen

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        tree_map = torch.utils._pytree.tree_map
        wide: Any = None
        if not func.is_view:
            wide_args, wide_kwargs = tree_map(_copied, (args, kwargs))
            if wide_kwargs.get("dtype") is not None and not wide_kwargs["dtype"].is_floating_point:
                wide_kwargs["dtype"] = torch.float64
            with contextlib.suppress(Exception):
                wide = func(*wide_args, **wide_kwargs)
        out = func(*args, **kwargs)
        if wide is not None:
            leaves = torch.utils._pytree.tree_leaves
            for got, exact in zip(leaves(out), leaves(wide), strict=False):
                if _leaves_type(got, exact):
                    self._seen.append(str(func))
        return out


def _is_integer(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and not (
        value.is_floating_point() or value.is_complex() or value.dtype is torch.bool
    )


def _copied(value: Any) -> Any:
    if _is_integer(value):
        return value.double()
    return value.clone() if isinstance(value, torch.Tensor) else value


def _leaves_type(got: Any, exact: Any) -> bool:
    if not _is_integer(got) or not isinstance(exact, torch.Tensor) or got.shape != exact.shape:
        return False
    if not exact.is_floating_point() or not exact.numel():
        return False
    facts = torch.iinfo(got.dtype)
    exact = exact.double()
    return bool((~exact.isfinite() | (exact < facts.min) | (exact > facts.max)).any())
