"""A target is compiled for a GPU that is not present, including kernels, and its failures are
minimized.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from reprokit.core.reduce import loud_failures
from reprokit.host.pack import reader
from tests.support.environments import clean_environ
from tests.support.judge_again import assert_judged_alike
from tests.support.recordings import Recorder
from tests.support.reprokit_calls import CallResult, reprokit

pytestmark = pytest.mark.triton

SMALL = """
import torch

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = torch.nn.Embedding(32, 64)
        self.norm = torch.nn.LayerNorm(64)
        self.head = torch.nn.Linear(64, 32, bias=False)
        self.head.weight = self.embedding.weight

    def forward(self, x):
        y = torch.nn.functional.gelu(self.norm(self.embedding(x)))
        y = y.view(2, 8, 4, 16).transpose(1, 2)
        y = torch.nn.functional.scaled_dot_product_attention(y, y, y, is_causal=True)
        return self.head(y.transpose(1, 2).reshape(2, 8, 64))

def make():
    model = Net().cuda().bfloat16()
    assert model.head.weight is model.embedding.weight and model.head.weight.dtype is torch.bfloat16
    assert torch.cuda.get_device_capability() == (8, 9)
    return model, (torch.randint(0, 32, (2, 8), device="cuda"),)
"""
ADD = """
import torch

def make():
    return (lambda x: x + 1), (torch.ones(64),)
"""
REFUSING = """
import torch
import torch._inductor.lowering as lowering

real = lowering.lowerings[torch.ops.aten.tan.default]

def tan(x):
    if x.get_device().type == "cuda":
        raise NotImplementedError("no tan for this device")
    return real(x)

lowering.lowerings[torch.ops.aten.tan.default] = tan

def f(x, w):
    for _ in range(3):
        x = torch.tan(x @ w).relu()
    return x

def make():
    return f, (torch.randn(8, 8), torch.randn(8, 8))
"""
CACHE = """
import torch

def f(x, cache, position):
    cache.index_copy_(0, position, x.relu())
    return cache.mean()

def make(is_static=False):
    cache = torch.zeros(8, 16)
    if is_static:
        torch._dynamo.mark_static_address(cache)
    return f, (torch.randn(1, 16), cache, torch.zeros(1, dtype=torch.long))
"""
LOUD = "import torch\ndef f(x, cache, position):\n    return cache.index_copy_(0, position, x)\n"
MAKE = """
def make():
    tensors = torch.randn(1, 16), torch.zeros(8, 16), torch.zeros(1, dtype=torch.long)
    return {"model": f, "calls": [(tensors, {})], "compile": {"mode": "reduce-overhead"}}
