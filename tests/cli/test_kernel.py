"""One kernel for several architectures, with the ptxas of Triton's wheel; no GPU and no torch."""

from __future__ import annotations

import gzip
import json
import os
import shlex
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.support.environments import ROOT, clean_environ
from tests.support.judge_again import assert_judged_alike
from tests.support.reprokit_calls import reprokit

pytestmark = pytest.mark.triton

ADD = (ROOT / "samples" / "triton_architecture.py").read_text()
DOT = """
import triton
import triton.language as tl
from triton.backends.compiler import GPUTarget

@triton.jit
def kernel(x, y):
    i = tl.arange(0, 64)
    at = i[:, None] * 64 + i[None, :]
    a = tl.load(x + at)
    tl.store(y + at, tl.dot(a, a))

source = triton.compiler.ASTSource(fn=kernel, signature={'x': '*fp16', 'y': '*fp32'}, constexprs={}, attrs={})
triton.compile(source, target=GPUTarget('cuda', 80, 32), options={'num_warps': 4})
"""
REFUSES = """#!/bin/sh
case "$*" in *--version*) echo "ptxas: NVIDIA (R) Ptx optimizing assembler"; echo "Cuda compilation tools, release 12.4, V12.4.131"; exit 0;; esac
echo "ptxas fatal   : Value 'sm_100a' is not defined for option 'gpu-name'" >&2
exit 255
"""


@pytest.mark.real("it compiles a kernel for each architecture")
def test_the_table_has_the_compiling_architectures_and_the_remedies(write: Any) -> None:
    """An architecture that no ptxas knows, and one that an older ptxas does not know: the remedies
    are tried.
    """
    old = write("ptxas", REFUSES)
    old.chmod(0o755)
    done = reprokit(
        "kernel",
        ROOT / "samples" / "triton_architecture.py",
        "--arch",
        "sm_90,100,101",
        "--ptxas",
        old,
        "--json",
    )
    assert done.status == 1, done.err
    cells = {(c["arch"], bool(c["ptxas"])): c for c in done.json["cells"]}
    assert [cells[a, False]["answer"] for a in ("sm_90", "sm_100a")] == ["compiled"] * 2, cells
    refused = cells["sm_101a", False]
    assert (refused["answer"], refused["stage"]) == (
        "exception",
        "ptxas",
    ) and "'sm_101a' is not defined" in refused["said"]
    assert cells["sm_100a", True]["stage"] == "ptxas"
    remedies = {(r["arch"], bool(r["ptxas"]), r["remedy"]): r for r in done.json["remedies"]}
    assert remedies["sm_100a", True, "use the ptxas in the package of Triton"]["works"]
    clamped = remedies["sm_101a", False, "compile for sm_100a"]
    assert not clamped["works"] and "does not run on a device of capability 10.1" in clamped["said"]
    assert not remedies["sm_101a", False, "compile for sm_101"]["works"]
    assert done.json["versions"] == {str(old): "12.4, V12.4.131"}


@pytest.mark.real("it compiles several kernels")
def test_a_kernel_that_aborts_does_not_affect_the_others(write: Any) -> None:
    """LLVM ends the process for an architecture for which it cannot select an instruction; the
    other cells are reported.
    """
    done = reprokit("kernel", write("dot.py", DOT), "--arch", "80,101,90", "--json")
    answers = {c["arch"]: (c["answer"], c["stage"]) for c in done.json["cells"]}
    assert answers["sm_80"][0] == answers["sm_90a"][0] == "compiled", answers
    assert answers["sm_101a"] == ("crash", "ptx"), answers
    plain = reprokit("kernel", write("dot.py", DOT), "--arch", "80")
    assert plain.status == 0 and "sm_80" in plain.out


SLEEPS = """#!/bin/sh
case "$*" in *--version*) echo "ptxas: NVIDIA (R) Ptx optimizing assembler"; echo "Cuda compilation tools, release 13.9, V13.9.0"; exit 0;; esac
exec sleep 1000
"""


