"""Each kind of verdict is given for the minimal evidence that proves it."""

from __future__ import annotations

import dataclasses

import pytest

from reprokit.core.judge.hangs import waiting
from reprokit.core.judge.stacks.main_process import find_by_stacks
from reprokit.core.judge.verdict import judge_run
from reprokit.core.records.dumps import Dump, Fault, Frame, Link, Raised, ThreadStack
from reprokit.core.records.observation import Observation
from reprokit.core.records.process_state import Evidence, ProcessState, ThreadState
from reprokit.core.records.rank_graphs import GraphRecord

SITE = "/v/lib/python3.11/site-packages/"
LOWERING = Frame(SITE + "torch/_inductor/graph.py", "GraphLowering.run")
USER = Frame("/home/bob/x.py", "train")
GRAPH = GraphRecord(1, "dynamo", "0/0", 12)


def raised(kind: str, text: str, *frames: Frame) -> Raised:
    return Raised((Link(kind, text, frames),))


def dumps(*stacks: tuple[Frame, ...]) -> tuple[Dump, ...]:
    return tuple(
        Dump(i, "py-spy", 5, (ThreadStack(5, "MainThread", s, is_main=True),))
        for i, s in enumerate(stacks)
    )


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
        (
            Observation(exit_status=1, raised=raised("ValueError", "x", LOWERING)),
            "exception",
            "lowering",
        ),
        (
            Observation(exit_status=1, raised=raised("ValueError", "x", USER)),
            "error-in-eager",
            "eager",
        ),
        (
            Observation(exit_status=1, raised=raised("ValueError", "x", LOWERING), eager="fails"),
            "error-in-eager",
            "eager",
        ),
        (
            Observation(exit_status=1, raised=raised("ValueError", "x", USER), eager="passes"),
            "exception",
            None,
        ),
        (
            Observation(
                exit_status=0, is_command=True, compile_failures=(raised("E", "x", LOWERING),)
            ),
            "exception",
            "lowering",
        ),
        (
            Observation(exit_status=-11, faults=(Fault(1, "Segmentation fault", (LOWERING,)),)),
            "crash",
            "lowering",
        ),
        (Observation(exit_status=139, is_command=True), "crash", None),
        (
            Observation(exit_status=1, faults=(Fault(1, "Segmentation fault", (LOWERING,)),)),
            "crash",
            "lowering",
        ),
        (
            Observation(exit_status=-11, faults=(Fault(1, "Segmentation fault", (USER,)),)),
            "error-in-eager",
            "eager",
        ),
        (Observation(exit_status=-11, is_watched=True), "error-in-eager", "eager"),
        (Observation(exit_status=1, raised=raised("MemoryError", "", LOWERING)), "oom", "lowering"),
        (
            Observation(
                exit_status=1,
                raised=raised("torch.OutOfMemoryError", "CUDA out of memory. Tried", LOWERING),
            ),
            "oom",
            "lowering",
        ),
        (
            Observation(
                exit_status=1,
                raised=raised("RuntimeError", "DefaultCPUAllocator: can't allocate memory: x"),
            ),
            "oom",
            None,
        ),
        (Observation(exit_status=-9, oom_evidence="oom_kill rose"), "oom", None),
        (Observation(exit_status=-9), "crash", None),
        (Observation(exit_status=7, is_command=True), "unknown", None),
        (Observation(exit_status=0), "unknown", None),
        (Observation(is_interrupted=True), "unknown", None),
        (
            Observation(**DEADLINE, quiet_s=60, dumps=dumps(leaf("a"), leaf("a"))),
            "hang",
            "lowering",
        ),
        (
            Observation(**DEADLINE, quiet_s=60, dumps=dumps(leaf("a"), leaf("b"))),
            "slow-compile",
            "lowering",
        ),
        (
            Observation(
                **DEADLINE,
                quiet_s=60,
                dumps=dumps(leaf("a"), leaf("b")),
                endless_line="x.py:3 in f",
            ),
            "hang",
            "lowering",
        ),
        (
            Observation(**DEADLINE, quiet_s=2, dumps=dumps(leaf("a"), leaf("a"))),
            "slow-compile",
            "lowering",
        ),
        (Observation(**DEADLINE, quiet_s=2, dumps=dumps((USER,), (USER,))), "unknown", "eager"),
        (Observation(**DEADLINE, quiet_s=60, dumps=dumps((USER,), (USER,))), "hang", "eager"),
        (
            Observation(**DEADLINE, quiet_s=60, dumps=dumps(leaf("a")), eager="hangs"),
            "error-in-eager",
            "eager",
        ),
        (
            Observation(**DEADLINE, quiet_s=60, open_events=("dynamo", "build_guards")),
            "hang",
            "guards",
        ),
    ],
)
def test_kind_and_phase(seen: Observation, kind: str, phase: str | None) -> None:
    """Each row is one claim, and every verdict has a one-sentence reason."""
    verdict = judge_run(seen)
    assert (verdict.kind, verdict.phase) == (kind, phase), verdict
    assert verdict.reason.endswith(".") and "\n" not in verdict.reason


