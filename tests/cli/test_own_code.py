"""Failures of the program's own passes, backends and operators are not blamed on PyTorch."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from reprokit.host.pack import reader
from tests.support.environments import TORCH_FOLDER, clean_environ
from tests.support.recordings import Recorder
from tests.support.reprokit_calls import CallResult, reprokit

LIBRARY = """
#include <torch/library.h>
#include <ATen/ATen.h>
namespace { at::Tensor scaled(const at::Tensor& x, double by) { return x * by; } }
TORCH_LIBRARY(cpp_mine, m) { m.def("scaled(Tensor x, float by) -> Tensor"); }
TORCH_LIBRARY_IMPL(cpp_mine, CPU, m) { m.impl("scaled", &scaled); }
"""
LOADS = """
import torch

torch.ops.load_library({library!r})

@torch.library.register_fake("cpp_mine::scaled")
def _(x, by):
    return torch.empty_like(x)

def picky(gm, inputs):
    if any("scaled" in str(node.target) for node in gm.graph.nodes):
        raise NotImplementedError("scaled is not supported")
    return gm.forward

def f(x):
    return torch.cos(torch.ops.cpp_mine.scaled(torch.sin(x) + 1, 2.0)) * 2

import os; os.utime(__file__, (4e9, 4e9))  # a changed script is not run again: its graph is reduced
torch.compile(f, backend=picky)(torch.randn(4, 8))
"""
PASS = """
import torch, torch._inductor.config
from torch._inductor.custom_graph_pass import CustomGraphPass

class Mine(CustomGraphPass):
    def __call__(self, graph):
        for node in list(graph.nodes):
            if node.target is torch.ops.aten.relu.default:
                {change}
    def uuid(self):
        return None

def function(x):
    return torch.relu(x + 1) * 2

def make():
    torch._inductor.config.post_grad_custom_pre_pass = Mine()
    return function, (torch.randn(16, 16),)
"""
OPERATOR = """
import torch

@torch.library.custom_op("mylib::twist", mutates_args=())
def twist(x: torch.Tensor) -> torch.Tensor:
    return {real}

@twist.register_fake
def _(x):
    {fake}

def function(x):
    y = x * 3
    z = torch.ops.mylib.twist(y) * 2.0
    return z, y + 1

def make():
    return function, (torch.randn(16, 8),)
"""
BACKEND = """
import torch

def mine(gm, inputs):
    {make}

def function(x):
    return torch.relu(x + 1) * 2

print(torch.compile(function, backend=mine)(torch.randn(16, 16)).sum())
"""


STUDIED = {"REPROKIT_ABLATE": "1", "REPROKIT_COMPARE": "1"}
BUDGET = ("--budget", "90")


def assert_not_filed(done: CallResult, location: str) -> dict[str, Any]:
    """Check that the verdict names the location, and that no text of the pack refers the user to a
    repository.
    """
    result = done.json
    verdict = result["verdict"]
    assert verdict["responsible"] == "user" and verdict["responsible_place"].endswith(location), (
        verdict
    )
    pack = reader.read_pack(Path(result["pack"]))
    issue = pack.files["issue.md"].decode()
    assert (
        "> **This is not a bug of PyTorch:** the failure is in " in issue
        and "so its label is" not in issue
    )
    # an operator that breaks its contract in eager is not compiled in other ways
    ablation: dict[str, Any] = result["ablation"] or {"label": ""}
    assert ablation["label"] == "" and "issue/url.txt" not in pack.files
    assert (
        "There is nothing to file upstream: the failure is in" in pack.files["README.md"].decode()
    )
    refused = reprokit("issue", result["pack"])
    assert refused.status == 1 and "the failure is in" in refused.out, refused.out
    return ablation


@pytest.mark.parametrize(
    ("change", "kind", "line"),
    [
        ("graph.erase_node(node)", "exception", "    graph.erase_node(node)"),
        (
            "node.target = torch.ops.aten.neg.default",
            "wrong-result",
            "    def __call__(self, graph):",
        ),
    ],
)
def test_a_pass_that_raises_or_rewrites_wrongly(
    change: str, kind: str, line: str, write: Any, recorded: Recorder
) -> None:
    """The stack names its line, or the failure disappears without it."""
    file = write("mine.py", PASS.format(change=change))
    number = next(n for n, row in enumerate(file.read_text().splitlines(), 1) if row.endswith(line))
    done = recorded(*BUDGET, f"{file}:make", **STUDIED)
    assert (done.status, done.kind) == (1, kind), done.out
    ablation = assert_not_filed(done, f"mine.py:{number}")
    assert (
        ablation["own"] == "passes"
        and "it passes without the program's own passes" in ablation["sentence"]
    )


def check_backend(done: CallResult, kind: str, line: int) -> None:
    """Check that the program's own backend is the step that fails, and is not filed."""
    assert (done.status, done.kind) == (1, kind), done.out
    ablation = assert_not_filed(done, f"train.py:{line}")
    assert (
        ablation["own"] == "backend"
        and "fails with the program's own backend and passes" in ablation["sentence"]
    )


