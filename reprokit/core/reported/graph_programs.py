"""Make programs of the graphs that torch wrote down.

``TORCH_TRACE`` has the graph of Dynamo as Python text, which is in the public interface of torch,
and the graph of Inductor as a program for ``run_repro``, in operators of ATen. PyTorch's minifier
writes programs for ``run_repro`` too. The programs here call ``torch.compile`` instead, and use
nothing private where that is possible.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from reprokit.core.reported.graph_inputs import input_of
from reprokit.core.reported.trace_records import CompileRecord, backend_of
from reprokit.core.shared.source.tensors import contiguous_strides, tensor_text

MAX_CHARS = 4 << 20
MAX_PROGRAMS = 3
"""Graphs of a run without a failed compile that become programs."""
_CONFIG = re.compile(
    r"torch(?:\._dynamo|\._inductor|\._functorch)\.config\.(?!trace\.)[\w.]{1,120}"
)
_OWN_SETTINGS = frozenset(
    "torch._functorch.config.functionalize_rng_ops torch._functorch.config.unlift_effect_tokens"
    " torch._functorch.config.fake_tensor_allow_unsafe_data_ptr_access"
    " torch._functorch.config.selective_decompose torch._functorch.config.debug_partitioner"
    " torch._inductor.config.generate_intermediate_hooks".split()
)
"""Settings that torch changes itself while it writes these programs, or for its minifier."""
_SYMBOL = re.compile(r"[a-z]{1,2}\d{1,4}")
_SYMBOLIC = re.compile(r"\w+\[(?P<sizes>[^\]]{0,200})\]")
_IS_REPRO = re.compile(r"\brun_repro\s*\(")


@dataclass(frozen=True)
class MadeProgram:
    """A program that compiles one graph."""

    text: str
    made_from: str
    """In words: ``the graph of Dynamo``."""
    checks_accuracy: bool = False
    """It was written because compiled results differ from those of eager."""


def is_repro_program(text: str) -> bool:
    """Return whether a text is a program for ``run_repro`` of torch."""
    return "load_args" in text and bool(_IS_REPRO.search(text[: 2 * MAX_CHARS]))


def programs_of_compile(row: CompileRecord) -> list[MadeProgram]:
    """Return the programs that show what a compile did, the one with public functions first."""
    settings = list(row.settings)
    for text in row.runnables[:1]:
        settings += [one for one in _settings(_parsed(text)) if one not in settings]
    found = []
    for text in reversed(row.graphs):
        backend = backend_of(row)
        grad = None if row.trains == row.infers else row.trains
        program = program_of_dynamo_graph(text, row.tensors, settings, grad, backend)
        if program:
            found.append(MadeProgram(program, "the graph of Dynamo"))
    for text in reversed(row.runnables):
        if converted := program_of_repro(text):
            found.append(converted)
    return found


def programs_of_compiles(rows: Sequence[CompileRecord]) -> list[MadeProgram]:
    """Return a program for each of the last graphs of Dynamo, the last one first."""
    found = []
    for row in reversed(rows):
        programs = programs_of_compile(row) if row.graphs else []
        name = f"the graph of compile {row.cid}"
        found += [replace(program, made_from=name) for program in programs[:1]]
        if len(found) == MAX_PROGRAMS:
            break
    return found


def program_of_dynamo_graph(
    text: str,
    tensors: Mapping[str, Mapping[str, Any]],
    settings: Sequence[str] = (),
    trains: bool | None = None,
    backend: str = "",
) -> str:
    """Return the program of a graph as ``GraphModule.print_readable`` prints it; empty where there
    is doubt.

    ``tensors`` are the descriptions of the inputs by their sources. A size that is a symbol gets
    the value that it had. The program calls backward if it ``trains``, and runs under
    ``torch.no_grad`` if it does not; None if that is not known.
    """
    tree = _parsed(text)
    classes = [node for node in tree.body if isinstance(node, ast.ClassDef)]
    if len(classes) != 1:
        return ""
    forward = _method(classes[0], "forward")
    if forward is None or forward.args.vararg or forward.args.kwarg:
        return ""
    described = {re.sub(r"[^a-zA-Z0-9]+", "_", source): facts for source, facts in tensors.items()}
    symbols = _symbols(forward, described)
    inputs = []
    for argument in forward.args.args[1:]:
        made = _input_text(argument, described, symbols)
        if not made:
            return ""
        inputs.append(made)
    _give_submodules(classes[0])
    cleaned = ast.unparse(ast.fix_missing_locations(_Cleaner().visit(tree)))
    words = ["dynamic=True"] * bool(symbols)
    words += [f"backend={backend!r}"] * (backend in ("eager", "aot_eager"))
    call = f"torch.compile({', '.join([f'{classes[0].name}()', *words])})(*inputs)"
    needs_grad = any("requires_grad" in one for one in inputs)
    has_grad = trains is not False or not needs_grad
    return _program(cleaned, settings, inputs, call, bool(trains) and needs_grad, has_grad)


def program_of_repro(text: str) -> MadeProgram | None:
    """Return the program that does the same as one for ``run_repro``; None where there is doubt."""
    tree = _parsed(text)
    classes = {node.name: node for node in tree.body if isinstance(node, ast.ClassDef)}
    loader = next(
        (n for n in tree.body if isinstance(n, ast.FunctionDef) and n.name == "load_args"), None
    )
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call)]
    run = next(
        (c for c in calls if isinstance(c.func, ast.Name) and c.func.id == "run_repro"), None
    )
    if "Repro" not in classes or loader is None or run is None:
        return None
    inputs = _inputs_of_loader(loader)
    if inputs is None:
        return None
    given = {word.arg: _literal(word.value) for word in run.keywords if word.arg}
    is_aten = "after_dynamo" not in text
    backend = given.get("backend")
    words = [f"backend={backend!r}"] if isinstance(backend, str) and backend != "inductor" else []
    symbols = any(re.fullmatch(r"\d+", one) for one in inputs)
    words += ["dynamic=True"] * symbols
    module = ast.Module([classes["Repro"]], [])
    cleaned = ast.unparse(ast.fix_missing_locations(_Cleaner().visit(module)))
    call = f"torch.compile(Repro(){''.join(', ' + word for word in words)})(*inputs)"
    is_training = not is_aten and any("requires_grad" in one for one in inputs)
    if is_aten:
        inputs = [re.sub(r", requires_grad=True|\.requires_grad_\(\)", "", one) for one in inputs]
    if given.get("autocast") is True:
        call = 'torch.amp.autocast("cuda")(torch.compile(Repro()))(*inputs)'
    program = _program(cleaned, _settings(tree), inputs, call, is_training, has_grad=not is_aten)
    name = "the graph of Inductor" if is_aten else "the graph of Dynamo that the minifier wrote"
    return MadeProgram(program, name, given.get("accuracy") not in (None, False, ""))


def _program(
    graph: str,
    settings: Sequence[str],
    inputs: Sequence[str],
    call: str,
    trains: bool,
    has_grad: bool = True,
) -> str:
    names = {node.id for node in ast.walk(_parsed(graph)) if isinstance(node, ast.Name)}
    rows = ["import torch"]
    maths = [name for name in ("inf", "nan") if name in names]
    rows += [f"from math import {', '.join(maths)}"] if maths else []
    from_torch = [name for name in ("device", "tensor") if name in names]
    rows += [f"from torch import {', '.join(from_torch)}"] if from_torch else []
    rows += ["from torch.nn import *"] if names & {"Parameter", "Linear", "Conv2d"} else []
    modules = dict.fromkeys(row.partition(".config.")[0] + ".config" for row in settings)
    rows += [f"import {module}" for module in modules if module != "torch._functorch.config"]
    rows += ["import torch._functorch.config"] * ("torch._functorch.config" in modules)
    rows += ["", *settings] if settings else []
    rows += ["", graph, "", "inputs = [", *(f"    {one}," for one in inputs), "]"]
    if trains:
        rows += [
            f"outputs = {call}",
            "sum(one.sum() for one in outputs if torch.is_tensor(one) and one.requires_grad)"
            ".backward()",
        ]
    elif has_grad:
        rows.append(call)
    else:
        rows += ["with torch.no_grad():", f"    {call}"]
    return "\n".join(rows) + "\n"


def _parsed(text: str) -> ast.Module:
    """Return the tree of a text; an empty one for a text that is not Python."""
    try:
        return ast.parse(text if len(text) <= MAX_CHARS else "")
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return ast.Module([], [])


def _method(node: ast.ClassDef, name: str) -> ast.FunctionDef | None:
    return next(
        (one for one in node.body if isinstance(one, ast.FunctionDef) and one.name == name), None
    )


def _literal(node: ast.expr) -> Any:
    try:
        return ast.literal_eval(node)
    except (ValueError, TypeError, SyntaxError, RecursionError, MemoryError):
        return ...


def _settings(tree: ast.Module) -> list[str]:
    """Return the assignments of literals to settings, without those that torch makes itself."""
    rows = []
    for node in tree.body:
        if not isinstance(node, ast.Assign) or len(node.targets) != 1:
            continue
        name = ast.unparse(node.targets[0])
        if (
            _CONFIG.fullmatch(name)
            and name not in _OWN_SETTINGS
            and _literal(node.value) is not ...
        ):
            rows.append(f"{name} = {ast.unparse(node.value)}")
    return rows


def _symbols(
    forward: ast.FunctionDef, described: Mapping[str, Mapping[str, Any]]
) -> dict[str, int]:
    """Return the values of symbolic sizes, from the sizes of the described tensors."""
    found: dict[str, int] = {}
    for argument in forward.args.args[1:]:
        facts = described.get(argument.arg)
        text = argument.annotation.value if isinstance(argument.annotation, ast.Constant) else ""
        sizes = _SYMBOLIC.match(str(text))
        if facts is None or sizes is None:
            continue
        names = [name.strip() for name in sizes["sizes"].split(",") if name.strip()]
        values: Any = facts.get("size")
        for name, size in zip(names, values if _are_numbers(values) else (), strict=False):
            if _SYMBOL.fullmatch(name):
                found[name] = size
    return found


def _input_text(
    argument: ast.arg, described: Mapping[str, Mapping[str, Any]], symbols: Mapping[str, int]
) -> str:
    """Return the expression of one input; empty where there is doubt."""
    text = argument.annotation.value if isinstance(argument.annotation, ast.Constant) else ""
    if isinstance(text, str) and (found := re.fullmatch(r"Sym\((\w+)\)", text.strip())):
        if found[1].lstrip("-").isdigit():
            return found[1]
        return str(symbols[found[1]]) if found[1] in symbols else ""
    facts = described.get(argument.arg)
    if facts is None:
        return input_of(argument.annotation)
    sizes, strides = facts.get("size"), facts.get("stride")
    device = re.search(r"type='([a-z]{1,12})'(?:, index=(\d{1,3}))?", str(facts.get("device")))
    if not _are_numbers(sizes) or not _are_numbers(strides) or device is None:
        return input_of(argument.annotation)
    where = device[1] if device[1] == "cpu" or device[2] is None else f"{device[1]}:{device[2]}"
    try:
        return tensor_text(
            {
                "shape": sizes,
                "stride": strides,
                "device": where,
                "dtype": facts.get("dtype"),
                "requires_grad": facts.get("requires_grad") is True,
                "is_computed": facts.get("is_leaf") is not True,
            }
        )
    except (ValueError, TypeError):
        return ""


def _are_numbers(values: Any) -> bool:
    return isinstance(values, (list, tuple)) and all(
        isinstance(value, int) and 0 <= value < 1 << 40 for value in values
    )


def _give_submodules(node: ast.ClassDef, path: str = "") -> None:
    """Add the modules that a graph uses and that are printed as classes inside of it."""
    inner = [one for one in node.body if isinstance(one, ast.ClassDef)]
    names = [
        one.name
        for one in inner
        if _method(node, "forward") is not None and f"self.{one.name}" in ast.unparse(node)
    ]
    here = f"{path}{node.name}"
    for one in inner:
        _give_submodules(one, f"{here}.")
    if names:
        rows = ["super().__init__()", *(f"self.{name} = {here}.{name}()" for name in names)]
        made = ast.parse("def __init__(self):\n    " + "\n    ".join(rows)).body[0]
        node.body.insert(0, made)


class _Cleaner(ast.NodeTransformer):
    """Removes what torch prints for people, and lifts private operators to public functions."""

    def visit_arg(self, node: ast.arg) -> ast.arg:
        node.annotation = None
        return node

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.AST:
        if node.value is None or not isinstance(node.target, ast.Name):
            return node
        return self.visit(ast.copy_location(ast.Assign([node.target], node.value), node))  # type: ignore[no-any-return]

    def visit_Assign(self, node: ast.Assign) -> ast.AST | None:
        is_none = isinstance(node.value, ast.Constant) and node.value.value is None
        if is_none and all(isinstance(one, ast.Name) for one in node.targets):
            return None  # torch drops its reference
        return self.generic_visit(node)

    def visit_Name(self, node: ast.Name) -> ast.AST:
        """Lift ``torch_Tensor_set_``, as torch prints a method that is called as a function."""
        if node.id.startswith("torch_Tensor_"):
            return ast.parse(f"torch.Tensor.{node.id[13:]}", mode="eval").body
        return node

    def visit_Call(self, node: ast.Call) -> ast.AST:
        self.generic_visit(node)
        name = ast.unparse(node.func) if isinstance(node.func, (ast.Name, ast.Attribute)) else ""
        words = {word.arg: _literal(word.value) for word in node.keywords}
        if name == "device" and not node.args and isinstance(words.get("type"), str):
            index = words.get("index")
            where = words["type"] if index is None else f"{words['type']}:{index}"
            return ast.Constant(where)
        if name == "torch.ops.prims.iota.default":
            return _arange_of_iota(node, words) or node
        return node


def _arange_of_iota(node: ast.Call, words: Mapping[str | None, Any]) -> ast.expr | None:
    count = _literal(node.args[0]) if len(node.args) == 1 else ...
    start, step = words.get("start", 0), words.get("step", 1)
    if not all(isinstance(one, int) and abs(one) < 1 << 40 for one in (count, start, step)):
        return None
    numbers = [count] if (start, step) == (0, 1) else [start, start + count * step, step]
    kept = [word for word in node.keywords if word.arg in ("dtype", "device")]
    kept = [w for w in kept if ast.unparse(w.value) not in ("torch.int64", "'cpu'")]
    arange = ast.parse("torch.arange", mode="eval").body
    return ast.Call(arange, [ast.Constant(one) for one in numbers], kept)


@dataclass
class _Reader:
    """What ``InputReader`` of ``torch/_dynamo/debug_utils.py`` gives for each call."""

    storages: dict[str, str] = field(default_factory=dict)
    """Variable -> the device of its storage."""
    inputs: list[str] = field(default_factory=list)

    def read(self, target: str, call: ast.Call) -> bool:
        """Take one call of the reader; return False where there is doubt."""
        assert isinstance(call.func, ast.Attribute)
        name = call.func.attr
        args = [_literal(one) for one in call.args]
        words = {word.arg: word.value for word in call.keywords}
        if name == "storage":
            self.storages[target] = _device_of(words.get("device"))
            return True
        if name == "symint" and len(args) == 1 and isinstance(args[0], int):
            self.inputs.append(str(args[0]))
            return True
        if name != "tensor" or len(args) < 2 or not isinstance(call.args[0], ast.Name):
            return False
        sizes = args[1]
        if not _are_numbers(sizes):
            return False
        strides = args[2] if len(args) > 2 else contiguous_strides(sizes)
        if not _are_numbers(strides):
            return False
        dtype = ast.unparse(words["dtype"]) if "dtype" in words else "torch.float32"
        grad = "requires_grad" in words and _literal(words["requires_grad"]) is True
        leaf = "is_leaf" in words and _literal(words["is_leaf"]) is True
        try:
            text = tensor_text(
                {
                    "shape": sizes,
                    "stride": strides,
                    "device": self.storages.get(call.args[0].id, "cpu"),
                    "dtype": dtype,
                    "requires_grad": grad,
                    "is_computed": not leaf,
                }
            )
        except (ValueError, TypeError):
            return False
        self.inputs.append(text)
        return True


def _device_of(node: ast.expr | None) -> str:
    found = re.search(
        r"type='([a-z]{1,12})'(?:, index=(\d{1,3}))?", ast.unparse(node) if node else ""
    )
    if found is None:
        return "cpu"
    return found[1] if found[2] is None else f"{found[1]}:{found[2]}"


def _inputs_of_loader(loader: ast.FunctionDef) -> list[str] | None:
    """Return the expressions of the inputs that ``load_args`` makes; None where there is doubt."""
    reader = _Reader()
    for node in loader.body:
        target, value = "", None
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            target, value = node.targets[0].id, node.value
        elif isinstance(node, ast.Expr):
            value = node.value
        is_call = isinstance(value, ast.Call) and isinstance(value.func, ast.Attribute)
        if isinstance(node, (ast.Pass, ast.Return)) or (
            isinstance(value, ast.Constant) and isinstance(value.value, str)
        ):
            continue
        if not is_call or not isinstance(value, ast.Call) or not reader.read(target, value):
            return None
    return reader.inputs
