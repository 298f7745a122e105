"""Make the inputs of a printed graph from the annotations of its arguments.

torch prints the graphs of Dynamo, AOTAutograd and Inductor with annotations such as
``"f32[8, 16][16, 1]cpu"``: data type, sizes, and then strides and the device where they are known.
"""

from __future__ import annotations

import ast
import re

DTYPES = {
    "f64": "float64",
    "f32": "float32",
    "f16": "float16",
    "bf16": "bfloat16",
    "c64": "complex64",
    "c128": "complex128",
    "i64": "int64",
    "i32": "int32",
    "i16": "int16",
    "i8": "int8",
    "u8": "uint8",
    "b8": "bool",
}
"""The abbreviations of ``torch.utils._dtype_abbrs`` that random values exist for."""
_ANNOTATION = re.compile(
    r"(?P<dtype>\w+)\[(?P<sizes>[\d, ]{0,99})\](?:\[(?P<strides>[\d, ]{0,99})\])?"
    r"(?P<device>cpu|cuda:\d+)?"
)


def program_rows(text: str) -> list[str]:
    """Return the rows that compile and call the graph of a program; empty where there is doubt.

    The program must define one module whose ``forward`` has an annotation for each argument, and
    that uses nothing of ``self``.
    """
    classes = [node for node in ast.parse(text).body if isinstance(node, ast.ClassDef)]
    if len(classes) != 1:
        return []
    methods = [node for node in classes[0].body if isinstance(node, ast.FunctionDef)]
    if len(methods) != 1 or methods[0].name != "forward" or _uses_self(methods[0]):
        return []
    arguments = methods[0].args
    if arguments.vararg or arguments.kwarg or arguments.kwonlyargs or len(arguments.args) < 2:
        return []
    inputs = [input_of(argument.annotation) for argument in arguments.args[1:]]
    if not all(inputs):
        return []
    return [
        f"inputs = [{', '.join(inputs)}]",
        f"torch.compile({classes[0].name}())(*inputs)",
    ]


def input_of(annotation: ast.expr | None) -> str:
    """Return the expression of a random tensor for an annotation; empty where there is doubt."""
    if not isinstance(annotation, ast.Constant) or not isinstance(annotation.value, str):
        return ""
    match = _ANNOTATION.fullmatch(annotation.value.strip())
    if match is None or match["dtype"] not in DTYPES:
        return ""
    dtype, sizes = f"torch.{DTYPES[match['dtype']]}", _numbers(match["sizes"])
    device = f", device={match['device']!r}" if (match["device"] or "cpu") != "cpu" else ""
    if match["dtype"] == "b8":
        value = f"torch.randint(0, 2, {sizes}{device}).bool()"
    elif match["dtype"][0] in "iu":
        value = f"torch.randint(0, 2, {sizes}, dtype={dtype}{device})"
    else:
        value = f"torch.randn({sizes}, dtype={dtype}{device})"
    strides = match["strides"]
    if strides is None or _numbers(strides) == _contiguous(sizes):
        return value
    empty = f"torch.empty_strided({sizes}, {_numbers(strides)}, dtype={dtype}{device})"
    return f"{empty}.copy_({value})"


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(int(word) for word in re.findall(r"\d{1,9}", text))


def _contiguous(sizes: tuple[int, ...]) -> tuple[int, ...]:
    strides: list[int] = []
    step = 1
    for size in reversed(sizes):
        strides.insert(0, step)
        step *= max(size, 1)
    return tuple(strides)


def _uses_self(method: ast.FunctionDef) -> bool:
    return any(isinstance(node, ast.Name) and node.id == "self" for node in ast.walk(method))
