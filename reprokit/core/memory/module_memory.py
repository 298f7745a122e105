"""The peak of a module that Inductor generated, from its text: what it allocates, reuses and
deletes, in the order of its statements.

The text is parsed, and never run.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from reprokit.core.shared.contract.memory_record import BufferFact, GraphArgument

ITEM_BYTES = {
    "float64": 8,
    "int64": 8,
    "uint64": 8,
    "complex64": 8,
    "complex128": 16,
    "float32": 4,
    "int32": 4,
    "uint32": 4,
    "complex32": 4,
    "float16": 2,
    "bfloat16": 2,
    "int16": 2,
    "uint16": 2,
}
"""Of the dtypes of torch; all others have one byte."""
_ALIASES = frozenset({"reinterpret_tensor", "alloc_from_pool", "as_strided", "_reinterpret_tensor"})
"""Functions that return a view of their first argument."""
_NO_STEPS = frozenset(
    {"assert_size_stride", "assert_alignment", "clear", "append", "get_raw_stream"}
)
_PARTITION = re.compile(r"partitions\[(\d+)\]$")
MAX_DEPTH = 4
"""Of calls between functions of a module."""


@dataclass(frozen=True, kw_only=True)
class LiveTensor:
    """A tensor that exists at the peak of a module."""

    name: str
    size_bytes: int
    argument: int = -1
    """The number of the argument; -1 for a buffer that the module allocates."""
    outputs: tuple[int, ...] = ()
    """The numbers of the outputs that it is."""
    last_use: str = ""
    """The last step that reads or writes it; empty for one that only the return reads."""


@dataclass(frozen=True, kw_only=True)
class ModuleMemory:
    """The memory of one call of a generated module."""

    peak_bytes: int
    """Above what was allocated when the call began; arguments that it frees are subtracted."""
    at: str = ""
    """The step that runs at the peak: a kernel or an operator."""
    tensors: tuple[LiveTensor, ...] = ()
    """What exists at the peak, the largest first: its buffers, and all of its arguments."""
    outputs: tuple[str, ...] = ()
    """The name of the storage of each output; empty for one that is no tensor."""
    allocated: Mapping[str, int] = field(default_factory=dict)
    """The bytes of each buffer."""
    unknown: tuple[str, ...] = ()
    """Results of operators whose sizes are not known; they are not counted."""


def module_memory(
    text: str, buffers: Mapping[str, BufferFact], arguments: Sequence[GraphArgument]
) -> ModuleMemory:
    """Return the memory of a call of the generated module ``text``.

    ``buffers`` has the sizes of what operators allocate themselves. Raises ValueError for a module
    that is not of the Python wrapper, and for sizes that the arguments do not determine.
    """
    try:
        module = ast.parse(text)
    except (SyntaxError, RecursionError) as problem:
        raise ValueError(f"the generated module is not Python: {problem}") from problem
    functions = {node.name: node for node in ast.walk(module) if isinstance(node, ast.FunctionDef)}
    if "call" not in functions:
        raise ValueError("the generated module has no function `call`")
    values: list[_Value] = []
    storages: dict[int, _Storage] = {}
    for number, argument in enumerate(arguments):
        if argument.value is not None:
            values.append(argument.value)
        elif argument.storage:
            new = _Storage("", argument.size_bytes, number, argument.is_freed)
            values.append((storages.setdefault(argument.storage, new),))
        else:
            values.append(())
    walk = _Walk(functions, buffers, [s for s in storages.values() if s.is_freed])
    return walk.finish(walk.run_function("call", values))


@dataclass(eq=False)
class _Storage:
    name: str
    size_bytes: int
    argument: int = -1
    is_freed: bool = True
    last_use: str = ""
    outputs: list[int] = field(default_factory=list)


_Value = int | tuple[_Storage, ...] | list["_Value"]
"""A size, the storages of a tensor or of a tuple of tensors, or a list."""


class _Walk:
    """Follows the statements of a module."""

    def __init__(
        self,
        functions: Mapping[str, ast.FunctionDef],
        buffers: Mapping[str, BufferFact],
        freed: Sequence[_Storage],
    ) -> None:
        self._functions, self._buffers, self._freed = functions, buffers, freed
        self._frames: list[dict[str, _Value]] = []
        self._items: dict[str, dict[int, str]] = {}
        self._peak, self._at, self._alive = 0, "", list[_Storage]()
        self._is_at_open = False
        self._allocated: dict[str, int] = {}
        self._unknown: list[str] = []

    def run_function(self, name: str, arguments: list[_Value]) -> list[_Value]:
        """Run the statements of a function, and return what it returns."""
        if len(self._frames) >= MAX_DEPTH:
            raise ValueError(f"the functions of the generated module call each other: {name}")
        function = self._functions[name]
        names = [a.arg for a in function.args.args if a.arg != "self"]
        frame: dict[str, _Value] = {names[0] if names else "args": arguments}
        self._frames.append(frame)
        for node in ast.walk(function):
            if isinstance(node, ast.Assign) and isinstance(node.value, ast.Subscript):
                self._note_item(node)
        try:
            return self._run(function.body) or []
        finally:
            self._frames.pop()

    def finish(self, returned: list[_Value]) -> ModuleMemory:
        outputs = []
        for number, value in enumerate(returned):
            storages = value if isinstance(value, tuple) else ()
            for storage in storages:
                storage.outputs.append(number)
            outputs.append(storages[0].name if storages else "")
        tensors = [
            LiveTensor(
                name=s.name,
                size_bytes=s.size_bytes,
                argument=s.argument,
                outputs=tuple(s.outputs),
                last_use=s.last_use,
            )
            for s in self._alive
        ]
        return ModuleMemory(
            peak_bytes=self._peak,
            at=self._at,
            tensors=tuple(sorted(tensors, key=lambda t: -t.size_bytes)),
            outputs=tuple(outputs),
            allocated=self._allocated,
            unknown=tuple(self._unknown),
        )

    def _note_item(self, node: ast.Assign) -> None:
        source, target = node.value, node.targets[0]
        if (
            isinstance(source, ast.Subscript)
            and isinstance(source.value, ast.Name)
            and isinstance(source.slice, ast.Constant)
            and isinstance(source.slice.value, int)
            and isinstance(target, ast.Name)
        ):
            self._items.setdefault(source.value.id, {})[source.slice.value] = target.id

    def _run(self, body: Sequence[ast.stmt]) -> list[_Value] | None:
        for node in body:
            if isinstance(node, ast.Return):
                return self._returned(node)
            if isinstance(node, ast.Delete):
                for target in node.targets:
                    if isinstance(target, ast.Name):
                        self._frames[-1].pop(target.id, None)
            elif isinstance(node, ast.Assign):
                self._assign(node)
            elif isinstance(node, ast.Expr):
                self._note_step(node.value)
            elif isinstance(node, (ast.With, ast.If, ast.For, ast.While, ast.Try)):
                returned = self._run(node.body)
                if returned is None and isinstance(node, ast.If):
                    returned = self._run(node.orelse)
                if returned is not None:
                    return returned
        return None

    def _returned(self, node: ast.Return) -> list[_Value]:
        values = node.value.elts if isinstance(node.value, (ast.Tuple, ast.List)) else [node.value]
        return [self._value_of(value) if value is not None else () for value in values]

    def _assign(self, node: ast.Assign) -> None:
        target, source = node.targets[0], node.value
        frame = self._frames[-1]
        if isinstance(target, ast.Tuple):
            values = (
                self._called(source) if isinstance(source, ast.Call) else self._value_of(source)
            )
            rows = values if isinstance(values, list) else []
            for name, value in zip(target.elts, rows, strict=False):
                if isinstance(name, ast.Name):
                    self._bind(name.id, value)
            return
        if not isinstance(target, ast.Name):
            return
        if isinstance(source, ast.Call) and self._is_new(source):
            frame.pop(target.id, None)
            self._allocate(target.id, source)
            return
        self._bind(target.id, self._value_of(source))

    def _bind(self, name: str, value: _Value) -> None:
        self._frames[-1][name] = value
        for storage in value if isinstance(value, tuple) else ():
            storage.name = storage.name or name

    def _is_new(self, call: ast.Call) -> bool:
        """Return whether a call makes a new tensor, or may make one."""
        return _short(call.func) not in _ALIASES | _NO_STEPS and not _partition(call.func)

    def _allocate(self, name: str, call: ast.Call) -> None:
        short = _short(call.func)
        made: list[_Storage] = []
        if short.startswith("empty_strided") and len(call.args) >= 3:
            sizes, strides = (self._numbers(arg) for arg in call.args[:2])
            extent = 1 + sum((s - 1) * t for s, t in zip(sizes, strides, strict=True))
            count = extent if all(sizes) else 0
            made = [_Storage(name, count * item_bytes(_name(call.args[2])))]
        else:
            self._note_step(call)
            names = [*self._items.get(name, {}).values()] or [name]
            for part in names:
                size = self._size_of(part)
                if size is not None:
                    made.append(_Storage(part, size))
                elif part.startswith("buf"):
                    self._unknown.append(part)
        for storage in made:
            self._allocated[storage.name] = storage.size_bytes
        self._frames[-1][name] = tuple(made)
        self._note_peak()
        if not short.startswith("empty_strided") and self._is_at_open:
            self._at, self._is_at_open = _step(call), False

    def _size_of(self, name: str) -> int | None:
        fact = self._buffers.get(name)
        if fact is None or not fact.numel:
            return None
        return self._number(ast.parse(fact.numel, mode="eval").body) * item_bytes(fact.dtype)

    def _note_step(self, node: ast.expr) -> None:
        if not isinstance(node, ast.Call) or _short(node.func) in _NO_STEPS:
            if isinstance(node, ast.Call) and _short(node.func) == "clear":
                for name in _names(node.func):
                    self._frames[-1].pop(name, None)
            return
        step = _step(node)
        for name in _names(node):
            value = self._frames[-1].get(name)
            for storage in value if isinstance(value, tuple) else ():
                storage.last_use = step
        if self._is_at_open:
            self._at, self._is_at_open = step, False

    def _called(self, call: ast.Call) -> _Value:
        number = _partition(call.func)
        if number is None:
            return self._value_of(call)
        values: list[_Value] = []
        for argument in call.args:
            value = self._value_of(argument)
            values.extend(value if isinstance(value, list) else [value])
            if isinstance(argument, ast.Name):  # the partition clears the list
                self._frames[-1].pop(argument.id, None)
        return self.run_function(f"partition_{number}", values)

    def _value_of(self, node: ast.expr) -> _Value:
        if isinstance(node, ast.Name):
            return self._frames[-1].get(node.id, ())
        if isinstance(node, (ast.List, ast.Tuple)):
            return [self._value_of(item) for item in node.elts]
        if isinstance(node, ast.Subscript):
            whole = self._value_of(node.value)
            if isinstance(whole, tuple):
                name = self._items.get(_name(node.value), {}).get(_index(node.slice))
                return tuple(s for s in whole if s.name == name) or whole
            index = _index(node.slice)
            return whole[index] if isinstance(whole, list) and 0 <= index < len(whole) else ()
        if isinstance(node, ast.Call):
            return self._value_of(node.args[0]) if node.args and not self._is_new(node) else ()
        if isinstance(node, (ast.BinOp, ast.Constant, ast.UnaryOp)):
            try:
                return self._number(node)
            except ValueError:
                return ()
        return ()

    def _note_peak(self) -> None:
        alive = {id(s): s for frame in self._frames for s in _storages(list(frame.values()))}
        used = sum(s.size_bytes for s in alive.values() if s.argument < 0)
        live = used - sum(s.size_bytes for s in self._freed if id(s) not in alive)
        if live > self._peak:
            self._peak, self._alive, self._is_at_open = live, [*alive.values()], True

    def _numbers(self, node: ast.expr) -> list[int]:
        return [self._number(item) for item in node.elts] if isinstance(node, ast.Tuple) else []

    def _number(self, node: ast.expr) -> int:
        if isinstance(node, ast.Constant) and isinstance(node.value, (int, float)):
            return int(node.value)
        if isinstance(node, ast.Name):
            value = self._frames[-1].get(node.id) if self._frames else None
            if isinstance(value, int):
                return value
            raise ValueError(f"the size {node.id} is not known")
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
            return -self._number(node.operand)
        if isinstance(node, ast.BinOp):
            left, right = self._number(node.left), self._number(node.right)
            if compute := _OPERATORS.get(type(node.op)):
                return compute(left, right)
        if isinstance(node, ast.Call):
            values = [self._number(argument) for argument in node.args]
            if compute_all := _FUNCTIONS.get(_short(node.func)):
                return compute_all(values)
        raise ValueError(f"the size {ast.unparse(node)} is not known")


_OPERATORS: Mapping[type[ast.operator], Callable[[int, int], int]] = {
    ast.Add: lambda a, b: a + b,
    ast.Sub: lambda a, b: a - b,
    ast.Mult: lambda a, b: a * b,
    ast.FloorDiv: lambda a, b: a // b if b else 0,
    ast.Mod: lambda a, b: a % b if b else 0,
    ast.Pow: lambda a, b: a ** max(min(b, 16), 0),
}
_FUNCTIONS: Mapping[str, Callable[[list[int]], int]] = {
    "max": max,
    "min": min,
    "Max": max,
    "Min": min,
    "FloorDiv": lambda values: values[0] // values[1] if values[1] else 0,
    "CeilDiv": lambda values: -(-values[0] // values[1]) if values[1] else 0,
    "Mod": lambda values: values[0] % values[1] if values[1] else 0,
}


def item_bytes(dtype: str) -> int:
    """Return the bytes of an element of a dtype such as ``torch.float32``."""
    return ITEM_BYTES.get(dtype.rpartition(".")[2], 1)


def _storages(values: Sequence[_Value]) -> Iterator[_Storage]:
    for value in values:
        if isinstance(value, tuple):
            yield from value
        elif isinstance(value, list):
            yield from _storages(value)


def _name(node: ast.expr) -> str:
    return ast.unparse(node)


def _short(node: ast.expr) -> str:
    """Return the last name of a dotted one."""
    return node.attr if isinstance(node, ast.Attribute) else getattr(node, "id", "")


def _partition(node: ast.expr) -> str | None:
    found = _PARTITION.search(ast.unparse(node)) if isinstance(node, ast.Subscript) else None
    return found[1] if found else None


def _index(node: ast.expr) -> int:
    value = node.value if isinstance(node, ast.Constant) else None
    return value if isinstance(value, int) else -1


def _names(node: ast.AST) -> Iterator[str]:
    return (part.id for part in ast.walk(node) if isinstance(part, ast.Name))


def _step(call: ast.Call) -> str:
    """Return the kernel or operator of a call: ``cpp_fused_gelu_0``, or ``aten.convolution``."""
    text = ast.unparse(call.func).removesuffix(".run").removesuffix(".default")
    return text.removeprefix("torch.ops.").removeprefix("extern_kernels.")
