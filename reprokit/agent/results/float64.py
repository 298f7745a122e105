"""Run a callable in float64: its model, its arguments, and each narrower float that it creates."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

NARROW_DTYPES = (torch.float32, torch.float16, torch.bfloat16)


class NotWidened(RuntimeError):
    """The callable depends on the width of its floats, so that float64 is no reference for it."""


def call_in_float64(
    function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[Any, tuple[Any, ...], dict[str, Any]]:
    """Return the result of ``function`` in float64, and the widened arguments after the call.

    The modules that the callable is or holds remain widened. A narrow argument that the call has
    changed is changed too, so that a later call sees it. Gradients flow through the conversion to
    the tensors that the program holds.
    """
    _widen_modules(function, set())
    pairs = _pairs_of_shared(torch.utils._pytree.tree_leaves((args, kwargs)))

    def widened(leaf: Any) -> Any:
        if not _is_narrow(leaf):
            return leaf
        if id(leaf) not in pairs:
            pairs[id(leaf)] = leaf, leaf.to(_wide_dtype(leaf))
        return pairs[id(leaf)][1]

    tree_map = torch.utils._pytree.tree_map
    wide_args, wide_kwargs = tree_map(widened, args), tree_map(widened, kwargs)
    versions = {key: _version(wide) for key, (_, wide) in pairs.items()}
    default_dtype = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    try:
        with _WidenMode():  # type: ignore[no-untyped-call]
            out = function(*wide_args, **wide_kwargs)
    finally:
        torch.set_default_dtype(default_dtype)
    for key, (leaf, wide) in pairs.items():
        if _version(wide) != versions[key]:
            with contextlib.suppress(RuntimeError), torch.no_grad():
                leaf.copy_(wide)
    return out, wide_args, wide_kwargs


def _pairs_of_shared(leaves: list[Any]) -> dict[int, tuple[torch.Tensor, torch.Tensor]]:
    """Return the arguments that share memory, by their identity, each with itself and its widened
    version. Those share memory too, so that a change of one is seen in the others.
    """
    shared: dict[tuple[int, torch.dtype], dict[int, torch.Tensor]] = {}
    for leaf in leaves:
        is_plain = _is_narrow(leaf) and type(leaf) is torch.Tensor and not leaf.requires_grad
        if is_plain and leaf.layout == torch.strided and not (leaf.is_conj() or leaf.is_neg()):
            memory = leaf.untyped_storage()._cdata
            shared.setdefault((memory, leaf.dtype), {})[id(leaf)] = leaf
    pairs: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}
    for group in shared.values():
        for begin, end, leaves in _overlapping(list(group.values())):
            if len(leaves) < 2:
                continue
            whole = leaves[0].as_strided((end - begin,), (1,), begin).to(_wide_dtype(leaves[0]))
            for leaf in leaves:
                offset = leaf.storage_offset() - begin
                pairs[id(leaf)] = leaf, whole.as_strided(leaf.size(), leaf.stride(), offset)
    return pairs


def _overlapping(tensors: list[torch.Tensor]) -> list[tuple[int, int, list[torch.Tensor]]]:
    """Return groups of tensors of one storage whose elements may overlap, each with the first of
    these elements and the one after the last. Rows of a large tensor are groups of their own.
    """
    groups: list[tuple[int, int, list[torch.Tensor]]] = []
    filled = [tensor for tensor in tensors if tensor.numel()]
    for tensor in sorted(filled, key=lambda one: int(one.storage_offset())):
        sizes = zip(tensor.size(), tensor.stride(), strict=True)
        begin = int(tensor.storage_offset())
        end = begin + 1 + sum(int((size - 1) * stride) for size, stride in sizes)
        if groups and begin < groups[-1][1]:
            first, last, had = groups[-1]
            groups[-1] = first, max(last, end), [*had, tensor]
        else:
            groups.append((begin, end, [tensor]))
    return groups


def _is_narrow(leaf: Any) -> bool:
    return isinstance(leaf, torch.Tensor) and leaf.dtype in (*NARROW_DTYPES, torch.complex64)


def _wide_dtype(tensor: torch.Tensor) -> torch.dtype:
    return torch.complex128 if tensor.is_complex() else torch.float64


def _version(tensor: torch.Tensor) -> int:
    return -1 if tensor.is_inference() else int(tensor._version)


def _widen_modules(held: Any, seen: set[int]) -> None:
    """Widen in place the modules that a callable is, is bound to, or closes over."""
    if id(held) in seen:
        return
    seen.add(id(held))
    if isinstance(held, torch.nn.Module):
        held.double()
        return
    _widen_modules(getattr(held, "__self__", None), seen)
    for cell in getattr(held, "__closure__", None) or ():
        with contextlib.suppress(ValueError):  # an empty cell
            value = cell.cell_contents
            if (
                isinstance(value, torch.Tensor)
                and value.dtype in NARROW_DTYPES
                and not value.requires_grad
            ):
                cell.cell_contents = value.double()
            elif isinstance(value, torch.nn.Module) or (
                callable(value) and hasattr(value, "__closure__")
            ):
                _widen_modules(value, seen)


class _WidenMode(TorchDispatchMode):
    """Run each operator on widened floats."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        aten = torch.ops.aten
        kwargs = dict(kwargs or {})
        if func is aten.view.dtype and (args[0].is_floating_point() or args[1].is_floating_point):
            raise NotWidened("it reads the bits of its floats")
        if kwargs.get("dtype") in NARROW_DTYPES:
            kwargs["dtype"] = torch.float64
        if func in (aten._softmax.default, aten._log_softmax.default):
            args = (*args[:2], False)
        if not func.is_view and not func._schema.is_mutable:
            args, kwargs = torch.utils._pytree.tree_map(_widen_tensor, (args, kwargs))
        return func(*args, **kwargs)


def _widen_tensor(value: Any) -> Any:
    is_narrow = isinstance(value, torch.Tensor) and value.dtype in NARROW_DTYPES
    return value.to(torch.float64) if is_narrow else value
