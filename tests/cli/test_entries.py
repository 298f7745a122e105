"""The compiler is entered in each of its ways, and a failure there has a repro of the same form."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.support.environments import ROOT, clean_environ
from tests.support.reprokit_calls import reprokit

ALL_ENTRIES = """
import torch
from reprokit.agent import enter_compiler
from reprokit.core.shared import errors, without_compile
from reprokit.core.shared.source import entry_programs


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(4, 4)

    def forward(self, x, scale=None):
        y = torch.relu(self.layer(x))
        return y if scale is None else y * scale


def function(x, scale=None):
    return torch.sin(x) if scale is None else torch.sin(x) * scale


def shows(model, entry):
    entered = enter_compiler.enter_compiler(model, entry, {})
    for size in (3, 5):
        x, scale = torch.randn(size, 4), torch.randn(4)
        for kwargs in ({}, {"scale": scale}):
            torch.testing.assert_close(entered(x, **kwargs), model(x, **kwargs))
    print(type(model).__name__, entry)


with torch.no_grad():
    for entry in entry_programs.ENTRIES:
        if entry not in (entry_programs.AOTINDUCTOR, entry_programs.COMPILED_AUTOGRAD):
            shows(Net(), entry)
    for entry in (entry_programs.EXPORT, entry_programs.AOT_COMPILE):
        shows(function, entry)
for entry, options in (("export", {"mode": "x"}), ("standalone_compile", {"backend": "eager"})):
    try:
        enter_compiler.enter_compiler(Net(), entry, options)
    except errors.BadTarget as bad:
        print(bad)
without_compile.replace_entries(torch, lambda model, options: model)
x, net = torch.randn(3, 4), Net()
for entry in entry_programs.ENTRIES:
    assert torch.equal(enter_compiler.enter_compiler(net, entry, {})(x), net(x)), entry
print("eager")
for arguments in ((), x):
    try:
        torch.export.export(net, arguments)
    except TypeError as refused:
        print(refused)
"""
EXPORTED = """
import torch


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = torch.nn.Linear(16, 32), torch.nn.Linear(32, 8)
        self.register_buffer("scale", torch.ones(8))

    def forward(self, x, given):
        y = self.second(torch.relu(self.first(x))) * self.scale
        return {"out": (torch.erf(y).cos() + given["bias"]).softmax(-1), "y": y}


inputs = (torch.randn(4, 16), {"bias": torch.randn(8)})
program = torch.export.export(Net().eval(), inputs, dynamic_shapes=({0: torch.export.Dim("n")}, {"bias": None}))
package = torch._inductor.aoti_compile_and_package(program)
torch._inductor.aoti_load_package(package)(*inputs)
"""
WRONG = """
import torch

def function(x):
    y = torch.sin(x)
    return (y + 1).cos(), torch.amin(x, -1)

def make():
    x = torch.arange(100, 164, dtype=torch.uint8).reshape(4, 16)
    return {"model": function, "calls": [((x,), {})], "entry": "aotinductor"}
"""
HOOKED = """
import torch

def bad(x):
    raise NotImplementedError("erf is too hard")

def make():
    import torch._inductor.lowering as lowering

    lowering.lowerings[torch.ops.aten.erf.default] = bad
    net = torch.nn.Linear(8, 8)
    net.weight.register_hook(lambda g: torch.erf(g) + 1)
    calls = [((torch.randn(4, 8),), {})]
    return {"model": net, "calls": calls, "entry": "compiled_autograd", "train": True}
"""
FACTORY = """
import torch

def function(x):
    return torch.relu(x)

def make(entry="{entry}"):
    return {{"model": function, "calls": [((torch.randn(8),), {{}})], "entry": entry}}
