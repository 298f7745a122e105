"""Write the definition of an operator that the user registered from Python or from a library."""

from __future__ import annotations

import ast
import inspect
import os
import types
import weakref
from collections.abc import Iterable
from typing import Any

from ....core.shared.operators import OBSERVED, is_torch_namespace
from .definition_writer import SPECIAL, DefinitionWriter, drop_annotations, source_of
from .observed_kernel import ObservedCall, kernel_text
from .source_trees import NoText, closure_values

_implementations: dict[str, dict[str, weakref.ref[Any]]] = {}
"""The functions that the program passed to ``Library.impl``, by operator and dispatch key."""


def note_implementation(library: Any, operator: Any, function: Any, key: str) -> None:
    """Remember a function that implements an operator of the user's; the dispatcher has no way to
    ask for it.
    """
    name = (qualified_name(operator) or str(operator)).rpartition("::")[2].partition(".")[0]
    namespace = getattr(library, "ns", "")
    if is_torch_namespace(namespace) or not isinstance(function, types.FunctionType):
        return
    known = _implementations.setdefault(f"{namespace}::{name}", {})
    key = str(key or getattr(library, "dispatch_key", ""))
    known[key] = weakref.ref(inspect.unwrap(function))


def qualified_name(target: Any) -> str:
    """Return the name of an operator without its overload (``mine::scale``); empty for others."""
    schema = getattr(target, "_schema", None)
    name = getattr(target, "_qualified_op_name", "") or getattr(schema, "name", "")
    return str(name).partition(".")[0] if "::" in str(name) else ""


def define_operator(
    writer: DefinitionWriter, operator: Any, observed: Iterable[ObservedCall] = ()
) -> str:
    """Add the definition of an operator, and return its expression; raises NoText.

    Without a Python implementation, the definition has the metadata of the ``observed`` calls.
    """
    overload = operator if hasattr(operator, "_schema") else operator.default
    qualified = qualified_name(operator)
    text = f"torch.ops.{qualified.replace('::', '.')}"
    if is_torch_namespace(qualified.partition("::")[0]):
        return text
    if writer.is_defined(overload):
        return text
    from torch._library.custom_ops import OPDEFS

    definition = OPDEFS.get(qualified)
    with writer.defining(overload, qualified) as (_, add):
        if definition is not None:
            add(_custom_op(writer, definition))
        elif qualified in _implementations:
            add(_library_operator(writer, overload))
        else:
            add(kernel_text(overload, list(observed)))
    return text


def write_operator(writer: DefinitionWriter, value: Any) -> str | None:
    """Return the expression of an operator that a function of the user's calls; None for others."""
    kind = type(value).__name__
    if kind == "CustomOpDef" and hasattr(value, "_opoverload"):
        return define_operator(writer, value._opoverload)
    if kind in ("OpOverload", "OpOverloadPacket"):
        text = define_operator(writer, value)
        overload = getattr(value, "_overloadname", "")
        return f"{text}.{overload}" if overload else text
    return None


def _custom_op(writer: DefinitionWriter, definition: Any) -> str:
    from torch._library.triton import triton_ops_to_kernels

    schema = definition._opoverload._schema
    changed = [a.name for a in schema.arguments if a.alias_info and a.alias_info.is_write]
    name = definition._qualname
    kernels = {k: _users(f) for k, f in definition._backend_fns.items()}
    is_triton = name in triton_ops_to_kernels
    kind = "triton_op" if is_triton else "custom_op"
    mutates = "{" + ", ".join(map(repr, changed)) + "}" if changed else "()"
    first = _users(definition._init_fn)
    words = f"{name!r}, mutates_args={mutates}"
    devices = [k for k, f in kernels.items() if f is first and k is not None]
    if devices and not is_triton:
        words += f", device_types={devices!r}"
    schema_word = "" if _is_inferred(first, changed, definition._schema) else definition._schema
    if schema_word:
        words += f", schema={schema_word!r}"
    title = f"torch.library.{kind}({words})"
    own, rows = _registered(writer, title, first, definition._name, not schema_word)
    for device, function in kernels.items():
        if function is not first and not is_triton:
            rows += _registered(writer, f"{own}.register_kernel({device!r})", function, own)[1]
    if definition._abstract_fn is not None and (
        not is_triton or definition._abstract_fn is not first
    ):
        rows += _registered(writer, f"{own}.register_fake", definition._abstract_fn, own)[1]
    backward, setup = definition._backward_fn, definition._setup_context_fn
    return "\n".join([*rows, *_autograd(writer, f"{own}.register_autograd(", backward, setup)])


