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
from typing import TYPE_CHECKING, Any

from ...core.shared import cuts
from ...core.shared.source import process_group, tensors
from . import collectives
from .definitions.graph_definitions import GraphDefinitions
from .values.value_facts import ValueFacts, describe_input

if TYPE_CHECKING:
    import torch

_HEADER = '''"""{level} graph {cid}, recorded by reprokit before it was compiled."""
'''


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
