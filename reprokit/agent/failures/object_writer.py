"""Write tensors, modules and objects as Python text that makes them again.

An object is made from its class and its attributes, which are read without properties and
``__getattr__``: constructors and properties of the user may take any time.
"""

from __future__ import annotations

import ast
import collections
import copy
import dataclasses
import enum
import functools
import inspect
import keyword
import logging
import os
import re
import sys
import sysconfig
import types
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from ...core.shared.operators import is_torch_namespace
from ...core.shared.source import tensors
from ..record.definitions import own_operators, triton_kernels
from ..record.definitions.definition_writer import SPECIAL, DefinitionWriter
from ..record.definitions.source_trees import NoText, Tree, closure_values
from ..record.values.value_facts import describe_input, input_facts

MAX_EXPRESSIONS, MAX_TEXT_CHARS = 50_000, 4_000
"""Limits of the values of a program, and of one text among them."""
MAX_VALUES = 64
"""Elements of the largest tensor whose values are written, where that is asked for."""
SET, SET_BY_NAME = "{owner}.{name} = {text}", "setattr({owner}, {name!r}, {text})"
SET_PLAINLY = "object.__setattr__({owner}, {name!r}, {text})"
BUFFER = "{owner}.register_buffer({name!r}, {text})"
NOT_PERSISTENT = "{owner}.register_buffer({name!r}, {text}, persistent=False)"
_HOOKS = {
    "_forward_pre_hooks": "register_forward_pre_hook",
    "_forward_hooks": "register_forward_hook",
    "_backward_hooks": "register_full_backward_hook",
    "_backward_pre_hooks": "register_full_backward_pre_hook",
}
_OPERATOR = re.compile(r"torch\.ops\.(\w+)\.(\w+)")
_CONTAINERS = (bool, int, float, complex, str, bytes, list, tuple, dict, set, frozenset)
# importing them adds the writers of operators and kernels
assert {own_operators.write_operator, triton_kernels.write_kernel} <= {*SPECIAL}


class _Attribute(NamedTuple):
    """An attribute of an object."""

    template: str
    """The line that sets it, with ``owner``, ``name`` and ``text``."""
    name: str
    value: Any


