"""A custom operator that breaks its contract with the compiler is described in one line."""

from __future__ import annotations

import json
from pathlib import Path

from tests.support import warm_processes

PROGRAM = """
import json
import torch
from reprokit.agent.results.operator_contracts import first_broken_contract

like, x = torch.empty_like, torch.randn(4, 2)
x[0, 0] = float("nan")  # is not equal to itself
OPERATORS = {
    "healthy": (lambda x: x * 2, like),
    "dtype": (lambda x: (x * 100).int(), like),
    "shape": (lambda x: x * 2, lambda x: x.new_empty(3)),
    "strides": (lambda x: x.t().contiguous().t() * 2, like),
    "mutation": (lambda x: x.add_(1) * 1, like),
    "raises": (lambda x: x * 2, lambda x: 1 // 0),
}
found = {}
for name, (real, fake) in OPERATORS.items():
    torch.library.define(f"mylib::{name}", "(Tensor x) -> Tensor")
    torch.library.impl(f"mylib::{name}", "CPU", real)
    torch.library.register_fake(f"mylib::{name}", fake)
    graph = torch.fx.Graph()
    argument = graph.placeholder("x")
    changed = graph.call_function(torch.ops.aten.sin.default, (argument,))
    graph.output(graph.call_function(getattr(torch.ops.mylib, name).default, (changed,)))
    found[name] = first_broken_contract(torch.fx.GraphModule(torch.nn.Module(), graph), (x,))
print(json.dumps(found))
"""


CALLS = """
import json, os, sys
import torch
from reprokit.agent.record import journal
from reprokit.agent.results import operator_contracts

journal.RUN_DIR = os.getcwd()
os.mkdir("journal")
operator_contracts.check_calls()

@torch.library.custom_op("mylib::center", mutates_args=())
def center(x: torch.Tensor) -> torch.Tensor:
    x.sub_(x.mean())
    return x.clone()
center.register_fake(lambda x: torch.empty_like(x))

@torch.library.custom_op("mylib::fine", mutates_args=())
def fine(x: torch.Tensor) -> torch.Tensor:
    return x * 2
fine.register_fake(lambda x: torch.empty_like(x))
fine.register_autograd(lambda ctx, g: g * 2)

class Twice(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * 2
    @staticmethod
    def backward(ctx, g):
        return g * 2

torch.library.define("mylib::hidden", "(Tensor x) -> Tensor")
torch.library.impl("mylib::hidden", "CPU", Twice.apply)
torch.library.register_fake("mylib::hidden", torch.empty_like)
torch.library.define("mylib::view", "(Tensor x) -> Tensor")
torch.library.impl("mylib::view", "CPU", lambda x: x)
torch.library.register_fake("mylib::view", torch.empty_like)

x = torch.randn(4, 2)
for _ in range(3):
    center(x)
    fine(x.clone().requires_grad_())
    torch.ops.mylib.fine(x)
    torch.ops.mylib.view(x)
    torch.ops.mylib.hidden.default(x.clone().requires_grad_())
    torch.ops.aten.sin(x)
journal.close_journal()
rows = [json.loads(row) for file in os.scandir("journal") if file.name.endswith("l") for row in open(file)]
print(json.dumps({row["operator"]: row["problem"] for row in rows if row["ev"] == "contract"}))
"""


def test_calls_of_a_program_are_checked(tmp_path: Path) -> None:
    """A mutation, an alias and a hidden gradient, each once; a correct operator has no row."""
    done = warm_processes.run_torch_program(CALLS, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    operator = "the custom operator `mylib::"
    assert json.loads(done.stdout) == {
        "mylib::center": f"{operator}center` changes its argument x, which its schema does not say",
        "mylib::view": f"{operator}view` returns its argument x, which its schema does not say",
        "mylib::hidden": f"the gradient of {operator}hidden` is in its kernel, and is not"
        " registered for autograd",
    }


def test_each_broken_contract_is_described(tmp_path: Path) -> None:
    """A type, shape, stride or exception of the fake kernel, or a change that the schema does not
    declare.
    """
    done = warm_processes.run_torch_program(PROGRAM, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    fake = "the fake kernel of the custom operator `mylib::"
    assert json.loads(done.stdout) == {
        "healthy": "",
        "dtype": f"{fake}dtype` says float32 [4, 2], and its result is int32 [4, 2]",
        "shape": f"{fake}shape` says float32 [3], and its result is float32 [4, 2]",
        "strides": f"{fake}strides` says float32 [4, 2], and its result is float32 [4, 2] with strides [1, 4]",
        "mutation": "the custom operator `mylib::mutation` changes its argument x, which its schema"
        " does not say",
        "raises": f"{fake}raises` raises ZeroDivisionError",
    }
