"""A recorded graph is a script that needs only torch."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from reprokit.agent.record import graph_source
from reprokit.agent.record.definitions.graph_definitions import GraphDefinitions
from reprokit.agent.record.values import value_facts
from tests.support import warm_processes


def record(function: Any, *args: Any, **options: Any) -> str:
    """Compile ``function`` with a backend that emits its graph, and return the script of the last
    graph.
    """
    scripts: list[str] = []

    def backend(gm: Any, inputs: Any) -> Any:
        definitions = GraphDefinitions(gm)
        facts = value_facts.describe_inputs(gm, inputs, definitions)
        scripts.append(graph_source.standalone_program(gm, facts, "dynamo", "0/0", definitions))
        return gm

    torch._dynamo.reset()
    torch.compile(function, backend=backend, **options)(*args)
    return scripts[-1]


def in_eager(script: str) -> str:
    return script.replace("torch.compile(Repro())", 'torch.compile(Repro(), backend="eager")')


def run(script: str, tmp_path: Path) -> str:
    done = warm_processes.run_torch_program(in_eager(script), cwd=tmp_path)
    assert done.returncode == 0, done.stderr + script
    return done.stdout


def branch(x: Any) -> Any:
    return torch.cond(x.sum() > 0, lambda y: y.sin(), lambda y: y.cos(), (x,))


class Buffers(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm = torch.nn.BatchNorm1d(4)
        self.register_buffer("scale", torch.ones(4))

    def forward(self, x: Any) -> Any:
        return self.norm(x) * self.scale


CASES = {
    "arithmetic": (lambda x: (x * 2 + float("inf")).relu(), torch.randn(3, 4)),
    "no contiguous": (lambda x: x + 1, torch.randn(4, 6).t()[::2]),
    "integers index": (lambda t, i: t[i], torch.randn(5, 2), torch.tensor([1, 4])),
    "bool": (lambda m, x: torch.where(m, x, -x), torch.tensor([True, False]), torch.randn(2)),
    "half": (lambda x: x @ x, torch.randn(4, 4, dtype=torch.float16)),
    "complex": (lambda x: x.abs(), torch.randn(3, dtype=torch.complex64)),
    "gradient": (lambda x: x.exp().sum(), torch.randn(3, requires_grad=True)),
    "module with buffers": (Buffers(), torch.randn(2, 4)),
    "branches": (branch, torch.randn(3)),
    "device and dtype names": (
        lambda x: torch.zeros(3, dtype=torch.bfloat16, device=x.device) + x.to(torch.float64),
        torch.randn(3),
    ),
    "empty": (lambda x: x + 1, torch.empty(0, 3)),
    "scalar": (lambda x: x * 3, torch.tensor(2.0)),
}


@pytest.fixture(scope="module")
def printed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Return the output of each script, run one after the other in a process without reprokit."""
    folder = tmp_path_factory.mktemp("graphs")
    paths = []
    for number, (function, *args) in enumerate(CASES.values()):
        script = record(function, *args)
        assert "reprokit" not in script.split("import torch", 1)[1]
        paths.append(folder / f"graph{number}.py")
        paths[-1].write_text(in_eager(script))
    every = (
        "import runpy, sys\nfor path in sys.argv[1:]:\n    runpy.run_path(path,"
        " run_name='__main__')\n    print('=' * 9)\n"
    )
    done = subprocess.run(
        [sys.executable, "-I", "-c", every, *paths], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return dict(zip(CASES, done.stdout.split("=" * 9), strict=False))


@pytest.mark.parametrize("name", CASES)
def test_a_graph_runs_alone(name: str, printed: dict[str, str]) -> None:
    """Shapes, strides, element types and inner graphs are restored, and the script needs no
    reprokit.
    """
    assert "tensor(" in printed[name]


def test_symbolic_sizes_are_hints_with_names(tmp_path: Path) -> None:
    """A dynamic graph has its sizes as inputs, and the script names the symbol of each number."""
    script = record(lambda x: x.view(x.shape[0] * x.shape[1]), torch.randn(3, 7), dynamic=True)
    assert "# 3 is s" in script and ", 7 is s" in script
    assert run(script, tmp_path)


def test_tensors_of_nested_modules_have_names_of_their_own(tmp_path: Path) -> None:
    """torch.export keeps the modules that hold the tensors. Their names can be numbers, which are no
    names in a program, and such a module is not part of the script.
    """
    model = torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.Sequential(torch.nn.Linear(3, 2)))
    inputs = (torch.randn(5, 4),)
    gm: Any = torch.export.export(model, inputs).module(check_guards=False)
    definitions = GraphDefinitions(gm)
    facts = value_facts.describe_inputs(gm, inputs, definitions)
    script = graph_source.standalone_program(gm, facts, "dynamo", "0/0", definitions)
    assert " Module()" not in script and "self._1_0_weight = torch.nn.Parameter" in script, script
    run(script, tmp_path)


def test_metadata_of_inputs() -> None:
    """Shape, stride, dtype, device and requires_grad are described as JSON values."""
    x = torch.randn(4, 6, requires_grad=True)
    facts = value_facts.describe_input(x)
    assert (facts["shape"], facts["stride"], facts["dtype"], facts["requires_grad"]) == (
        [4, 6],
        [6, 1],
        "torch.float32",
        True,
    )
    assert value_facts.describe_input(3) == {"kind": "number", "value": 3}
    assert value_facts.describe_input(object())["kind"] == "other"
