"""Compare each of Dynamo's graphs with eager by itself: the first that departs, and the first
operator in it that does.
"""

from __future__ import annotations

import contextlib
import copy
import os
import re
from collections.abc import Callable, Sequence
from typing import Any

from ...core.shared import cuts
from ...core.shared.contract import events
from ...core.shared.result_comparison import SEED
from ..record import journal
from ..results import compare_results
from ..results.result_recorder import ResultRecorder
from ..torch_hooks.hooking import compile_id, wrap_function
from .custom_ops import first_false, operator_name

MOST_QUESTIONS = 12
"""Compiles that the search for the operator may take: it halves what is left, so this is enough for
4,096 nodes.
"""

_RESUMED = re.compile(r"^torch_dynamo_resume_in_(.+)_at_\d+$")
"""Dynamo's name for what is left of a function behind a graph break."""


class GraphWatch:
    """Sees every graph that Dynamo gives to a backend, until one departs."""

    def __init__(self, torch: Any) -> None:
        self._torch = torch
        self._is_busy = self._is_over = False

    def install(self) -> None:
        """Put a comparison around what the backend makes of each graph."""
        from torch._dynamo.output_graph import OutputGraph

        def make(real: Callable[..., Any]) -> Callable[..., Any]:
            def _call_user_compiler(
                graph: Any, gm: Any, inputs: Any, *args: Any, **kwargs: Any
            ) -> Any:
                if self._is_busy or self._is_over:
                    return real(graph, gm, inputs, *args, **kwargs)
                plain, name, backend = _part(gm, None), compile_id(), graph.compiler_fn
                compiled = real(graph, gm, inputs, *args, **kwargs)

                def checked(*given: Any) -> Any:
                    if not (self._is_busy or self._is_over):
                        self._is_busy = True
                        try:
                            self._check(plain, compiled, backend, given, name)
                        except Exception as problem:  # the program goes on
                            journal.write(
                                events.AgentProblem(
                                    hook="graphwise", problem=cuts.cut_head(repr(problem), 500)
                                )
                            )
                        finally:
                            self._is_busy = False
                    return compiled(*given)

                return checked

            return _call_user_compiler

        wrap_function(OutputGraph, "_call_user_compiler", make)

    def _check(
        self,
        plain: Any,
        compiled: Callable[..., Any],
        backend: Any,
        given: Sequence[Any],
        name: Any,
    ) -> None:
        if not (found := self._differences(plain, compiled, given)):
            return
        self._is_over = True
        node = self._first_node(plain, backend, given)
        journal.write(
            events.Departs(
                cid=name,
                nodes=len(_calls(plain)),
                difference=found[0],
                op=operator_name(node.target) if node is not None else "",
                where=_user_line(node) if node is not None else "",
                custom=self._custom(plain, given),
            )
        )

    def _custom(self, plain: Any, given: Sequence[Any]) -> str:
        """Which custom operator of the graph does something else than it promises; empty when none
        does.
        """
        with contextlib.suppress(Exception):  # then it is not known
            return first_false(
                self._torch, plain, tuple(_clone(self._torch, value) for value in given)
            )
        return ""

    def _differences(
        self, plain: Any, compiled: Callable[..., Any], given: Sequence[Any]
    ) -> list[dict[str, Any]]:
        """In which leaves (outputs, inputs as they were left, gradients) the two differ, and
        compiled code may be wrong.
        """
        rows = {
            "eager": self._run("eager", plain, given),
            "compiled": self._run("compiled", compiled, given),
        }
        if not compare_results.differences(self._torch, rows["eager"], rows["compiled"], {}):
            return []
        wide = {}
        with contextlib.suppress(Exception):  # then there is none to judge by
            wide = self._run("float64", copy.deepcopy(plain), given)
        found = compare_results.differences(self._torch, rows["eager"], rows["compiled"], wide)
        return [d for d in found if d["side"] in ("compiled", "unknown")]

    def _run(
        self, role: str, function: Callable[..., Any], given: Sequence[Any]
    ) -> dict[tuple[int, str], Any]:
        torch = self._torch
        args = tuple(_clone(torch, value) for value in given)
        state = torch.get_rng_state()
        torch.manual_seed(SEED)
        try:
            if role == "float64":
                from ..results import float64

                out, args, _ = float64.call_in_float64(torch, function, args, {})
            else:
                out = function(*args)
        finally:
            torch.set_rng_state(state)
        recorder = ResultRecorder(torch, role, "")
        named = [(f"input[{place}]", value) for place, value in enumerate(args)]
        recorder.note_call(0, out, named, is_random=False)
        grown = [
            v
            for v in torch.utils._pytree.tree_leaves(out)
            if getattr(v, "grad_fn", None) is not None
        ]
        leaves = [(n, v) for n, v in named if isinstance(v, torch.Tensor) and v.requires_grad]
        if grown and leaves:
            weights = [
                torch.arange(v.numel(), dtype=v.dtype).cos().reshape(v.shape).to(v.device)
                for v in grown
            ]
            grads = torch.autograd.grad(grown, [v for _, v in leaves], weights, allow_unused=True)
            recorder.note_call(
                1,
                None,
                [(f"gradient of {n}", g) for (n, _), g in zip(leaves, grads, strict=True)],
                False,
            )
        return {(row["call"], row["name"]): row for row in recorder.rows}

    def _first_node(self, plain: Any, backend: Any, given: Sequence[Any]) -> Any:
        """The node with which the graph's beginning departs and without which it does not; None
        where that is no one.
        """
        nodes = _calls(plain)
        low, high = 0, len(nodes)  # the first ``low`` of them do not depart, the first ``high`` do
        for _ in range(MOST_QUESTIONS):
            if high - low <= 1:
                break
            middle = (low + high) // 2
            if self._departs(_part(plain, nodes[middle - 1]), backend, given):
                high = middle
            else:
                low = middle
        return nodes[high - 1] if high - low == 1 else None

    def _departs(self, part: Any, backend: Any, given: Sequence[Any]) -> bool:
        import torch._dynamo

        is_dynamic = any(isinstance(value, int) for value in given)
        compiled = torch._dynamo.optimize(backend, dynamic=is_dynamic or None)(part)
        try:
            return bool(self._differences(part, compiled, given))
        except Exception:  # another failure than the one that is looked for
            return False


def _part(gm: Any, last: Any) -> Any:
    """A copy of a graph, up to the node ``last``: it gives every tensor that the rest would have
    used.
    """
    import torch

    graph = torch.fx.Graph()
    copies: dict[Any, Any] = {}
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


def _calls(gm: Any) -> list[Any]:
    return [n for n in gm.graph.nodes if n.op.startswith("call_")]


def _clone(torch: Any, value: Any) -> Any:
    from torch._dynamo.utils import clone_input

    if not isinstance(value, torch.Tensor):
        return value
    return clone_input(value).detach().requires_grad_(value.requires_grad)


def _user_line(node: Any) -> str:
    """``file:line in function`` of the innermost line of the user's that made a node; empty where
    Dynamo kept none.
    """
    lines = re.findall(
        r'File "([^"]+)", line (\d+), in (\S+)', str(node.meta.get("stack_trace") or "")
    )
    if not lines:
        return ""
    file, line, function = lines[-1]
    function = _RESUMED.sub(r"\1", function)
    return f"{os.path.basename(file)}:{line} in {function}"
