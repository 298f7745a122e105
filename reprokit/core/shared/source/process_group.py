"""One rank of a process group in a program of one process: what it takes to compile a graph that
has collectives in it.

``torch``'s fake process group executes none of them, so the program needs no launcher; what it
gives is not what ranks would.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

MESH = "mesh"
"""The name that the mesh of all ranks has in a program."""
STYLES = {
    "colwise": ("ColwiseParallel", ""),
    "rowwise": ("RowwiseParallel", ""),
    "colwise_rep": ("ColwiseParallel", "Replicate"),
    "colwise_gather_output": ("ColwiseParallel", "Replicate"),
}
"""What a ``tp_plan`` calls a style -> the class of ``torch.distributed.tensor.parallel``, and its
``output_layouts``.
"""
LEAVE = "dist.destroy_process_group()"
"""The last line of a program that joined the group of a launcher; else a thread of Gloo's may abort
a healthy one at its end.
"""
TENSORS = "from torch.distributed.tensor import Replicate, Shard, distribute_tensor"
_SPEAKS = re.compile(r"_c10d_functional|torch\.distributed|\b(redistribute|to_local|full_tensor)\(")
_PLACEMENT = re.compile(r"Shard\((dim=)?-?\d+\)|Replicate\(\)")


def group_rows(
    rank: int, count: int, mesh: Mapping[str, Any] | None, backend: str = ""
) -> list[str]:
    """Lines that join a fake group as rank ``rank`` of ``count``, or the one of a launcher with
    ``backend``; and make its ``mesh`` (``shape`` and ``device``).
    """
    made = ["import torch.distributed as dist"]
    if mesh is not None:
        made.append("from torch.distributed.device_mesh import init_device_mesh")
    if backend:
        made.append(f'dist.init_process_group("{backend}")')
    else:
        made.append("from torch.testing._internal.distributed.fake_pg import FakeStore")
        made.append(
            f'dist.init_process_group("fake", rank={rank}, world_size={count}, store=FakeStore())'
        )
    if mesh is not None:
        shape = [int(n) for n in mesh["shape"]]
        if not re.fullmatch(r"[a-z]+", str(mesh["device"])):
            raise ValueError(f"{mesh['device']!r} is no kind of device")  # it becomes program text
        made.append(
            f'{MESH} = init_device_mesh("{mesh["device"]}", ({", ".join(map(str, shape))},))'
        )
    return made


def split_model(plan: Mapping[str, str]) -> list[str]:
    """Lines that split ``model`` over the mesh: patterns of its modules' names -> styles."""
    made = [
        "from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel,"
        " parallelize_module"
    ]
    if any(STYLES[style][1] for style in plan.values()):
        made.append("from torch.distributed.tensor import Replicate")
    made.append(f"parallelize_module(model, {MESH}, {{")
    made += [f"    {pattern!r}: {_style(style)}," for pattern, style in plan.items()]
    return [*made, "})"]


def _style(name: str) -> str:
    kind, layout = STYLES[name]
    return f"{kind}(output_layouts={layout}())" if layout else f"{kind}()"


def is_spoken_in(text: str) -> bool:
    """A graph with this text needs a process group."""
    return bool(_SPEAKS.search(text))


def can_make(placements: Sequence[str] | None) -> bool:
    """A tensor that is placed so can be made from a whole one; a partial sum cannot."""
    return all(_PLACEMENT.fullmatch(p) for p in placements or ())


def distributed(made: str, placements: Sequence[str], is_grad: bool) -> str:
    """The tensor ``made`` as a distributed one, placed so on the mesh."""
    if not can_make(placements):
        raise ValueError(f"{placements!r} are no placements")
    grad = ".requires_grad_()" if is_grad else ""
    return f"distribute_tensor({made}, {MESH}, [{', '.join(placements)}]){grad}"
