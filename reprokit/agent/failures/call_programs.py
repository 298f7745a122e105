"""Write one call of a compiled function as a program of its own.

A failure inside of Dynamo has no graph. What it has is the function, its arguments, and the values
of the names that the function reads. The program defines the function from its source, makes
arguments with the same metadata, and compiles the call. A module is made without its constructor:
from its class, and the attributes that it had.
"""

from __future__ import annotations

import ast
import copy
import functools
import inspect
import os
import re
import sys
import sysconfig
import types
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from ...core.shared.operators import is_torch_namespace
from ...core.shared.source import tensors
from ..record import compile_settings
from ..record.definitions import own_operators, triton_kernels
from ..record.definitions.definition_writer import SPECIAL, DefinitionWriter
from ..record.definitions.source_trees import NoText, Tree, closure_values
from ..record.values.value_facts import describe_input, input_facts

MAX_CHARS, MAX_EXPRESSIONS = 400_000, 50_000
"""Limits of a program; a longer one is not written."""
MAX_VALUES = 64
"""Elements of the largest tensor whose values are written, where that is asked for."""
_HOOKS = {
    "_forward_pre_hooks": "register_forward_pre_hook",
    "_forward_hooks": "register_forward_hook",
}
SET, SET_BY_NAME = "{owner}.{name} = {text}", "setattr({owner}, {name!r}, {text})"
BUFFER = "{owner}.register_buffer({name!r}, {text})"
NOT_PERSISTENT = "{owner}.register_buffer({name!r}, {text}, persistent=False)"
_OPERATOR = re.compile(r"torch\.ops\.(\w+)\.(\w+)")
_OF_DYNAMIC = frozenset({"assume_static_by_default", "automatic_dynamic_shapes"})
"""Settings that ``torch.compile(dynamic=...)`` changes during a compile."""


_NO_SETTINGS = compile_settings.NOT_THE_COMPILERS | compile_settings.PATCHED_BY_TORCH


class _Attribute(NamedTuple):
    """An attribute of an object."""

    template: str
    """The line that sets it, with ``owner``, ``name`` and ``text``."""
    name: str
    value: Any


class CallToSave(NamedTuple):
    """One call of a function or module."""

    function: Any
    args: Sequence[Any]
    kwargs: Mapping[str, Any]


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
) -> str:
    """Return the program of a call with the settings of this moment.

    ``words`` are further arguments of ``torch.compile``, as text. Values of tensors are random,
    unless ``has_values`` is set and they are few. Raises NoText if something has no text.
    """
    writer = _CallWriter(has_values)
    with writer.collect() as needed:
        settings, rows = _settings_rows(writer, compiler_fn)
        function = writer.expression(call.function, _name_of(call.function))
        names = _argument_names(call.function)
        arguments = [
            writer.expression(value, name)
            for value, name in zip(call.args, [*names, *["x"] * len(call.args)], strict=False)
        ]
        arguments += [f"{name}={writer.expression(v, name)}" for name, v in call.kwargs.items()]
    compiled = f"torch.compile({', '.join([function, *words, *settings])})"
    contexts = _contexts()
    lines = [f"{compiled}({', '.join(arguments)})"]
    if contexts:
        lines = [f"with {', '.join(contexts)}:", f"    {lines[0]}"]
    text = "\n".join(["import torch", *rows, *writer.rows_for(needed), *writer.late, *lines]) + "\n"
    if len(text) > MAX_CHARS:
        raise NoText("the program is too long")
    return text


def _name_of(function: Any) -> str:
    name = getattr(function, "__name__", None) or type(function).__name__.lower()
    return name if isinstance(name, str) else "function"


def _argument_names(function: Any) -> list[str]:
    function = getattr(function, "forward", function)
    try:
        return list(inspect.signature(function).parameters)
    except (TypeError, ValueError):
        return []


def _settings_rows(writer: _CallWriter, compiler_fn: Any) -> tuple[list[str], list[str]]:
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
    if torch.get_default_dtype() != torch.float32:
        rows.append(f"torch.set_default_dtype({torch.get_default_dtype()})")
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


def _transform_of(value: Any) -> tuple[str, dict[str, Any]] | None:
    """Return the transform of ``torch.func`` that returned a function, and its arguments; None for
    any other function.
    """
    import torch

    code = getattr(value, "__code__", None)
    for name in ("vmap", "grad", "grad_and_value", "jacrev", "jacfwd"):
        transform = inspect.unwrap(getattr(torch.func, name))
        if code is None or code not in transform.__code__.co_consts:
            continue
        held = closure_values(value)
        words = inspect.signature(transform).parameters
        given = {
            word: held[word]
            for word, parameter in words.items()
            if word in held and (word == "func" or held[word] != parameter.default)
        }
        return (f"torch.func.{name}", given) if "func" in given else None
    return None


