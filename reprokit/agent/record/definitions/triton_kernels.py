"""Write the user's Triton kernels, and the launches that Dynamo records as higher-order operators.

Such an operator has the number of a kernel in a table of the process. Its text becomes the call
that the user wrote: ``kernel[grid](x, out, BLOCK=64)``.
"""

from __future__ import annotations

import ast
import inspect
import sys
from collections.abc import Sequence
from typing import Any

from .definition_writer import SPECIAL, DefinitionWriter, source_of
from .source_trees import NoText

LAUNCH = "triton_kernel_wrapper_mutation"
_NO_KERNEL = "the arguments of a Triton kernel need descriptors of the process"


def write_kernel(writer: DefinitionWriter, value: Any) -> str | None:
    """Return the expression of a kernel, or of a value of Triton's language; None for others."""
    if not type(value).__module__.startswith("triton."):
        return None
    kind = type(value).__name__
    if kind == "constexpr":
        language = writer.expression(sys.modules["triton.language"], "tl")
        return f"{language}.constexpr({writer.expression(value.value)})"
    if kind == "dtype":
        return f"{writer.expression(sys.modules['triton.language'], 'tl')}.{_type_name(value)}"
    if kind == "Config":
        return _config(writer, value)
    if kind not in ("JITFunction", "Autotuner", "Heuristics"):
        return None
    return _define_kernel(writer, value)


def write_launch(writer: DefinitionWriter, call: ast.Call) -> ast.expr:
    """Return the launch that a call of the higher-order operator stands for; raises NoText."""
    from torch._higher_order_ops.triton_kernel_wrap import kernel_side_table

    words = {k.arg: k.value for k in call.keywords}
    number, constants = (
        ast.literal_eval(words[name]) for name in ("kernel_idx", "constant_args_idx")
    )
    kernel = kernel_side_table.get_kernel(number)
    if ast.literal_eval(words.get("tma_descriptor_metadata", ast.Constant(None))):
        raise NoText(_NO_KERNEL)
    arguments = words["kwargs"]
    grids = words["grid"]
    if not isinstance(arguments, ast.Dict) or not isinstance(grids, (ast.List, ast.Tuple)):
        raise NoText(_NO_KERNEL)
    values = {ast.literal_eval(k): v for k, v in zip(arguments.keys, arguments.values) if k}  # noqa: B905
    for name, value in kernel_side_table.get_constant_args(constants).items():
        values[name] = ast.parse(writer.expression(value), mode="eval").body
    names = list(_function(kernel).arg_names)
    tuned = {name for config in _configs(kernel) for name in config.kwargs}
    words_of_call = [
        ast.keyword(name, values[name]) for name in names if name in values and name not in tuned
    ]
    target = ast.parse(writer.expression(kernel), mode="eval").body
    grid = _grid(kernel, grids.elts)
    return ast.Call(ast.Subscript(target, grid, ast.Load()), [], words_of_call)


def _function(kernel: Any) -> Any:
    """Return the compiled function below autotuners and heuristics."""
    while type(kernel).__name__ != "JITFunction":
        kernel = kernel.fn
    return kernel


def _configs(kernel: Any) -> list[Any]:
    found: list[Any] = []
    while type(kernel).__name__ != "JITFunction":
        found += getattr(kernel, "configs", ())
        kernel = kernel.fn
    return found


def _grid(kernel: Any, grids: Sequence[ast.expr]) -> ast.expr:
    """Return the grid, or a function of the configuration that returns it."""
    texts = [ast.unparse(grid) for grid in grids]
    configs = _configs(kernel)
    if len(set(texts)) == 1 or len(configs) != len(grids):
        return grids[0]
    rows: dict[str, str] = {}
    for config, text in zip(configs, texts, strict=True):
        rows[" and ".join(f"meta[{k!r}] == {v!r}" for k, v in config.kwargs.items())] = text
    *first, last = rows.items()
    text = "".join(f"{grid} if {test} else " for test, grid in first) + last[1]
    return ast.parse(f"lambda meta: {text}", mode="eval").body


def _define_kernel(writer: DefinitionWriter, kernel: Any) -> str:
    """Add the source of a kernel with its decorators, and return its name."""
    function = _function(kernel).fn
    tree, known = source_of(function)
    if isinstance(tree, (ast.Lambda, ast.ClassDef)):
        raise NoText("a Triton kernel is not a function statement")
    layers = []
    while type(kernel).__name__ != "JITFunction":
        layers.append(kernel)
        kernel = kernel.fn
    outer = layers[0] if layers else kernel
    if len(tree.decorator_list) != len(layers) + 1:
        # the program made the kernel without decorators, or Dynamo added a layer
        triton = writer.expression(sys.modules["triton"])
        tree.decorator_list = [
            ast.parse(text, mode="eval").body
            for text in (*(_layer(writer, layer) for layer in layers), f"{triton}.jit")
        ]
    with writer.defining(outer, tree.name, is_of_graph=True) as (chosen, add):
        own, tree.name = tree.name, chosen
        add(writer.resolve(tree, {**known, own: outer}))
    return chosen


def _layer(writer: DefinitionWriter, layer: Any) -> str:
    triton = writer.expression(sys.modules["triton"])
    if type(layer).__name__ == "Heuristics":
        return f"{triton}.heuristics({writer.expression(dict(layer.values))})"
    keys = getattr(layer, "keys", None)
    configs = ", ".join(_config(writer, config) for config in layer.configs)
    return f"{triton}.autotune(configs=[{configs}], key={writer.expression(list(keys or ()))})"


def _config(writer: DefinitionWriter, config: Any) -> str:
    triton = writer.expression(sys.modules["triton"])
    usual = inspect.signature(type(config)).parameters
    text = writer.expression(dict(config.kwargs))
    for name in ("num_warps", "num_stages", "num_ctas", "maxnreg"):
        value = getattr(config, name, None)
        if value is not None and value != getattr(usual.get(name), "default", None):
            text += f", {name}={value!r}"
    return f"{triton}.Config({text})"


def _type_name(value: Any) -> str:
    language: Any = sys.modules["triton.language"]
    names = [n for n, v in vars(language).items() if type(v) is type(value) and v == value]
    if not names:
        raise NoText(f"{value!r} is no type of triton.language")
    return str(names[0])


SPECIAL.append(write_kernel)
