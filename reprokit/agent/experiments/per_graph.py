"""Compare each of Dynamo's graphs with eager separately.

The result is the first graph whose compiled code gives a wrong result, and the first operator in it
that does.
"""

from __future__ import annotations

import contextlib
import copy
import os
import re
from collections.abc import Callable, Sequence
from typing import Any

import torch

from ...core.shared import cuts, tracebacks
from ...core.shared.contract import events, result_events
from ...core.shared.result_comparison import SEED
from ...core.shared.tracebacks import name_of_function
from ..record import journal
from ..results import compare_results
from ..results.compare_results import DifferenceRow, ResultRows
from ..results.operator_contracts import first_broken_contract, operator_name
from ..results.result_recorder import ResultRecorder
from ..torch_hooks.symbols import compile_id, wrap_symbol

MAX_SEARCH_COMPILES = 12
"""Limit of compiles in the search for the operator. Each halves the range, so this is enough for
4,096 nodes.
"""


class GraphComparer:
    """Compare every graph that Dynamo passes to a backend, until one gives a wrong result."""

    def __init__(self) -> None:
        self._is_busy = self._is_over = False

    def install_hook(self) -> None:
        """Wrap the compiled form of each graph in a function that compares it with the graph."""

        def make_hook(real: Callable[..., Any]) -> Callable[..., Any]:
            def _call_user_compiler(*args: Any, **kwargs: Any) -> Any:
                if self._is_busy or self._is_over:
                    return real(*args, **kwargs)
                graph, gm = args[:2]
                plain, cid, backend = _copy_graph(gm, None), compile_id(), graph.compiler_fn
                compiled = real(*args, **kwargs)

                def compared(*call_inputs: Any) -> Any:
                    if not (self._is_busy or self._is_over):
                        self._is_busy = True
                        try:
                            self._compare(plain, compiled, backend, call_inputs, cid)
                        except Exception as problem:  # the program must go on
                            journal.write_event(
                                events.AgentProblem(
                                    hook="graphwise", problem=cuts.cut_head(repr(problem), 500)
                                )
                            )
                        finally:
                            self._is_busy = False
                    return compiled(*call_inputs)

                return compared

            return _call_user_compiler

        wrap_symbol("torch._dynamo.output_graph:OutputGraph._call_user_compiler", make_hook)

    def _compare(
        self,
        plain: torch.fx.GraphModule,
        compiled: Callable[..., Any],
        backend: Any,
        inputs: Sequence[Any],
        cid: str | None,
    ) -> None:
        if not (rows := _find_errors(plain, compiled, inputs)):
            return
        self._is_over = True
        node = _first_wrong_node(plain, backend, inputs)
        journal.write_event(
            result_events.Departs(
                cid=cid,
                nodes=len(_call_nodes(plain)),
                difference=dict(rows[0]),
                op=operator_name(node.target) if node is not None else "",
                where=_user_line(node) if node is not None else "",
                place=_users_place(node) if node is not None else "",
                custom=_custom_operator_problem(plain, inputs),
            )
        )


def _custom_operator_problem(plain: torch.fx.GraphModule, inputs: Sequence[Any]) -> str:
    """Describe a custom operator of the graph that breaks its contract; empty if none does."""
    with contextlib.suppress(Exception):  # then it is not known
        return first_broken_contract(plain, tuple(_clone_input(value) for value in inputs))
    return ""


def _find_errors(
    plain: torch.fx.GraphModule, compiled: Callable[..., Any], inputs: Sequence[Any]
) -> list[DifferenceRow]:
    """Return the leaves in which the two differ and in which compiled code may be wrong.

    The leaves are the outputs, the inputs after the call, and the gradients.
    """
    eager = _run_graph("eager", plain, inputs)
    from_compiled = _run_graph("compiled", compiled, inputs)
    if not compare_results.find_differences(eager, from_compiled, {}):
        return []
    wide: ResultRows = {}
    with contextlib.suppress(Exception):  # then there is no reference
        wide = _run_graph("float64", copy.deepcopy(plain), inputs)
    rows = compare_results.find_differences(eager, from_compiled, wide)
    return [row for row in rows if row["side"] in ("compiled", "unknown")]


