"""Write an operator of a C++ library as one that returns empty tensors with the observed metadata.

A failure of the compiler does not need the values that the operator computes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ....core.shared.operators import OBSERVED
from .source_trees import NoText


@dataclass(frozen=True)
class ObservedCall:
    """One call of an operator in a graph: its arguments and its result, as fake tensors."""

    arguments: tuple[Any, ...]
    result: Any


def kernel_text(overload: Any, calls: Sequence[ObservedCall]) -> str:
    """Return the definition of an operator by its schema and its calls; raises NoText."""
    import torch

    schema = overload._schema
    if not calls:
        raise NoText(f"{schema.name} is defined outside of Python, and no call of it was recorded")
    shape = str(schema).removeprefix(schema.name).removeprefix(f".{schema.overload_name}")
    names = [a.name for a in schema.arguments]
    results = [c.result if isinstance(c.result, (tuple, list)) else (c.result,) for c in calls]
    texts = []
    for index in range(len(schema.returns)):
        values = [r[index] for r in results]
        if not all(isinstance(v, torch.Tensor) for v in values):
            raise NoText(f"{schema.name} returns a value that is no tensor")
        texts.append(_result_text(names, calls, values))
    returned = ", ".join(texts)
    name = schema.name.rpartition("::")[2]
    return "\n".join(
        [
            f"torch.library.define({schema.name!r}, {shape!r})",
            f'@torch.library.impl({schema.name!r}, "CompositeExplicitAutograd")',
            f"def {name}{OBSERVED}({', '.join(names)}):",
            f"    return {returned}" if texts else "    return None",
        ]
    )


def _result_text(names: Sequence[str], calls: Sequence[ObservedCall], values: list[Any]) -> str:
    """Return the text of a result; a size that every call has in an argument is taken from it."""
    import torch

    tensors = [
        (name, [c.arguments[i] for c in calls])
        for i, name in enumerate(names)
        if all(i < len(c.arguments) and isinstance(c.arguments[i], torch.Tensor) for c in calls)
    ]
    for name, arguments in tensors:
        if all(_looks_like(a, v) for a, v in zip(arguments, values, strict=True)):
            return f"torch.empty_like({name})"
    if len({v.dim() for v in values}) != 1 or len({(v.dtype, v.device) for v in values}) != 1:
        raise NoText("the results of its calls have different types or numbers of dimensions")
    sizes = [_size_text(tensors, [v.shape[d] for v in values]) for d in range(values[0].dim())]
    inner = ", ".join(sizes)
    dtype, device = values[0].dtype, str(values[0].device)
    where = f"{tensors[0][0]}.device" if tensors else repr(device)
    return f"torch.empty(({inner}{',' if len(sizes) == 1 else ''}), dtype={dtype}, device={where})"


def _size_text(tensors: Sequence[tuple[str, list[Any]]], sizes: list[Any]) -> str:
    for name, arguments in tensors:
        for dim in range(min(a.dim() for a in arguments)):
            if all(str(a.shape[dim]) == str(s) for a, s in zip(arguments, sizes, strict=True)):
                return f"{name}.shape[{dim}]"
    if len({str(s) for s in sizes}) == 1 and isinstance(sizes[0], int):
        return str(sizes[0])
    raise NoText("a size of its result depends on more than the sizes of its arguments")


def _looks_like(argument: Any, result: Any) -> bool:
    return (
        [str(s) for s in argument.shape] == [str(s) for s in result.shape]
        and argument.dtype == result.dtype
        and argument.device == result.device
        and [str(s) for s in argument.stride()] == [str(s) for s in result.stride()]
    )