class ObjectWriter(DefinitionWriter):
    """Also writes tensors, modules and objects, and imports what is installed."""

    keeps_constants = True

    def __init__(self, has_values: bool, function: Any = None) -> None:
        """Create the writer. ``function`` may be a module, whose shared tensors stay shared."""
        super().__init__()
        self.late: list[str] = []
        """Lines that use objects which are defined after their owner."""
        self.left_out: list[str] = []
        """What has no text, each with the reason."""
        self._has_values = has_values
        self._shared = _shared_tensors(function)
        self._failed: dict[int, tuple[str, Any]] = {}
        self._unfinished: set[int] = set()
        self._is_late = False
        self._count = 0

    def expression(self, value: Any, name: str = "") -> str:
        """Return an expression; see the base class. What has no text is examined once."""
        self._count += 1
        if self._count > MAX_EXPRESSIONS:
            raise NoText(f"it has more than {MAX_EXPRESSIONS} values")
        if id(value) in self._failed:
            raise NoText(self._failed[id(value)][0])
        if type(value) in (str, bytes) and len(value) > MAX_TEXT_CHARS:
            raise NoText(f"a text of {len(value)} characters is too long")
        if id(value) in self._unfinished:
            self._is_late = True
        try:
            return super().expression(value, name)
        except KeyboardInterrupt:
            raise
        except BaseException as problem:  # a user's object may raise anything, also SystemExit
            reason = _reason(problem)
            self._failed[id(value)] = reason, value  # its id stays its own
            raise NoText(reason) from problem

    def words(self, given: Mapping[str, Any]) -> list[str]:
        """Return keyword arguments."""
        texts = {name: self.expression(value, name) for name, value in given.items()}
        odd = {name: text for name, text in texts.items() if not _is_name(name)}
        rows = [f"{name}={text}" for name, text in texts.items() if name not in odd]
        inner = ", ".join(f"{name!r}: {text}" for name, text in odd.items())
        return rows + ([f"**{{{inner}}}"] if odd else [])

    def define_source(self, value: Any, name: str = "") -> str:
        """Return the name of a definition; see the base class. What a transform of ``torch.func``
        returned becomes a call of the transform.
        """
        transform = _transform_of(value)
        if transform is None:
            return super().define_source(value, name)
        text, words = transform
        function = self.expression(words.pop("func"))
        return f"{text}({', '.join([function, *self.words(words)])})"

    def resolve(self, tree: Tree, known: Mapping[str, Any]) -> str:
        """Return the text of a tree; see the base class. A class loses methods without a text, and
        operators that are not torch's are defined.
        """
        for node in ast.walk(tree):
            if isinstance(node, ast.Attribute) and (found := _OPERATOR.match(ast.unparse(node))):
                self._define_operator(found[1], found[2])
        if isinstance(tree, ast.ClassDef):
            kept = [row for row in tree.body if self._is_resolved(row, known, tree.name)]
            tree.body = kept or [ast.Pass()]
        return super().resolve(tree, known)

    def _define_operator(self, namespace: str, name: str) -> None:
        import torch

        packet = getattr(getattr(torch.ops, namespace), name, None)
        if packet is not None and not is_torch_namespace(namespace):
            self.expression(getattr(packet, packet.overloads()[0]))

    def _is_resolved(self, row: ast.stmt, known: Mapping[str, Any], owner: str) -> bool:
        if isinstance(row, ast.FunctionDef):
            try:
                super().resolve(copy.deepcopy(row), known)
            except NoText as problem:
                if row.name == "forward":
                    raise
                if row.name != "__init__":  # no object is made with it
                    self.left_out.append(f"without {owner}.{row.name}: {problem}")
                return False
        return True

    def text_or_reason(self, value: Any, name: str = "") -> str:
        """Return the text of a value; a comment with the reason if it has none."""
        try:
            return self.expression(value, name)
        except NoText as problem:
            return f"# {problem}"

    def is_imported(self, module: str) -> bool:
        """Return whether a module is part of an installed package, or of Python or torch."""
        file = getattr(sys.modules.get(module), "__file__", None) or ""
        return super().is_imported(module) or file.startswith(_libraries())

    def _object(self, value: Any, name: str) -> str:
        import torch

        kind: Any = type(value)
        if issubclass(kind, torch.Tensor):
            return self._tensor(value, name)
        if kind is types.MethodType:
            return f"{self.expression(value.__self__)}.{value.__func__.__name__}"
        if issubclass(kind, logging.Logger):
            self.add_row("logging", "import logging")
            return f"logging.getLogger({value.name!r})"
        if issubclass(kind, torch.nn.Module):
            return self._module(value, name)
        if issubclass(kind, enum.Enum):
            is_member = kind.__members__.get(value.name) is value
            return super()._object(value, name) if is_member else self._flags(value)
        if issubclass(kind, _CONTAINERS):
            return self._container_of_own(value)
        if kind.__module__.split(".")[0] == "torch" or kind.__new__ is not object.__new__:
            raise NoText(f"{kind.__qualname__} cannot be written as Python text")
        held = _held(value)
        if _is_made_of(kind, held):
            return self._named(
                value, f"{self.expression(kind)}({', '.join(self.words(held))})", name
            )
        is_usual = kind.__setattr__ is object.__setattr__
        rows = [_Attribute(SET if is_usual else SET_PLAINLY, *one) for one in held.items()]
        return self._made(value, name, [], rows)

    def _flags(self, value: Any) -> str:
        return f"{self.expression(type(value))}({self.expression(value.value)})"

    def _container_of_own(self, value: Any) -> str:
        """Return the text of a named tuple, a size or an ordered dictionary."""
        import torch

        kind = type(value)
        if kind is torch.Size:
            return f"torch.Size({self.expression(list(value))})"
        if kind is collections.OrderedDict:
            return f"{self.expression(kind)}({self.expression(list(value.items()))})"
        if (
            issubclass(kind, tuple)
            and getattr(kind, "_fields", None)
            and kind.__bases__ == (tuple,)
        ):
            return f"{self.expression(kind)}({', '.join(self.words(value._asdict()))})"
        raise NoText(f"{kind.__qualname__} cannot be written as Python text")

    def _tensor(self, value: Any, name: str) -> str:
        import torch

        if type(value) not in (torch.Tensor, torch.nn.Parameter):
            raise NoText(f"a tensor of {type(value).__name__} has no text")
        facts = {**describe_input(value), **input_facts(value)}
        if facts["layout"] != "torch.strided" or value.is_nested or value.is_quantized:
            raise NoText(f"a tensor with {facts['layout']} has no text")
        if isinstance(value, torch.nn.Parameter):
            text = tensors.tensor_text({**facts, "requires_grad": False, "is_computed": False})
            grad = "" if value.requires_grad else ", requires_grad=False"
            return self._named(value, f"torch.nn.Parameter({text}{grad})", name)
        is_plain = value.is_contiguous() and not (
            facts.keys() & {"is_zero", "is_conjugate", "is_negative"} or facts.get("is_computed")
        )
        is_here = value.device.type != "meta"
        if self._has_values and is_plain and is_here and 0 < value.numel() <= MAX_VALUES:
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

    def _module(self, value: Any, name: str) -> str:
        import torch

        if isinstance(value, torch.fx.GraphModule) or "parametrizations" in value._modules:
            raise NoText(f"{type(value).__name__} is generated and has no source")
        if text := self._container(value) or _constructor(value, self._shared):
            return self._named(value, text, name)
        start = "torch.nn.Module.__init__({owner})"
        return self._made(value, name, [start], _attributes_of_module(value))

    def _container(self, value: Any) -> str:
        import torch

        names, kind = list(value._modules), type(value)
        if kind not in (torch.nn.Sequential, torch.nn.ModuleList, torch.nn.ModuleDict):
            return ""
        if not _is_like(value, kind()) or value._buffers or value._parameters:
            return ""
        ending = "" if value.training else ".eval()"
        if kind is torch.nn.ModuleDict:
            rows = (f"{key!r}: {self.expression(one, key)}" for key, one in value.items())
            return f"torch.nn.ModuleDict({{{', '.join(rows)}}}){ending}"
        if names != [str(number) for number in range(len(names))]:
            return ""
        text = ", ".join(self.expression(one) for one in value)
        listed = f"[{text}]" if kind is torch.nn.ModuleList else text
        return f"torch.nn.{kind.__name__}({listed}){ending}"

    def _made(
        self, value: Any, name: str, start: Sequence[str], attributes: Sequence[_Attribute]
    ) -> str:
        """Write an object without calling its class: a new one, and its attributes."""
        kind = self.expression(type(value))
        with self.defining(value, name or type(value).__name__.lower()) as (chosen, add):
            rows = [f"{chosen} = {kind}.__new__({kind})"]
            rows += [row.format(owner=chosen) for row in start]
            self._unfinished.add(id(value))
            was_late = self._is_late
            for template, attribute, held in attributes:
                self._is_late = False
                text = self.text_or_reason(held, attribute)
                if text.startswith("#"):
                    self.left_out.append(f"without {chosen}.{attribute}: {text[2:]}")
                    continue
                if template == SET and not _is_name(attribute):
                    template = SET_BY_NAME
                # what uses an owner that is not finished is set when all are
                (self.late if self._is_late else rows).append(
                    template.format(owner=chosen, name=attribute, text=text)
                )
            self._is_late = was_late
            self._unfinished.discard(id(value))
            add("\n".join(rows))
        return chosen


