"""A program that compiles one graph, made of texts that torch wrote."""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from reprokit.core.shared.source import process_group

MAX_CHARS = 4 << 20
MAX_RANKS = 1 << 20
_CONFIG = re.compile(
    r"torch(?:\._dynamo|\._inductor|\._functorch)\.config\.(?!trace\.)[\w.]{1,120}"
)
_OWN_SETTINGS = frozenset(
    "torch._functorch.config.functionalize_rng_ops torch._functorch.config.unlift_effect_tokens"
    " torch._functorch.config.fake_tensor_allow_unsafe_data_ptr_access"
    " torch._functorch.config.selective_decompose torch._functorch.config.debug_partitioner"
    " torch._inductor.config.generate_intermediate_hooks"
    " torch._dynamo.config.suppress_errors".split()
)
"""Settings that torch changes itself while it writes these programs, or for its minifier, and one
that hides the failure.
"""


@dataclass(frozen=True)
class MadeProgram:
    """A program that compiles one graph or call."""

    text: str
    made_from: str
    """In words: ``the graph of Dynamo``."""
    checks_accuracy: bool = False
    """It was written because compiled results differ from those of eager."""
    torch: str = ""
    """The version of torch that wrote it; empty if that is not known."""
    factory: str = ""
    """The same as a module with a factory ``make``, which ``--gpu`` needs; empty without one."""


@dataclass(frozen=True)
class GraphCall:
    """A call of a compiled graph."""

    graph: str
    """The text of its class."""
    name: str
    """The name of the class."""
    inputs: Sequence[str]
    """Expressions."""
    words: Mapping[str, Any]
    """Arguments of ``torch.compile``."""
    trains: bool
    """It calls backward too."""
    has_grad: bool = True
    """It needs gradients."""
    settings: Sequence[str] = ()
    """Lines that change the configuration."""
    variables: Sequence[str] = ()
    """Lines that change the environment."""
    setup: Sequence[str] = ()
    """Lines that make what several inputs share."""
    is_autocast: bool = False

    def program(self) -> str:
        """Return the program."""
        words = "".join(f", {name}={value!r}" for name, value in self.words.items())
        call = f"torch.compile({self.name}(){words})"
        if self.is_autocast:  # as run_repro does, also for a graph of the CPU
            call = f'torch.amp.autocast("cuda")({call})'
        rows = [*self._definitions(), *self.setup, *self._inputs()]
        if self.trains:
            rows += [
                f"outputs = {call}(*inputs)",
                "losses = [one.sum() for one in outputs"
                " if torch.is_tensor(one) and one.requires_grad]",
                "if losses:",
                "    sum(losses).backward()",
            ]
        elif self.has_grad:
            rows.append(f"{call}(*inputs)")
        else:
            rows += ["with torch.no_grad():", f"    {call}(*inputs)"]
        return "\n".join(rows) + "\n"

    def factory(self) -> str:
        """Return the module with the factory."""
        inner = [
            *self.setup,
            *self._inputs(),
            "return {",
            f'    "model": {self.name}(),',
            '    "calls": [(inputs, {})],',
            f'    "compile": {dict(self.words)!r},',
            f'    "train": {self.trains},',
            "}",
        ]
        rows = [*self._definitions(), "", "def make():", *(f"    {row}" for row in inner)]
        return "\n".join(rows) + "\n"

    def _inputs(self) -> list[str]:
        return ["inputs = [", *(f"    {one}," for one in self.inputs), "]"]

    def _definitions(self) -> list[str]:
        names = {node.id for node in ast.walk(parsed(self.graph)) if isinstance(node, ast.Name)}
        rows = ["import os", "", *self.variables, ""] if self.variables else []
        rows.append("import torch")
        maths = [name for name in ("inf", "nan") if name in names]
        rows += [f"from math import {', '.join(maths)}"] if maths else []
        from_torch = [name for name in ("device", "tensor") if name in names]
        rows += [f"from torch import {', '.join(from_torch)}"] if from_torch else []
        rows += ["from torch.nn import *"] if _uses_modules(self.graph) else []
        modules = dict.fromkeys(row.partition(".config.")[0] + ".config" for row in self.settings)
        rows += [f"import {module}" for module in modules]
        rows += ["", *self.settings] if self.settings else []
        rows += _group_lines(self.graph)
        return [*rows, "", self.graph, ""]


