"""Write the higher-order operators of a recorded graph as a program calls them.

A graph calls them with graph modules and flat lists. Dynamo makes neither from a function, so a
program has an ``autograd.Function`` or a call of the public function instead.
"""

from __future__ import annotations

import ast
import copy
import dataclasses
import re
from collections.abc import Callable, Mapping
from typing import Any

Body = ast.FunctionDef | ast.ClassDef
"""A function of a graph, or a class that was made from two of them."""
UNLIMITED = 1 << 30
"""The block size of flex attention without a block mask."""
_FLEX = "torch.nn.attention.flex_attention"
_FLEX_DEFAULTS = {
    "BACKEND": "AUTO",
    "PRESCALE_QK": False,
    "ROWS_GUARANTEED_SAFE": False,
    "BLOCKS_ARE_CONTIGUOUS": False,
    "WRITE_DQ": True,
    "OUTPUT_LOGSUMEXP": False,
    "OUTPUT_MAX": False,
}


@dataclasses.dataclass
class GraphParts:
    """The parts of a graph that a rewritten call may change."""

    bodies: list[Body]
    constants: dict[str, str]
    values: Mapping[str, Mapping[str, Any]]

    def function(self, node: ast.expr) -> ast.FunctionDef:
        """Return the body that an argument names; raises ValueError if it is none."""
        name = node.id if isinstance(node, ast.Name) else ""
        for body in self.bodies:
            if isinstance(body, ast.FunctionDef) and body.name == name:
                return body
        raise ValueError(f"{ast.unparse(node)} is not a body of the graph")


def rewrite_calls(statement: ast.stmt, parts: GraphParts) -> ast.stmt:
    """Return the statement with the calls that a program uses, where the graph has others."""
    changed = _Calls(parts).visit(statement)
    assert isinstance(changed, ast.stmt)
    return ast.fix_missing_locations(changed)


class _Calls(ast.NodeTransformer):
    def __init__(self, parts: GraphParts) -> None:
        self._parts = parts

    def visit_Call(self, node: ast.Call) -> ast.AST:
        self.generic_visit(node)
        name = ast.unparse(node.func).removeprefix("torch.ops.higher_order.")
        if (write := _WRITERS.get(name)) is None:
            return node
        try:
            return write(node, copy.deepcopy(node), self._parts)
        except (ValueError, IndexError):
            return node


def _expression(text: str, **nodes: ast.expr) -> ast.expr:
    """Parse an expression, and replace the names in ``nodes``."""

    class _Filled(ast.NodeTransformer):
        def visit_Name(self, node: ast.Name) -> ast.AST:
            return nodes.get(node.id, node)

    filled = _Filled().visit(ast.parse(text, mode="eval").body)
    assert isinstance(filled, ast.expr)
    return filled


def _autograd(node: ast.Call, call: ast.Call, parts: GraphParts) -> ast.expr:
    """Make a subclass of ``autograd.Function`` from the two bodies."""
    forward, backward = map(parts.function, call.args[:2])
    name = "Function" + (re.sub(r"\D", "", forward.name) or "0")
    if any(isinstance(b, ast.ClassDef) and b.name == name for b in parts.bodies):
        return ast.Call(_expression(f"{name}.apply"), call.args[2:], [])
    forward_rows = [r for r in forward.body if "_set_grad_enabled(" not in ast.unparse(r)]
    backward_rows = [r for r in backward.body if "_set_grad_enabled(" not in ast.unparse(r)]
    *rows, last = forward_rows
    if not isinstance(last, ast.Return) or not isinstance(last.value, ast.Tuple):
        raise ValueError("the forward returns no tuple")
    results, saved = last.value.elts
    names = [a.arg for a in forward.args.args]
    takes = [a.arg for a in backward.args.args]
    if names[:1] == ["ctx"] or not isinstance(results, ast.Tuple):  # torch before 2.10
        names, takes = names[1:], takes[1:]
        results = results if isinstance(results, ast.Tuple) else ast.Tuple([results], ast.Load())
    if not isinstance(saved, (ast.Tuple, ast.List)):
        raise ValueError("the saved values are no tuple")
    if saved.elts:
        rows.append(ast.Expr(_expression("ctx.save_for_backward()")))
        rows[-1].value.args = saved.elts  # type: ignore[attr-defined]
    numbers = next((k.value for k in call.keywords if k.arg == "non_differentiable_idx"), None)
    for number in ast.literal_eval(numbers) if numbers else ():
        rows.append(ast.Expr(_expression("ctx.mark_non_differentiable(x)", x=results.elts[number])))
    grads, kept = takes[: len(takes) - len(saved.elts)], takes[len(takes) - len(saved.elts) :]
    unpack = ast.parse(f"({', '.join(kept)},) = ctx.saved_tensors").body if kept else []
    made = ast.parse(
        f"class {name}(torch.autograd.Function):\n"
        f"    @staticmethod\n    def forward(ctx, {', '.join(names)}): pass\n"
        f"    @staticmethod\n    def backward(ctx, {', '.join(grads)}): pass\n"
    ).body[0]
    assert isinstance(made, ast.ClassDef)
    for function, body in zip(
        made.body, ([*rows, ast.Return(results)], [*unpack, *backward_rows]), strict=True
    ):
        assert isinstance(function, ast.FunctionDef)
        function.body = copy.deepcopy(body)
    parts.bodies.append(ast.fix_missing_locations(made))
    return ast.Call(_expression(f"{name}.apply"), call.args[2:], [])