def _is_name(text: str) -> bool:
    return text.isidentifier() and not keyword.iskeyword(text)


def _reason(problem: BaseException) -> str:
    if isinstance(problem, RecursionError):
        return "it is nested too deeply"
    text = " ".join(str(problem).split())[:200]
    return text if isinstance(problem, NoText) else f"{type(problem).__name__}: {text}"


def _is_made_of(kind: Any, held: Mapping[str, Any]) -> bool:
    """Return whether the constructor of a class only sets the attributes that it is given."""
    if not dataclasses.is_dataclass(kind):
        return not held and kind.__init__ is object.__init__
    fields = {field.name for field in dataclasses.fields(kind) if field.init}
    has_more = hasattr(kind, "__post_init__") or "InitVar" in repr(kind.__dataclass_fields__)
    params: Any = getattr(kind, "__dataclass_params__", None)
    return bool(params and params.init) and not has_more and fields == held.keys()


def _held(value: Any) -> dict[str, Any]:
    """Return the attributes of an object, read without its properties and ``__getattr__``."""
    try:
        found = dict(object.__getattribute__(value, "__dict__"))
    except AttributeError:
        found = {}
    for kind in type(value).__mro__:
        for name, member in vars(kind).items():
            if isinstance(member, types.MemberDescriptorType) and name not in found:
                try:
                    found[name] = member.__get__(value)
                except AttributeError:  # it has no value yet
                    continue
    return found


def _shared_tensors(function: Any) -> set[int]:
    """Return the ids of tensors that a module has more than once."""
    import torch

    if not isinstance(function, torch.nn.Module):
        return set()
    counts: collections.Counter[int] = collections.Counter()
    for module in function.modules():
        counts.update(id(one) for one in (*module._parameters.values(), *module._buffers.values()))
    return {one for one, count in counts.items() if count > 1}


