"""Find the user's own operators and kernels in a graph, and write their definitions."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from ....core.shared.operators import is_torch_namespace
from . import own_operators, triton_kernels
from .definition_writer import DefinitionWriter
from .observed_kernel import ObservedCall
from .source_trees import NoText

if TYPE_CHECKING:
    import torch


class GraphDefinitions:
    """The definitions that the text of one graph needs."""

    def __init__(self, gm: torch.fx.GraphModule) -> None:
        self._writer = DefinitionWriter(_node_names(gm))
        self.definitions: dict[str, list[str]] = {}
        """The definitions of each operator (``mine::scale``) and name that the graph uses, in
        order."""
        self.undefined: dict[str, str] = {}
        """Operators without a definition, and why."""
        for name, calls in _own_operators(gm).items():
            self._define_operator(name, calls)

    def rows(self) -> list[str]:
        """Return all definitions in the order of the program."""
        return list(dict.fromkeys(row for rows in self.definitions.values() for row in rows))

    def write_launches(self, source: str) -> str:
        """Return the text of a graph's ``forward`` with launches of Triton kernels as the user
        writes them.
        """
        if triton_kernels.LAUNCH not in source:
            return source
        lines = source.splitlines()
        for index, line in enumerate(lines):
            if f"{triton_kernels.LAUNCH}(" in line:
                lines[index] = self._launch(line)
        return "\n".join(lines)

    def define_subclass(self, kind: type, context: object) -> tuple[str, str]:
        """Return the expressions of a class of tensors and of what ``__tensor_flatten__`` returned
        with the inner tensors; two empty texts if there are none.
        """
        try:
            with self._writer.collect() as needed:
                texts = self._writer.expression(kind), self._writer.expression(context)
        except Exception as problem:  # a user's object may raise anything when it is inspected
            self.undefined[kind.__qualname__] = _reason(problem)
            return "", ""
        self.definitions[texts[0]] = self._writer.rows_for(needed)
        return texts

    def _launch(self, line: str) -> str:
        indent = line[: len(line) - len(line.lstrip())]
        statement, *rest = ast.parse(line.strip()).body
        call = getattr(statement, "value", None)
        assert isinstance(call, ast.Call)
        try:
            with self._writer.collect() as needed:
                launch = triton_kernels.write_launch(self._writer, call)
        except Exception as problem:  # a user's object may raise anything when it is inspected
            self.undefined[triton_kernels.LAUNCH] = _reason(problem)
            return line
        assert isinstance(launch, ast.Call) and isinstance(launch.func, ast.Subscript)
        self.definitions[ast.unparse(launch.func.value)] = self._writer.rows_for(needed)
        rows = [ast.unparse(ast.fix_missing_locations(ast.Expr(launch)))]
        rows += [ast.unparse(row) for row in rest if not _deletes(row, statement)]
        return indent + "; ".join(rows)

    def _define_operator(self, name: str, nodes: list[torch.fx.Node]) -> None:
        operator = _operator(nodes[0])
        try:
            observed = [_observed(node) for node in nodes if node.target is operator]
            with self._writer.collect() as needed:
                own_operators.define_operator(self._writer, operator, observed)
        except Exception as problem:  # a user's object may raise anything when it is inspected
            self.undefined[name] = _reason(problem)
        else:
            self.definitions[name] = self._writer.rows_for(needed)


def _deletes(row: ast.stmt, statement: ast.stmt) -> bool:
    """Return whether a row sets only the name of the launch to None, which has no name any more."""
    names = [ast.unparse(t) for t in getattr(statement, "targets", ())]
    return isinstance(row, ast.Assign) and all(ast.unparse(t) in names for t in row.targets)


def _graphs(gm: torch.fx.GraphModule) -> Iterator[torch.fx.GraphModule]:
    import torch

    return (m for m in gm.modules() if isinstance(m, torch.fx.GraphModule))


def _node_names(gm: torch.fx.GraphModule) -> set[str]:
    return {name for part in _graphs(gm) for node in part.graph.nodes for name in (node.name,)}


def _own_operators(gm: torch.fx.GraphModule) -> dict[str, list[torch.fx.Node]]:
    """Return the nodes with each operator of the user's, by its qualified name."""
    found: dict[str, list[torch.fx.Node]] = {}
    for part in _graphs(gm):
        for node in part.graph.nodes:
            name = own_operators.qualified_name(_operator(node))
            if node.op == "call_function" and name and not is_torch_namespace(name.split("::")[0]):
                found.setdefault(name, []).append(node)
    return found


def _operator(node: torch.fx.Node) -> Any:
    """Return the operator that a node calls, or passes to a higher-order operator."""
    targets = [node.target, *node.args[:1]]
    return next((t for t in targets if "::" in own_operators.qualified_name(t)), node.target)


def _observed(node: torch.fx.Node) -> ObservedCall:
    import torch

    def value(argument: Any) -> Any:
        if isinstance(argument, torch.fx.Node):
            return argument.meta.get("example_value", argument.meta.get("val"))
        return argument

    target: Any = node.target
    schema = getattr(target, "_schema", None) or target.default._schema
    rest = [node.kwargs.get(a.name) for a in schema.arguments[len(node.args) :]]
    return ObservedCall(tuple(map(value, (*node.args, *rest))), value(node))


def _reason(problem: Exception) -> str:
    return str(problem) if isinstance(problem, NoText) else repr(problem)
