"""Each replacement of the GPU simulation is removed in turn, and the missing symbol is reported as
a gap of reprokit.
"""

from __future__ import annotations

import dataclasses
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from reprokit.agent.simulate.guard import CannotSimulate, check_version
from reprokit.core.judge.responsible.responsibility import why_not_filed
from reprokit.core.judge.verdict import judge_run
from reprokit.core.records.dumps import Frame, Link, Raised
from reprokit.core.records.observation import Observation
from reprokit.core.shared import simulation
from reprokit.host.run.launch import simulation_variables
from tests.support.environments import ROOT, clean_environ

pytestmark = pytest.mark.triton

TARGET = """
import torch
torch._C._cuda_getDeviceCount(), torch._C._cuda_getCurrentRawStream(0)
cuda = torch.cuda
assert cuda.is_available() and cuda.get_device_capability() == (9, 0) and cuda.is_bf16_supported()
assert cuda.device_count() == 1, "devices"
cuda.set_device(cuda.current_device())
cuda.reset_peak_memory_stats(), cuda.synchronize(), cuda.mem_get_info(), cuda.max_memory_allocated()
assert not cuda.is_current_stream_capturing() and not cuda.graphs.is_current_stream_capturing()
cuda.set_rng_state(cuda.get_rng_state().clone())
with cuda.device(0):
    pass

from torch._inductor.runtime import triton_helpers
triton_helpers.set_driver_to_gpu()  # as generated code does

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(64, 64)

    def forward(self, x):
        twice = torch.ones(64, device="cuda") * torch.full((64,), 2.0, device="cuda")
        return torch.nn.functional.dropout(self.layer(x).relu().softmax(-1) + twice, 0.1)

net = torch.compile(Net().cuda(), mode="max-autotune")
net(torch.randn(64, 64, device="cuda")).sum().backward()
product = torch.compile(lambda a, b: (a @ b).relu() + a * 0, mode="max-autotune")
product(torch.randn(64, 64, device="cuda"), torch.randn(64, 64, device="cuda"))
"""
"""The target calls the device functions that programs call, and compiles a model, forward and
backward.
"""
SCRIPT = """
import contextlib, io, json, os, sys, warnings
from reprokit.agent import simulate
from reprokit.agent.record import exceptions
from reprokit.core.shared.contract.serialize import to_json

simulate.before_torch()
import torch
import triton, torch._decomp, torch._refs, torch.fx.experimental.symbolic_shapes  # once, for all children
from reprokit.agent.simulate import cuda as device

def run(removed, target):
    names = []

    def without(real):
        def replacing(self, owner, name, *args, **more):
            names.append(f"{device.owner_name(owner)}.{name}")
            if names[-1] != removed:
                real(self, owner, name, *args, **more)
        return replacing

    for word in ("replace_symbol", "wrap_symbol"):
        setattr(device.SymbolReplacer, word, without(getattr(device.SymbolReplacer, word)))
    if removed == "torch.cuda.device_count":
        torch.cuda._device_count_nvml = lambda: 7  # as on a machine with seven of them
    simulate.after_torch()
    if simulate.problem or not target:
        return {"names": names, "problem": simulate.problem}
    try:
        exec(compile(target, "target.py", "exec"), {})
    except Exception as error:
        return {"chain": to_json(exceptions.describe_exception(error))}
    return {"chain": []}

def forked(removed, target):
    reading, writing = os.pipe()
    pid = os.fork()
    if not pid:
        warnings.simplefilter("ignore")
        with open(os.devnull, "w") as nowhere, contextlib.redirect_stdout(nowhere), contextlib.redirect_stderr(nowhere):
            answer = json.dumps(run(removed, target))
        os.close(reading)
        with open(writing, "w") as file:
            file.write(answer)
        os._exit(0)
    os.close(writing)
    return pid, reading

def answer_of(child):
    pid, reading = child
    with open(reading) as file:
        answer = file.read()
    _, status = os.waitpid(pid, 0)
    return json.loads(answer) if answer else {"status": status}

target = open(sys.argv[1]).read()
(first,) = [answer_of(forked(None, ""))]
assert not first["problem"], first
assert set(sys.argv[2:]) <= set(first["names"]), first
names = sys.argv[2:] or [None, *dict.fromkeys(first["names"])]
answers = {}
for start in range(0, len(names), 2):
    pair = [(name, forked(name, target)) for name in names[start : start + 2]]
    answers.update((str(name), answer_of(child)) for name, child in pair)
json.dump(answers, sys.stdout)
"""
"""Import torch once, and run the target in a forked child without one replacement at a time: those
that are named, or first with all of them and then without each.
"""
DEVICE = "NVIDIA H100, compute capability 9.0, is not there"
NO_GAP = {
    "torch.cuda.device_count": (
        "the real function uses NVML, a separate library: the program sees the devices of the machine"
    ),
    "AlgorithmSelectorCache.make_precompile_fn": (
        "torch leaves out the choices that it cannot compile; Python 3.11.8 and older skip it"
    ),
}
"""Replacements whose absence does not lead to a call of the CUDA driver, with their reasons."""