# importing them adds the writers of operators and kernels
assert {own_operators.write_operator, triton_kernels.write_kernel} <= {*SPECIAL}


class _CallWriter(DefinitionWriter):
    """Also writes tensors, modules and objects, and imports what is installed."""

    def __init__(self, has_values: bool) -> None:
        super().__init__()
        self.late: list[str] = []
        """Attributes whose object is defined after their owner."""
        self._has_values = has_values
        self._failed: dict[int, tuple[str, Any]] = {}
        self._unfinished: set[int] = set()
        self._count = 0

    def expression(self, value: Any, name: str = "") -> str:
        """Return an expression; see the base class. What has no text is examined once."""
        self._count += 1
        if self._count > MAX_EXPRESSIONS:
            raise NoText("it has too many values")
        if id(value) in self._failed:
            raise NoText(self._failed[id(value)][0])
        try:
            return super().expression(value, name)
        except Exception as problem:  # a user's object may raise anything when it is inspected
            self._failed[id(value)] = str(problem), value  # its id stays its own
            raise NoText(str(problem)) from problem

    def define_source(self, value: Any, name: str = "") -> str:
        """Return the name of a definition; see the base class. What a transform of ``torch.func``
        returned becomes a call of the transform.
        """
        transform = _transform_of(value)
        if transform is None:
            return super().define_source(value, name)
        text, words = transform
        function = self.expression(words.pop("func"))
        more = [f"{word}={self.expression(one)}" for word, one in words.items()]
        return f"{text}({', '.join([function, *more])})"

    def resolve(self, tree: Tree, known: Mapping[str, Any]) -> str:
        """Return the text of a tree; see the base class. A class loses methods without a text, and
        operators that are not torch's are defined.
        """
        for node in ast.walk(tree):
            if isinstance(node, ast.Attribute) and (found := _OPERATOR.match(ast.unparse(node))):
                self._define_operator(found[1], found[2])
        if isinstance(tree, ast.ClassDef):
            kept = [row for row in tree.body if self._is_resolved(row, known)]
            tree.body = kept or [ast.Pass()]
        return super().resolve(tree, known)

    def _define_operator(self, namespace: str, name: str) -> None:
        import torch

        packet = getattr(getattr(torch.ops, namespace), name, None)
        if packet is not None and not is_torch_namespace(namespace):
            self.expression(getattr(packet, packet.overloads()[0]))

    def _is_resolved(self, row: ast.stmt, known: Mapping[str, Any]) -> bool:
        if isinstance(row, ast.FunctionDef):
            try:
                super().resolve(copy.deepcopy(row), known)
            except NoText:
                return False
        return True

    def text_or_reason(self, value: Any, name: str = "") -> str:
        """Return the text of a value; a comment with the reason if it has none."""
        try:
            return self.expression(value, name)
        except NoText as problem:
            return "# " + " ".join(str(problem).split())[:200]

    def is_imported(self, module: str) -> bool:
        """Return whether a module is part of an installed package, or of Python or torch."""
        file = getattr(sys.modules.get(module), "__file__", None) or ""
        return super().is_imported(module) or file.startswith(_libraries())

    def _object(self, value: Any, name: str) -> str:
        import torch

        if isinstance(value, torch.Tensor):
            return self._tensor(value, name)
        if isinstance(value, types.MethodType):
            return f"{self.expression(value.__self__)}.{value.__func__.__name__}"
        if isinstance(value, torch.nn.Module):
            if text := self._container(value) or _constructor(value):
                return self._named(value, text, name)
            start = "torch.nn.Module.__init__({owner})"
            return self._made(value, name, [start], _attributes_of_module(value))
        try:
            return super()._object(value, name)
        except NoText:
            held = getattr(value, "__dict__", None)
            is_torchs = type(value).__module__.split(".")[0] == "torch"
            if not held or is_torchs or isinstance(value, type):
                raise
            rows = [_Attribute(SET, attribute, one) for attribute, one in held.items()]
            return self._made(value, name, [], rows)

    def _tensor(self, value: Any, name: str) -> str:
        import torch

        if type(value) not in (torch.Tensor, torch.nn.Parameter):
            raise NoText(f"a tensor of {type(value).__name__} has no text")
        facts = {**describe_input(value), **input_facts(value)}
        if facts["layout"] != "torch.strided":
            raise NoText(f"a tensor with {facts['layout']} has no text")
        if isinstance(value, torch.nn.Parameter):
            text = tensors.tensor_text({**facts, "requires_grad": False, "is_computed": False})
            grad = "" if value.requires_grad else ", requires_grad=False"
            return self._named(value, f"torch.nn.Parameter({text}{grad})", name)
        if self._has_values and 0 < value.numel() <= MAX_VALUES:
            grad = ".requires_grad_()" if value.requires_grad else ""
            where = "" if facts["device"] == "cpu" else f", device={facts['device']!r}"
            data = f"{self.expression(value.detach().tolist())}, dtype={facts['dtype']}"
            return self._named(value, f"torch.tensor({data}{where}){grad}", name)
        return self._named(value, tensors.tensor_text(facts), name)

    def _named(self, value: Any, text: str, name: str) -> str:
        """Give a value a variable, so that the program makes it once."""
        with self.defining(value, name or type(value).__name__.lower()) as (chosen, add):
            add(f"{chosen} = {text}")
        return chosen

    def _container(self, value: Any) -> str:
        import torch

        names, kind = list(value._modules), type(value)
        if any(getattr(value, hooks, None) for hooks in _HOOKS):
            return ""
        if kind is torch.nn.ModuleDict:
            rows = (f"{key!r}: {self.expression(one, key)}" for key, one in value.items())
            return f"torch.nn.ModuleDict({{{', '.join(rows)}}})"
        if kind not in (torch.nn.Sequential, torch.nn.ModuleList):
            return ""
        if names != [str(number) for number in range(len(names))]:
            return ""
        text = ", ".join(self.expression(one) for one in value)
        ending = "" if value.training else ".eval()"
        listed = f"[{text}]" if kind is torch.nn.ModuleList else text
        return f"torch.nn.{kind.__name__}({listed}){ending}"

    def _made(
        self,
        value: Any,
        name: str,
        start: Sequence[str],
        attributes: Sequence[_Attribute],
    ) -> str:
        """Write an object without calling its class: a new one, and its attributes."""
        kind = self.expression(type(value))
        with self.defining(value, name or type(value).__name__.lower()) as (chosen, add):
            rows = [f"{chosen} = {kind}.__new__({kind})"]
            rows += [row.format(owner=chosen) for row in start]
            self._unfinished.add(id(value))
            for template, attribute, held in attributes:
                text = self.text_or_reason(held, attribute)
                if text.startswith("#"):
                    rows.append(f"# without {attribute}: {text[2:]}")
                    continue
                if template == SET and not attribute.isidentifier():
                    template = SET_BY_NAME
                is_late = id(held) in self._unfinished
                (self.late if is_late else rows).append(
                    template.format(owner=chosen, name=attribute, text=text)
                )
            self._unfinished.discard(id(value))
            add("\n".join(rows))
        return chosen


