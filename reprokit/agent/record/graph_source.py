"""Turn a graph and the metadata of its inputs into a script that depends on nothing but torch.

Shapes are those of the recorded run; symbolic sizes stand as their hints, with a comment. Values
are made anew: floats from a normal distribution, integers small and non-negative, so that they can
index.
"""

from __future__ import annotations

import contextlib
import re
import textwrap
from collections.abc import Iterable, Sequence
from typing import Any

from ...core.shared import cuts
from ...core.shared.source import process_group, tensors
from . import collectives

SMALL_INTEGERS, SMALL_FLOATS = 64, 16
"""Inputs of at most so many elements are recorded with their values."""
_HEADER = '''"""{level} graph {cid}, recorded by reprokit before it was compiled."""
'''


def describe_inputs(gm: Any, example_inputs: Sequence[Any]) -> list[dict[str, Any]]:
    """Metadata of each input of ``gm``; which size is which symbol stands at the graph's
    placeholders.
    """
    places = [n for n in gm.graph.nodes if n.op == "placeholder"]
    traced = [n.meta.get("example_value", n.meta.get("val")) for n in places]
    traced += [None] * (len(example_inputs) - len(traced))
    return [
        describe_input(value, as_traced)
        for value, as_traced in zip(example_inputs, traced, strict=False)
    ]


