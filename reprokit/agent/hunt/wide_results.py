"""Run each operator of a program a second time with wider types, beside its own run."""

from __future__ import annotations

import contextlib
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode


class WideMode(TorchDispatchMode):
    """Compare each result of an operator with the one for wider arguments."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]

    def widened(self, func: Any, args: Any, kwargs: Any) -> tuple[Any, Any] | None:
        """Return the wider arguments, which are copies; None to leave the operator out."""
        raise NotImplementedError

    def compare(self, func: Any, got: Any, exact: Any) -> None:
        """Look at one result, and at the one for the wider arguments."""
        raise NotImplementedError

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        wide: Any = None
        given = None if func.is_view else self.widened(func, args, kwargs)
        if given is not None:
            with contextlib.suppress(Exception):
                wide = func(*given[0], **given[1])
        out = func(*args, **kwargs)
        if wide is not None:
            leaves = torch.utils._pytree.tree_leaves
            for got, exact in zip(leaves(out), leaves(wide), strict=False):
                self.compare(func, got, exact)
        return out
