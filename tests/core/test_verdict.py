"""Each kind, from the least evidence that proves it."""

from __future__ import annotations

import pytest

from reprokit.core.records import Dump, Fault, Frame, GraphRecord, Link, Observation, Raised, ThreadStack
from reprokit.core.verdict import judge

SITE = "/v/lib/python3.11/site-packages/"
LOWERING = Frame(SITE + "torch/_inductor/graph.py", "GraphLowering.run")
USER = Frame("/home/bob/x.py", "train")
GRAPH = GraphRecord(1, "dynamo", "0/0", 12)


def raised(kind: str, text: str, *frames: Frame) -> Raised:
    return Raised((Link(kind, text, frames),))


def dumps(*stacks: tuple[Frame, ...]) -> tuple[Dump, ...]:
    return tuple(Dump(i, "py-spy", 5, (ThreadStack(5, "MainThread", s, is_main=True),)) for i, s in enumerate(stacks))


def leaf(name: str) -> tuple[Frame, ...]:
    return (Frame(SITE + "torch/_inductor/ir.py", name), LOWERING)


DEADLINE = {
    "is_timed_out": True,
    "deadline_s": 100.0,
    "main_pid": 5,
    "has_instrumentation": True,
    "quiet_limit_s": 25.0,
}


@pytest.mark.parametrize(
    ("seen", "kind", "phase"),
    [
        (Observation(exit_status=0, has_finished=True, graphs=(GRAPH,)), "ok", None),
        (Observation(exit_status=0, is_command=True), "ok", None),
        (Observation(exit_status=1, raised=raised("ValueError", "x", LOWERING)), "exception", "lowering"),
        (Observation(exit_status=1, raised=raised("ValueError", "x", USER)), "error-in-eager", "eager"),
        (Observation(exit_status=1, raised=raised("ValueError", "x", LOWERING), eager="fails"), "error-in-eager", "eager"),
        (Observation(exit_status=1, raised=raised("ValueError", "x", USER), eager="passes"), "exception", None),
        (Observation(exit_status=0, is_command=True, compile_failures=(raised("E", "x", LOWERING),)), "exception", "lowering"),
        (Observation(exit_status=-11, faults=(Fault(1, "Segmentation fault", (LOWERING,)),)), "crash", "lowering"),
        (Observation(exit_status=139, is_command=True), "crash", None),
        (Observation(exit_status=1, faults=(Fault(1, "Segmentation fault", (LOWERING,)),)), "crash", "lowering"),
        (Observation(exit_status=-11, faults=(Fault(1, "Segmentation fault", (USER,)),)), "error-in-eager", "eager"),
        (Observation(exit_status=-11, is_watched=True), "error-in-eager", "eager"),
        (Observation(exit_status=1, raised=raised("MemoryError", "", LOWERING)), "oom", "lowering"),
        (Observation(exit_status=1, raised=raised("torch.OutOfMemoryError", "CUDA out of memory. Tried", LOWERING)), "oom", "lowering"),
        (Observation(exit_status=1, raised=raised("RuntimeError", "DefaultCPUAllocator: can't allocate memory: x")), "oom", None),
        (Observation(exit_status=-9, oom_evidence="oom_kill rose"), "oom", None),
        (Observation(exit_status=-9), "crash", None),
        (Observation(exit_status=7, is_command=True), "unknown", None),
        (Observation(exit_status=0), "unknown", None),
        (Observation(is_interrupted=True), "unknown", None),
        (Observation(**DEADLINE, quiet_s=60, dumps=dumps(leaf("a"), leaf("a"))), "hang", "lowering"),
        (Observation(**DEADLINE, quiet_s=60, dumps=dumps(leaf("a"), leaf("b"))), "slow-compile", "lowering"),
        (Observation(**DEADLINE, quiet_s=60, dumps=dumps(leaf("a"), leaf("b")), has_fine_heartbeat=True), "hang", "lowering"),
        (Observation(**DEADLINE, quiet_s=2, dumps=dumps(leaf("a"), leaf("a"))), "slow-compile", "lowering"),
        (Observation(**DEADLINE, quiet_s=2, dumps=dumps((USER,), (USER,))), "unknown", "eager"),
        (Observation(**DEADLINE, quiet_s=60, dumps=dumps((USER,), (USER,))), "hang", "eager"),
        (Observation(**DEADLINE, quiet_s=60, dumps=dumps(leaf("a")), eager="hangs"), "error-in-eager", "eager"),
        (Observation(**DEADLINE, quiet_s=60, open_events=("dynamo", "build_guards")), "hang", "guards"),
    ],
)  # fmt: skip
def test_kind_and_phase(seen: Observation, kind: str, phase: str | None) -> None:
    """One row, one claim; every verdict has a one-sentence reason."""
    verdict = judge(seen)
    assert (verdict.kind, verdict.phase) == (kind, phase), verdict
    assert verdict.reason.endswith(".") and "\n" not in verdict.reason


def test_a_compiler_that_burns_its_child_is_slow_not_stuck() -> None:
    """g++ may be silent for minutes on a loaded machine."""
    build = (Frame(SITE + "torch/_inductor/cpp_builder.py", "run_compile_cmd"),)
    busy = Observation(**DEADLINE, quiet_s=60, dumps=dumps(build, build), busy_pids=(6,))
    assert judge(busy).kind == "slow-compile"
    idle = Observation(**DEADLINE, quiet_s=60, dumps=dumps(build, build))
    assert judge(idle).kind == "hang"


def test_a_library_that_spins_below_the_compiler_is_no_progress() -> None:
    """Only compiler frames that change are a moving stack."""
    spin = [
        (
            Frame(SITE + "sympy/core/expr.py", name),
            Frame(SITE + "torch/_inductor/fx_passes/post_grad.py", "post_grad_passes"),
        )
        for name in "ab"
    ]
    assert judge(Observation(**DEADLINE, quiet_s=60, dumps=dumps(*spin))).kind == "hang"


def test_evidence_names_what_was_believed() -> None:
    """A reader can check each verdict against its evidence."""
    verdict = judge(Observation(**DEADLINE, quiet_s=60, dumps=dumps(leaf("a"), leaf("a"))))
    text = " / ".join(verdict.evidence)
    assert "torch/_inductor/ir.py:a" in text and "60.0 s" in text and "did not move over 2 dumps" in text


def test_a_worker_that_spins_in_place_is_stuck() -> None:
    """The compiler waits for a worker process: only a worker whose stack moves is progress."""
    wait = dumps(*[(Frame(SITE + "torch/_inductor/async_compile.py", "wait"),)] * 2)

    def worker(*names: str) -> tuple[Dump, ...]:
        threads = [(ThreadStack(6, "MainThread", (Frame("/x/jobs.py", n),), is_main=True),) for n in names]
        return tuple(Dump(i, "py-spy", 6, t) for i, t in enumerate(threads))

    spins = Observation(**DEADLINE, quiet_s=60, dumps=(*wait, *worker("spin", "spin")), busy_pids=(6,))
    assert judge(spins).kind == "hang"
    works = Observation(**DEADLINE, quiet_s=60, dumps=(*wait, *worker("parse", "emit")), busy_pids=(6,))
    assert judge(works).kind == "slow-compile"
