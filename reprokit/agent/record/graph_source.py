"""Write a graph and the metadata of its inputs as a script that needs only torch.

Shapes are those of the recorded run. A symbolic size is written as its hint, with a comment. The
script creates new values: floats from a normal distribution, and integers that are small and not
negative, so that they can be indices.
"""

from __future__ import annotations

import contextlib
import copy
import operator
import re
import textwrap
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, Literal, TypedDict

from ...core.shared import cuts
from ...core.shared.source import process_group, tensors
from . import collectives
from .definitions.graph_definitions import GraphDefinitions

if TYPE_CHECKING:
    import torch

_HEADER = '''"""{level} graph {cid}, recorded by reprokit before it was compiled."""
'''


_FACTS_OF_INPUTS = ("is_computed", "is_zero", "is_conjugate", "is_negative")


class ValueFacts(TypedDict, total=False):
    """Metadata of an input or a value of a graph, as JSON values."""

    kind: Literal["tensor", "symbol", "number", "mesh", "other"]
    placements: list[str]
    """Of a distributed tensor."""
    made_by: str
    """The text that makes a tensor of a class of the user's from its inner tensors."""
    shape: list[Any]
    """In elements; None for a symbol without a hint."""
    stride: list[Any] | None
    """In elements; None for a tensor that is not strided."""
    symbols: list[str | None]
    """The symbols of the shape."""
    dtype: str
    device: str
    """Of a tensor, or the device type of a mesh."""
    layout: str
    requires_grad: bool
    is_parameter: bool
    is_computed: bool
    """An input that requires a gradient and is no leaf: it may be changed in place."""
    is_zero: bool
    """An input without memory, all of whose elements are zero."""
    is_conjugate: bool
    is_negative: bool
    """An input whose elements are to be conjugated or negated when they are read."""
    symbol: str
    value: float | None
    type: str
    text: str


def describe_inputs(
    gm: torch.fx.GraphModule, example_inputs: Sequence[Any], definitions: GraphDefinitions
) -> list[ValueFacts]:
    """Return the metadata of each input of ``gm``, whose placeholders have the symbolic sizes."""
    placeholders = [n for n in gm.graph.nodes if n.op == "placeholder"]
    traced = [n.meta.get("example_value", n.meta.get("val")) for n in placeholders]
    traced += [None] * (len(example_inputs) - len(traced))
    return [
        {**describe_input(value, as_traced, definitions), **_input_facts(value)}
        for value, as_traced in zip(example_inputs, traced, strict=False)
    ]


def _input_facts(value: object) -> ValueFacts:
    """Return what only an input has, and not a value that is cut off: how it was made."""
    import torch

    if type(value) not in (torch.Tensor, torch._subclasses.FakeTensor):
        return {}
    assert isinstance(value, torch.Tensor)
    facts: ValueFacts = {
        "is_computed": value.requires_grad and not value.is_leaf,
        "is_zero": value._is_zerotensor(),
        "is_conjugate": value.is_conj(),
        "is_negative": value.is_neg(),
    }
    return {name: fact for name, fact in facts.items() if fact}  # type: ignore[return-value]


def describe_values(
    gm: torch.fx.GraphModule, inputs: Sequence[ValueFacts], definitions: GraphDefinitions
) -> dict[str, ValueFacts]:
    """Return the metadata of each tensor and number of the graph, by its name in the graph's code.

    ``inputs`` is the result of :func:`describe_inputs`; a device mesh among them is included.
    """
    import torch

    described: dict[str, ValueFacts] = {}
    made: dict[str, Any] = {}
    placeholders = [n for n in gm.graph.nodes if n.op == "placeholder"]
    for node, facts in zip(placeholders, inputs, strict=False):
        if facts["kind"] == "mesh":
            described[node.name] = facts
        made[node.name] = {k: v for k, v in facts.items() if k in _FACTS_OF_INPUTS}
    for node in gm.graph.nodes:
        value = node.meta.get("example_value", node.meta.get("val"))
        if value is None and node.op == "get_attr":
            with contextlib.suppress(AttributeError):
                value = operator.attrgetter(str(node.target))(gm)
        if isinstance(
            value, (torch.Tensor, torch.SymInt, torch.SymFloat, torch.SymBool, int, float)
        ):
            described[node.name] = describe_input(value, value, definitions)
            described[node.name].update(made.get(node.name, {}))
    return described