def _checkpoint(node: ast.Call, call: ast.Call, parts: GraphParts) -> ast.expr:
    call.func = _expression("torch.utils.checkpoint.checkpoint")
    return call


def _region(node: ast.Call, call: ast.Call, parts: GraphParts) -> ast.expr:
    """Call the body as a function that is compiled once."""
    body = parts.function(call.args[0])
    region = _expression("torch.compiler.nested_compile_region")
    if not body.decorator_list:
        body.decorator_list.append(region)
    return ast.Call(call.args[0], call.args[2:], [])


def _scan(node: ast.Call, call: ast.Call, parts: GraphParts) -> ast.expr:
    """Give the body two lists, and join the two lists that it returns."""
    function, *lists = call.args
    body = parts.function(function)
    first, over, more = (_elements(value) for value in lists)
    names = [a.arg for a in body.args.args]
    last = body.body[-1]
    if not isinstance(last, ast.Return) or not isinstance(last.value, (ast.List, ast.Tuple)):
        raise ValueError("the body returns no list")
    count = len(first)
    if "carry" not in names:
        body.args.args = [ast.arg(n) for n in ("carry", "values", *names[count + len(over) :])]
        body.body[0:0] = ast.parse(
            f"({', '.join(names[:count])},) = carry\n"
            f"({', '.join(names[count : count + len(over)])},) = values"
        ).body
        results = last.value.elts
        last.value = ast.Tuple(
            [ast.List(results[:count], ast.Load()), ast.List(results[count:], ast.Load())],
            ast.Load(),
        )
        ast.fix_missing_locations(body)
    if more:
        function = _expression("lambda carry, values: f(carry, values)", f=function)
        assert isinstance(function, ast.Lambda) and isinstance(function.body, ast.Call)
        function.body.args += more
    scanned = _expression(
        "torch._higher_order_ops.scan(f, a, b)", f=function, a=lists[0], b=lists[1]
    )
    return _expression("torch.utils._pytree.tree_leaves(x)", x=scanned)


def _flex_attention(node: ast.Call, call: ast.Call, parts: GraphParts) -> ast.expr:
    """Make the block mask from its function, and give the functions the tensors that they read."""
    query, key, value, score, mask, scale, options, *buffers = call.args
    buffers += [ast.Tuple([], ast.Load())] * (2 - len(buffers))
    keywords = [ast.keyword("score_mod", _with_buffers(score, _elements(buffers[0]), 5, parts))]
    *sizes, mask_function = _elements(mask)
    if not (isinstance(sizes[-1], ast.Constant) and sizes[-1].value == UNLIMITED):
        shape = parts.values.get(ast.unparse(sizes[2]), {}).get("shape") or [1, 1]
        count = [repr(n) if n and n > 1 else "None" for n in shape[:2]]
        made = _expression(
            f"{_FLEX}.create_block_mask(f, {count[0]}, {count[1]}, q, k, device=x.device,"
            " BLOCK_SIZE=(a, b))",
            f=_with_buffers(mask_function, _elements(buffers[1]), 4, parts),
            q=sizes[0],
            k=sizes[1],
            a=sizes[-2],
            b=sizes[-1],
            x=query,
        )
        keywords.append(ast.keyword("block_mask", made))
    keywords.append(ast.keyword("scale", scale))
    given = ast.literal_eval(options)
    own = {k: v for k, v in given.items() if (k, v) not in _FLEX_DEFAULTS.items()}
    has_sums = bool(own.pop("OUTPUT_LOGSUMEXP", False))
    if own:
        keywords.append(ast.keyword("kernel_options", _expression(repr(own))))
    if has_sums:
        keywords.append(ast.keyword("return_lse", ast.Constant(True)))
    changed = ast.Call(_expression(f"{_FLEX}.flex_attention"), [query, key, value], keywords)
    return changed if has_sums else ast.Tuple([changed], ast.Load())


def _with_buffers(
    function: ast.expr, buffers: list[ast.expr], count: int, parts: GraphParts
) -> ast.expr:
    """Return the function, or a lambda that passes it the tensors that it reads."""
    parts.function(function)
    if not buffers:
        return function
    names = [f"i{n}" for n in range(count)]
    text = f"lambda {', '.join(names)}: f({', '.join(names)})"
    made = _expression(text, f=function)
    assert isinstance(made, ast.Lambda) and isinstance(made.body, ast.Call)
    made.body.args += buffers
    return made


def _elements(node: ast.expr) -> list[ast.expr]:
    if not isinstance(node, (ast.List, ast.Tuple)):
        raise ValueError(f"{ast.unparse(node)} is no list")
    return list(node.elts)


_WRITERS: dict[str, Callable[[ast.Call, ast.Call, GraphParts], ast.expr]] = {
    "autograd_function_apply": _autograd,
    "tag_activation_checkpoint": _checkpoint,
    "invoke_subgraph": _region,
    "scan": _scan,
    "flex_attention": _flex_attention,
}
