"""What a real GPU leaves behind is judged: errors of kernels, waits, and readings of the driver."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from types import SimpleNamespace

import pytest

from reprokit.core.judge.hangs.hang_causes import diagnose_hang
from reprokit.core.judge.hangs.thread_facts import is_gpu_wait
from reprokit.core.judge.hangs.waiting import is_running
from reprokit.core.judge.signature import sign_verdict
from reprokit.core.judge.stacks.frames import normalise_frames
from reprokit.core.judge.stacks.location import phase_at_work
from reprokit.core.judge.verdict import judge_run
from reprokit.core.records.dumps import Dump, Frame, Link, Raised, ThreadStack
from reprokit.core.records.observation import Observation
from reprokit.core.records.process_state import (
    PYTHON_MARK,
    Evidence,
    GpuUse,
    ProcessState,
    ThreadState,
    evidence_from_json,
)
from reprokit.core.shared.contract.serialize import to_json
from reprokit.host.watch import nvml

SITE = "/v/lib/python3.11/site-packages/"
LATER = "\nCUDA kernel errors might be asynchronously reported at some other API call"
ACCESS = "an illegal memory access was encountered"
PLACES = {
    "the agent's wait": (
        Frame(SITE + "torch/cuda/__init__.py", "synchronize", 1),
        Frame("/run/_reprokit/agent/run_target.py", "_run_rank", 3),
    ),
    "the program": (Frame("/home/bob/train.py", "main", 3),),
    "compiled code": (
        Frame("/tmp/torchinductor_r/ab/cabc.py", "call", 3),
        Frame(SITE + "torch/_inductor/output_code.py", "__call__", 1),
    ),
}


def raised_at(place: str, type: str, message: str, **facts: object) -> Observation:
    raised = Raised((Link(type, message, PLACES[place]),))
    return Observation(exit_status=1, raised=raised, open_events=("stage:call-0",), **facts)  # type: ignore[arg-type]


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize(
    ("type", "message"),
    [
        ("torch.AcceleratorError", f"CUDA error: {ACCESS}{LATER}"),
        ("RuntimeError", f"Triton Error [CUDA]: {ACCESS}"),
    ],
)
def test_an_error_of_a_kernel_has_no_position(place: str, type: str, message: str) -> None:
    """Whichever call reports it, its signature is the same, and only a run without torch.compile
    shows that torch is responsible.
    """
    seen = raised_at(place, type, message, has_instrumentation=True)
    verdict = judge_run(seen)
    title = f"exception: kernel-run | kernel on a GPU: {ACCESS}"
    assert sign_verdict(verdict, seen).title == title
    assert (verdict.responsible, verdict.responsible_place) == ("unknown", "")
    assert judge_run(replace(seen, eager="passes")).responsible == "torch"
    failing = judge_run(replace(seen, eager="fails", eager_detail="it fails too"))
    assert (failing.kind, failing.responsible) == ("error-in-eager", "unknown")


def test_an_error_of_a_launch_keeps_its_position() -> None:
    """The driver reports it where the kernel is launched."""
    message = "CUDA error: invalid configuration argument" + LATER
    seen = raised_at("compiled code", "torch.AcceleratorError", message, has_instrumentation=True)
    assert sign_verdict(judge_run(seen), seen).title.endswith("@ <generated>:call")


def test_an_error_of_a_kernel_without_the_compiler_is_one_of_eager() -> None:
    """No process imported Dynamo, so no compiled code can have launched the kernel."""
    seen = raised_at("the program", "torch.AcceleratorError", f"CUDA error: {ACCESS}{LATER}")
    verdict = judge_run(seen)
    assert (verdict.kind, verdict.responsible) == ("error-in-eager", "unknown")


WAITS = {
    "torch.cuda": Frame(SITE + "torch/cuda/__init__.py", "synchronize", 1),
    "a stream": Frame(SITE + "torch/cuda/streams.py", "Stream.synchronize", 1),
    "torch.accelerator": Frame(SITE + "torch/accelerator/__init__.py", "synchronize", 1),
    "item()": Frame("/home/bob/train.py", "step", 1),
    "a launch": Frame("/home/bob/train.py", "step", 1),
}


NATIVE = {
    "item()": ("0x7f", "_local_scalar_dense_cuda", PYTHON_MARK),
    # of an H200: the first launch of a kernel loads its code, which waits for the running kernel
    "a launch": ("0x7f", "clock_gettime", "0x7f", "cuLaunchKernel", "cudaLaunchKernel"),
}


@pytest.mark.parametrize("name", WAITS)
@pytest.mark.parametrize("share", [1.0, 0.0, None])
def test_a_wait_for_a_gpu_is_recognised(name: str, share: float | None) -> None:
    """Torch waits in a busy loop. The detail has the use of each GPU that the driver reports."""
    native = NATIVE.get(name, ())
    state = ThreadState(1, states="RRR", want=0.98, native=native)
    frames = (WAITS[name], Frame("/home/bob/train.py", "main", 9))
    process = ProcessState(1, 0, "python train.py", "RRR", threads=(state,), gil_age_s=0.1)
    evidence = Evidence((process,), gpus=(GpuUse(0, share, 1 << 30),))
    assert evidence_from_json(json.loads(json.dumps(to_json(evidence)))).gpus == evidence.gpus
    stack = ThreadStack(1, "MainThread", frames, is_main=True, tid=1)
    dumps = tuple(Dump(n, "py-spy", 1, (stack,)) for n in (1, 2))
    seen = Observation(main_pid=1, dumps=dumps, evidence=evidence)
    cause = diagnose_hang(seen)
    assert cause.name == "gpu-wait" and not is_running(seen), cause
    use = {1.0: "GPU 0 is busy", 0.0: "GPU 0 is idle", None: ""}[share]
    assert use in cause.detail and ("GPU 0" in cause.detail) is (share is not None)
    assert is_gpu_wait(normalise_frames(frames)) is (name not in NATIVE)


def test_the_frames_of_python_m_are_no_import() -> None:
    """A wait below ``python -m`` is of the program; one below the import machinery is an import."""
    wait = WAITS["torch.cuda"]
    for function, phase in (("_run_code", "eager"), ("_find_and_load", "import")):
        frames = (wait, Frame("<frozen>", function, 1))
        stack = ThreadStack(1, "MainThread", frames, is_main=True, tid=1)
        dumps = tuple(Dump(n, "py-spy", 1, (stack,)) for n in (1, 2))
        assert phase_at_work(Observation(main_pid=1, dumps=dumps))[0] == phase


class _Refused(Exception):
    pass


def test_a_gpu_in_mig_mode_reports_its_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """It refuses the query of its utilization. A GPU that refuses its memory too has no reading."""

    def rates(handle: int) -> SimpleNamespace:
        if handle:
            raise _Refused
        return SimpleNamespace(gpu=50)

    def memory(handle: int) -> SimpleNamespace:
        if handle == 2:
            raise _Refused
        return SimpleNamespace(used=7)

    library = SimpleNamespace(
        NVMLError=_Refused,
        nvmlDeviceGetCount=lambda: 3,
        nvmlDeviceGetHandleByIndex=lambda number: number,
        nvmlDeviceGetUtilizationRates=rates,
        nvmlDeviceGetMemoryInfo=memory,
    )
    monkeypatch.setitem(sys.modules, "pynvml", library)
    assert nvml.query_gpu_use() == [
        {"index": 0, "busy_share": 0.5, "memory_bytes": 7},
        {"index": 1, "busy_share": None, "memory_bytes": 7},
    ]