def _group_lines(graph: str) -> list[str]:
    """Return the lines that make the process a rank of the group of all ranks, if the collectives
    of a graph name that group and no other one. No collective is executed.
    """
    count, groups = 2, set[Any]()
    for node in ast.walk(parsed(graph)):
        if isinstance(node, ast.Call) and "._c10d_functional." in ast.unparse(node.func):
            values = [literal(one) for one in node.args[1:]]
            groups |= {one for one in values[-1:] if isinstance(one, str)}
            sizes = [one for one in values if type(one) is int and 1 < one <= MAX_RANKS]
            count = max(count, *sizes, 0)
    is_whole = groups == {process_group.ALL_RANKS}
    return ["", *process_group.join_group_lines(0, count, None)] if is_whole else []


def _uses_modules(graph: str) -> bool:
    """Return whether a graph uses classes of ``torch.nn`` by their names, as torch prints it."""
    tree = parsed(graph)
    defined = {node.name for node in ast.walk(tree) if isinstance(node, ast.ClassDef)}
    called = {node.func.id for node in ast.walk(tree)
              if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)}  # fmt: skip
    return any(name[:1].isupper() and name not in defined for name in called)


def parsed(text: str) -> ast.Module:
    """Return the tree of a text; an empty one for a text that is not Python."""
    try:
        return ast.parse(text if len(text) <= MAX_CHARS else "")
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return ast.Module([], [])


def literal(node: ast.expr) -> Any:
    try:
        return ast.literal_eval(node)
    except (ValueError, TypeError, SyntaxError, RecursionError, MemoryError):
        return ...


def settings_of(tree: ast.Module) -> list[str]:
    """Return the assignments of literals to settings, without those that torch makes itself."""
    rows = []
    for node in tree.body:
        if not isinstance(node, ast.Assign) or len(node.targets) != 1:
            continue
        name = ast.unparse(node.targets[0])
        if _CONFIG.fullmatch(name) and name not in _OWN_SETTINGS and literal(node.value) is not ...:
            rows.append(f"{name} = {ast.unparse(node.value)}")
    return rows


def are_numbers(values: Any) -> bool:
    return isinstance(values, (list, tuple)) and all(
        isinstance(value, int) and 0 <= value < 1 << 40 for value in values
    )


class Cleaner(ast.NodeTransformer):
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
        words = {word.arg: literal(word.value) for word in node.keywords}
        if name == "device" and not node.args and isinstance(words.get("type"), str):
            index = words.get("index")
            where = words["type"] if index is None else f"{words['type']}:{index}"
            return ast.Constant(where)
        if name == "torch.ops.higher_order.cond" and len(node.args) == 4 and not node.keywords:
            node.func = ast.parse("torch.cond", mode="eval").body
        if name == "torch.ops.prims.iota.default":
            return _arange_of_iota(node, words) or node
        return node


def _arange_of_iota(node: ast.Call, words: Mapping[str | None, Any]) -> ast.expr | None:
    count = literal(node.args[0]) if len(node.args) == 1 else ...
    start, step = words.get("start", 0), words.get("step", 1)
    if not all(isinstance(one, int) and abs(one) < 1 << 40 for one in (count, start, step)):
        return None
    numbers = [count] if (start, step) == (0, 1) else [start, start + count * step, step]
    kept = [word for word in node.keywords if word.arg in ("dtype", "device")]
    kept = [w for w in kept if ast.unparse(w.value) not in ("torch.int64", "'cpu'")]
    arange = ast.parse("torch.arange", mode="eval").body
    return ast.Call(arange, [ast.Constant(one) for one in numbers], kept)
