"""Capture of zoo models: fake weights at full size, training, and every option of a backend."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.support.recordings import Recorder
from tests.support.reprokit_calls import CallResult, reprokit


def graphs(done: CallResult) -> list[dict[str, object]]:
    rows = [
        json.loads(line)
        for p in (done.run_dir / "journal").glob("*.jsonl")
        for line in p.read_text().splitlines()
    ]
    return [r for r in rows if r["ev"] == "graph"]


def events(done: CallResult, name: str) -> list[dict[str, object]]:
    rows = [
        json.loads(line)
        for p in (done.run_dir / "journal").glob("*.jsonl")
        for line in p.read_text().splitlines()
    ]
    return [r for r in rows if r["ev"] == name]


@pytest.mark.real("it is the first command of the README, on 40 billion parameters")
def test_llama40b_without_weights_gpu_or_network(tmp_path: Path) -> None:
    """48 layers, 41.6 B parameters: Dynamo, AOT Autograd and Inductor run to the end of code
    generation in little memory.
    """
    done = reprokit(
        "capture", "--model", "llama40b", "--no-trace", "--output-dir", tmp_path, "--json"
    )
    assert (done.status, done.kind) == (0, "ok"), done.out
    (weights,) = events(done, "weights")
    assert weights["kind"] == "fake" and "do not fit" in str(weights["why"])
    (target,) = events(done, "target")
    assert target["parameters"] == 41_595_707_392
    nodes = {g["level"]: g["nodes"] for g in graphs(done)}
    assert nodes["dynamo"] > 2_900 and nodes["aten"] > 4_200
    assert done.json["peak_rss_bytes"] < 3 << 30
    names = {e["name"] for e in events(done, "begin")}
    assert {"GraphLowering.run", "Scheduler.__init__", "GraphLowering.codegen"} <= names
    assert not any("compile_file" in str(n) for n in names), "nothing may be built"


def test_training_on_fake_weights(recorded: Recorder) -> None:
    """The forward and backward of two layers of an 8 B model are lowered."""
    words = ("--model", "llama8b", "--layers", "2", "--train", "--weights", "fake")
    done = recorded(*words, "--sequence-length", "64")
    assert (done.status, done.kind) == (0, "ok"), done.out
    assert [(g["level"], g["backward"]) for g in graphs(done)] == [
        ("dynamo", False),
        ("aten", False),
        ("aten", True),
    ]
    # reprokit switches the caches off, so torch's warning about it is not the program's
    assert not [e for e in events(done, "warning") if "disable_caches" in str(e["message"])]


@pytest.mark.real
@pytest.mark.parametrize("model", [pytest.param("convnet", marks=pytest.mark.long), "llama-decode"])
def test_other_models_with_real_weights(model: str, tmp_path: Path) -> None:
    """A convolutional network, and a decoding loop of several calls."""
    done = reprokit(
        "capture", "--model", model, "--backend", "aot_eager", "--output-dir", tmp_path, "--json"
    )
    assert (done.status, done.kind) == (0, "ok"), done.out
    calls = {e["name"] for e in events(done, "begin") if str(e["name"]).startswith("stage:call")}
    assert len(calls) == (5 if model == "llama-decode" else 1)


@pytest.mark.real
def test_flags_reach_torch_compile_and_the_model(tmp_path: Path) -> None:
    """dtype, sizes, backend, dynamic and fullgraph have an effect, and the repeated command line
    has them.
    """
    words = [
        "--model",
        "llama-tiny",
        "--layers",
        "1",
        "--batch-size",
        "3",
        "--sequence-length",
        "5",
        "--dtype",
        "bfloat16",
        "--backend",
        "aot_eager",
        "--dynamic",
        "--fullgraph",
        "--device",
        "cpu",
        "--train",
    ]
    done = reprokit("capture", *words, "--output-dir", tmp_path, "--json")
    assert (done.status, done.kind) == (0, "ok"), done.out
    graph = [g for g in graphs(done) if g["level"] == "dynamo"][-1]  # dynamic=True traces twice
    inputs = json.loads(
        (done.run_dir / "graphs" / f"{graph['n']:04d}" / "inputs.json").read_text()
    )["inputs"]
    assert any(i.get("shape") == [3, 5] and i["symbols"] != [None, None] for i in inputs), (
        "sizes are symbolic"
    )
    assert {i["dtype"] for i in inputs if i["kind"] == "tensor" and i["is_parameter"]} == {
        "torch.bfloat16"
    }
    command = (done.run_dir / "pack" / "command.txt").read_text()
    for word in (
        "--layers 1",
        "--batch-size 3",
        "--dynamic",
        "--fullgraph",
        "--train",
        "--model llama-tiny",
    ):
        assert word in command


def test_a_graph_break_under_fullgraph_is_a_failure(tmp_path: Path, recorded: Recorder) -> None:
    """Dynamo refuses in its own phase; the message names the reason."""
    path = tmp_path / "t.py"
    path.write_text(
        "import torch\ndef f(x):\n    torch._dynamo.graph_break()\n    return x + 1\ndef make():"
        " return f, (torch.zeros(2),)\n"
    )
    done = recorded(f"{path}:make", "--fullgraph", "--backend", "eager")
    assert (done.status, done.kind) == (1, "graph-break"), done.out
    assert (
        done.json["verdict"]["phase"] == "dynamo-trace"
        and "t.py:3" in done.json["verdict"]["reason"]
    )
    assert (
        done.json["signature"]["title"]
        == "graph-break: dynamo-trace | Call to 'torch._dynamo.graph_break()'"
    )


@pytest.mark.real
def test_a_module_and_several_calls(tmp_path: Path) -> None:
    """package.module:factory that returns a dict, with its own arguments for torch.compile."""
    (tmp_path / "pkg").mkdir()
    (tmp_path / "pkg" / "__init__.py").write_text("")
    (tmp_path / "pkg" / "models.py").write_text(
        "import torch\ndef make(layers=1):\n    return {'model': torch.nn.Linear(4, layers),"
        " 'calls': [((torch.ones(n, 4),), {}) for n in (2, 3)], 'compile': {'backend': 'eager'},"
        " 'train': True}\n"
    )
    done = reprokit(
        "capture",
        "pkg.models:make",
        "--layers",
        "7",
        "--output-dir",
        tmp_path / "o",
        "--json",
        cwd=tmp_path,
    )
    assert (done.status, done.kind) == (0, "ok"), done.out + done.err
    assert len(graphs(done)) == 2
    assert "made = make(layers=7)" in (done.run_dir / "pack" / "original.py").read_text()