def _run_graph(role: str, function: Callable[..., Any], inputs: Sequence[Any]) -> ResultRows:
    args = tuple(_clone_input(value) for value in inputs)
    state = torch.get_rng_state()
    torch.manual_seed(SEED)
    try:
        if role == "float64":
            from ..results import float64

            out, args, _ = float64.call_in_float64(function, args, {})
        else:
            out = function(*args)
    finally:
        torch.set_rng_state(state)
    recorder = ResultRecorder(role, "")
    named = [(f"input[{index}]", value) for index, value in enumerate(args)]
    recorder.note_call(0, out, named, is_random=False)
    outputs = [
        v for v in torch.utils._pytree.tree_leaves(out) if getattr(v, "grad_fn", None) is not None
    ]
    leaves = [(n, v) for n, v in named if isinstance(v, torch.Tensor) and v.requires_grad]
    if outputs and leaves:
        weights = [
            torch.arange(v.numel(), dtype=v.dtype).cos().reshape(v.shape).to(v.device)
            for v in outputs
        ]
        grads = torch.autograd.grad(outputs, [v for _, v in leaves], weights, allow_unused=True)
        recorder.note_call(
            1,
            None,
            [(f"gradient of {n}", g) for (n, _), g in zip(leaves, grads, strict=True)],
            False,
        )
    return {(row["call"], row["name"]): row for row in recorder.rows}


def _first_wrong_node(
    plain: torch.fx.GraphModule, backend: Any, inputs: Sequence[Any]
) -> torch.fx.Node | None:
    """Return the node that makes the result wrong: the graph up to the node before it is right.

    Return None if the search does not end at one node.
    """
    nodes = _call_nodes(plain)
    right, wrong = 0, len(nodes)  # numbers of first nodes that give right and wrong results
    for _ in range(MAX_SEARCH_COMPILES):
        if wrong - right <= 1:
            break
        middle = (right + wrong) // 2
        if _is_wrong(_copy_graph(plain, nodes[middle - 1]), backend, inputs):
            wrong = middle
        else:
            right = middle
    return nodes[wrong - 1] if wrong - right == 1 else None


def _is_wrong(part: torch.fx.GraphModule, backend: Any, inputs: Sequence[Any]) -> bool:
    import torch._dynamo

    is_dynamic = any(isinstance(value, int) for value in inputs)
    compiled = torch._dynamo.optimize(backend, dynamic=is_dynamic or None)(part)
    try:
        return bool(_find_errors(part, compiled, inputs))
    except Exception:  # a different failure
        return False


def _copy_graph(gm: torch.fx.GraphModule, last: torch.fx.Node | None) -> torch.fx.GraphModule:
    """Copy a graph up to the node ``last``, or the whole graph.

    A part of a graph returns every tensor that the rest of the graph uses.
    """
    graph = torch.fx.Graph()
    copies: dict[torch.fx.Node, torch.fx.Node] = {}
    for node in gm.graph.nodes:
        if node.op == "output":
            graph.output(torch.fx.node.map_arg(node.args[0], lambda n: copies[n]))
            break
        copies[node] = graph.node_copy(node, lambda n: copies[n])
        if node is last:
            after = set(gm.graph.nodes) - set(copies)
            used = [c for n, c in copies.items() if n is last or n.users.keys() & after]
            tensors = [c for c in used if isinstance(c.meta.get("example_value"), torch.Tensor)]
            graph.output(tuple([c for c in tensors if c.op != "placeholder"] or tensors))
            break
    return torch.fx.GraphModule(gm, graph)


def _call_nodes(gm: torch.fx.GraphModule) -> list[torch.fx.Node]:
    return [n for n in gm.graph.nodes if n.op.startswith("call_")]


def _clone_input(value: Any) -> Any:
    from torch._dynamo.utils import clone_input

    if not isinstance(value, torch.Tensor):
        return value
    return clone_input(value).detach().requires_grad_(value.requires_grad)


def _users_place(node: torch.fx.Node) -> str:
    """Return ``file:line`` of the innermost user line of a node; empty if unknown."""
    return tracebacks.user_line(str(node.meta.get("stack_trace") or "")).rpartition(" in ")[0]


def _user_line(node: torch.fx.Node) -> str:
    """Return ``file:line in function`` of the innermost user line of a node; empty if unknown."""
    lines = re.findall(
        r'File "([^"]+)", line (\d+), in (\S+)', str(node.meta.get("stack_trace") or "")
    )
    if not lines:
        return ""
    file, line, function = lines[-1]
    return f"{os.path.basename(file)}:{line} in {name_of_function(function)}"