@pytest.mark.long
def test_a_backend_of_the_program_that_raises(write: Any, tmp_path: Path) -> None:
    """The program's own backend is an ablation step; so is every backend of torch, which passes."""
    script = write("train.py", BACKEND.format(make="raise KeyError('no kernel')"))
    words = (*BUDGET, "--compare", "--output-dir", tmp_path / "out", "--", sys.executable, script)
    env = clean_environ(**STUDIED, REPROKIT_MINIMIZE="1")
    check_backend(reprokit("capture", "--json", *words, env=env), "exception", 5)


def test_a_backend_of_the_program_with_wrong_results(write: Any, recorded: Recorder) -> None:
    """It is not the compiler of torch that is wrong."""
    make = "return lambda *args: tuple(o + 1 for o in gm(*args))"
    script = write("train.py", BACKEND.format(make=make))
    words = (*BUDGET, "--compare", "--", sys.executable, script)
    done = recorded(*words, **STUDIED, REPROKIT_MINIMIZE="1")
    check_backend(done, "wrong-result", 4)


@pytest.mark.parametrize(
    ("real", "fake", "kind", "phase", "says"),
    [
        (
            "x.t().contiguous().t() + 1",
            "return torch.empty_like(x)",
            "exception",
            "kernel-run",
            "disagrees with its real result",
        ),
        (
            "x + 1",
            "raise ValueError('three dimensions')",
            "exception",
            "dynamo-trace",
            "The fake kernel of the custom operator",
        ),
        (
            "(x * 100).int()",
            "return torch.empty_like(x)",
            "wrong-result",
            None,
            "says float32 [16, 8], and its result is int32 [16, 8]",
        ),
        (
            "x.add_(1).sum(0)",
            "return x.new_empty(8)",
            "wrong-result",
            None,
            "changes its argument x, which its schema does not say",
        ),
    ],
)
def test_a_custom_operator_with_a_wrong_fake_kernel_is_named(
    real: str, fake: str, kind: str, phase: str | None, says: str, write: Any, recorded: Recorder
) -> None:
    """Its result has other strides or a different type than its fake kernel says, it raises, or it
    changes its argument.
    """
    file = write("op.py", OPERATOR.format(real=real, fake=fake))
    done = recorded(*BUDGET, f"{file}:make", **STUDIED)
    assert (done.kind, done.json["verdict"]["phase"]) == (kind, phase), done.out
    assert_not_filed(done, "mylib::twist")
    assert says in done.json["verdict"]["responsible_because"][0]


def test_without_an_ablation_nobody_is_responsible_for_a_custom_backend(
    write: Any, recorded: Recorder
) -> None:
    """Without an ablation there is no evidence whether torch or the backend is wrong."""
    make = "return lambda *args: tuple(o + 1 for o in gm(*args))"
    script = write("train.py", BACKEND.format(make=make))
    done = recorded("--compare", "--", sys.executable, script, REPROKIT_COMPARE="1")
    assert (done.kind, done.json["verdict"]["responsible"]) == ("wrong-result", "unknown"), done.out
    issue = Path(done.json["issue"]).read_text()
    assert "Please do not file this" in issue
    assert "Compiled code gives different results than eager" in issue


@pytest.mark.long
def test_an_operator_of_a_real_library_is_in_the_repro(tmp_path: Path) -> None:
    """The repro needs no library: the fake kernel takes the place of the kernel in C++."""
    source, library, script = (tmp_path / n for n in ("op.cpp", "libop.so", "train.py"))
    source.write_text(LIBRARY)
    root = TORCH_FOLDER
    headers = (root / "include", root / "include/torch/csrc/api/include")
    words = [*(f"-I{header}" for header in headers), f"-L{root / 'lib'}", "-ltorch_cpu", "-lc10"]
    subprocess.run(
        ["g++", "-O0", "-std=c++20", "-shared", "-fPIC", source, *words, "-o", library], check=True
    )
    script.write_text(LOADS.format(library=str(library)))
    words = ["--no-ablate", "--budget", "200", "--output-dir", str(tmp_path / "out"), "--json"]
    env = clean_environ(REPROKIT_MINIMIZE="1")
    done = reprokit("capture", *words, "--", sys.executable, script, env=env)
    assert done.kind == "exception", done.err
    repro = Path(done.json["repro"]).read_text()
    assert "torch.library.define('cpp_mine::scaled'" in repro and "load_library" not in repro
    assert "torch.sin" not in repro, repro