def _is_like(module: Any, made: Any) -> bool:
    """Return whether a module of torch has nothing that its constructor does not give it."""
    import torch

    hooks = [name for name in vars(torch.nn.Module()) if name.endswith(("hooks", "_with_kwargs"))]
    if any(getattr(module, name, None) for name in hooks):
        return False
    internal = {*vars(torch.nn.Module()), "_is_torch_compile", "_is_hf_initialized"}
    mine, its = (
        {name: one for name, one in vars(each).items() if name not in internal}
        for each in (module, made)
    )
    if mine.keys() != its.keys() or any(type(mine[n]) is not type(its[n]) for n in mine):
        return False
    return repr(mine) == repr(its) and module._non_persistent_buffers_set == getattr(
        made, "_non_persistent_buffers_set", None
    )


def _has_like_tensors(module: Any, made: Any, shared: set[int]) -> bool:
    for mine, its in ((module._parameters, made._parameters), (module._buffers, made._buffers)):
        if mine.keys() != its.keys():
            return False
        for name, one in mine.items():
            other = its[name]
            if one is None or other is None:
                if one is not other:
                    return False
            elif (
                id(one) in shared
                or type(one) is not type(other)
                or one.shape != other.shape
                or one.stride() != other.stride()
                or (not one.is_floating_point() and one.dtype != other.dtype)
            ):
                return False
    return True


def _attributes_of_module(module: Any) -> list[_Attribute]:
    """Return the attributes of a module, each with the text that sets it."""
    import torch

    of_torch = {*vars(torch.nn.Module()), "_is_torch_compile"}
    own = {name: one for name, one in vars(module).items() if name not in of_torch}
    rows = [_Attribute(SET, name, one) for name, one in own.items()]
    rows += [_Attribute(SET, name, one) for name, one in module._parameters.items()]
    for name, one in module._buffers.items():
        is_kept = name not in module._non_persistent_buffers_set
        rows.append(_Attribute(BUFFER if is_kept else NOT_PERSISTENT, name, one))
    rows += [_Attribute(SET, name, one) for name, one in module._modules.items()]
    for attribute, method in _HOOKS.items():
        for number, hook in getattr(module, attribute, {}).items():
            words = ""
            if number in getattr(module, f"{attribute}_with_kwargs", ()):
                words += ", with_kwargs=True"
            if number in getattr(module, f"{attribute}_always_called", ()):
                words += ", always_call=True"
            rows.append(_Attribute(f"{{owner}}.{method}({{text}}{words})", method, hook))
    if not module.training:
        rows.append(_Attribute(SET, "training", False))
    return rows


def _constructor(module: Any, shared: set[int]) -> str:
    """Return the call that makes a module of torch without modules inside, as torch prints it;
    empty if it makes a different one.
    """
    import torch

    kind = type(module)
    if getattr(torch.nn, kind.__name__, None) is not kind or any(module.children()):
        return ""
    try:
        call = ast.parse(repr(module), mode="eval").body
        assert isinstance(call, ast.Call)
        args = [ast.literal_eval(one) for one in call.args]
        words = {str(word.arg): ast.literal_eval(word.value) for word in call.keywords}
        with torch.device("meta"):
            made = kind(*args, **words)
    except Exception:  # what torch prints is not what it takes
        return ""
    if not _is_like(module, made) or not _has_like_tensors(module, made, shared):
        return ""
    held = [*module._parameters.values(), *module._buffers.values()]
    held = [one for one in held if one is not None]
    dtypes = {one.dtype for one in held if one.is_floating_point()}
    devices = {one.device for one in held}
    grads = {one.requires_grad for one in module._parameters.values() if one is not None}
    if max(len(dtypes), len(devices), len(grads)) > 1:
        return ""
    ending = "".join(f".to({str(device)!r})" for device in devices if device.type != "cpu")
    ending += "".join(f".to({dtype})" for dtype in dtypes - {torch.float32})
    ending += ".requires_grad_(False)" if grads == {False} else ""
    return f"torch.nn.{ast.unparse(call)}{ending}{'' if module.training else '.eval()'}"


def _transform_of(value: Any) -> tuple[str, dict[str, Any]] | None:
    """Return the transform of ``torch.func`` that returned a function, and its arguments; None for
    any other function.
    """
    import torch

    code = getattr(value, "__code__", None) if type(value) is types.FunctionType else None
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


@functools.cache
def _libraries() -> tuple[str, ...]:
    paths = {sysconfig.get_path(name) for name in ("purelib", "platlib", "stdlib")}
    return tuple(path + os.sep for path in paths if path)