"""
THOR = {
    "name": "NVIDIA Thor",
    "major": 10,
    "minor": 1,
    "multi_processor_count": 20,
    "total_memory": 1 << 37,
    "L2_cache_size": 1 << 25,
}


def capture(*words: str | Path, **environ: str) -> CallResult:
    return reprokit("capture", "--json", *words, env=clean_environ(**environ))


@pytest.mark.real("it compiles each Triton kernel of a training step")
def test_a_model_is_compiled_for_a_gpu_that_is_not_there(write: Any, tmp_path: Path) -> None:
    """The target trains, moves itself and has tied weights; each of its kernels is compiled
    alone.
    """
    target = f"{write('small.py', SMALL)}:make"
    first = capture(target, "--gpu", "l40s", "--train", "--output-dir", tmp_path / "a")
    assert (first.status, first.kind) == (0, "ok"), first.out + first.err
    simulated = first.json["verdict"]["simulated"]
    assert simulated[0].startswith("NVIDIA L40S, compute capability 8.9") and len(simulated) > 4
    compiled = json.loads((first.run_dir / "kernels.json").read_text())
    assert len(compiled) >= 4 and {row["answer"] for row in compiled} <= {
        "compiled",
        "known",
    }, compiled
    says = (
        f"{len(compiled)} of {len(compiled)} Triton kernels were compiled, each alone; nothing was"
        " executed"
    )
    assert (
        says in first.json["verdict"]["reason"]
        and first.json["issue"] is first.json["repro"] is None
    )
    programs = sorted((first.run_dir / "kernels").glob("*.py"))
    assert len(programs) == len(compiled) and all("torch" not in p.read_text() for p in programs)
    code = "".join(p.read_text() for p in (first.run_dir / "graphs").glob("*/compiled.py"))
    assert "async_compile.triton(" in code and "_scaled_dot_product_flash_attention" in code


@pytest.mark.long
def test_modes_that_would_time_or_record_something_do_not(tmp_path: Path) -> None:
    """Nothing can be timed or recorded, and the code is still generated from the templates of
    Triton.
    """
    words = (
        "--model",
        "llama-tiny",
        "--layers",
        "1",
        "--gpu",
        "h100",
        "--kernels",
        "none",
        "--dtype",
        "float16",
    )
    done = capture(*words, "--mode", "max-autotune", "--output-dir", tmp_path / "out")
    assert (done.status, done.kind) == (0, "ok"), done.out + done.err
    assert not (done.run_dir / "kernels.json").exists() and list(
        (done.run_dir / "kernels").glob("triton_tem_*.py")
    )


@pytest.mark.long
def test_a_failure_on_a_simulated_gpu_is_minimized_on_it(write: Any, tmp_path: Path) -> None:
    """The probes and the proof also simulate the GPU."""
    target = f"{write('refusing.py', REFUSING)}:make"
    done = capture(
        target,
        "--gpu",
        "a100",
        "--budget",
        "75",
        "--output-dir",
        tmp_path / "out",
        REPROKIT_MINIMIZE="1",
    )
    assert (done.status, done.kind, done.json["verdict"]["phase"]) == (
        1,
        "exception",
        "lowering",
    ), done.out + done.err
    minimized = done.json["minimized"]
    assert minimized["proof"]["hits"] == 1 and minimized["lines"] <= 16, minimized
    issue = Path(done.json["issue"]).read_text()
    assert "simulated device: NVIDIA A100" in issue and "--gpu a100" in issue


@pytest.mark.long
def test_a_kernel_that_ptxas_refuses_is_minimized_without_torch(write: Any, tmp_path: Path) -> None:
    """The installed ptxas does not know the architecture."""
    gpu = write("thor.json", json.dumps(THOR))
    target = f"{write('add.py', ADD)}:make"
    done = capture(
        target,
        "--gpu",
        gpu,
        "--budget",
        "60",
        "--output-dir",
        tmp_path / "out",
        REPROKIT_MINIMIZE="1",
    )
    assert (done.status, done.kind, done.json["verdict"]["phase"]) == (1, "exception", "ptxas"), (
        done.out + done.err
    )
    assert "Value 'sm_101a' is not defined" in done.json["signature"]["title"]
    found, text = done.json["minimized"], Path(done.json["repro"]).read_text()
    assert found["proof"]["hits"] == 1 and found["lines"] <= 12 and "torch" not in text, text
    assert_judged_alike(done)
    smaller = reprokit("minimize", done.run_dir, "--budget", "5", "--json")
    assert (smaller.status, smaller.json["signature"]) == (0, done.json["signature"]), (
        smaller.out + smaller.err
    )
    issue = Path(done.json["issue"]).read_text()
    assert issue.startswith("### Describe the bug") and "### Environment details" in issue
    assert (
        "triton-lang/triton/issues/new"
        in (Path(done.json["issue"]).parent / "issue" / "url.txt").read_text()
    )
    names = reader.read_pack(Path(done.json["pack"])).files
    assert {"gpu.json", "kernels.json"} <= set(names) and json.loads(names["gpu.json"])[
        "minor"
    ] == 1
    refused = reprokit("workarounds", done.json["pack"], "--yes")
    assert refused.status == 2 and "reprokit kernel compiles its repro.py" in refused.err
    again = reprokit(
        "minimize",
        done.json["pack"],
        "--yes",
        "--budget",
        "45",
        "--json",
        "--output-dir",
        tmp_path / "again",
    )
    assert again.status == 0 and "GPUTarget" in Path(again.json["repro"]).read_text(), (
        again.out + again.err
    )
    assert any(re.fullmatch(r"logs/triton.*\.mlir", n) for n in names) and any(
        n.startswith("kernels/") for n in names
    )


def test_why_no_cuda_graph_is_made(write: Any, recorded: Recorder) -> None:
    """The graph changes a cache; the error of torch, which a repro requests, has the same verdict,
    and a static address is healthy.
    """
    target = f"{write('cache.py', CACHE)}:make"
    words = ("--gpu", "h100", "--kernels", "none")
    done = recorded(target, "--mode", "reduce-overhead", *words, out="a")
    assert (done.status, done.kind) == (0, "cudagraph-skip"), done.out + done.err
    assert done.json["signature"]["title"] == "cudagraph-skip: cudagraphs | mutated inputs"
    assert "cache.py:5 in f" in done.json["verdict"]["reason"]
    loud = loud_failures.fail_loudly(LOUD, "cudagraph-skip")
    raised = recorded(f"{write('loud.py', loud + MAKE)}:make", *words, out="b")
    assert (raised.kind, raised.json["signature"]) == (
        "cudagraph-skip",
        done.json["signature"],
    ), raised.out
    static = recorded(
        target, "--mode", "reduce-overhead", "--set", "is_static=true", *words, out="c"
    )
    assert static.kind == "ok", static.out


@pytest.mark.real
def test_a_gpu_that_cannot_be_simulated_is_refused(write: Any, tmp_path: Path) -> None:
    """Each case gives a one-line error that says what is wrong."""
    bad = write("bad.json", "{")
    empty = write("empty.json", "{}")
    for words, says in (
        (("--model", "llama-tiny", "--gpu", "h1000"), "no such GPU is known"),
        (("--model", "llama-tiny", "--gpu", tmp_path / "none.json"), "No such file"),
        (("--model", "llama-tiny", "--gpu", bad), "is not JSON"),
        (("--model", "llama-tiny", "--gpu", empty), "has no name"),
        (
            ("--model", "llama-tiny", "--gpu", "h100", "--weights", "real"),
            "cannot be used with --gpu",
        ),
        (
            ("--model", "llama-tiny", "--gpu", "h100", "--device", "cpu"),
            "cannot be used with --gpu",
        ),
        (("--gpu", "h100", "--", "python", "x.py"), "--gpu changes a model"),
    ):
        done = reprokit("capture", *words)
        assert done.status == 2 and says in done.err and len(done.err.splitlines()) == 1, done.err
    assert "torch sees no GPU here" in reprokit("env", "--gpu").err


@pytest.mark.real
def test_a_missing_requirement_of_the_simulation_is_named(write: Any, tmp_path: Path) -> None:
    """Triton is missing, or a torch without CUDA has no C++ compiler."""
    folder = tmp_path / "without"
    folder.mkdir()
    (folder / "triton.py").write_text("raise ImportError('not installed')\n")
    words = ("capture", "--model", "llama-tiny", "--gpu", "h100")
    done = reprokit(
        *words, "--output-dir", tmp_path / "a", env=clean_environ(PYTHONPATH=str(folder))
    )
    assert done.status == 2 and "--gpu needs triton in the target's interpreter" in done.err, (
        done.err
    )
    elsewhere = clean_environ(XDG_CACHE_HOME=str(tmp_path / "cache"), CXX="no-such-compiler")
    done = reprokit(*words, "--output-dir", tmp_path / "b", env=elsewhere)
    assert (
        done.status == 2 and "no-such-compiler" in done.err and "install a C++ compiler" in done.err
    ), done.err


STREAM = """
import torch

