"""Whether the custom operators of a graph do what they promise to the compiler: their fake kernels
and mutated arguments.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ...core.shared.operators import is_torch_namespace


def first_false(torch: Any, gm: Any, given: Sequence[Any]) -> str:
    """Run a graph once, and say which custom operator did something else than it promises; empty
    when none did.

    For example ``the fake kernel of the custom operator `mylib::half` says float32 [16, 8], and its
    result is int32 [16, 8]``.
    """
    found: list[str] = []

    class Checking(torch.fx.Interpreter):  # type: ignore[misc]
        def call_function(self, target: Any, args: Any, kwargs: Any) -> Any:
            name = operator_name(target)
            if "::" not in name or is_torch_namespace(name.partition("::")[0]) or found:
                return super().call_function(target, args, kwargs)
            before = torch.utils._pytree.tree_map(_copy(torch), (args, kwargs))
            out = super().call_function(target, args, kwargs)
            if said := _mutates(torch, target, before, (args, kwargs)) or _differs(
                torch, target, before, out
            ):
                found.append(said.format(name=f"the custom operator `{name}`"))
            return out

    with torch.no_grad():
        Checking(gm).run(*given)
    return found[0] if found else ""


def operator_name(target: Any) -> str:
    """An operator with its namespace, such as ``mylib::op``, else the name of the function."""
    name = getattr(target, "_qualified_op_name", "") or getattr(
        getattr(target, "_schema", None), "name", ""
    )
    return str(name or getattr(target, "__name__", target))


def _copy(torch: Any) -> Callable[[Any], Any]:
    return lambda value: value.detach().clone() if isinstance(value, torch.Tensor) else value


def _mutates(torch: Any, target: Any, before: Any, after: Any) -> str:
    """An argument that the schema does not call mutated has changed."""
    schema = getattr(target, "_schema", None) or target.default._schema
    written = {
        a.name for a in schema.arguments if a.alias_info is not None and a.alias_info.is_write
    }
    names = [a.name for a in schema.arguments]
    pairs = [
        *zip(names, before[0], after[0], strict=False),
        *((k, v, after[1][k]) for k, v in before[1].items()),
    ]
    for name, one, other in pairs:
        leaves = zip(*map(torch.utils._pytree.tree_leaves, (one, other)), strict=True)
        if name not in written and any(
            isinstance(a, torch.Tensor) and not _is_equal(torch, a, b) for a, b in leaves
        ):
            return f"{{name}} changes its argument {name}, which its schema does not say"
    return ""


def _is_equal(torch: Any, one: Any, other: Any) -> bool:
    return one.shape == other.shape and bool(
        torch.eq(one, other).logical_or((one != one) & (other != other)).all()
    )


def _differs(torch: Any, target: Any, arguments: Any, out: Any) -> str:
    """The fake kernel gives another type, shape or stride than the real one."""
    from torch._subclasses import FakeTensorMode

    mode = FakeTensorMode()
    fakes = torch.utils._pytree.tree_map(
        lambda value: (
            mode.from_tensor(value, static_shapes=True)
            if isinstance(value, torch.Tensor)
            else value
        ),
        arguments,
    )
    try:
        with mode:
            promised = target(*fakes[0], **fakes[1])
    except Exception as problem:
        return f"the fake kernel of {{name}} raises {type(problem).__name__}"
    said, real = (
        [_facts(torch, leaf) for leaf in torch.utils._pytree.tree_leaves(value)]
        for value in (promised, out)
    )
    for one, other in zip(said, real, strict=False):
        if one != other:
            return f"the fake kernel of {{name}} says {one}, and its result is {other}"
    return (
        ""
        if len(said) == len(real)
        else "the fake kernel of {name} gives another number of results"
    )


def _facts(torch: Any, value: Any) -> str:
    if not isinstance(value, torch.Tensor):
        return type(value).__name__
    text = f"{str(value.dtype).removeprefix('torch.')} {list(value.shape)}"
    strides = [step for step, size in zip(value.stride(), value.shape, strict=True) if size > 1]
    return text if value.is_contiguous() else f"{text} with strides {strides}"
