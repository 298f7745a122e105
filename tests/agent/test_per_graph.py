"""Each graph is compared with eager separately, which gives the first graph that differs and the
operator in it.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.support import warm_processes

PROGRAM = """
import os
import torch
from reprokit.agent.experiments import per_graph
from reprokit.agent.record import journal

journal.RUN_DIR = os.environ["PLACE"]
os.makedirs(journal.RUN_DIR + "/journal", exist_ok=True)
per_graph.GraphComparer().install_hook()

class Halved(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.clone()

    @staticmethod
    def backward(ctx, grad):
        return grad / 2

def lies(gm, inputs):
    wrong = os.environ["WRONG"]
    for node in gm.graph.nodes:
        if node.op == "call_method" and node.target == "cos" and wrong == "forward":
            node.target = "sin"
        if node.op == "call_method" and node.target == "mul_" and wrong == "argument":
            node.target = "add_"
    gm.recompile()
    def run(*args):
        outs = gm.forward(*args)
        is_exp = any(n.target == "exp" for n in gm.graph.nodes)
        return tuple(Halved.apply(o) for o in outs) if wrong == "backward" and is_exp else outs
    return run

@torch.compile(backend=lies)
def f(x, y):
    x = x.sigmoid() + 1
    torch._dynamo.graph_break()
    y.mul_(3)
    a = x.tanh() * 2
    x = x.cos() + a
    x = x.neg().neg()
    torch._dynamo.graph_break()
    return x.exp() * y

x, y = torch.linspace(-1, 1, 8, requires_grad=True), torch.ones(8)
f(x, y).sum().backward()
f(x, y)
"""


def departs(wrong: str, folder: Path) -> list[dict[str, Any]]:
    done = warm_processes.run_torch_program(PROGRAM, cwd=folder, PLACE=str(folder), WRONG=wrong)
    assert done.returncode == 0, done.stderr
    rows = [
        json.loads(line)
        for path in folder.glob("journal/*.jsonl")
        for line in path.read_text().splitlines()
    ]
    assert not [r for r in rows if r["ev"] == "agent_problem"], rows
    return [r for r in rows if r["ev"] == "departs"]


@pytest.mark.parametrize(
    ("wrong", "graph", "op", "line", "leaf"),
    [
        ("forward", 1, "cos", "x = x.cos() + a", "output[0]"),
        ("argument", 1, "mul_", "y.mul_(3)", "input[0]"),
        ("backward", 2, "exp", "return x.exp() * y", "gradient of input[0]"),
    ],
)
def test_the_first_graph_and_the_first_operator_are_reported(
    wrong: str, graph: int, op: str, line: str, leaf: str, tmp_path: Path
) -> None:
    """Outputs, changed arguments and gradients are compared; the first difference is reported once,
    with the user's line.
    """
    (event,) = departs(wrong, tmp_path)
    number = PROGRAM.splitlines().index(f"    {line}") + 1
    assert (event["cid"], event["op"]) == (f"{graph}/0", op), event
    assert event["where"].endswith(f"program.py:{number} in f"), event
    assert event["place"] == f"{tmp_path}/program.py:{number}"
    assert event["difference"]["name"].startswith(leaf.split("[")[0])


def test_a_healthy_program_has_no_difference(tmp_path: Path) -> None:
    """No graph is reported."""
    assert departs("nothing", tmp_path) == []
