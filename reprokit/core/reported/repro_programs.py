"""Make a program of one that torch wrote for ``run_repro``.

``fx_graph_runnable`` and the files of PyTorch's minifier define a module ``Repro``, make its inputs
with ``load_args``, and call ``run_repro`` (``torch/_dynamo/repro``). The programs here call
``torch.compile`` instead, and use nothing private where that is possible.
"""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass, field
from typing import Any

from reprokit.core.reported.made_programs import (
    MAX_CHARS,
    Cleaner,
    GraphCall,
    MadeProgram,
    are_numbers,
    literal,
    parsed,
    settings_of,
)
from reprokit.core.shared.source.tensors import contiguous_strides, extent, size_text, tensor_text

_IS_REPRO = re.compile(r"\brun_repro\s*\(|\bmake_fx\(Repro\(\)")
_VARIABLE = re.compile(
    r"TORCHINDUCTOR_(?!CACHE_DIR)\w{1,80}|TORCHDYNAMO_(?!REPRO|EXT|VERBOSE)\w{1,80}"
)
"""Variables of the environment that change a compile."""
_VERSION = re.compile(r"^# torch version: ([\w.+]{1,80})$", re.MULTILINE)
_BITS = re.compile(r"\d+")


class NotConverted(Exception):
    """A text has no program; the message is the reason."""


class NotPython(NotConverted):
    """A text is no valid Python."""


def is_repro_program(text: str) -> bool:
    """Return whether a text is a program for ``run_repro`` of torch, or the older form of one."""
    return bool(_IS_REPRO.search(text[: 2 * MAX_CHARS]))


def program_of_repro(text: str) -> MadeProgram:
    """Return the program that does the same as one for ``run_repro``.

    Raises NotConverted where there is doubt.
    """
    tree = parsed(text)
    if not tree.body:
        raise NotPython(_why_not_python(text))
    modules = [n for n in tree.body if isinstance(n, ast.ClassDef) and n.name == "Repro"]
    loaders = [n for n in tree.body if isinstance(n, ast.FunctionDef) and n.name == "load_args"]
    calls = [
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "run_repro"
    ]
    for what, found in (("class Repro", modules), ("load_args", loaders), ("run_repro", calls)):
        if len(found) != 1:
            raise NotConverted(f"it has {len(found) or 'no'} {what}, and must have one")
    given = {word.arg: literal(word.value) for word in calls[0].keywords if word.arg}
    is_aten = "after_dynamo" not in text
    if not is_aten and "backend" in given and given["backend"] is None:
        raise NotConverted("its backend is a function that it does not have")
    inputs, setup = inputs_of_loader(loaders[0], _numbers(tree))
    if is_aten:
        inputs = [re.sub(r", requires_grad=True|\.requires_grad_\(\)", "", one) for one in inputs]
    backend = given.get("backend")
    words: dict[str, Any] = {}
    if isinstance(backend, str) and backend != "inductor":
        words["backend"] = backend
    if any(_BITS.fullmatch(one) for one in inputs):
        words["dynamic"] = True
    module = ast.Module([modules[0]], [])
    call = GraphCall(
        ast.unparse(ast.fix_missing_locations(Cleaner().visit(module))),
        "Repro",
        inputs,
        words,
        trains=not is_aten and any("requires_grad" in one for one in inputs),
        has_grad=not is_aten,
        settings=settings_of(tree),
        variables=_variables(tree),
        setup=setup,
        is_autocast=given.get("autocast") is True,
    )
    version = _VERSION.search(text[:MAX_CHARS])
    return MadeProgram(
        call.program(),
        "the graph of Inductor" if is_aten else "the graph of Dynamo that the minifier wrote",
        given.get("accuracy") not in (None, False, ""),
        version[1] if version else "",
        "" if call.is_autocast else call.factory(),
    )


def _why_not_python(text: str) -> str:
    """Return why a text is not Python. torch prints a graph inside of a graph as ``<lambda>()``."""
    try:
        ast.parse(text[:MAX_CHARS])
    except SyntaxError as problem:
        line = " ".join((problem.text or "").split())[:80]
        return f"torch wrote no valid Python, line {problem.lineno}: {line}"
    except (ValueError, RecursionError, MemoryError) as problem:
        return f"it is no valid Python: {problem}"
    return "it is empty or too long"


def _variables(tree: ast.Module) -> list[str]:
    """Return the lines that set variables of the environment which change a compile."""
    rows = []
    for node in tree.body:
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Subscript):
            target, value = node.targets[0], literal(node.value)
            name = literal(target.slice)
            is_environ = ast.unparse(target.value) == "os.environ"
            if is_environ and isinstance(name, str) and isinstance(value, str):
                rows += [ast.unparse(node)] * bool(_VARIABLE.fullmatch(name))
    return rows


def _numbers(tree: ast.Module) -> dict[str, int]:
    """Return the symbols of sizes that the program gives a value."""
    found = {}
    for node in tree.body:
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            value = literal(node.value)
            if isinstance(value, int) and not isinstance(value, bool):
                found[node.targets[0].id] = value
    return found


@dataclass
class _Storage:
    """A storage that ``load_args`` makes."""

    device: str
    tensors: list[int] = field(default_factory=list)
    """The numbers of the inputs that use it."""


