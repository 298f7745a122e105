"""Program text that makes one process a rank of a process group, so that it can compile a graph
with collectives.

The fake process group of torch does not execute collectives, so the program needs no launcher. Its
results are not those of real ranks.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

MESH = "mesh"
"""The name of the mesh of all ranks in a program."""
ALL_RANKS = "0"
"""The name that torch gives the group of all ranks, which is the first one."""
STYLES = {
    "colwise": ("ColwiseParallel", ""),
    "rowwise": ("RowwiseParallel", ""),
    "colwise_rep": ("ColwiseParallel", "Replicate"),
    "colwise_gather_output": ("ColwiseParallel", "Replicate"),
}
"""The name of a style in a ``tp_plan`` -> the class of ``torch.distributed.tensor.parallel``, and
its ``output_layouts``.
"""
LEAVE_GROUP = "dist.destroy_process_group()"
"""The last line of a program that joined the group of a launcher. Without it, a thread of Gloo may
abort the program at its end.
"""
TENSOR_IMPORT = "from torch.distributed.tensor import Replicate, Shard, distribute_tensor"
_DISTRIBUTED = re.compile(
    r"_c10d_functional|torch\.distributed|\b(redistribute|to_local|full_tensor)\("
)
_PLACEMENT = re.compile(r"Shard\((dim=)?-?\d+\)|Replicate\(\)")


def join_group_lines(
    rank: int, count: int, mesh: Mapping[str, Any] | None, backend: str = ""
) -> list[str]:
    """Return the lines that join a process group and make its ``mesh`` (``shape`` and ``device``).

    With a ``backend`` it is the group of a launcher. Without, it is a fake group, joined as rank
    ``rank`` of ``count``.
    """
    lines = ["import torch.distributed as dist"]
    if mesh is not None:
        lines.append("from torch.distributed.device_mesh import init_device_mesh")
    if backend:
        lines.append(f'dist.init_process_group("{backend}")')
    else:
        lines.append("from torch.testing._internal.distributed.fake_pg import FakeStore")
        lines.append(
            f'dist.init_process_group("fake", rank={rank}, world_size={count}, store=FakeStore())'
        )
    if mesh is not None:
        shape = [int(n) for n in mesh["shape"]]
        if not re.fullmatch(r"[a-z]+", str(mesh["device"])):
            # it becomes program text
            raise ValueError(f"{mesh['device']!r} is not a kind of device")
        lines.append(
            f'{MESH} = init_device_mesh("{mesh["device"]}", ({", ".join(map(str, shape))},))'
        )
    return lines


def split_model_lines(plan: Mapping[str, str]) -> list[str]:
    """Return the lines that split ``model`` over the mesh; ``plan`` has a style for each pattern of
    module names.
    """
    lines = [
        "from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel,"
        " parallelize_module"
    ]
    if any(STYLES[style][1] for style in plan.values()):
        lines.append("from torch.distributed.tensor import Replicate")
    lines.append(f"parallelize_module(model, {MESH}, {{")
    lines += [f"    {pattern!r}: {_style(style)}," for pattern, style in plan.items()]
    return [*lines, "})"]


def _style(name: str) -> str:
    kind, layout = STYLES[name]
    return f"{kind}(output_layouts={layout}())" if layout else f"{kind}()"


def needs_process_group(text: str) -> bool:
    """Return whether a graph with this text needs a process group."""
    return bool(_DISTRIBUTED.search(text))


def can_distribute(placements: Sequence[str] | None) -> bool:
    """Return whether a whole tensor can be distributed with these placements; a partial sum
    cannot.
    """
    return all(_PLACEMENT.fullmatch(p) for p in placements or ())


def distributed_tensor_text(whole: str, placements: Sequence[str], is_grad: bool) -> str:
    """Return the text that distributes the tensor ``whole`` over the mesh with these placements."""
    if not can_distribute(placements):
        raise ValueError(f"{placements!r} are not placements")
    grad = ".requires_grad_()" if is_grad else ""
    return f"distribute_tensor({whole}, {MESH}, [{', '.join(placements)}]){grad}"