"""


@pytest.mark.real("it compiles through each entry")
def test_each_entry_gives_the_results_of_eager() -> None:
    """Models and functions run under each entry, with several shapes and keyword arguments; a
    program without the compiler runs with the same entries, and exports with the same arguments.
    """
    done = subprocess.run(
        [sys.executable, "-c", ALL_ENTRIES],
        cwd=ROOT,
        env=clean_environ(),
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [
        "Net torch.compile",
        "Net nn.Module.compile",
        "Net export",
        "Net standalone_compile",
        "Net aot_compile",
        "function export",
        "function aot_compile",
        "the entry export takes no mode",
        "the entry standalone_compile takes no backend",
        "eager",
        "missing a required argument: 'x'",
        "the arguments of torch.export.export are a Tensor",
    ]


@pytest.mark.real
def test_an_entry_that_cannot_be_used_is_one_line(write: Any, tmp_path: Path) -> None:
    """A wrong combination of an entry and other options exits with 2, and says why."""
    for options, entry, line in (
        (["--train"], "aotinductor", "compiles no backward"),
        ([], "compiled_autograd", "it needs --train"),
        ([], "nn.Module.compile", "no torch.nn.Module"),
        (
            [],
            "jit",
            "returned \"entry\" that is 'jit'; use one of torch.compile, nn.Module.compile",
        ),
    ):
        target = write(f"bad_{entry.replace('.', '_')}.py", FACTORY.format(entry=entry))
        done = reprokit("capture", f"{target}:make", *options, "--output-dir", tmp_path / "out")
        assert done.status == 2 and line in done.err and "Traceback" not in done.err, done.err
    done = reprokit("capture", "--entry", "export", "--", sys.executable, "-c", "1")
    assert done.status == 2 and "--entry changes a model" in done.err


@pytest.mark.real("it captures two entries and runs the program of the pack")
def test_compiled_autograd_compiles_the_backward(write: Any, tmp_path: Path) -> None:
    """A hook of a parameter runs in the backward only. Its operator fails in a lowering, also in
    the program that the pack shows; torch.compile does not compile it.
    """
    target, out = f"{write('hooked.py', HOOKED)}:make", tmp_path / "out"
    done = reprokit("capture", "--json", target, "--output-dir", out, env=clean_environ())
    assert done.json["verdict"]["phase"] == "lowering", done.out
    program = done.run_dir / "pack" / "candidate.py"
    assert program.read_text().rstrip().endswith("torch.compile(lambda: loss.backward())()")
    shown = subprocess.run(
        [sys.executable, program], capture_output=True, text=True, env=clean_environ(), check=False
    )
    assert shown.returncode == 1 and "erf is too hard" in shown.stderr, shown.stderr
    plain = ("--entry", "torch.compile", "--output-dir", out)
    done = reprokit("capture", "--json", target, *plain, env=clean_environ())
    assert done.kind == "ok", done.out


@pytest.mark.real("it compiles with AOTInductor in each probe")
def test_a_failure_in_aotinductor_has_a_repro_that_exports(write: Any, tmp_path: Path) -> None:
    """A command that exports a model and compiles it with AOTInductor fails in a lowering. The
    exported graph, with nested inputs and parameters, is reduced to one operator, and the proved
    repro is entered in the same way.
    """
    script = write("exported.py", EXPORTED)
    inject = ROOT / "benchmarks" / "cases" / "inject"
    variables = {"REPROKIT_MINIMIZE": "1", "REPROKIT_ABLATE": "1", "BUG": "raise"}
    env = clean_environ(PYTHONPATH=f"{ROOT}:{inject}", **variables)
    done = reprokit(
        "capture",
        "--json",
        "--proofs",
        "1",
        "--output-dir",
        tmp_path / "out",
        "--",
        sys.executable,
        script,
        env=env,
    )
    answer = done.json
    assert answer["verdict"]["phase"] == "lowering", answer["verdict"]
    assert answer["minimized"]["is_complete"] and answer["minimized"]["level"] == "export"
    repro = Path(answer["repro"]).read_text()
    assert "return torch.erf(x)" in repro and "torch.nn.Linear" not in repro
    assert "torch.export.export(module, (x,))" in repro
    assert "aoti_compile_and_package(exported)" in repro and "import torch\n\n\n" in repro
    steps = {s["name"]: s["answer"] for s in answer["ablation"]["steps"]}
    assert steps["AOTInductor"] == "same" and steps['backend="inductor"'] == "same"
    assert steps['backend="aot_eager"'] == "passes"
    assert answer["ablation"]["sentence"].endswith("; it fails with AOTInductor too.")


@pytest.mark.long
def test_a_wrong_result_of_aotinductor_has_a_repro_that_exports(write: Any, tmp_path: Path) -> None:
    """A factory for AOTInductor gives a wrong minimum, as torch.compile does. The wrong lowering is
    named, the reduction ends before its budget, and the proved repro asserts on what the package
    returns.
    """
    answer = reprokit(
        "capture",
        f"{write('wrong_minimum.py', WRONG)}:make",
        "--compare",
        "--json",
        "--budget",
        "30m",
        "--output-dir",
        tmp_path / "out",
        env=clean_environ(REPROKIT_MINIMIZE="1", REPROKIT_ABLATE="1"),
        timeout_s=2400,
    ).json
    assert answer["verdict"]["kind"] == "wrong-result" and answer["repro"], answer
    assert answer["verdict"]["work"]["op"] == "amin", answer["verdict"]
    assert answer["minimized"]["is_complete"] and answer["minimized"]["level"] == "export"
    repro = Path(answer["repro"]).read_text()
    assert "return torch.amin(" in repro and "sin" not in repro
    assert "exported = torch.export.export(module, (x,))" in repro
    assert "compiled = torch._inductor.aoti_load_package(" in repro and "eager = module(x)" in repro
    assert "torch.testing.assert_close(compiled, eager" in repro, repro