def f(x):
    try:
        torch._C._cuda_getCurrentStream(0)
    except Exception:
        pass  # as torch does where it only asks
    return x + 1

def swallows():
    return f, (torch.ones(8),)

def builds():
    torch.cuda.current_stream()
    return f, (torch.ones(8),)

def calls():
    def call(x):
        torch.cuda.Stream()
        return f(x)
    return torch.compiler.disable(call), (torch.ones(8),)
"""


@pytest.mark.real
@pytest.mark.parametrize(
    ("name", "symbol"),
    [
        ("builds", "torch._C._cuda_getCurrentStream"),
        pytest.param("calls", "torch.cuda.Stream", marks=pytest.mark.long),
    ],
)
def test_a_call_of_a_driver_is_a_gap_of_reprokit(
    name: str, symbol: str, write: Any, tmp_path: Path
) -> None:
    """One line names the call, reprokit is responsible, nothing is minimized, and there is nothing
    to file.
    """
    target = f"{write('stream.py', STREAM)}:{name}"
    done = capture(target, "--gpu", "h100", "--kernels", "none", "--output-dir", tmp_path / "out")
    verdict = done.json["verdict"]
    assert (done.status, done.kind, verdict["cause"]) == (3, "unknown", "simulation-gap"), (
        done.out + done.err
    )
    assert (verdict["responsible"], verdict["responsible_place"]) == ("reprokit", symbol), verdict
    assert (
        verdict["reason"] == f"A gap in reprokit's simulation of a GPU: {symbol} is not simulated."
    )
    assert done.json["issue"] is done.json["minimized"] is done.json["ablation"] is None
    issue = reprokit("issue", done.json["pack"])
    assert issue.status == 1 and issue.out.strip().endswith(
        f"reprokit itself is responsible at {symbol}"
    ), issue.out
    assert (
        "reprokit itself is responsible"
        in reader.read_pack(Path(done.json["pack"])).files["README.md"].decode()
    )


@pytest.mark.long
def test_a_gap_that_the_program_catches_is_not_a_failure(write: Any, tmp_path: Path) -> None:
    """An exception that the program catches is not a failure."""
    target = f"{write('stream.py', STREAM)}:swallows"
    words = (
        "--gpu",
        "h100",
        "--kernels",
        "none",
        "--backend",
        "eager",
        "--output-dir",
        tmp_path / "out",
    )
    done = capture(target, *words)
    assert (done.status, done.kind) == (0, "ok"), done.out + done.err


NO_VALUES = """
import torch
library = torch.library.Library("mine", "DEF")
library.define("op(Tensor x) -> Tensor")
def reads():
    weight = torch.ones(3, device="cuda")
    return torch.nn.Linear(3, int(weight.sum().item())), (weight,)
def calls():
    return (lambda x: torch.ops.mine.op(x) + 1), (torch.ones(3),)
"""


@pytest.mark.real
def test_a_target_that_needs_a_device_gets_a_one_line_verdict(write: Any, tmp_path: Path) -> None:
    """A model that reads device memory while it is built, and an operator of an extension that only
    a device can run, give a one-line verdict.
    """
    file = write("needs.py", NO_VALUES)
    for name, says in (
        ("reads", "on a simulated GPU tensors have no values"),
        ("calls", "mine.op.default has no fake implementation"),
    ):
        done = reprokit(
            "capture", f"{file}:{name}", "--gpu", "h100", "--output-dir", tmp_path / name
        )
        assert done.status == 2 and says in done.err.strip().splitlines()[-1], done.err