@pytest.mark.real
def test_a_kernel_that_hangs_and_one_that_takes_all_memory(write: Any) -> None:
    """The stage that hangs is named, and the next cell does not wait for the sleeping child."""
    slow = write("ptxas", SLEEPS)
    slow.chmod(0o755)
    done = reprokit(
        "kernel", write("add.py", ADD), "--arch", "80", "--ptxas", slow, "--timeout", "6", "--json"
    )
    cells = {bool(c["ptxas"]): (c["answer"], c["stage"]) for c in done.json["cells"]}
    assert done.status == 1 and cells == {False: ("compiled", None), True: ("hang", "ptxas")}, cells
    large = ADD.replace("source = ", "held = bytearray(1 << 46)\nsource = ")
    done = reprokit("kernel", write("large.py", large), "--arch", "80", "--json")
    assert [c["answer"] for c in done.json["cells"]] == ["oom"], done.json


LAUNCHES = """
import torch
import triton
import triton.language as tl

SCALE = tl.constexpr(2.5)

@triton.jit
def helper(x, n: tl.constexpr):
    return x * SCALE + n

@triton.autotune(configs=[triton.Config({"BLOCK": 64}, num_warps=2), triton.Config({"BLOCK": 128})], key=["n"])
@triton.jit
def add(x_ptr, y_ptr, n, DT: tl.constexpr, BLOCK: tl.constexpr):
    place = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + place, mask=place < n)
    tl.store(y_ptr + place, helper(x, 3).to(DT), mask=place < n)

x = torch.randn(1000, device="cuda")
y = torch.empty_like(x)
add[lambda meta: (triton.cdiv(1000, meta["BLOCK"]),)](x, y, 1000, tl.float32)
assert torch.allclose(y, x * 2.5 + 3), "a simulated device computes nothing"
"""


@pytest.mark.real
def test_a_program_that_launches_its_own_kernels(write: Any) -> None:
    """Each configuration of each kernel is compiled alone, with the functions that it reads;
    nothing is launched, and no GPU is used.
    """
    file = write("launches.py", LAUNCHES)
    done = reprokit("kernel", f"{file}:add", "--arch", "90", "--json")
    assert done.status == 0, done.out + done.err
    assert [c["answer"] for c in done.json["cells"]] == ["compiled"] * 2
    missing = reprokit("kernel", f"{file}:dot", "--arch", "90")
    assert missing.status == 2 and "launches no kernel 'dot'; it launches add" in missing.err, (
        missing.err
    )


@pytest.mark.real("it reduces a program of Triton and proves it")
def test_a_command_that_needs_only_triton_is_minimized(write: Any, tmp_path: Path) -> None:
    """Everything that the failure does not need is removed, and the form of Triton is filled in."""
    text = ADD.replace(
        'triton.compile(source, target=GPUTarget("cuda", 101, 32)',
        'for arch in (80, 101): triton.compile(source, target=GPUTarget("cuda", arch, 32)',
    )
    assert text != ADD
    words = (
        "--budget",
        "60",
        "--json",
        "--output-dir",
        tmp_path / "out",
        "--",
        sys.executable,
        write("arch.py", text),
    )
    done = reprokit("capture", *words, env=clean_environ(REPROKIT_MINIMIZE="1"))
    assert (done.status, done.kind, done.json["verdict"]["phase"]) == (
        1,
        "exception",
        "ptxas",
    ), done.out
    found, repro = done.json["minimized"], Path(done.json["repro"]).read_text()
    assert found["proof"]["hits"] == 1 and found["lines"] <= 10 and "80" not in repro, repro
    assert Path(done.json["issue"]).read_text().startswith("### Describe the bug")
    assert list((done.run_dir / "logs").glob("triton*.mlir"))
    assert_judged_alike(done)


IR = """
module {
  tt.func public @add_one(%x: !tt.ptr<f32>) attributes {noinline = false} {
    %one = arith.constant 1.0 : f32
    %old = tt.load %x : !tt.ptr<f32>
    %new = arith.addf %old, %one : f32
    tt.store %x, %new : !tt.ptr<f32>
    tt.return
  }
}
"""
RESOURCES = """
{-#
  external_resources: {
    mlir_reproducer: {
      pipeline: "builtin.module(convert-triton-to-tritongpu{num-warps=4})"
    }
  }
#-}
"""


