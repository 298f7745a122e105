"""Disagreements between a simulated device and a real one are reported. Without a GPU, the real
device is the CPU.
"""

from __future__ import annotations

import dataclasses
import json
import sys
from pathlib import Path

import pytest

from reprokit.core.experiments.simulated_vs_real import (
    RunSummary,
    count_alike,
    list_disagreements,
    summarise_run,
)
from reprokit.core.judge.signature import sign_verdict
from reprokit.core.records.finding import Verdict
from reprokit.core.records.observation import Observation
from reprokit.core.records.rank_graphs import GraphRecord
from reprokit.core.records.remarks.cudagraph_skips import CudagraphSkip
from reprokit.core.shared import simulation
from reprokit.core.shared.contract import run_names
from reprokit.host.pipeline import pipeline
from reprokit.host.request.run_request import Request
from reprokit.host.request.target import Target

KERNEL = """
triton_poi_fused_{name} = async_compile.triton('triton_poi_fused_{name}', '''
import triton
@triton_heuristics.pointwise(meta={{'cc': {cc}}})
@triton.jit
def triton_poi_fused_{name}(x, n):
    {body}
''', device_str='cuda')
extern_kernels.mm(a, b)
"""


def module(name: str, cc: int, body: str = "pass") -> str:
    return KERNEL.format(name=name, cc=cc, body=body)


def side(
    modules: list[str], kind: str = "ok", nodes: int = 3, skips: tuple[CudagraphSkip, ...] = ()
) -> RunSummary:
    verdict = Verdict(kind, None, None, "")
    seen = Observation(graphs=(GraphRecord(0, "aten", "0/0", nodes),), skips=skips)
    return summarise_run(verdict, sign_verdict(verdict, seen), seen, modules)


def test_names_and_properties_of_the_device_are_no_disagreement() -> None:
    """The same kernel with a different number, and with a different device in its decorators, is
    not a disagreement.
    """
    real, simulated = side([module("add_0", 90)]), side([module("add_1", 80)])
    assert list_disagreements(real, simulated) == ()
    assert count_alike(real, simulated) == {"graphs": 1, "kernels": 1}


def test_each_kind_of_disagreement_is_a_sentence() -> None:
    """The verdict, graphs, kernels, operators and skipped CUDA graphs each have their sentence."""
    real = side(
        [module("add_0", 90), module("mul_0", 90, "return")],
        "crash",
        4,
        (CudagraphSkip("mutated inputs"),),
    )
    rows = list_disagreements(real, side([module("add_0", 90)]))
    for words in (
        "the device ends as crash, the simulation as ok",
        "the signature is 'crash: no phase | signal' on the device",
        "the forward aten graph 0/0 has 4 nodes on the device and 3 in the simulation",
        "the kernel triton_poi_fused_mul_0 is generated on the device only",
        "extern_kernels.mm is called 2 times on the device and 1 in the simulation",
        "CUDA graphs are skipped on the device only: mutated inputs",
    ):
        assert any(row.startswith(words) for row in rows), rows


@pytest.mark.real("it compiles for the CPU and for a simulated GPU")
@pytest.mark.triton
def test_a_run_is_compared_with_its_simulation(tmp_path: Path) -> None:
    """The graphs agree, Triton kernels are generated in the simulation only, and the verdict has
    this as evidence.
    """
    (tmp_path / "add.py").write_text(
        "import torch\ndef make(): return (lambda x: x.sin() + 1), (torch.ones(64),)\n"
    )
    request = Request(
        Target("file", str(tmp_path / "add.py"), "make"),
        python=sys.executable,
        compares=False,
        minimizes=False,
        ablation_steps="none",
        weights="fake",
        beside=dataclasses.asdict(simulation.GPUS["h100"]),
    )
    done = pipeline.capture_target(request, tmp_path / "out", lambda text: None)
    assert done.verdict.kind == "ok", done.verdict
    rows = done.verdict.evidence
    assert any(
        "triton_poi_fused_add_sin_0 is generated in the simulation only" in row for row in rows
    ), rows
    assert not any("nodes on the device" in row or "ends as" in row for row in rows), rows
    report = json.loads((done.run_path / run_names.SIMULATED_FILE).read_text())
    assert len(list((done.run_path / "simulated" / "kernels").glob("*.py"))) == 1
    assert (
        report["kernels"] == [0, 1]
        and report["graphs"] == [2, 2]
        and report["alike"] == {"graphs": 2, "kernels": 0}
        and report["device"] == report["simulation"]
    )
