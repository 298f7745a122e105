"""The starting points of a reduction are derived from a run directory."""

from __future__ import annotations

import json
from pathlib import Path

from reprokit.core.records.observation import Observation
from reprokit.core.records.rank_graphs import GraphRecord
from reprokit.host.minimize.starts import starting_points

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


TRANSFORMED = """
import torch
class Repro(torch.nn.Module):
    def forward(self, l_x_):
        a = torch._functorch.predispatch._add_batch_dim(l_x_, 0, 1)
        b = torch.sin(a)
        return (b,)
"""
INDUCTOR_GRAPH = """
import torch
class Repro(torch.nn.Module):
    def forward(self, arg0_1):
        sin = torch.ops.aten.sin.default(arg0_1)
        return (sin,)
"""


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
        (folder / "values.private").write_text(json.dumps(data))
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


def test_recorded_values_follow_random_ones(tmp_path: Path) -> None:
    """Usual random inputs come first, then those like the recorded ones, then the recorded values,
    and then the source.
    """
    described = {
        "b": {"low": 3.0, "high": 8.0, "mean": 5.0, "std": 0.5, "count": 4, "special": {}},
        "l_i_": {"low": 1, "high": 3, "values": [3, 1], "count": 2, "special": {}},
    }
    starts = starts_of(tmp_path, described, "import torch\ntorch.compile(f)(x)\n")
    levels = ["dynamo", "descriptor", "statistics", "values", "source"]
    assert [start.level for start in starts] == levels
    plain, described_start, statistics, values, _ = (start.text for start in starts)
    assert "torch.tensor([3, 1])" in values and "torch.tensor(" not in plain
    assert "torch.randint(1, 4, (2,))" in described_start
    assert (
        "torch.randn((4,)) * 0.5 + 5.0" in statistics
        and statistics.count("torch.manual_seed(0)") == 1
    )


def test_recorded_values_that_are_not_numbers_are_refused(tmp_path: Path) -> None:
    """The values become program text, so only numbers are accepted."""
    values = ["__import__('os').system('x')", 1]
    starts = starts_of(tmp_path, {"l_i_": {"values": values, "special": {}}})
    assert [start.level for start in starts] == ["dynamo"]


def test_a_graph_of_function_transforms_is_not_traced_again(tmp_path: Path) -> None:
    """Dynamo traces torch.func into calls that push and pop levels. The source and the graph that
    Inductor got do not have them.
    """
    texts = {1: ("dynamo", TRANSFORMED, "l_x_"), 2: ("aten", INDUCTOR_GRAPH, "arg0_1")}
    records = []
    for number, (level, text, name) in texts.items():
        folder = tmp_path / "graphs" / f"{number:04d}"
        folder.mkdir(parents=True)
        (folder / "graph.py").write_text(text)
        (folder / "values.json").write_text(json.dumps({"values": {name: tensor(4)}}))
        records.append(
            GraphRecord(
                number=number, level=level, cid="0/0", nodes=1, is_backward=False, is_done=False
            )
        )

    def levels_of(*graphs: GraphRecord) -> list[str]:
        starts = starting_points.find_starting_points(
            Observation(graphs=graphs),
            tmp_path,
            "import torch\ntorch.compile(f)(x)\n",
            is_training=False,
            is_fake=False,
        )
        return [start.level for start in starts]

    assert levels_of(*records) == ["source", "aten"]
    assert levels_of(records[0]) == ["dynamo", "source"]


DEFINITION = (
    "@torch.library.custom_op('mine::split', mutates_args=())\n"
    "def split(x: torch.Tensor) -> list[torch.Tensor]:\n"
    "    return [x.clone()]\n"
)


def test_a_graph_is_tried_without_the_definitions_that_it_has(tmp_path: Path) -> None:
    """A definition may fail in eager, for example if it needs a file. The second program has the
    results of the operator as inputs, and says what it lacks.
    """
    (start,) = starts_of(tmp_path)
    path = tmp_path / "graphs" / "0001" / "values.json"
    recorded = json.loads(path.read_text())
    recorded["values"]["b"]["made_by"] = "Own(1)"
    recorded["definitions"] = {"mine::split": [DEFINITION], "Own": ["class Own:\n    pass\n"]}
    path.write_text(json.dumps(recorded))
    record = GraphRecord(number=1, level="dynamo", cid="0/0", nodes=4)
    defined, without = starting_points.find_starting_points(
        Observation(graphs=(record,)), tmp_path, "", is_training=False, is_fake=False
    )
    assert "mine::split" in defined.text and "torch.ops.mine.split(" in defined.text
    assert not defined.missing
    assert without.text == start.text and without.units == start.units
    assert without.graph is not None and not without.graph.definitions
    reason = "the program with its definition does not show it"
    assert set(without.missing) == {f"mine::split: {reason}", f"Own: {reason}"}