def results_by_removed(folder: Path, *removed: str) -> dict[str, Any]:
    """Return the results of the target by the removed replacement; ``None`` is the complete
    simulation. Without names, each replacement is removed in turn.
    """
    (folder / "journal").mkdir()
    (folder / "target.py").write_text(TARGET)
    (folder / "script.py").write_text(SCRIPT)
    gpu = dataclasses.asdict(simulation.GPUS["h100"])
    variables = {
        "REPROKIT_RUN_DIR": str(folder),
        "OPENBLAS_NUM_THREADS": "1",
        "TORCHINDUCTOR_BENCHMARK_FUSION": "1",
    }
    environ = clean_environ(
        PYTHONPATH=str(ROOT),
        TORCHINDUCTOR_CACHE_DIR=str(folder / "cache"),
        **variables,
        **simulation_variables(gpu),
    )
    words = [sys.executable, folder / "script.py", folder / "target.py", *removed]
    done = subprocess.run(words, capture_output=True, text=True, env=environ, check=False)
    assert done.returncode == 0, done.stderr[:3_000]
    results = json.loads(done.stdout)
    assert isinstance(results, dict)
    return results


def seen_of(answer: dict[str, Any]) -> Observation:
    """Return the observation of a factory target with this result."""
    links = [
        Link(r["type"], r["message"], tuple(Frame(*f) for f in r["frames"]))
        for r in answer["chain"]
    ]
    raised = Raised(tuple(links), "call") if links else None
    return Observation(
        exit_status=1 if links else 0, has_finished=not links, simulated=(DEVICE,), raised=raised
    )


def assert_gap_is_one_line(name: str, answer: dict[str, Any]) -> None:
    """Check the verdict of a target without a replacement that it needs."""
    verdict = judge_run(seen_of(answer))
    assert (verdict.kind, verdict.cause, verdict.responsible) == (
        "unknown",
        "simulation-gap",
        "reprokit",
    ), (
        name,
        answer,
    )
    assert verdict.responsible_place and verdict.responsible_place in verdict.reason, verdict
    assert "\n" not in verdict.reason and why_not_filed(verdict).startswith(
        "reprokit itself is responsible at"
    )


@pytest.mark.long
def test_each_replacement_is_needed_and_its_absence_is_one_line(tmp_path: Path) -> None:
    """Without any one of them the verdict names the missing symbol, holds reprokit responsible, and
    proposes no issue.
    """
    results = results_by_removed(tmp_path)
    assert judge_run(seen_of(results.pop("None"))).kind == "ok"
    assert len(results) > 20 and set(NO_GAP) <= set(results)
    for name, answer in results.items():
        if answer.get("problem"):  # reported before anything ran
            assert (
                name.rpartition(".")[2] in answer["problem"]
                and "cannot simulate a GPU" in answer["problem"]
            ), answer
            continue
        if name in NO_GAP:
            verdict = judge_run(seen_of(answer))
            assert verdict.cause != "simulation-gap", f"{name} is no exception any more: {verdict}"
            continue
        assert_gap_is_one_line(name, answer)


@pytest.mark.real("it compiles for a simulated GPU twice")
def test_one_absent_replacement_is_one_line_and_another_counts_devices(tmp_path: Path) -> None:
    """Without one replacement the verdict names the missing symbol, and without that of the count
    the machine's own GPUs are counted.
    """
    count, gap = "torch.cuda.device_count", "torch.cuda.synchronize"
    results = results_by_removed(tmp_path, count, gap)
    assert [link["message"] for link in results[count]["chain"]] == ["devices"]
    assert_gap_is_one_line(gap, results[gap])


@pytest.mark.parametrize("version", ["2.12.1+cu130", "2.15.0", "unknown"])
def test_a_torch_that_has_the_setting_is_simulated(version: str) -> None:
    """Torch 2.12 and newer, and a build without a number, pass."""
    check_version(f"__version__ = '{version}'\n")


@pytest.mark.parametrize("version", ["2.9.1", "2.11.0"])
def test_a_torch_that_is_too_old_for_a_simulation_is_named(version: str) -> None:
    """Torch 2.9 to 2.11 are refused in one line, before anything is built for them."""
    with pytest.raises(
        CannotSimulate, match=rf"torch {version}\+cu128 cannot run compiled regions"
    ):
        check_version(f"debug = False\n__version__ = '{version}+cu128'\n")