def describe_input(
    value: object, as_traced: object = None, definitions: GraphDefinitions | None = None
) -> ValueFacts:
    """Return the metadata of one input of a graph; sizes and strides in elements, symbols as text.

    ``as_traced`` is the same input as the tracer saw it: a fake tensor whose sizes may be symbolic.
    A class of tensors of the user's is added to ``definitions``.
    """
    import torch

    if isinstance(value, torch.Tensor):
        sizes = as_traced.shape if isinstance(as_traced, torch.Tensor) else value.shape
        placements = getattr(value, "placements", None)
        facts: ValueFacts = {"placements": [repr(p) for p in placements]} if placements else {}
        if definitions is not None and (text := _subclass_text(value, definitions)):
            facts["made_by"] = text
        return {
            **facts,
            "kind": "tensor",
            "shape": [_number(s) for s in value.shape],
            "stride": (
                [_number(s) for s in value.stride()] if value.layout is torch.strided else None
            ),
            "symbols": [_symbol_text(s) for s in sizes],
            "dtype": str(value.dtype),
            "device": str(value.device),
            "layout": str(value.layout),
            "requires_grad": bool(value.requires_grad),
            "is_parameter": isinstance(value, torch.nn.Parameter),
        }
    if isinstance(value, (torch.SymInt, torch.SymFloat, torch.SymBool)):
        return {"kind": "symbol", "symbol": str(value), "value": _number(value)}
    if isinstance(value, (bool, int, float)):
        return {"kind": "number", "value": value}
    if type(value).__name__ == "DeviceMesh":
        mesh: Any = value
        return {"kind": "mesh", "shape": list(mesh.shape), "device": mesh.device_type}
    return {
        "kind": "other",
        "type": f"{type(value).__module__}.{type(value).__qualname__}",
        "text": cuts.cut_head(repr(value), 500),
    }


def _subclass_text(value: Any, definitions: GraphDefinitions) -> str:
    """Return the text that makes a tensor of the user's own class; empty for other tensors."""
    kind = type(value)
    if kind.__module__.split(".")[0] == "torch" or not hasattr(value, "__tensor_flatten__"):
        return ""
    names, context = value.__tensor_flatten__()
    name, context_text = definitions.define_subclass(kind, context)
    if not name:
        return ""
    inner = (
        f"{n!r}: {tensors.tensor_text(describe_input(getattr(value, n), None, definitions))}"
        for n in names
    )
    sizes, strides = (tuple(map(_number, numbers)) for numbers in (value.shape, value.stride()))
    made = (
        f"{name}.__tensor_unflatten__({{{', '.join(inner)}}}, {context_text}, {sizes}, {strides})"
    )
    return f"{made}.requires_grad_()" if value.requires_grad else made


def _symbol_text(size: object) -> str | None:
    import torch

    return str(size) if isinstance(size, torch.SymInt) else None


def _number(value: Any) -> Any:
    """Return a plain number, or the hint of a symbol. It adds no guard to the compile."""
    import torch

    if isinstance(value, (torch.SymInt, torch.SymFloat, torch.SymBool)):
        hint = getattr(value.node, "hint", None)
        return hint if isinstance(hint, (bool, int, float)) else None
    return value


def standalone_program(
    gm: torch.fx.GraphModule,
    inputs: Sequence[ValueFacts],
    level: str,
    cid: str | None,
    definitions: GraphDefinitions,
) -> str:
    """Return a script that defines ``class Repro`` and ``make_inputs`` and runs them compiled.

    Launches of Triton kernels in the graph are added to ``definitions``.
    """
    import torch

    imports: set[str] = set()
    classes: list[str] = []
    _emit_class(gm, "Repro", imports, classes, definitions)
    grad = torch.is_grad_enabled()
    lines = [
        _HEADER.format(level=level, cid=cid or "?"),
        "import torch",
        *sorted(imports),
        *_process_group_rows(inputs, classes),
        *(f"\n\n{text}" for text in definitions.rows()),
        "",
        "",
        "\n\n\n".join(classes),
        "",
        "",
        "def make_inputs():",
        "    torch.manual_seed(0)",
        "    return [",
        *(textwrap.indent(_input_line(facts), " " * 8) for facts in inputs),
        "    ]",
        "",
        "",
        'if __name__ == "__main__":',
        f"    torch.set_grad_enabled({grad})",
        *_main_rows(level),
    ]
    return "\n".join(lines) + "\n"


def _process_group_rows(inputs: Sequence[ValueFacts], classes: list[str]) -> list[str]:
    dist = collectives.distributed_module()
    if dist is None or not process_group.needs_process_group("\n".join(classes)):
        return []
    mesh = next((facts for facts in inputs if facts["kind"] == "mesh"), None)
    return [
        process_group.TENSOR_IMPORT,
        *process_group.join_group_lines(dist.get_rank(), dist.get_world_size(), mesh),
    ]


def _main_rows(level: str) -> list[str]:
    if level == "export":
        return [
            "    inputs = tuple(make_inputs())",
            "    exported = torch.export.export(Repro(), inputs)",
            "    package = torch._inductor.aoti_compile_and_package(exported)",
            "    print(torch._inductor.aoti_load_package(package)(*inputs))",
        ]
    if level == "dynamo":
        return ["    compiled = torch.compile(Repro())", "    print(compiled(*make_inputs()))"]
    return [
        "    from torch._inductor.compile_fx import compile_fx_inner",
        "    from torch.fx.experimental.proxy_tensor import make_fx",
        "",
        "    inputs = make_inputs()",
        "    with torch.no_grad():",
        '        graph = make_fx(Repro(), tracing_mode="fake")(*inputs)',
        "        print(compile_fx_inner(graph, inputs)(inputs))",
    ]


