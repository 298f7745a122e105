"""The recorder around ``torch.compile`` does not change what the program gets, and it records both
sides in the same way.
"""

from __future__ import annotations

import contextlib
import json
from pathlib import Path
from typing import Any

import pytest
import torch

from reprokit.agent.record import journal
from reprokit.agent.results import compare_results, float64, result_recorder
from tests.support import warm_processes

PROGRAM = """
import copy, json, os
import torch
from torch import nn
from reprokit.agent.record import journal
from reprokit.agent.results import result_recorder

journal.RUN_DIR = os.environ["PLACE"]
result_recorder.install_recorder(os.environ["ROLE"], os.environ["PLACE"] + "/results")

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4))

    def forward(self, x):
        return self.layers(x)

@torch.compile(backend="aot_eager")
def helper(x):
    return x.sin()

def calls_a_helper(x):
    return helper(x) + 1

calls_a_helper.tag = "kept"
torch.manual_seed(0)
net = Net()
compiled = torch.compile(net, backend="aot_eager")
outer = torch.compile(calls_a_helper, backend="aot_eager")
x = torch.randn(3, 4, requires_grad=True)
compiled(x).sum().backward()
outer(x.detach())

class Parent(nn.Module):
    def __init__(self):
        super().__init__()
        self.child = compiled

class Odd:
    def __init__(self, value):
        self.value = value

torch.utils._pytree.register_pytree_node(Odd, lambda odd: ([odd.value], None), lambda values, _: Odd(*values))
torch.compile(lambda odd: odd, backend="aot_eager")(Odd(torch.ones(2)))
torch.compile(lambda x: (x, "a secret"), backend="aot_eager")(torch.ones(2))
parent = Parent()
parent.load_state_dict(parent.state_dict())
copied = copy.deepcopy(compiled)
report = {
    "is_optimized": isinstance(compiled, torch._dynamo.OptimizedModule),
    "tag": outer.tag,
    "keys": list(compiled.state_dict())[:1],
    "length": len(torch.compile(nn.Sequential(nn.ReLU()))),
    "is_own_copy": next(copied.parameters()) is not next(compiled.parameters()),
}
result_recorder.finish_recording()
rows = torch.load(f"{os.environ['PLACE']}/results/{os.environ['ROLE']}.pt")["rows"]
report["rows"] = [[r["call"], r["name"]] for r in rows]
report["values"] = [r["value"] for r in rows if "value" in r]
print(json.dumps(report))
"""


@pytest.mark.real
def test_the_recorder_does_not_change_the_program_and_records_both_sides_alike(
    tmp_path: Path,
) -> None:
    """This holds for modules, parents, copies, attributes and odd containers; a compiled helper
    inside a compiled function is part of that function.
    """
    (tmp_path / "journal").mkdir()
    reports = {}
    for role in ("eager", "compiled", "again", "float64"):
        place = {"ROLE": role, "PLACE": str(tmp_path)}
        done = warm_processes.run_torch_program(PROGRAM, cwd=tmp_path, **place)
        assert done.returncode == 0, done.stderr
        reports[role] = json.loads(done.stdout.splitlines()[-1])
    first = reports["eager"]
    assert (
        first["is_optimized"]
        and first["is_own_copy"]
        and first["tag"] == "kept"
        and first["length"] == 1
    )
    assert first["keys"] == ["_orig_mod.layers.0.weight"]
    assert all(report == first for report in reports.values())
    assert [name for _, name in first["rows"]].count("gradient of model.layers.0.weight") == 1
    assert "buffer model.layers.1.running_mean" in [name for _, name in first["rows"]]
    assert "secret" not in json.dumps(first["values"])
    events = [
        json.loads(line)
        for path in (tmp_path / "journal").glob("*.jsonl")
        for line in path.read_text().splitlines()
    ]
    compared = [e for e in events if e["ev"] == "compared"]
    assert len(compared) == 3 and all(
        e["differences"] == [] and not e["unsteady"] for e in compared
    ), compared
    assert not [e for e in events if e["ev"] == "agent_problem"], events


