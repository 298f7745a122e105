"""What a graph says to the other ranks: the collectives in it, and whether another rank has the
same graph.
"""

from __future__ import annotations

import hashlib
import sys
from typing import Any

from ...core.shared.tracebacks import user_line

_NAMES = (
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
_HOMES = ("_c10d_functional", "c10d_functional", "_dtensor", "symm_mem")
"""Namespaces of operators."""


def group_of() -> Any:
    """``torch.distributed`` in a process that has joined a group, else None."""
    dist: Any = sys.modules.get("torch.distributed")
    return dist if dist is not None and dist.is_available() and dist.is_initialized() else None


def describe_collectives(gm: Any) -> tuple[list[list[str]], str]:
    """The collectives as [name with what it is called on, user line], and a digest; empty without a
    process group.
    """
    dist = group_of()
    if dist is None:
        return [], ""
    calls, rows = [], []
    for node in gm.graph.nodes:
        name = _name(node)
        rows.append(f"{node.op} {name} {_shape(_value(node))}")
        if _is_collective(node, name) and _is_for_all(node, dist):
            given = next((_shape(_value(a)) for a in node.all_input_nodes), "")
            calls.append(
                [
                    f"{name} of {given}" if given else name,
                    user_line(str(node.meta.get("stack_trace") or "")),
                ]
            )
    return calls, hashlib.sha256("\n".join(rows).encode()).hexdigest()[:16]


def _name(node: Any) -> str:
    if node.op in ("placeholder", "output"):
        return ""
    target = node.target
    if isinstance(target, str):
        return target
    packet = getattr(target, "overloadpacket", None)
    return str(getattr(packet or target, "__name__", target))


def _is_collective(node: Any, name: str) -> bool:
    if node.op == "call_method":
        return name in ("redistribute", "full_tensor")
    if node.op != "call_function" or not name.startswith(_NAMES):
        return False
    packet = getattr(node.target, "overloadpacket", node.target)
    home = getattr(packet, "_qualified_op_name", "").partition("::")[0] or str(
        getattr(node.target, "__module__", "")
    )
    return home.startswith("torch.distributed") or home in _HOMES


def _is_for_all(node: Any, dist: Any) -> bool:
    """True where every rank takes part: those of a smaller group may well differ from the rest."""
    everybody = dist.get_world_size()
    for given in (*node.args, *node.kwargs.values()):
        if isinstance(given, str):
            try:
                return bool(dist.distributed_c10d._resolve_process_group(given).size() == everybody)
            except (RuntimeError, ValueError, KeyError, AttributeError, TypeError):
                continue
    mesh = getattr(_value(node.args[0]) if node.all_input_nodes else None, "device_mesh", None)
    return mesh is None or bool(mesh.size() == everybody)


def _value(node: Any) -> Any:
    return node.meta.get("example_value", node.meta.get("val"))


def _shape(value: Any) -> str:
    """``f32[4, 8]``, with the placements of a distributed tensor; symbols as their hints, which
    every rank has of its own.
    """
    if not hasattr(value, "shape") or not hasattr(value, "dtype"):
        return ""
    sizes = ", ".join(str(getattr(getattr(s, "node", None), "hint", s)) for s in value.shape)
    placed = getattr(value, "placements", None)
    kind = str(value.dtype).removeprefix("torch.").replace("float", "f").replace("int", "i")
    return f"{kind}[{sizes}]" + (f" {' '.join(map(str, placed))}" if placed else "")