def _emit_class(
    gm: torch.fx.GraphModule,
    name: str,
    imports: set[str],
    classes: list[str],
    definitions: GraphDefinitions,
) -> None:
    """Append the class of ``gm`` after the classes of its inner graphs (the bodies of ``cond``)."""
    import torch
    from torch.fx.graph import _format_target

    # with a graph of torch.export, the code of the user's nested arguments is not part of it
    graph = copy.copy(gm.graph)
    graph.set_codegen(torch.fx.graph.CodeGen())
    code = graph.python_code("self")
    source = definitions.write_launches(re.sub(r"\A\s*", "", code.src))
    for alias, value in code.globals.items():
        imports.add(_import_line(alias, value))
    body = []
    called = {str(n.target).split(".")[0] for n in gm.graph.nodes if n.op == "call_module"}
    for child_name, child in gm.named_children():
        if isinstance(child, torch.fx.GraphModule):
            child_class = f"{name}_" + re.sub(r"\W", "_", child_name)
            _emit_class(child, child_class, imports, classes, definitions)
            body.append(f"self.{child_name} = {child_class}()")
        elif child_name in called:  # others only hold tensors, which get names of their own
            body.append(f"self.{child_name} = {_one_line(repr(child))}")
            imports.add(
                "from torch.nn import *  # noqa: F403 - submodules below are written as torch"
                " prints them"
            )
    for attribute, value in [*gm.named_parameters(recurse=False), *gm.named_buffers(recurse=False)]:
        if "." in attribute:
            continue
        text = tensors.tensor_text(describe_input(value))
        if isinstance(value, torch.nn.Parameter):
            body.append(
                f"self.{attribute} = torch.nn.Parameter({text},"
                f" requires_grad={value.requires_grad})"
            )
        else:
            body.append(f'self.register_buffer("{attribute}", {text})')
    for attribute in _plain_tensors(gm):
        value = operator.attrgetter(attribute)(gm)
        text = tensors.tensor_text(describe_input(value))
        if isinstance(value, torch.nn.Parameter):
            text = f"torch.nn.Parameter({text}, requires_grad={value.requires_grad})"
        name_in_class = attribute
        if "." in attribute:
            name_in_class = re.sub(r"\W", "_", f"_{attribute}")
            read = re.escape(_format_target("self", attribute))
            source = re.sub(rf"(?<== ){read}(?![\w.])", f"self.{name_in_class}", source)
        body.append(f"self.{name_in_class} = {text}")
    init = (
        [
            "    def __init__(self):",
            "        super().__init__()",
            *(f"        {row}" for row in body),
            "",
        ]
        if body
        else []
    )
    classes.append(
        "\n".join(
            [f"class {name}(torch.nn.Module):", *init, textwrap.indent(source.rstrip(), "    ")]
        )
    )


def _plain_tensors(gm: torch.fx.GraphModule) -> Iterable[str]:
    """Yield the tensors that the graph reads, and that are no parameters or buffers of ``gm``
    itself.
    """
    import torch

    names = {str(n.target) for n in gm.graph.nodes if n.op == "get_attr"}
    own = [*gm.named_parameters(recurse=False), *gm.named_buffers(recurse=False)]
    for name in sorted(names - {n for n, _ in own}):
        with contextlib.suppress(AttributeError):
            if isinstance(operator.attrgetter(name)(gm), torch.Tensor):
                yield name


def _import_line(alias: str, value: Any) -> str:
    """Return the import that binds ``alias``, which FX binds in the globals of the graph's code."""
    if alias in ("inf", "nan"):
        return f"from math import {alias}"
    if alias == "NoneType":
        return "NoneType = type(None)"
    module = getattr(value, "__module__", None)
    name = getattr(value, "__qualname__", None) or getattr(value, "__name__", None)
    if type(value).__name__ == "module":
        return (
            f"import {value.__name__}"
            if alias == value.__name__.split(".")[0]
            else f"import {value.__name__} as {alias}"
        )
    if module and name and "." not in name and module != "builtins" and "<" not in name:
        return (
            f"from {module} import {name}"
            if alias == name
            else f"from {module} import {name} as {alias}"
        )
    return (
        f"# {alias} = {cuts.cut_head(_one_line(repr(value)), 200)}  (cannot be written as an"
        " import)"
    )


def _input_line(facts: ValueFacts) -> str:
    if facts["kind"] == "tensor":
        named = [
            f"{size} is {symbol}"
            for size, symbol in zip(facts["shape"], facts["symbols"], strict=True)
            if symbol
        ]
        return f"{tensors.tensor_text(facts)}," + (f"  # {', '.join(named)}" if named else "")
    if facts["kind"] == "symbol":
        return f"{facts['value']!r},  # {facts['symbol']}"
    if facts["kind"] == "number":
        return f"{facts['value']!r},"
    if facts["kind"] == "mesh":
        return f"{process_group.MESH},"
    return f"None,  # {facts['type']}: {_one_line(facts['text'])}"


def _one_line(text: str) -> str:
    return re.sub(r"\s+", " ", text)