def _users(function: Any) -> Any:
    """Return the user's function, which torch may have wrapped in functions of its own."""
    import torch

    own = os.path.dirname(torch.__file__)
    while inspect.isfunction(function) and function.__code__.co_filename.startswith(own):
        values = closure_values(function)
        if (inner := values.get("fn", values.get("func"))) is None:
            break
        function = inner
    return function


def _library_operator(writer: DefinitionWriter, overload: Any) -> str:
    from torch._library.simple_registry import singleton

    schema = overload._schema
    name = schema.name
    shape = str(schema).removeprefix(name).removeprefix(f".{schema.overload_name}")
    rows = [f"torch.library.define({name!r}, {shape!r})"]
    entry = singleton.find(name)
    kernel = entry.fake_impl.kernel
    found = {key: reference() for key, reference in _implementations[name].items()}
    gradients = found.pop("Autograd", None)
    if kernel is not None:
        found.pop("Meta", None)  # torch made it from the fake kernel
    for key, function in found.items():
        if function is None:
            raise NoText(f"an implementation of {name} is gone")
        title = f"torch.library.impl({name!r}, {key or 'CompositeImplicitAutograd'!r})"
        rows += _registered(writer, title, _users(function), name)[1]
    if kernel is not None and found:
        title = f"torch.library.register_fake({name!r})"
        rows += _registered(writer, title, _users(kernel.func), name)[1]
    elif kernel is not None:  # the kernels are those of a library, which the program does not load
        title = f"torch.library.impl({name!r}, 'CompositeExplicitAutograd')"
        own = f"{name.rpartition('::')[2]}{OBSERVED}"
        rows += _registered(writer, title, _users(kernel.func), name, rename=own)[1]
    if gradients is not None:
        generated = closure_values(gradients).get("Generated")
        info = closure_values(generated.backward).get("info") if generated is not None else None
        if info is None:
            raise NoText(f"the autograd formula of {name} cannot be written")
        start = f"torch.library.register_autograd({name!r}, "
        rows += _autograd(writer, start, info._backward_fn, info._setup_context_fn)
    return "\n".join(rows)


def _registered(
    writer: DefinitionWriter,
    decorator: str,
    function: Any,
    name: str,
    annotated: bool = False,
    rename: str = "",
) -> tuple[str, list[str]]:
    """Return the name of a function and the rows that define and register it."""
    tree, known = source_of(function)
    if isinstance(tree, ast.ClassDef):
        raise NoText(f"the implementation of {name} is a class")
    if isinstance(tree, ast.Lambda):
        return "_", [f"{decorator}({writer.resolve(tree, known)})"]
    if not annotated:
        drop_annotations(tree)
    new = rename or tree.name
    tree.name = "_" if new == "_" else writer.free_name(new)
    tree.decorator_list = []
    return tree.name, [f"@{decorator}", *writer.resolve(tree, known).splitlines()]


def _autograd(writer: DefinitionWriter, start: str, backward: Any, setup: Any) -> list[str]:
    if backward is None:
        return []
    words = [writer.expression(backward)]
    if setup is not None:
        words.append(f"setup_context={writer.expression(setup)}")
    return [f"{start}{', '.join(words)})"]


def _is_inferred(function: Any, changed: list[str], schema: str) -> bool:
    """Return whether the annotations of the function give the schema of the operator."""
    import torch

    try:
        inferred = torch.library.infer_schema(function, mutates_args=changed)
    except Exception:  # it refuses some functions in many ways
        return False
    return _blank(inferred) == _blank(schema)


def _blank(schema: str) -> str:
    return schema.replace(" ", "")


SPECIAL.append(write_operator)