def compile_event(text: str, stage: str = "ttir", **target: Any) -> str:
    """Return one event of a trace of tritonparse."""
    metadata = {"name": "add_one", "num_warps": 2, "target": {"backend": "cuda", **target}}
    payload = {"metadata": metadata, "file_content": {f"add_one.{stage}": text}}
    return json.dumps({"event_type": "compilation", "pid": 1, "payload": payload}) + "\n"


@pytest.mark.real
def test_what_triton_dumped_is_compiled(write: Any, tmp_path: Path) -> None:
    """TTIR, a reproducer of MLIR and a trace of tritonparse; an error of the compiler is named."""
    trace = '{"event_type": "launch"}\nnot JSON\n' + compile_event(IR, arch=90) * 2
    (tmp_path / "packed.ndjson.gz").write_bytes(gzip.compress(trace.encode()))
    files = {
        "good": write("add_one.ttir", IR),
        "reproducer": write("repro.mlir", IR + RESOURCES),
        "packed": tmp_path / "packed.ndjson.gz",
        "wrong": write("wrong.ttir", IR.replace("arith.addf", "arith.addi")),
    }
    found = {}
    for name, path in files.items():
        done = reprokit("kernel", path, "--arch", "90", "--json")
        found[name] = [(c["kernel"], c["answer"]) for c in done.json["cells"]], done.status
    assert found == {
        "good": ([("add_one", "compiled")], 0),
        "reproducer": ([("add_one", "compiled")], 0),
        "packed": ([("add_one", "compiled"), ("add_one_2", "compiled")], 0),
        "wrong": ([("add_one", "exception")], 1),
    }, found
    only = reprokit("kernel", f"{files['packed']}:add_one_2", "--arch", "90", "--json")
    assert [cell["kernel"] for cell in only.json["cells"]] == ["add_one_2"]


def test_a_dump_without_a_kernel_is_refused(write: Any, tmp_path: Path) -> None:
    """So is a kernel that it does not have, and a capture of it says which command reads it."""
    lowered = write("trace.ndjson", compile_event(".version 8.4", "ptx"))
    other = write("other.ndjson", compile_event(IR, "ttgir", backend="hip"))
    good = write("add_one.ttir", IR)
    for words, says in (
        (("kernel", lowered), "has no TTIR or TTGIR"),
        (("kernel", other), "has no TTIR or TTGIR"),
        (("kernel", f"{good}:other"), "has no kernel 'other'; it has add_one"),
        (("capture", good), f"run: reprokit kernel {shlex.quote(str(good))}"),
    ):
        done = reprokit(*words)
        assert done.status == 2 and says in done.err and len(done.err.splitlines()) == 1, done.err


def test_a_file_that_is_not_a_kernel_is_refused(write: Any, tmp_path: Path) -> None:
    """A file that compiles nothing, a missing file and a file that is not a ptxas give a one-line
    error each.
    """
    add, script = write("add.py", ADD), write("other.py", "print(1)\n")
    plain = write("plain.txt", "x")
    for words, says in (
        ((add, "--arch", "x"), "no architecture has this name"),
        ((tmp_path / "none.py",), "No such file"),
        ((script,), "compiles no kernel by itself"),
        ((write("broken.py", "def ("),), "does not parse"),
        ((add, "--ptxas", plain), "may not be executed"),
        ((add, "--ptxas", tmp_path / "none"), "there is no such file"),
        ((add, "--ptxas", "/bin/true"), "is not a ptxas"),
    ):
        done = reprokit("kernel", *words)
        assert done.status == 2 and says in done.err and len(done.err.splitlines()) == 1, done.err
    assert os.access(add, os.R_OK)


@pytest.mark.real
def test_an_interpreter_without_triton_is_refused(write: Any, tmp_path: Path) -> None:
    """Not a defect of reprokit: Triton is not a dependency of every torch."""
    (tmp_path / "absent").mkdir()
    (tmp_path / "absent" / "triton.py").write_text(
        "raise ModuleNotFoundError(\"No module named 'triton'\", name='triton')"
    )
    environ = clean_environ(PYTHONPATH=str(tmp_path / "absent"))
    done = reprokit("kernel", write("add.py", ADD), "--arch", "sm_90a", env=environ)
    assert done.status == 2, done.out + done.err
    line = done.err.strip().splitlines()[-1]
    assert "No module named 'triton'; install Triton there" in line