@pytest.mark.parametrize(
    ("cpu_s", "wanted_s", "kind"),
    [
        (13, 110, "unknown"),
        (90, 110, "slow-compile"),
        (13, 14, "slow-compile"),
        (13, 0, "slow-compile"),
    ],
)
def test_a_compile_without_a_cpu_is_not_called_slow(
    cpu_s: float, wanted_s: float, kind: str
) -> None:
    """On a busy machine the deadline says nothing about the compiler, and nothing is to be filed."""
    moving = dumps(leaf("a"), leaf("b"))
    seen = Observation(
        **DEADLINE, quiet_s=2, dumps=moving, seconds=120, cpu_s=cpu_s, wanted_cpu_s=wanted_s
    )
    verdict = judge_run(seen)
    assert verdict.kind == kind
    assert ("13 of the 110 CPU-seconds that it wanted" in verdict.reason) == (kind == "unknown")


def test_a_library_that_spins_below_the_compiler_is_not_progress() -> None:
    """Only a change of compiler frames counts as a moving stack."""
    spin = [
        (
            Frame(SITE + "sympy/core/expr.py", name),
            Frame(SITE + "torch/_inductor/fx_passes/post_grad.py", "post_grad_passes"),
        )
        for name in "ab"
    ]
    assert judge_run(Observation(**DEADLINE, quiet_s=60, dumps=dumps(*spin))).kind == "hang"


def test_the_evidence_names_the_facts_of_the_verdict() -> None:
    """A reader can check each verdict with its evidence."""
    verdict = judge_run(Observation(**DEADLINE, quiet_s=60, dumps=dumps(leaf("a"), leaf("a"))))
    text = " / ".join(verdict.evidence)
    assert (
        "torch/_inductor/ir.py:a" in text
        and "60.0 s" in text
        and "over 2 dumps nothing moved" in text
    )


def test_frames_that_moved_between_earlier_dumps_did_not_stay_the_same() -> None:
    """The last three dumps of a loop may show the same line by chance."""
    seen = Observation(**DEADLINE, quiet_s=60, dumps=dumps(*map(leaf, "abaaa")))
    text = " / ".join(judge_run(seen).evidence)
    assert "nothing moved" not in text and "over 5 dumps 1 frame stayed the same" in text


@pytest.mark.parametrize(("inner", "chosen"), [(LOWERING, 0), (USER, 6)])
def test_a_thread_that_compiles_is_the_working_one(inner: Frame, chosen: int) -> None:
    """A pass of the compiler waits for a thread of the program, which is busy outside of it. In a
    program that does not compile, the busy thread is the working one.
    """
    lib = "/usr/lib/python3.11/threading.py"
    wait = (Frame(lib, "Thread._wait_for_tstate_lock", 1139), Frame(lib, "Thread.join", 1119))
    threads = (
        ThreadStack(5, "MainThread", (*wait, inner, USER), is_main=True, tid=5),
        ThreadStack(5, "counter", (USER,), tid=6),
    )
    states = (
        ThreadState(5, "python", "SSS", 0.0, "futex"),
        ThreadState(6, "counter", "RRR", 1.0),
    )
    evidence = Evidence((ProcessState(5, states="RRR", want=1.0, threads=states),))
    seen = Observation(
        dumps=(Dump(0, "py-spy", 5, threads),), evidence=evidence, main_pid=5, is_attached=True
    )
    assert waiting.choose_stuck_thread(seen).working_tid == chosen


def test_a_compiler_exception_that_the_program_wraps_is_the_verdict() -> None:
    """``except Exception: raise MyError`` does not exonerate the compiler."""
    failure = raised("ValueError", "no lowering", LOWERING)
    seen = Observation(
        exit_status=1,
        is_command=True,
        raised=raised("MyError", "step failed", USER),
        compile_failures=(failure,),
    )
    verdict = judge_run(seen)
    assert (verdict.kind, verdict.phase, verdict.cause) == ("exception", "lowering", "ValueError")
    assert any("MyError: step failed" in row for row in verdict.evidence)


