"""Run a callable in float64: its model, its arguments, and every narrower float that it makes on
its way.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any


class NotWidened(RuntimeError):
    """The callable depends on how narrow its floats are, so that float64 is no reference for it."""


def call_in_float64(
    torch: Any, inner: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[Any, tuple[Any, ...], dict[str, Any]]:
    """Give what ``inner`` gives in float64, and the widened arguments as it left them.

    Modules that it is or holds stay widened. A narrow argument that was written to is written to
    here too, so that a later call sees it; gradients flow through the widening back to the tensors
    that the program holds.
    """
    narrow = (torch.float32, torch.float16, torch.bfloat16)
    _widen_held(torch, inner, narrow, set())
    pairs: dict[int, tuple[Any, Any]] = {}

    def widened(leaf: Any) -> Any:
        if not isinstance(leaf, torch.Tensor) or leaf.dtype not in (*narrow, torch.complex64):
            return leaf
        if id(leaf) not in pairs:
            wide = leaf.to(torch.complex128 if leaf.is_complex() else torch.float64)
            pairs[id(leaf)] = leaf, wide
        return pairs[id(leaf)][1]

    tree_map = torch.utils._pytree.tree_map
    wide_args, wide_kwargs = tree_map(widened, args), tree_map(widened, kwargs)
    versions = {key: _version(wide) for key, (_, wide) in pairs.items()}
    usual = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    try:
        with _mode(torch, narrow):
            out = inner(*wide_args, **wide_kwargs)
    finally:
        torch.set_default_dtype(usual)
    for key, (leaf, wide) in pairs.items():
        if _version(wide) != versions[key]:
            with contextlib.suppress(RuntimeError), torch.no_grad():
                leaf.copy_(wide)
    return out, wide_args, wide_kwargs


def _version(tensor: Any) -> int:
    return -1 if tensor.is_inference() else int(tensor._version)


def _widen_held(torch: Any, held: Any, narrow: tuple[Any, ...], seen: set[int]) -> None:
    """Widen in place the modules that a callable is, is bound to, or closes over."""
    if id(held) in seen:
        return
    seen.add(id(held))
    if isinstance(held, torch.nn.Module):
        held.double()
        return
    _widen_held(torch, getattr(held, "__self__", None), narrow, seen)
    for cell in getattr(held, "__closure__", None) or ():
        with contextlib.suppress(ValueError):  # an empty cell
            value = cell.cell_contents
            if (
                isinstance(value, torch.Tensor)
                and value.dtype in narrow
                and not value.requires_grad
            ):
                cell.cell_contents = value.double()
            elif isinstance(value, torch.nn.Module) or (
                callable(value) and hasattr(value, "__closure__")
            ):
                _widen_held(torch, value, narrow, seen)


def _mode(torch: Any, narrow: tuple[Any, ...]) -> Any:
    from torch.utils._python_dispatch import TorchDispatchMode

    aten = torch.ops.aten

    def widened(value: Any) -> Any:
        return (
            value.to(torch.float64)
            if isinstance(value, torch.Tensor) and value.dtype in narrow
            else value
        )

    class Widen(TorchDispatchMode):  # type: ignore[misc]
        def __torch_dispatch__(
            self, func: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            kwargs = dict(kwargs or {})
            if func is aten.view.dtype and (
                args[0].is_floating_point() or args[1].is_floating_point
            ):
                raise NotWidened("it reads the bits of its floats")
            if kwargs.get("dtype") in narrow:
                kwargs["dtype"] = torch.float64
            if func in (aten._softmax.default, aten._log_softmax.default):
                args = (*args[:2], False)
            if not func.is_view and not func._schema.is_mutable:
                args, kwargs = torch.utils._pytree.tree_map(widened, (args, kwargs))
            return func(*args, **kwargs)

    return Widen()