def _attributes_of_module(module: Any) -> list[_Attribute]:
    """Return the attributes of a module, each with the text that sets it."""
    import torch

    rows: list[_Attribute] = []
    of_torch = {*vars(torch.nn.Module()), "_is_torch_compile"}
    rows += [
        _Attribute(SET, name, one) for name, one in vars(module).items() if name not in of_torch
    ]
    rows += [_Attribute(SET, name, one) for name, one in module._parameters.items()]
    for name, one in module._buffers.items():
        is_kept = name not in module._non_persistent_buffers_set
        rows.append(_Attribute(BUFFER if is_kept else NOT_PERSISTENT, name, one))
    rows += [_Attribute(SET, name, one) for name, one in module._modules.items()]
    for attribute, method in _HOOKS.items():
        row = f"{{owner}}.{method}({{text}})"
        rows += [_Attribute(row, method, hook) for hook in getattr(module, attribute).values()]
    if not module.training:
        rows.append(_Attribute(SET, "training", False))
    return rows


def _constructor(module: Any) -> str:
    """Return the call that makes a module of torch without modules inside, as torch prints it."""
    import torch

    kind = type(module)
    if getattr(torch.nn, kind.__name__, None) is not kind or any(module.children()):
        return ""
    if any(getattr(module, hooks, None) for hooks in _HOOKS) or hasattr(module, "parametrizations"):
        return ""
    try:
        call = ast.parse(repr(module), mode="eval").body
        assert isinstance(call, ast.Call)
        for argument in (*call.args, *(word.value for word in call.keywords)):
            ast.literal_eval(argument)
    except (SyntaxError, ValueError, AssertionError):
        return ""
    tensors_of = [*module.parameters(), *module.buffers()]
    dtypes = {one.dtype for one in tensors_of if one.is_floating_point()}
    devices = {one.device for one in tensors_of}
    ending = "".join(f".to({str(device)!r})" for device in devices if device.type != "cpu")
    ending += "".join(f".to({dtype})" for dtype in dtypes - {torch.get_default_dtype()})
    frozen = tensors_of and not any(one.requires_grad for one in module.parameters())
    ending += ".requires_grad_(False)" if frozen and any(True for _ in module.parameters()) else ""
    return f"torch.nn.{ast.unparse(call)}{ending}{'' if module.training else '.eval()'}"


@functools.cache
def _libraries() -> tuple[str, ...]:
    paths = {sysconfig.get_path(name) for name in ("purelib", "platlib", "stdlib")}
    return tuple(path + os.sep for path in paths if path)
