"""One model over several ranks: simulated in one process, or real ranks that communicate with
gloo.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from reprokit.host.pack import reader
from tests.support.environments import clean_environ
from tests.support.recordings import Recorder
from tests.support.reprokit_calls import CallResult, reprokit

pytestmark = pytest.mark.triton

NET = """
import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as funcol

class Net(torch.nn.Module):
    tp_plan = {"up": "colwise", "down": "rowwise"}

    def __init__(self, odd):
        super().__init__()
        self.up, self.down, self.odd = torch.nn.Linear(8, 16), torch.nn.Linear(16, 8), odd

    def forward(self, x):
        x = self.down(torch.relu(self.up(x)))
        if dist.get_rank() != self.odd:
            x = funcol.all_reduce(x, "sum", dist.group.WORLD)
        return x * 2

def refuses(gm, inputs):
    if any(n.target == "redistribute" and "Replicate" in str(n.kwargs) for n in gm.graph.nodes):
        raise NotImplementedError("no reduction here")
    return gm.forward

def make(odd=-1):
    return Net(odd), (torch.randn(4, 8),)

def refused():
    return {"model": Net(-1), "calls": [((torch.randn(4, 8),), {})], "compile": {"backend": refuses}}
"""


def capture(*words: str | Path, **more: str) -> CallResult:
    return reprokit("capture", "--json", *words, env=clean_environ(**more))


def test_a_rank_that_skips_a_collective_is_named(write: Any, recorded: Recorder) -> None:
    """One machine compiles the graphs of all ranks, and no rank waits for another; the repro says
    how it is launched.
    """
    file = write("net.py", NET)
    words = ("--tensor-parallel-gpus", "4", "--weights", "fake", "--backend", "aot_eager")
    done = recorded(f"{file}:make", "--set", "odd=1", *words, REPROKIT_MINIMIZE="1")
    assert (done.status, done.kind) == (1, "rank-mismatch"), done.out + done.err
    verdict = done.json["verdict"]
    line = (
        NET.splitlines().index('            x = funcol.all_reduce(x, "sum", dist.group.WORLD)') + 1
    )
    assert f"Rank 1 skips all_reduce of f32[4, 8] at {file}:{line} in forward" in verdict["reason"]
    assert "which ranks 0, 2 and 3 call" in verdict["reason"]
    assert (
        "rank 1 compiled a different graph 0/0 than rank 0"
        in (done.run_dir / "verdict.json").read_text()
    )
    assert done.json["signature"]["title"] == "rank-mismatch: dynamo-trace | skips all_reduce"
    assert verdict["simulated"][0].startswith("rank 0 of 4 in a fake process group")
    assert any(
        m["what"] == "minimization" and "several ranks" in m["why"] for m in done.json["missing"]
    )
    text = Path(done.json["candidate"]).read_text()
    assert (
        "# torchrun --standalone --nproc-per-node 4 THIS_FILE" in text
        and "FakeTensorMode" not in text
    )
    assert "the failure needs several ranks" in done.json["unproven"]
    pack = reader.read_pack(Path(done.json["pack"]))
    assert "--tensor-parallel-gpus 4" in pack.files["command.txt"].decode()
    assert (
        "There is no proven repro: the failure needs several ranks"
        in pack.files["issue.md"].decode()
    )


SPLIT = """
import torch

class Net(torch.nn.Module):
    tp_plan = {"up": "colwise"}

    def __init__(self, size):
        super().__init__()
        self.up = torch.nn.Linear(8, size)

    def forward(self, x):
        return torch.relu(self.up(x)) * SCALE

def make(size=16):
    return Net(size), (torch.randn(4, 8),)
