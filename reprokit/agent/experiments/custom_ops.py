"""Check whether the custom operators of a graph keep their contracts with the compiler.

The contract of an operator is its fake kernel, and the mutated arguments of its schema.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from ...core.shared.operators import is_torch_namespace


def first_broken_contract(gm: torch.fx.GraphModule, inputs: Sequence[Any]) -> str:
    """Run a graph once, and describe the first custom operator that breaks its contract.

    For example ``the fake kernel of the custom operator `mylib::half` says float32 [16, 8], and its
    result is int32 [16, 8]``. The result is empty if no operator breaks its contract.
    """
    problems: list[str] = []

    class CheckingInterpreter(torch.fx.Interpreter):
        def call_function(self, target: Any, args: Any, kwargs: Any) -> Any:
            name = operator_name(target)
            if "::" not in name or is_torch_namespace(name.partition("::")[0]) or problems:
                return super().call_function(target, args, kwargs)
            before = torch.utils._pytree.tree_map(_copy_tensor, (args, kwargs))
            out = super().call_function(target, args, kwargs)
            if problem := _undeclared_mutation(target, before, (args, kwargs)) or (
                _fake_kernel_problem(target, before, out)
            ):
                problems.append(problem.format(name=f"the custom operator `{name}`"))
            return out

    with torch.no_grad():
        CheckingInterpreter(gm).run(*inputs)
    return problems[0] if problems else ""


def operator_name(target: Any) -> str:
    """Return the name of an operator with its namespace (``mylib::op``), or of a function."""
    name = getattr(target, "_qualified_op_name", "") or getattr(
        getattr(target, "_schema", None), "name", ""
    )
    return str(name or getattr(target, "__name__", target))


def _copy_tensor(value: object) -> object:
    return value.detach().clone() if isinstance(value, torch.Tensor) else value


def _undeclared_mutation(target: Any, before: Any, after: Any) -> str:
    """Describe an argument that has changed and that the schema does not declare as mutated."""
    schema = getattr(target, "_schema", None) or target.default._schema
    declared = {
        a.name for a in schema.arguments if a.alias_info is not None and a.alias_info.is_write
    }
    names = [a.name for a in schema.arguments]
    pairs = [
        *zip(names, before[0], after[0], strict=False),
        *((k, v, after[1][k]) for k, v in before[1].items()),
    ]
    for name, old, new in pairs:
        leaves = zip(*map(torch.utils._pytree.tree_leaves, (old, new)), strict=True)
        if name not in declared and any(
            isinstance(a, torch.Tensor) and not _is_equal(a, b) for a, b in leaves
        ):
            return f"{{name}} changes its argument {name}, which its schema does not say"
    return ""


def _is_equal(a: torch.Tensor, b: torch.Tensor) -> bool:
    return a.shape == b.shape and bool(torch.eq(a, b).logical_or((a != a) & (b != b)).all())


def _fake_kernel_problem(target: Any, arguments: Any, out: Any) -> str:
    """Describe a type, shape or stride of the fake kernel's result that the real result lacks."""
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
            fake_out = target(*fakes[0], **fakes[1])
    except Exception as problem:
        return f"the fake kernel of {{name}} raises {type(problem).__name__}"
    expected, real = (
        [_describe_leaf(leaf) for leaf in torch.utils._pytree.tree_leaves(value)]
        for value in (fake_out, out)
    )
    for fake_leaf, real_leaf in zip(expected, real, strict=False):
        if fake_leaf != real_leaf:
            return f"the fake kernel of {{name}} says {fake_leaf}, and its result is {real_leaf}"
    if len(expected) != len(real):
        return "the fake kernel of {name} returns a different number of results"
    return ""


def _describe_leaf(value: object) -> str:
    if not isinstance(value, torch.Tensor):
        return type(value).__name__
    text = f"{str(value.dtype).removeprefix('torch.')} {list(value.shape)}"
    strides = [step for step, size in zip(value.stride(), value.shape, strict=True) if size > 1]
    return text if value.is_contiguous() else f"{text} with strides {strides}"
