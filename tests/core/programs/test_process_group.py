"""A graph with collectives becomes a program of one process."""

from __future__ import annotations

import ast

import pytest

from reprokit.core.reduce.graphs import graph_units, subgraph
from reprokit.core.shared.source import process_group, tensors

SOURCE = """
import torch
import torch.distributed as dist
mesh = init_device_mesh("cpu", (2,))

class Repro(torch.nn.Module):
    def forward(self, L_x_ : torch.Tensor, L_mesh_ : torch.distributed.device_mesh.DeviceMesh, L_w_ : torch.Tensor):
        l_x_ = L_x_
        l_mesh_ = L_mesh_
        l_w_ = L_w_
        a = torch.distributed.tensor._api.from_local(l_x_, l_mesh_, (torch.distributed.tensor.placement_types.Replicate(),))
        b = a @ l_w_
        c = b.redistribute(placements = (torch.distributed.tensor.placement_types.Replicate(),))
        d = torch.relu(l_x_)
        return (c, d)
"""
PLAIN = {
    "kind": "tensor",
    "shape": [4, 4],
    "stride": [4, 1],
    "dtype": "torch.float32",
    "device": "cpu",
    "requires_grad": False,
}
VALUES = {
    "l_x_": PLAIN,
    "l_mesh_": {"kind": "mesh", "shape": [2], "device": "cpu"},
    "l_w_": {**PLAIN, "placements": ["Shard(dim=1)"]},
    "a": {**PLAIN, "placements": ["Replicate()"]},
    "b": {**PLAIN, "placements": ["Shard(dim=1)"]},
    "c": {**PLAIN, "placements": ["Replicate()"]},
    "d": PLAIN,
}
JOINS = "dist.init_process_group('fake', rank=1, world_size=2, store=FakeStore())"


def test_a_program_has_the_process_group_that_its_graph_needs() -> None:
    """A program has the group, the mesh and the distributed inputs if its units need them, and
    nothing of this otherwise.
    """
    graph = graph_units.read_graph(SOURCE, VALUES, {"rank": 1, "world_size": 2}, "dynamo", False)
    text = subgraph.program_of_units(graph, [0, 1, 2, 3])
    ast.parse(text)
    assert text.count(JOINS) == text.count("mesh = init_device_mesh('cpu', (2,))") == 1, text
    assert (
        "distribute_tensor(torch.randn(4, 4), mesh, [Shard(dim=1)])" in text
        and "def repro(x, y):" in text
    )
    assert "from_local(x, mesh, " in text
    alone = subgraph.program_of_units(graph, [3])
    assert "dist" not in alone and "mesh" not in alone, alone
    partial = {**VALUES, "b": {**PLAIN, "placements": ["Partial(sum)"]}}
    whole = subgraph.program_of_units(
        graph_units.read_graph(SOURCE, partial, graph.settings, "dynamo", False), [2]
    )
    # a partial sum cannot be an argument: the node that produces it stays
    assert "x @ " in whole or "a @ " in whole, whole
    # its input is an intermediate value and becomes a new tensor
    behind = subgraph.program_of_units(graph, [2])
    assert (
        "distribute_tensor(torch.randn(4, 4), mesh, [Shard(dim=1)])" in behind and JOINS in behind
    )


@pytest.mark.parametrize("placed", ["Shard(0), evil()", "Partial(sum)", "__import__('os')"])
def test_values_that_become_program_text_are_checked(placed: str) -> None:
    """A pack may come from anywhere, so wrong placements and devices raise ValueError."""
    with pytest.raises(ValueError, match="placements"):
        tensors.tensor_text({**PLAIN, "placements": [placed]})
    with pytest.raises(ValueError, match="device"):
        process_group.join_group_lines(0, 2, {"shape": [2], "device": 'cpu")'})


def test_a_launcher_creates_the_group() -> None:
    """With a backend, the program contains nothing of the fake group."""
    text = "\n".join(process_group.join_group_lines(0, 4, {"shape": [4], "device": "cuda"}, "nccl"))
    assert (
        'init_process_group("nccl")' in text
        and "Fake" not in text
        and 'init_device_mesh("cuda", (4,))' in text
    )
