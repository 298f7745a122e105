"""Describe the collectives of a graph, and digest the graph so that ranks can compare theirs."""

from __future__ import annotations

import hashlib
import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any

from ...core.shared.tracebacks import user_line

if TYPE_CHECKING:
    import torch

_COLLECTIVES = (
    "all_reduce",
    "all_gather",
    "reduce_scatter",
    "all_to_all",
    "broadcast",
    "redistribute",
    "full_tensor",
    "barrier",
    "send",
    "recv",
    "permute_tensor",
    "scatter",
)
_NAMESPACES = ("_c10d_functional", "c10d_functional", "_dtensor", "symm_mem")
"""Namespaces of the operators that are collectives."""


def distributed_module() -> ModuleType | None:
    """Return ``torch.distributed`` if this process has joined a process group, else None."""
    dist = sys.modules.get("torch.distributed")
    return dist if dist is not None and dist.is_available() and dist.is_initialized() else None


def describe_collectives(gm: torch.fx.GraphModule) -> tuple[list[list[str]], str]:
    """Return the collectives of a graph and the digest of the graph.

    Each collective is a list of two texts: its name with its first argument, and the user's line.
    Both results are empty in a process without a process group.
    """
    dist = distributed_module()
    if dist is None:
        return [], ""
    calls, rows = [], []
    for node in gm.graph.nodes:
        name = _target_name(node)
        rows.append(f"{node.op} {name} {_value_text(_example_value(node))}")
        if _is_collective(node, name) and _has_every_rank(node, dist):
            argument = next((_value_text(_example_value(a)) for a in node.all_input_nodes), "")
            calls.append(
                [
                    f"{name} of {argument}" if argument else name,
                    user_line(str(node.meta.get("stack_trace") or "")),
                ]
            )
    return calls, hashlib.sha256("\n".join(rows).encode()).hexdigest()[:16]


def _target_name(node: torch.fx.Node) -> str:
    if node.op in ("placeholder", "output"):
        return ""
    target = node.target
    if isinstance(target, str):
        return target
    packet = getattr(target, "overloadpacket", None)
    return str(getattr(packet or target, "__name__", target))


def _is_collective(node: torch.fx.Node, name: str) -> bool:
    if node.op == "call_method":
        return name in ("redistribute", "full_tensor")
    if node.op != "call_function" or not name.startswith(_COLLECTIVES):
        return False
    packet = getattr(node.target, "overloadpacket", node.target)
    namespace = getattr(packet, "_qualified_op_name", "").partition("::")[0] or str(
        getattr(node.target, "__module__", "")
    )
    return namespace.startswith("torch.distributed") or namespace in _NAMESPACES


def _has_every_rank(node: torch.fx.Node, dist: ModuleType) -> bool:
    """Whether every rank takes part: the ranks of a smaller group may differ from the others."""
    world_size = dist.get_world_size()
    for argument in (*node.args, *node.kwargs.values()):
        if isinstance(argument, str):
            try:
                group = dist.distributed_c10d._resolve_process_group(argument)
                return bool(group.size() == world_size)
            except (RuntimeError, ValueError, KeyError, AttributeError, TypeError):
                continue
    value = _example_value(node.args[0]) if node.all_input_nodes else None
    mesh = getattr(value, "device_mesh", None)
    return mesh is None or bool(mesh.size() == world_size)


def _example_value(node: Any) -> Any:
    return node.meta.get("example_value", node.meta.get("val"))


def _value_text(value: Any) -> str:
    """Return a tensor as ``f32[4, 8]``, with its placements if it is a distributed tensor.

    A symbolic size is written as its hint, because the names of symbols differ between ranks.
    """
    if not hasattr(value, "shape") or not hasattr(value, "dtype"):
        return ""
    sizes = ", ".join(str(getattr(getattr(s, "node", None), "hint", s)) for s in value.shape)
    placements = getattr(value, "placements", None)
    dtype = str(value.dtype).removeprefix("torch.").replace("float", "f").replace("int", "i")
    return f"{dtype}[{sizes}]" + (f" {' '.join(map(str, placements))}" if placements else "")