"""


@pytest.mark.real
@pytest.mark.parametrize(
    ("size", "scale", "same"),
    [
        pytest.param(16, "2", [1, 2, 3], id="all ranks have equal shapes", marks=pytest.mark.long),
        pytest.param(10, "2", [1, 2], id="the last rank has a smaller shard"),
        pytest.param(
            16,
            "int(os.getenv('RANK'))",
            None,
            id="a read of the rank has no guard",
            marks=pytest.mark.long,
        ),
    ],
)
def test_only_ranks_that_may_differ_are_traced(
    size: int, scale: str, same: list[int] | None, write: Any, tmp_path: Path
) -> None:
    """The graphs of each rank are known, and the journal names the ranks that were not traced."""
    file = write("net.py", "import os\n" * ("os." in scale) + SPLIT.replace("SCALE", scale))
    words = ("--tensor-parallel-gpus", "4", "--weights", "fake", "--backend", "aot_eager")
    done = capture(
        f"{file}:make", "--set", f"size={size}", *words, "--output-dir", tmp_path / "out"
    )
    assert (done.status, done.kind) == (0, "ok"), done.out + done.err
    assert "on 4 ranks" in done.json["verdict"]["reason"]
    rows = [
        json.loads(line)
        for path in (done.run_dir / "journal").glob("*.jsonl")
        for line in path.read_text().splitlines()
    ]
    assert [row["ranks"] for row in rows if row["ev"] == "same_ranks"] == [same] * bool(same)
    traced = {row["pid"] for row in rows if row["ev"] == "graph" and row["level"] == "dynamo"}
    assert len(traced) == 4 - len(same or [])


@pytest.mark.long
def test_a_failure_of_one_rank_is_minimized_in_one_process(write: Any, tmp_path: Path) -> None:
    """The repro has a fake process group and distributed tensors; it needs no launcher."""
    words = (
        "--tensor-parallel-gpus",
        "2",
        "--weights",
        "fake",
        "--budget",
        "60",
        "--output-dir",
        tmp_path / "out",
    )
    done = capture(f"{write('net.py', NET)}:refused", *words, REPROKIT_MINIMIZE="1")
    assert (done.status, done.kind) == (1, "exception"), done.out + done.err
    found, text = done.json["minimized"], Path(done.json["repro"]).read_text()
    assert found["proof"]["answer"] == "same" and found["proof"]["eager"] == "passes", found
    assert (
        "init_process_group('fake'" in text and ".redistribute(" in text and "class Net" not in text
    ), text


@pytest.mark.real("it compiles on two ranks")
def test_real_ranks_run_over_gloo(write: Any, tmp_path: Path) -> None:
    """Each rank has a journal, its part of the weights and the same results; the program of a
    failure is launched in the same way.
    """
    # in one write, because both ranks print it at the same time
    says = (
        "import atexit, os\natexit.register(lambda: os.write(1, b'is in: %d;' %"
        " dist.is_initialized()))\n"
    )
    file = write("net.py", f"{NET}\n{says}")
    words = (
        "--tensor-parallel-gpus",
        "2",
        "--device",
        "cpu",
        "--backend",
        "aot_eager",
        "--output-dir",
        tmp_path / "out",
    )
    done = capture(f"{file}:make", *words)
    assert (done.status, done.kind) == (0, "ok"), done.out + done.err
    output = (done.run_dir / "logs" / "stdout.txt").read_text()
    assert output.count("is in: 0;") == 2, output  # or Gloo may abort the ranks when they exit
    assert "on 2 ranks" in done.json["verdict"]["reason"] and not done.json["verdict"]["simulated"]
    rows = [
        json.loads(r)
        for p in (done.run_dir / "journal").glob("*.jsonl")
        for r in p.read_text().splitlines()
    ]
    assert {r["rank"] for r in rows if r["ev"] == "process" and r["rank"]} == {"0", "1"}
    assert [r["plan"] for r in rows if r["ev"] == "split"] == [
        {"up": "colwise", "down": "rowwise"}
    ] * 2
    launch = [
        sys.executable,
        "-m",
        "torch.distributed.run",
        "--standalone",
        "--nproc-per-node",
        "2",
        str(done.run_dir / "pack" / "original.py"),
    ]
    again = subprocess.run(launch, capture_output=True, text=True, env=clean_environ(), check=False)
    assert again.returncode == 0 and again.stdout.count("tensor(") == 2, again.stderr
    assert again.stdout.count("is in: 0;") == 2, again.stdout


@pytest.mark.real
def test_a_model_that_cannot_be_split_gives_a_one_line_error(write: Any, tmp_path: Path) -> None:
    """Too few GPUs, a command, or one rank get one line; a model without a plan runs, and the
    report says so.
    """
    (tmp_path / "plain.py").write_text(
        "import torch\ndef make(): return torch.nn.Linear(2, 2), (torch.ones(1, 2),)\n"
    )
    split = ("--tensor-parallel-gpus", "2")
    for words, says in (
        (
            ("--model", "llama-tiny", *split, "--device", "cuda"),
            "needs 2 GPUs, and torch sees 0 here",
        ),
        ((*split, "--", "python", "x.py"), "--tensor-parallel-gpus changes a model"),
        (("--model", "llama-tiny", "--tensor-parallel-gpus", "1"), "of at least 2"),
    ):
        done = reprokit("capture", *words, cwd=tmp_path)
        assert done.status == 2 and says in done.err.splitlines()[-1], done.err
    words = (
        "plain.py:make",
        *split,
        "--weights",
        "fake",
        "--backend",
        "eager",
        "--json",
        "--output-dir",
        "out",
    )
    done = reprokit("capture", *words, cwd=tmp_path)
    assert done.kind == "ok", done.out
    assert any(
        m["what"] == "tensor parallel" and "has no tp_plan" in m["why"]
        for m in done.json["missing"]
    )
