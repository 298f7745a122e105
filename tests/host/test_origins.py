"""What a reduction begins with, from what a run directory holds."""

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


def begun(run: Path, data: object = None, source: str = "") -> list[starting_points.StartingPoint]:
    """The starts of a run whose one graph was not done."""
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
    return starting_points.find_starts(
        Observation(graphs=(record,)), run, source, is_training=False, is_fake=False
    )


def test_what_hangs_on_an_operator_of_the_user_is_left_out(tmp_path: Path) -> None:
    """No text can define the operator; a tuple from it can be no input, and what was read from that
    can.
    """
    (start,) = begun(tmp_path)
    assert "mine" not in start.text and "torch.sin(" in start.text and start.places == (2, 3)


def test_values_come_last_and_only_as_a_second_try(tmp_path: Path) -> None:
    """First drawn inputs, then the source, then what stood in small inputs."""
    found = begun(tmp_path, {"l_i_": [3, 1]}, "import torch\ntorch.compile(f)(x)\n")
    assert [start.level for start in found] == ["dynamo", "source", "values"]
    assert "torch.tensor([3, 1])" in found[2].text and "torch.tensor(" not in found[0].text
    assert found[2].data == {"l_i_": [3, 1]} and found[2].graph == found[0].graph


def test_values_from_a_stranger_are_numbers_or_nothing(tmp_path: Path) -> None:
    """They become program text."""
    found = begun(tmp_path, {"l_i_": ["__import__('os').system('x')", 1]})
    assert [start.level for start in found] == ["dynamo"]