class _Reader:
    """What ``InputReader`` of ``torch/_dynamo/debug_utils.py`` gives for each call."""

    def __init__(self, numbers: dict[str, int]) -> None:
        self._numbers = numbers
        self.storages: dict[str, _Storage] = {}
        self.inputs: list[dict[str, Any] | str] = []
        """Facts of a tensor, as ``tensor_text`` takes them, with the offset; or a number."""

    def read(self, target: str, call: ast.Call) -> None:
        """Take one call of the reader; raises NotConverted where there is doubt."""
        assert isinstance(call.func, ast.Attribute)
        name = call.func.attr
        words = {word.arg: word.value for word in call.keywords}
        if name == "storage" and target:
            self.storages[target] = _Storage(_device_of(words.get("device")))
        elif name == "symint" and len(call.args) == 1:
            number = self._number(call.args[0])
            self.inputs.append(str(number))
            if isinstance(symbol := literal(words["expr"]) if "expr" in words else None, str):
                self._numbers.setdefault(symbol, number)
        elif name == "tensor" and len(call.args) >= 2:
            self._read_tensor(call, words)
        else:
            raise NotConverted(f"its load_args has {ast.unparse(call)[:80]}")

    def _read_tensor(self, call: ast.Call, words: dict[str | None, ast.expr]) -> None:
        storage = self.storages.get(ast.unparse(call.args[0]))
        if storage is None:
            raise NotConverted(f"its load_args has {ast.unparse(call)[:80]}")
        sizes = self._sizes(call.args[1])
        strides = self._sizes(call.args[2]) if len(call.args) > 2 else contiguous_strides(sizes)
        offset = words.get("storage_offset")
        storage.tensors.append(len(self.inputs))
        self.inputs.append(
            {
                "shape": sizes,
                "stride": strides,
                "device": storage.device,
                "dtype": ast.unparse(words["dtype"]) if "dtype" in words else "torch.float32",
                "requires_grad": "requires_grad" in words
                and literal(words["requires_grad"]) is True,
                "is_computed": "is_leaf" not in words or literal(words["is_leaf"]) is not True,
                "offset": self._number(offset) if offset is not None else 0,
            }
        )

    def _sizes(self, node: ast.expr) -> list[int]:
        if not isinstance(node, (ast.Tuple, ast.List)):
            raise NotConverted(f"its load_args has the size {ast.unparse(node)[:80]}")
        return [self._number(one) for one in node.elts]

    def _number(self, node: ast.expr) -> int:
        """Return the value of a size, which may be a product of symbols."""
        value: Any = literal(node)
        if isinstance(node, ast.Name) and node.id in self._numbers:
            value = self._numbers[node.id]
        elif isinstance(node, ast.Name):
            raise NotConverted(f"its size {node.id} has no value in it")
        elif isinstance(node, ast.BinOp):
            left, right = self._number(node.left), self._number(node.right)
            value = _calculated(left, node.op, right)
        if not are_numbers([value]):
            raise NotConverted(f"its load_args has the number {ast.unparse(node)[:80]}")
        return int(value)


def _calculated(left: int, operator: ast.operator, right: int) -> int | None:
    if isinstance(operator, ast.Add):
        return left + right
    if isinstance(operator, ast.Sub):
        return left - right
    if isinstance(operator, ast.Mult):
        return left * right
    return left // right if isinstance(operator, ast.FloorDiv) and right else None


def _device_of(node: ast.expr | None) -> str:
    found = re.search(
        r"type='([a-z]{1,12})'(?:, index=(\d{1,3}))?", ast.unparse(node) if node else ""
    )
    if found is None:
        return "cpu"
    return found[1] if found[2] is None else f"{found[1]}:{found[2]}"


def inputs_of_loader(
    loader: ast.FunctionDef, numbers: dict[str, int]
) -> tuple[list[str], list[str]]:
    """Return the expressions of the inputs that ``load_args`` makes, and the lines before them,
    which make what several inputs share. ``numbers`` are the values of symbols.

    Raises NotConverted where there is doubt.
    """
    reader = _Reader(numbers)
    for node in loader.body:
        target, value = "", None
        if isinstance(node, ast.Assign):
            if ast.unparse(node.targets[0]) == "load_args._version":
                continue
            target, value = ast.unparse(node.targets[0]), node.value
        elif isinstance(node, ast.Expr):
            value = node.value
        if isinstance(node, (ast.Pass, ast.Return)) or isinstance(value, ast.Constant):
            continue
        if not isinstance(value, ast.Call) or not isinstance(value.func, ast.Attribute):
            raise NotConverted(f"its load_args has {ast.unparse(node)[:80]}")
        reader.read(target, value)
    setup, inputs = list[str](), [one if isinstance(one, str) else "" for one in reader.inputs]
    for name, storage in reader.storages.items():
        tensors = [(n, one) for n in storage.tensors if isinstance(one := reader.inputs[n], dict)]
        try:
            if len(tensors) == 1 and not tensors[0][1]["offset"]:
                inputs[tensors[0][0]] = tensor_text(tensors[0][1])
            elif tensors:
                setup.append(_storage_row(name, [facts for _, facts in tensors]))
                for number, facts in tensors:
                    inputs[number] = _view_text(name, facts)
        except (ValueError, TypeError) as problem:
            raise NotConverted(
                f"its load_args makes a tensor without a text: {problem}"
            ) from problem
    return inputs, setup


def _storage_row(name: str, tensors: list[dict[str, Any]]) -> str:
    """Return the line that makes the storage of several tensors, or of one with an offset."""
    if len({facts["dtype"] for facts in tensors}) > 1 or not name.isidentifier():
        raise ValueError("inputs of several types share their memory")
    count = max(facts["offset"] + extent(facts["shape"], facts["stride"]) for facts in tensors)
    plain = {**tensors[0], "shape": [count], "stride": [1], "requires_grad": False}
    return f"{name} = {tensor_text(plain)}"


def _view_text(name: str, facts: dict[str, Any]) -> str:
    where = f"{size_text(facts['shape'])}, {size_text(facts['stride'])}, {facts['offset']}"
    grad = ".requires_grad_()" if facts["requires_grad"] else ""
    return f"{name}.as_strided({where}){grad}"
