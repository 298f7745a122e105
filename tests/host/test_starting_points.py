"""The starting points of a reduction are derived from a run directory."""

from __future__ import annotations

import json
from pathlib import Path

from reprokit.core.records.observation import Observation
from reprokit.core.records.rank_graphs import GraphRecord
from reprokit.host.minimize import starting_points

SOURCE = """
import torch
class Repro(torch.nn.Module):
    def forward(self, l_x_, l_i_):
        a = torch.ops.mine.split(l_x_)
        b = a[0]
        c = torch.sin(b)
        d = c[l_i_]
        return (d,)
"""


def tensor(*shape: int, dtype: str = "torch.float32") -> dict[str, object]:
    return {
        "kind": "tensor",
        "shape": list(shape),
        "stride": None,
        "symbols": [None] * len(shape),
        "dtype": dtype,
        "device": "cpu",
        "layout": "torch.strided",
        "requires_grad": False,
        "is_parameter": False,
    }


def starts_of(
    run: Path, data: object = None, source: str = ""
) -> list[starting_points.StartingPoint]:
    """Return the starting points of a run whose one graph was not compiled to its end."""
    folder = run / "graphs" / "0001"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "graph.py").write_text(SOURCE)
    values = {n: tensor(4) for n in ("l_x_", "b", "c", "d")} | {
        "l_i_": tensor(2, dtype="torch.int64")
    }
    (folder / "values.json").write_text(json.dumps({"values": values, "settings": {"grad": True}}))
    if data is not None:
        (folder / "small.private").write_text(json.dumps(data))
    record = GraphRecord(
        number=1, level="dynamo", cid="0/0", nodes=4, is_backward=False, is_done=False
    )
    return starting_points.find_starting_points(
        Observation(graphs=(record,)), run, source, is_training=False, is_fake=False
    )


def test_nodes_that_depend_on_a_custom_operator_are_left_out(tmp_path: Path) -> None:
    """The operator cannot be defined in text: a tuple from it cannot be an input, and a tensor that
    is read from the tuple can.
    """
    (start,) = starts_of(tmp_path)
    assert "mine" not in start.text and "torch.sin(" in start.text and start.units == (2, 3)


def test_recorded_values_are_the_last_start(tmp_path: Path) -> None:
    """Random inputs come first, then the source, and then the recorded values of small inputs."""
    starts = starts_of(tmp_path, {"l_i_": [3, 1]}, "import torch\ntorch.compile(f)(x)\n")
    assert [start.level for start in starts] == ["dynamo", "source", "values"]
    assert "torch.tensor([3, 1])" in starts[2].text and "torch.tensor(" not in starts[0].text
    assert starts[2].data == {"l_i_": [3, 1]} and starts[2].graph == starts[0].graph


def test_recorded_values_that_are_not_numbers_are_refused(tmp_path: Path) -> None:
    """The values become program text, so only numbers are accepted."""
    starts = starts_of(tmp_path, {"l_i_": ["__import__('os').system('x')", 1]})
    assert [start.level for start in starts] == ["dynamo"]
