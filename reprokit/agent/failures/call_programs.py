"""Write one call of a compiled function as a program of its own.

A failure inside of Dynamo has no graph. What it has is the function, its arguments, and the values
of the names that the function reads. The program defines the function from its source, makes
arguments with the same metadata, and compiles the call.
"""

from __future__ import annotations

import inspect
import os
import types
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from ..record import compile_settings
from ..record.definitions.source_trees import NoText
from .object_writer import ObjectWriter

MAX_CHARS = 400_000
"""Limit of a program; a longer one is not written."""
_OF_DYNAMIC = frozenset({"assume_static_by_default", "automatic_dynamic_shapes"})
"""Settings that ``torch.compile(dynamic=...)`` changes during a compile."""


_NO_SETTINGS = compile_settings.NOT_THE_COMPILERS | compile_settings.PATCHED_BY_TORCH


class CallToSave(NamedTuple):
    """One call of a function or module."""

    function: Any
    args: Sequence[Any]
    kwargs: Mapping[str, Any]


class ProgramOfCall(NamedTuple):
    """The program of a call."""

    text: str
    left_out: tuple[str, ...]
    """What has no text and is not in it, each with the reason."""


def call_of_frame(
    code: types.CodeType,
    names: Mapping[str, Any],
    scope: Mapping[str, Any],
    closure: Sequence[types.CellType],
) -> CallToSave:
    """Return the call of a frame: of the module, if it is the ``forward`` of one.

    ``names`` are its local variables at the start, and ``scope`` its global ones.
    """
    import torch

    count, more = code.co_argcount, code.co_argcount + code.co_kwonlyargcount
    args = [names[name] for name in code.co_varnames[:count]]
    kwargs = {name: names[name] for name in code.co_varnames[count:more]}
    rest = list(code.co_varnames[more : more + 2])
    if code.co_flags & inspect.CO_VARARGS:
        args += names[rest.pop(0)]
    if code.co_flags & inspect.CO_VARKEYWORDS:
        kwargs |= names[rest.pop(0)]
    if code.co_filename.startswith(os.path.dirname(torch.__file__)):
        cells = dict(zip(code.co_freevars, closure, strict=False))
        if "fn" in cells:  # a wrapper of Dynamo has the user's function in this variable
            return CallToSave(cells["fn"].cell_contents, args, kwargs)
    own = getattr(type(args[0]), code.co_name, None) if args else None
    if getattr(own, "__code__", None) is code:
        is_module = code.co_name == "forward" and isinstance(args[0], torch.nn.Module)
        return CallToSave(args[0], args[1:], kwargs) if is_module else CallToSave(own, args, kwargs)
    function = types.FunctionType(code, dict(scope), code.co_name, None, tuple(closure))
    return CallToSave(function, args, kwargs)


def program_of_call(
    call: CallToSave, words: Sequence[str], compiler_fn: Any = None, has_values: bool = False
) -> ProgramOfCall:
    """Return the program of a call with the settings of this moment.

    ``words`` are further arguments of ``torch.compile``, as text. Values of tensors are random,
    unless ``has_values`` is set and they are few. Raises NoText if something has no text.
    """
    writer = ObjectWriter(has_values, call.function)
    with writer.collect() as needed:
        settings, rows = _settings_rows(writer, compiler_fn)
        function = writer.expression(call.function, _name_of(call.function))
        names = _argument_names(call.function)
        arguments = [
            writer.expression(value, name)
            for value, name in zip(call.args, [*names, *["x"] * len(call.args)], strict=False)
        ]
        arguments += writer.words(call.kwargs)
    compiled = f"torch.compile({', '.join([function, *words, *settings])})"
    contexts = _contexts()
    lines = [f"{compiled}({', '.join(arguments)})"]
    if contexts:
        lines = [f"with {', '.join(contexts)}:", f"    {lines[0]}"]
    lost = [f"# {row}" for row in writer.left_out]
    text = "\n".join(["import torch", *lost, *rows, *writer.rows_for(needed), *writer.late, *lines])
    if len(text) > MAX_CHARS:
        raise NoText(f"the program has more than {MAX_CHARS} characters")
    return ProgramOfCall(text + "\n", tuple(writer.left_out))


def _name_of(function: Any) -> str:
    name = getattr(function, "__name__", None) or type(function).__name__.lower()
    return name if isinstance(name, str) else "function"


def _argument_names(function: Any) -> list[str]:
    function = getattr(function, "forward", function)
    try:
        return list(inspect.signature(function).parameters)
    except (TypeError, ValueError):
        return []


def _settings_rows(writer: ObjectWriter, compiler_fn: Any) -> tuple[list[str], list[str]]:
    """Return the arguments of ``torch.compile``, and the lines that change the configuration."""
    import torch

    settings = compile_settings.describe_settings(compiler_fn)
    is_named = compiler_fn is not None and settings["backend"]
    words = [f"backend={settings['backend']}"] if is_named else []
    words += [f"dynamic={settings['dynamic']}"] if settings["dynamic"] is not None else []
    options = ", ".join(f"{key!r}: {text}" for key, text in settings["options"].items())
    words += [f"options={{{options}}}"] if options else []
    rows = list(settings["sources"])
    for module, key, value in compile_settings.changed_configs():
        is_patched = settings["dynamic"] is not None and key in _OF_DYNAMIC
        if key in _NO_SETTINGS or is_patched:
            continue
        text = writer.text_or_reason(value)
        if not text.startswith("#"):
            rows += [f"import {module}"] * (f"import {module}" not in rows)
            rows.append(f"{module}.{key} = {text}")
    if torch.get_default_dtype() != torch.float32:  # after the tensors are made
        writer.late.append(f"torch.set_default_dtype({torch.get_default_dtype()})")
    return words, rows


def _contexts() -> list[str]:
    import torch

    found = []
    if torch.is_inference_mode_enabled():
        found.append("torch.inference_mode()")
    elif not torch.is_grad_enabled():
        found.append("torch.no_grad()")
    return found + [
        f"torch.autocast({device!r}, {torch.get_autocast_dtype(device)})"
        for device in ("cpu", "cuda")
        if torch.is_autocast_enabled(device)
    ]