def describe_values(gm: Any, inputs: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Metadata of each value of the graph that is a tensor or a number, and of a mesh of devices
    among its ``inputs`` (as :func:`describe_inputs` gives them), by the name that it has in the
    graph's code.
    """
    import torch

    found = {}
    places = [n for n in gm.graph.nodes if n.op == "placeholder"]
    for node, facts in zip(places, inputs, strict=False):
        if facts["kind"] == "mesh":
            found[node.name] = facts
    for node in gm.graph.nodes:
        value = node.meta.get("example_value", node.meta.get("val"))
        if isinstance(
            value, (torch.Tensor, torch.SymInt, torch.SymFloat, torch.SymBool, int, float)
        ):
            found[node.name] = describe_input(value, value)
    return found


def small_values(gm: Any, example_inputs: Sequence[Any]) -> dict[str, Any]:
    """What stands in small inputs, as nested lists by the input's name: a failure may hang on an
    index or a mask.

    Only of tensors in the host's memory, and never of parameters. They stay on this machine unless
    they matter.
    """
    import torch

    found = {}
    places = [n for n in gm.graph.nodes if n.op == "placeholder"]
    for node, value in zip(places, example_inputs, strict=False):
        if (
            type(value) is torch.Tensor
            and value.device.type == "cpu"
            and value.layout is torch.strided
        ):
            most = SMALL_FLOATS if value.is_floating_point() else SMALL_INTEGERS
            if 0 < value.numel() <= most and not value.is_complex():
                with contextlib.suppress(Exception):  # quantized and sub-byte types have no list
                    found[node.name] = value.detach().tolist()
    return found


def describe_input(value: Any, as_traced: Any = None) -> dict[str, Any]:
    """Metadata of one graph input as JSON values; sizes and strides in elements, symbols as text.

    ``as_traced`` is the same input as the tracer saw it: a fake tensor that may have symbolic
    sizes.
    """
    import torch

    if isinstance(value, torch.Tensor):
        sizes = as_traced.shape if isinstance(as_traced, torch.Tensor) else value.shape
        placed = getattr(value, "placements", None)
        return {
            **({"placements": [repr(p) for p in placed]} if placed else {}),
            "kind": "tensor",
            "shape": [_number(s) for s in value.shape],
            "stride": (
                [_number(s) for s in value.stride()] if value.layout is torch.strided else None
            ),
            "symbols": [str(s) if isinstance(s, torch.SymInt) else None for s in sizes],
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
        return {"kind": "mesh", "shape": list(value.shape), "device": value.device_type}
    return {
        "kind": "other",
        "type": f"{type(value).__module__}.{type(value).__qualname__}",
        "text": cuts.cut_head(repr(value), 500),
    }


def _number(value: Any) -> Any:
    """A plain number; for a symbol its hint, without adding a guard to the compile we watch."""
    import torch

    if isinstance(value, (torch.SymInt, torch.SymFloat, torch.SymBool)):
        hint = getattr(value.node, "hint", None)
        return hint if isinstance(hint, (bool, int, float)) else None
    return value


def standalone_program(gm: Any, inputs: list[dict[str, Any]], level: str, cid: str | None) -> str:
    """Give a script with ``class Repro``, ``make_inputs`` and a main part that compiles and calls
    it.
    """
    import torch

    imports: set[str] = set()
    classes: list[str] = []
    _emit_class(gm, "Repro", imports, classes)
    grad = torch.is_grad_enabled()
    lines = [
        _HEADER.format(level=level, cid=cid or "?"),
        "import torch",
        *sorted(imports),
        *_group(inputs, classes),
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
        *_main(level),
    ]
    return "\n".join(lines) + "\n"


def _group(inputs: list[dict[str, Any]], classes: list[str]) -> list[str]:
    dist = collectives.group_of()
    if dist is None or not process_group.is_spoken_in("\n".join(classes)):
        return []
    mesh = next((facts for facts in inputs if facts["kind"] == "mesh"), None)
    return [
        process_group.TENSORS,
        *process_group.group_rows(dist.get_rank(), dist.get_world_size(), mesh),
    ]


def _main(level: str) -> list[str]:
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


def _emit_class(gm: Any, name: str, imports: set[str], classes: list[str]) -> None:
    """Append the class for ``gm``, after those of the graph modules inside it (bodies of cond, map
    ...).
    """
    import torch

    code = gm.graph.python_code("self")
    for alias, value in code.globals.items():
        imports.add(_import_line(alias, value))
    body = []
    for child_name, child in gm.named_children():
        if isinstance(child, torch.fx.GraphModule):
            child_class = f"{name}_" + re.sub(r"\W", "_", child_name)
            _emit_class(child, child_class, imports, classes)
            body.append(f"self.{child_name} = {child_class}()")
        else:
            body.append(f"self.{child_name} = {_one_line(repr(child))}")
            imports.add(
                "from torch.nn import *  # noqa: F403 - submodules below are written as torch"
                " prints them"
            )
    for attribute, value in [*gm.named_parameters(recurse=False), *gm.named_buffers(recurse=False)]:
        if "." in attribute:
            continue
        made = tensors.tensor_text(describe_input(value))
        if isinstance(value, torch.nn.Parameter):
            body.append(
                f"self.{attribute} = torch.nn.Parameter({made},"
                f" requires_grad={value.requires_grad})"
            )
        else:
            body.append(f'self.register_buffer("{attribute}", {made})')
    for attribute in _plain_tensors(gm):
        body.append(
            f"self.{attribute} = {tensors.tensor_text(describe_input(getattr(gm, attribute)))}"
        )
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
    source = re.sub(r"\A\s*", "", code.src)
    classes.append(
        "\n".join(
            [f"class {name}(torch.nn.Module):", *init, textwrap.indent(source.rstrip(), "    ")]
        )
    )


def _plain_tensors(gm: Any) -> Iterable[str]:
    import torch

    names = {str(n.target) for n in gm.graph.nodes if n.op == "get_attr"}
    registered = {n for n, _ in (*gm.named_parameters(), *gm.named_buffers())}
    return sorted(
        n
        for n in names - registered
        if "." not in n and isinstance(getattr(gm, n, None), torch.Tensor)
    )


def _import_line(alias: str, value: Any) -> str:
    """The import that gives ``alias`` in a fresh module; FX binds these names in the graph's
    globals.
    """
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


def _input_line(facts: dict[str, Any]) -> str:
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
