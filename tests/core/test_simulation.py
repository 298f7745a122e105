"""Some failures of a simulated run are gaps in reprokit, and the reason of an ``ok`` run states the
work that was done.
"""

from __future__ import annotations

import pytest

from reprokit.core.judge.responsible.responsibility import repository_for, why_not_filed
from reprokit.core.judge.signature import sign_verdict
from reprokit.core.judge.verdict import judge_run
from reprokit.core.records.dumps import Frame, Link, Raised
from reprokit.core.records.observation import Observation
from reprokit.core.records.rank_graphs import GraphRecord
from reprokit.core.shared.simulation import refusal_message

SITE = "/x/lib/python3.11/site-packages/"
TORCH = Frame(SITE + "torch/cuda/graphs.py", "is_current_stream_capturing")
LOWERING = Frame(SITE + "torch/_inductor/graph.py", "GraphLowering.call_function")
GPU = ("NVIDIA H100 80GB HBM3, compute capability 9.0, is not there",)
RANKS = ("rank 0 of 4 in a fake process group stands for all of them",)
DRIVER = "CUDA error: CUDA driver version is insufficient for CUDA runtime version"


def failed(
    message: str, *frames: Frame, simulated: tuple[str, ...] = GPU, status: int = 1
) -> Observation:
    raised = Raised((Link("RuntimeError", message, frames or (LOWERING,)),))
    return Observation(exit_status=status, raised=raised, simulated=simulated)


@pytest.mark.parametrize(
    ("message", "symbol"),
    [
        (refusal_message("torch._C._cudart.cudaMemGetInfo"), "torch._C._cudart.cudaMemGetInfo"),
        (
            "RuntimeError: "
            + refusal_message("torch.cuda.Stream")
            + "\n\nSet TORCHDYNAMO_VERBOSE=1",
            "torch.cuda.Stream",
        ),
        (
            "module 'torch._C' has no attribute '_cuda_getCurrentStream'",
            "torch._C._cuda_getCurrentStream",
        ),
        ("Tried to instantiate dummy base class _CudaStreamBase", "_CudaStreamBase"),
        (
            "'SimulatedProperties' object has no attribute 'clock_rate'",
            "SimulatedProperties.clock_rate",
        ),
        (
            "Could not run 'aten::empty.memory_format' with arguments from the 'CUDA' backend.",
            "aten::empty.memory_format",
        ),
    ],
)
def test_a_gap_names_its_symbol(message: str, symbol: str) -> None:
    """The verdict is unknown with reprokit as the responsible party, in one line, and is not filed;
    the symbol is its identity.
    """
    seen = failed(message)
    verdict = judge_run(seen)
    assert (verdict.kind, verdict.cause, verdict.responsible) == (
        "unknown",
        "simulation-gap",
        "reprokit",
    )
    assert (
        verdict.responsible_place == symbol
        and symbol in verdict.reason
        and "\n" not in verdict.reason
    )
    assert (
        not repository_for(verdict)
        and why_not_filed(verdict) == f"reprokit itself is responsible at {symbol}"
    )
    assert sign_verdict(verdict, seen).title == f"unknown: lowering | simulation-gap {symbol}"


def test_an_error_of_the_driver_names_the_function_of_torch() -> None:
    """C++ code has no symbol, so the innermost frame of torch is named."""
    for seen in (
        failed(DRIVER, TORCH, LOWERING),
        Observation(
            exit_status=-6,
            simulated=GPU,
            stderr_tail=(
                "terminate called after throwing an instance of 'c10::Error'\n  what(): "
                f" {DRIVER}\n"
            ),
        ),
    ):
        assert judge_run(seen).responsible == "reprokit", seen
    assert (
        judge_run(failed(DRIVER, TORCH, LOWERING)).detail
        == "torch/cuda/graphs.py:is_current_stream_capturing"
    )


def test_failures_that_are_not_gaps() -> None:
    """Real devices, simulated ranks, other errors, classes of the program and caught errors are not
    gaps.
    """
    assert judge_run(failed(DRIVER, LOWERING, simulated=())).kind == "exception"
    assert judge_run(failed("'buf1'")).responsible == "torch"
    assert judge_run(failed(DRIVER, LOWERING, simulated=RANKS)).kind == "exception"
    own = "'SimulatedMarket' object has no attribute 'price'"
    assert judge_run(failed(own, LOWERING, simulated=())).kind == "exception"
    caught = failed(DRIVER, status=0)
    went_on = Observation(exit_status=0, is_command=True, raised=caught.raised, simulated=GPU)
    assert judge_run(went_on).kind == "ok"


def graph(level: str) -> GraphRecord:
    return GraphRecord(0, level, "0/0", 3, is_done=True)


@pytest.mark.parametrize(
    ("seen", "says"),
    [
        (
            {"graphs": (graph("dynamo"), graph("aten"))},
            "The target finished; 1 graph was compiled.",
        ),
        (
            {"graphs": (graph("dynamo"), graph("aten")), "has_fake_tensors": True},
            (
                "1 graph was compiled to the end of code generation; nothing was executed because"
                " the weights are fake."
            ),
        ),
        (
            {"graphs": (graph("dynamo"),) * 2, "has_fake_tensors": True},
            (
                "2 graphs were traced, and no code was generated; nothing was executed because the"
                " weights are fake."
            ),
        ),
        (
            {
                "graphs": (graph("dynamo"), graph("aten")),
                "has_fake_tensors": True,
                "simulated": GPU,
                "kernels": 3,
                "kernels_compiled": 2,
            },
            (
                "1 graph was compiled to the end of code generation for a simulated NVIDIA H100"
                " 80GB HBM3; 2 of 3 Triton kernels were compiled, each alone; nothing was executed"
                " because the GPU is simulated."
            ),
        ),
        (
            {
                "graphs": (graph("dynamo"), graph("aten")),
                "has_fake_tensors": True,
                "simulated": RANKS,
            },
            (
                "1 graph was compiled to the end of code generation; nothing was executed because"
                " the weights are fake."
            ),
        ),
        (
            {"has_fake_tensors": True},
            (
                "The target finished, and nothing in it was compiled or executed: the tensors are"
                " fake."
            ),
        ),
        ({}, "The target finished, and nothing in it was compiled."),
    ],
)
def test_an_ok_run_states_the_work_that_was_done(seen: dict[str, object], says: str) -> None:
    """The target finished only if it was executed, and kernels are mentioned only if they were
    compiled.
    """
    verdict = judge_run(Observation(exit_status=0, has_finished=True, **seen))  # type: ignore[arg-type]
    assert (verdict.kind, verdict.reason) == ("ok", says)