def test_an_exception_of_inductor_has_the_line_of_the_node_at_work() -> None:
    """The line is that of the first node, and the evidence names the nodes and the other lines."""
    nodes = (("exp", "a.py:12 in f"), ("sub", "a.py:12 in f"), ("sin", "b.py:3 in g"))
    failure = dataclasses.replace(raised("ValueError", "no lowering", LOWERING), nodes=nodes)
    verdict = judge_run(
        Observation(
            exit_status=1,
            raised=raised("ValueError", "no lowering", LOWERING),
            compile_failures=(failure,),
        )
    )
    assert verdict.work == {"line": "a.py:12"}
    found = (
        "Inductor worked on `exp`, `sub` of the graph, which a.py:12 in f made; its kernel has"
        " nodes of b.py:3 in g too"
    )
    assert found in verdict.evidence


def test_eager_code_that_passes_through_dynamos_wrappers_is_eager() -> None:
    """Optimizers and function transforms have frames in torch/_dynamo and torch/_functorch without
    a compile.
    """
    for file, function in (
        ("_dynamo/eval_frame.py", "_fn"),
        ("_functorch/vmap.py", "_flat_vmap"),
        ("_functorch/apis.py", "wrapped"),
    ):
        frame = Frame(SITE + "torch/" + file, function)
        assert (
            judge_run(
                Observation(exit_status=1, raised=raised("ValueError", "x", frame, USER))
            ).kind
            == "error-in-eager"
        ), file


def test_an_exception_before_a_hanging_shutdown_is_the_verdict() -> None:
    """The deadline only ended the shutdown after the exception."""
    verdict = judge_run(
        Observation(**DEADLINE, quiet_s=60, raised=raised("ValueError", "x", LOWERING))
    )
    assert verdict.kind == "exception"
    assert any("had not exited" in row for row in verdict.evidence)


def test_a_stall_is_a_hang_before_any_deadline() -> None:
    """The watchdog stops a run that stalls, and the verdict has the seconds and the reason."""
    verdict = judge_run(
        Observation(
            **{**DEADLINE, "is_stalled": True}, quiet_s=61, dumps=dumps(leaf("a"), leaf("a"))
        )
    )
    assert (verdict.kind, verdict.phase) == ("hang", "lowering")
    assert "deadline" not in verdict.reason and "61 s" in verdict.reason


def test_out_of_memory_in_eager_is_not_a_compiler_bug() -> None:
    """The result of the eager run takes precedence over the kind."""
    seen = Observation(
        exit_status=1,
        raised=raised("MemoryError", "", LOWERING),
        eager="fails",
        eager_detail="MemoryError: ",
    )
    assert judge_run(seen).kind == "error-in-eager"


def test_a_hang_in_a_thread_has_the_phase_of_that_thread() -> None:
    """With torch.compile in a worker thread, the verdict is about the thread with open compiler
    phases, not the waiting main thread.
    """
    threads = (
        ThreadStack(
            5,
            "MainThread",
            (Frame("/usr/lib/python3.11/threading.py", "join"),),
            is_main=True,
            tid=5,
        ),
        ThreadStack(5, "worker", leaf("stuck"), tid=9),
    )
    both = tuple(Dump(i, "py-spy", 5, threads) for i in (1, 2))
    verdict = judge_run(Observation(**DEADLINE, quiet_s=60, dumps=both, working_tid=9))
    assert (verdict.kind, verdict.phase) == ("hang", "lowering")


def test_a_hang_names_the_file_that_a_child_compiles() -> None:
    """The kernel of a hang is the newest source file in the command of a child."""
    commands = ("python train.py", "python wrap.py", "g++ -O3 /tmp/x/ckernel.main.cpp -o k.so")
    processes = tuple(ProcessState(5 + n, 4 + n, words) for n, words in enumerate(commands))
    verdict = judge_run(
        Observation(
            **DEADLINE,
            quiet_s=60,
            dumps=dumps(leaf("a"), leaf("a")),
            evidence=Evidence(processes),
        )
    )
    assert (verdict.kind, verdict.work.get("kernel")) == ("hang", "ckernel.main.cpp")


def test_a_compile_worker_is_not_the_main_process() -> None:
    """A process waits for its compile worker, so the process is the main one, although only the
    worker is inside the compiler.
    """
    main = Frame(SITE + "torch/_inductor/compile_worker/__main__.py", "main")
    waits = Dump(1, "py-spy", 5, (ThreadStack(5, "MainThread", (USER,), is_main=True, tid=5),))
    for outermost, chosen in ((main, 5), (USER, 6)):
        stack = (*leaf("a"), outermost)
        works = Dump(1, "py-spy", 6, (ThreadStack(6, "MainThread", stack, is_main=True, tid=6),))
        assert find_by_stacks((waits, works), 5).pid == chosen
