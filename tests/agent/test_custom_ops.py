"""A custom operator that breaks its contract with the compiler is described in one line."""

from __future__ import annotations

import json
from pathlib import Path

from tests.support import warm_processes

PROGRAM = """
import json
import torch
from reprokit.agent.experiments.custom_ops import first_broken_contract

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
