"""Check whether custom operators keep their contracts with the compiler.

The contract of an operator is its fake kernel, its autograd registration, and the arguments that
its schema says to be mutated or returned. ``torch.library.opcheck`` checks the same for given
arguments; here they are those of the program.
"""

from __future__ import annotations

import collections
import contextlib
import functools
from collections.abc import Callable, Sequence
from typing import Any

import torch

from ...core.shared.contract import result_events
from ...core.shared.operators import is_torch_namespace
from ..record import journal

MAX_CHECKED_CALLS, MAX_CHECKED_BYTES = 2, 1 << 30
"""Calls of each operator that are checked in a run, and the size of the arguments of one."""


def first_broken_contract(gm: torch.fx.GraphModule, inputs: Sequence[Any]) -> str:
    """Run a graph once, and describe the first custom operator that breaks its contract.

    For example ``the fake kernel of the custom operator `mylib::half` says float32 [16, 8], and its
    result is int32 [16, 8]``. The result is empty if no operator breaks its contract.
    """
    problems: list[str] = []

    class CheckingInterpreter(torch.fx.Interpreter):
        def call_function(self, target: Any, args: Any, kwargs: Any) -> Any:
            if problems or not _is_custom(operator_name(target)):
                return super().call_function(target, args, kwargs)
            before = torch.utils._pytree.tree_map(_copy_tensor, (args, kwargs))
            out = super().call_function(target, args, kwargs)
            if problem := _broken_contract(target, before, (args, kwargs), out):
                problems.append(problem)
            return out

    with torch.no_grad():
        CheckingInterpreter(gm).run(*inputs)
    return problems[0] if problems else ""


def check_calls() -> None:
    """Check the first calls of each custom operator in this process, and journal what is broken."""
    checked: collections.Counter[str] = collections.Counter()
    is_busy = False

    def with_checks(real: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(real)
        def __call__(self: Any, /, *args: Any, **kwargs: Any) -> Any:
            nonlocal is_busy
            name = operator_name(self)
            if is_busy or not _is_custom(name) or checked[name] >= MAX_CHECKED_CALLS:
                return real(self, *args, **kwargs)
            checked[name] += 1
            is_busy, before = True, None
            try:
                # an argument may be too large, or of a kind that cannot be copied
                with contextlib.suppress(Exception):
                    if _size_bytes((args, kwargs)) <= MAX_CHECKED_BYTES:
                        before = torch.utils._pytree.tree_map(_copy_tensor, (args, kwargs))
                out = real(self, *args, **kwargs)
                if before is None:
                    return out
                with contextlib.suppress(Exception), torch.no_grad():  # then it is not known
                    if problem := _broken_contract(self, before, (args, kwargs), out):
                        checked[name] = MAX_CHECKED_CALLS
                        journal.write_event(
                            result_events.ContractBroken(operator=name, problem=problem)
                        )
                return out
            finally:
                is_busy = False

        return __call__

    for kind in (torch._ops.OpOverload, torch._ops.OpOverloadPacket):
        kind.__call__ = with_checks(kind.__call__)  # type: ignore[method-assign]


def _broken_contract(target: Any, before: Any, after: Any, out: Any) -> str:
    """Describe how one call of an operator broke its contract; empty if it did not.

    ``before`` and ``after`` are its arguments before and after the call, as ``(args, kwargs)``.
    """
    problem = (
        _undeclared_mutation(target, before, after)
        or _undeclared_alias(target, after, out)
        or _fake_kernel_problem(target, before, out)
        or _autograd_problem(target, out)
    )
    name = operator_name(target)
    return problem.format(name=f"the custom operator `{name}`") if problem else ""


def operator_name(target: Any) -> str:
    """Return the name of an operator with its namespace (``mylib::op``), or of a function."""
    name = getattr(target, "_qualified_op_name", "") or getattr(
        getattr(target, "_schema", None), "name", ""
    )
    return str(name or getattr(target, "__name__", target))


def _is_custom(name: str) -> bool:
    """Return whether a name is that of an operator, and its namespace is not torch's."""
    namespace, separator, _ = name.partition("::")
    return bool(separator) and not is_torch_namespace(namespace)


def _size_bytes(arguments: Any) -> int:
    leaves = torch.utils._pytree.tree_leaves(arguments)
    return sum(leaf.nbytes for leaf in leaves if isinstance(leaf, torch.Tensor))


def _copy_tensor(value: object) -> object:
    return value.detach().clone() if isinstance(value, torch.Tensor) else value


def _schema_of(target: Any) -> Any:
    return getattr(target, "_schema", None) or target.default._schema


def _undeclared_alias(target: Any, arguments: Any, out: Any) -> str:
    """Describe an argument whose memory the result shares, which the schema does not say."""
    schema = _schema_of(target)
    if any(returned.alias_info is not None for returned in schema.returns):
        return ""
    owners = {
        leaf.untyped_storage().data_ptr(): name
        for name, value in _named_arguments(schema, arguments)
        for leaf in torch.utils._pytree.tree_leaves(value)
        if isinstance(leaf, torch.Tensor) and leaf.numel()
    }
    for leaf in torch.utils._pytree.tree_leaves(out):
        is_filled = isinstance(leaf, torch.Tensor) and leaf.numel()
        if is_filled and (name := owners.get(leaf.untyped_storage().data_ptr())):
            return f"{{name}} returns its argument {name}, which its schema does not say"
    return ""


def _autograd_problem(target: Any, out: Any) -> str:
    """Describe a formula of the gradient that is inside the kernel, where no compiler sees it.

    The result has such a formula, although no kernel is registered for autograd; a result without
    any formula gets a node of torch that says so.
    """
    overload = getattr(target, "default", target)
    if any(
        torch._C._dispatch_has_kernel_for_dispatch_key(overload.name(), key)
        for key in ("Autograd", "AutogradCPU", "AutogradCUDA", "CompositeImplicitAutograd")
    ):
        return ""
    for leaf in torch.utils._pytree.tree_leaves(out):
        node = getattr(leaf, "grad_fn", None)
        if node is not None and "NotImplemented" not in type(node).__name__:
            return "the gradient of {name} is in its kernel, and is not registered for autograd"
    return ""


def _named_arguments(schema: Any, arguments: Any) -> list[tuple[str, Any]]:
    names = [argument.name for argument in schema.arguments]
    return [*zip(names, arguments[0], strict=False), *arguments[1].items()]


def _undeclared_mutation(target: Any, before: Any, after: Any) -> str:
    """Describe an argument that has changed and that the schema does not declare as mutated."""
    schema = _schema_of(target)
    declared = {
        a.name for a in schema.arguments if a.alias_info is not None and a.alias_info.is_write
    }
    rows = zip(_named_arguments(schema, before), _named_arguments(schema, after), strict=True)
    for (name, old), (_, new) in rows:
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