MANY_INPUTS = """
import os, weakref
import torch
from reprokit.agent.record import journal
from reprokit.agent.results import result_recorder

journal.RUN_DIR = os.environ["PLACE"]
result_recorder.MAX_BYTES = 4 * 300
result_recorder.install_recorder("eager", os.environ["PLACE"] + "/results")
f = torch.compile(lambda x: x.sum())
seen = []
for _ in range(5):
    x = torch.ones(100, requires_grad=True)
    f(x).backward()
    seen.append(weakref.ref(x))
    del x
print(sum(x() is not None for x in seen))
result_recorder.finish_recording()
report = torch.load(os.environ["PLACE"] + "/results/eager.pt")
print(sum(row["name"].startswith("gradient") for row in report["rows"]))
print(report["skipped"]["tensors"])
"""


def test_the_memory_of_inputs_held_for_their_gradients_is_limited(tmp_path: Path) -> None:
    """A training loop creates new inputs in every step: only as many stay as fit into the limit,
    and the number of skipped ones is reported.
    """
    (tmp_path / "journal").mkdir()
    done = warm_processes.run_torch_program(MANY_INPUTS, cwd=tmp_path, PLACE=str(tmp_path))
    assert done.returncode == 0, done.stderr
    held, gradients, skipped = map(int, done.stdout.split())
    assert (held, gradients) == (3, 3) and skipped > 0, done.stdout


def test_calls_beyond_the_limit_run_and_are_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only the results of the first calls are kept."""
    monkeypatch.setattr(result_recorder, "MAX_CALLS", 2)
    recorder = result_recorder.ResultRecorder("eager", str(tmp_path))
    double = recorder.record(lambda x: x * 2, None)
    with torch.random.fork_rng(devices=[]):
        assert [float(double(torch.tensor(float(n)))) for n in range(5)] == [0, 2, 4, 6, 8]
    recorder.write_file()
    report = torch.load(tmp_path / "eager.pt")
    assert report["skipped"] == {"calls": 3, "tensors": 0}
    outputs = [row["tensor"] for row in report["rows"] if row["name"] == "output"]
    assert [float(tensor) for tensor in outputs] == [0, 2]


def test_an_exception_that_only_eager_raises_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The program handles it; pytorch#183762."""

    def refuse(x: torch.Tensor) -> torch.Tensor:
        raise ZeroDivisionError("alpha cannot be 0")

    for role, function in (("eager", refuse), ("compiled", torch.neg)):
        recorder = result_recorder.ResultRecorder(role, str(tmp_path))
        with torch.random.fork_rng(devices=[]), contextlib.suppress(ZeroDivisionError):
            recorder.record(function, None)(torch.ones(2))
        recorder.write_file()
    written: list[Any] = []
    monkeypatch.setattr(journal, "write_event", written.append)
    compare_results.journal_differences(str(tmp_path))
    first = written[-1].differences[0]
    assert first["expected"] == "nothing (it raises ZeroDivisionError)"
    assert (first["name"], first["got"]) == ("output", "torch.float32 (2,)")


def test_arguments_that_share_memory_share_it_in_float64() -> None:
    """A change of one is seen in the other, as in eager; pytorch#139789."""

    def change(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        x.mul_(2)
        return x + y

    base = torch.ones(8)
    x, y = base[:4], base[2:6]
    out, args, _ = float64.call_in_float64(change, (x, y), {})
    assert out.tolist() == [4, 4, 3, 3] and out.dtype == torch.float64
    assert args[1].tolist() == y.tolist() == [2, 2, 1, 1]


def test_rows_of_a_large_tensor_are_widened_alone() -> None:
    """The rest of the tensor may be a whole data set, and is not copied."""
    data = torch.ones(1_000, 4)
    out, args, _ = float64.call_in_float64(torch.add, (data[0], data[999]), {})
    assert out.dtype == torch.float64
    assert [arg.untyped_storage().nbytes() for arg in args] == [32, 32]


def test_a_float_that_a_program_creates_is_widened() -> None:
    """A type that the program names is widened too, and integers stay as they are."""

    def create(x: torch.Tensor) -> dict[str, torch.Tensor]:
        narrow = torch.full((2,), 0.1, dtype=torch.bfloat16)
        return {"sum": x + narrow, "narrow": narrow, "count": torch.ones(2, dtype=torch.int32)}

    out, args, _ = float64.call_in_float64(create, (torch.ones(2),), {})
    assert out["sum"].tolist() == [1.1, 1.1] and out["narrow"].tolist() == [0.1, 0.1]
    assert (args[0].dtype, out["count"].dtype) == (torch.float64, torch.int32)
    assert torch.get_default_dtype() == torch.float32
