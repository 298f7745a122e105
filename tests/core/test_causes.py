"""Each rule of data/causes.json is tested with the evidence that it is for, and with missing
evidence.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from reprokit.core.judge import attached
from reprokit.core.judge.hangs.hang_causes import EXPLAIN, diagnose_hang
from reprokit.core.judge.hangs.thread_facts import TABLE, is_growing
from reprokit.core.records.dumps import Dump, Frame, ThreadStack
from reprokit.core.records.observation import Observation
from reprokit.core.records.process_state import (
    PYTHON_MARK,
    Evidence,
    HeldLock,
    ProcessState,
    ThreadState,
    cut_words,
    evidence_from_json,
)
from reprokit.core.redaction.command_words import command_text
from reprokit.core.shared.contract.serialize import to_json

SITE = "/v/lib/python3.11/site-packages/"
STD = "/usr/lib/python3.11/"
PASS = Frame("/home/bob/model.py", "Pass.__call__", 7)
OWNER = ThreadStack(1, "MainThread", (PASS,), is_main=True, owns_gil=True, tid=1)


def thread(
    *frames: Frame, owns_gil: bool = False, tid: int = 1, name: str = "MainThread"
) -> ThreadStack:
    return ThreadStack(1, name, (*frames, PASS), is_main=tid == 1, owns_gil=owns_gil, tid=tid)


def seen(state: ThreadState, *stacks: ThreadStack, **process: object) -> Observation:
    """Return the observation of one process with one thread in this state, dumped twice with these
    threads.
    """
    own = ProcessState(1, 0, "python train.py", states=state.states, threads=(state,), **process)  # type: ignore[arg-type]
    dumps = tuple(Dump(n, "py-spy", 1, stacks or (thread(),)) for n in (1, 2))
    return Observation(main_pid=1, dumps=dumps, evidence=Evidence((own,)))


def with_native(base: Observation) -> Observation:
    """Return the observation with a native thread that may end any wait."""
    own, *others = base.evidence.processes
    native = ThreadState(99, states="SSS", want=0.0, syscall="epoll_wait")
    own = replace(own, threads=(*own.threads, native))
    return replace(base, evidence=replace(base.evidence, processes=(own, *others)))


def with_children(base: Observation, *more: ProcessState) -> Observation:
    return replace(
        base, evidence=replace(base.evidence, processes=(*base.evidence.processes, *more))
    )


IDLE = ThreadState(1, states="SSS", want=0.0)
BUSY = ThreadState(1, states="RRR", want=0.98)
GROWTH = tuple((float(t), 100_000_000 + t * 50_000_000, t * 0.9) for t in range(10))


def idle(syscall: str, **more: object) -> ThreadState:
    return replace(IDLE, syscall=syscall, **more)  # type: ignore[arg-type]


CASES = {
    "stopped": seen(replace(IDLE, states="TTT"), gil_age_s=9.0),
    "uninterruptible": seen(replace(IDLE, states="DDD"), gil_age_s=0.1),
    "python-loop": seen(BUSY, thread(owns_gil=True), gil_age_s=0.2),
    "native-loop-holding-gil": seen(BUSY, thread(owns_gil=True), gil_age_s=9.0),
    "native-loop": seen(BUSY, thread(), gil_age_s=0.2),
    "memory-runaway": seen(idle("clock_nanosleep"), memory=GROWTH),
    "gil-blocked": seen(idle("read"), gil_age_s=9.0),
    "lock-deadlock": seen(idle("futex"), gil_age_s=0.1),
    "native-wait": seen(idle("futex", native=("pthread_mutex_lock", "lib_take")), gil_age_s=0.1),
    "collective": seen(
        idle("futex"), thread(Frame(SITE + "torch/distributed/distributed_c10d.py", "all_reduce"))
    ),
    "gpu-wait": seen(
        BUSY, thread(Frame(SITE + "torch/cuda/__init__.py", "synchronize")), gil_age_s=0.1
    ),
    "io-wait": seen(
        idle("recvfrom", waits_for="descriptor 4, a socket to 10.0.0.1:80"), gil_age_s=0.1
    ),
    "file-lock": seen(idle("flock", waits_for="/cache/x.lock")),
    "thread-wait": with_native(
        seen(idle("futex"), thread(Frame(STD + "threading.py", "Thread.join")))
    ),
    "deadlock": seen(idle("futex"), thread(Frame(STD + "threading.py", "Thread.join"))),
    "sleep": seen(idle("clock_nanosleep"), gil_age_s=0.1),
    "unknown": seen(idle("brk")),
}


@pytest.mark.parametrize("cause", CASES)
def test_cause(cause: str) -> None:
    """Each kind of evidence leads to one cause, with a detail that a person can use."""
    cause_found = diagnose_hang(CASES[cause])
    assert cause_found.name == cause, cause_found
    assert cause_found.detail


CHILD = ProcessState(
    2, 1, "g++ -O3 kernel.cpp", states="SSS", want=0.0, threads=(ThreadState(2, syscall="read"),)
)
WAITS = idle("wait4", waits_for_pid=2)
FUTURE = thread(
    Frame(STD + "threading.py", "Condition.wait"),
    Frame(STD + "concurrent/futures/_base.py", "Future.result"),
)
ASYNC = thread(Frame(SITE + "torch/_inductor/async_compile.py", "AsyncCompile.wait"))
SIDECAR = ProcessState(5, 1, "python -m torch._inductor.compile_worker", states="SSS")
WORKER = ProcessState(6, 5, "python -m torch._inductor.compile_worker", states="SSS", want=0.0)
JOB = Dump(
    1,
    "py-spy",
    6,
    (
        ThreadStack(
            6,
            "MainThread",
            (
                Frame("/x/jobs.py", "stuck"),
                Frame(SITE + "torch/_inductor/compile_worker/subproc_pool.py", "do_job"),
            ),
            is_main=True,
            tid=6,
        ),
    ),
)


def of_worker(worker: ProcessState, *more: ProcessState, job: bool = True) -> Observation:
    base = with_children(seen(idle("futex"), FUTURE), SIDECAR, worker, *more)
    return replace(base, dumps=(*base.dumps, JOB)) if job else base


FOLLOWED = {
    "child-stuck": with_children(seen(WAITS), CHILD),
    "child-busy": with_children(
        seen(WAITS), CHILD, ProcessState(3, 2, "cc1plus kernel.cpp", "RRR", 1.0)
    ),
    "child-stopped": with_children(seen(WAITS), replace(CHILD, states="TTT")),
    "compile-worker-stuck": of_worker(WORKER),
    "compile-worker-busy": of_worker(replace(WORKER, want=0.99)),
    "compile-worker-stopped": of_worker(replace(WORKER, states="TTT")),
    "compile-worker-child-stuck": of_worker(WORKER, ProcessState(7, 6, "ptxas k.ptx", "SSS", 0.0)),
    "compile-worker-child-busy": of_worker(WORKER, ProcessState(7, 6, "ptxas k.ptx", "RRR", 1.0)),
    "compile-worker-child-stopped": of_worker(
        WORKER, ProcessState(7, 6, "ptxas k.ptx", "TTT", 0.0)
    ),
    "compile-worker-sidecar-stopped": with_children(
        seen(idle("futex"), FUTURE), replace(SIDECAR, states="TTT"), WORKER
    ),
    "compile-worker-lost": with_children(seen(idle("futex"), ASYNC), SIDECAR, WORKER),
}


def test_idle_workers_of_a_different_wait_are_not_its_cause() -> None:
    """A thread that waits outside of Inductor's pool has no cause in the pool's idle workers."""
    idle_workers = with_native(of_worker(WORKER, job=False))
    assert diagnose_hang(idle_workers).name == "thread-wait"


@pytest.mark.parametrize("cause", FOLLOWED)
def test_what_is_waited_for_is_the_cause(cause: str) -> None:
    """The cause is that of the child, the compile worker or the worker's child that the thread
    waits for.
    """
    cause_found = diagnose_hang(FOLLOWED[cause])
    assert cause_found.name == cause, cause_found


def test_every_cause_is_explained_and_every_explanation_is_tested() -> None:
    """Each cause has one explanation, and each explanation belongs to a cause that some rule
    reaches.
    """
    assert {r["cause"] for r in TABLE["rules"]} <= set(EXPLAIN)
    assert set(EXPLAIN) == set(CASES) | set(FOLLOWED) | {attached.UNANSWERED}
    assert all(text.endswith(".") and "\n" not in text for text in EXPLAIN.values())


@pytest.mark.parametrize(
    ("native", "cause"),
    [
        (("memmove", "spin"), "native-loop-holding-gil"),
        (("mmap64", "alloc_new_arena"), "python-loop"),
        (("_int_malloc", "malloc"), "python-loop"),
        (("PyObject_Malloc",), "python-loop"),
    ],
)
def test_an_allocation_in_one_sample_is_no_native_loop(native: tuple[str, ...], cause: str) -> None:
    """Without a heartbeat, the native frames of one moment decide; Python code allocates too."""
    state = replace(BUSY, native=(*native, PYTHON_MARK))
    assert diagnose_hang(seen(state, thread(owns_gil=True))).name == cause


def test_a_deadlock_names_the_other_threads() -> None:
    """The detail names where both threads wait."""
    writer = ThreadStack(1, "cache-writer", (Frame("/home/bob/cache.py", "flush", 31),), tid=9)
    base = seen(idle("futex"), thread(), writer, gil_age_s=0.1)
    both = (
        *base.evidence.processes[0].threads,
        ThreadState(9, states="SSS", want=0.0, syscall="futex"),
    )
    base = replace(base, evidence=Evidence((replace(base.evidence.processes[0], threads=both),)))
    deadlock = diagnose_hang(base)
    assert deadlock.name == "lock-deadlock"
    assert "model.py:7 in Pass.__call__" in deadlock.detail
    assert "cache-writer waits at cache.py:31 in flush" in deadlock.detail


def test_a_deadlock_names_a_thread_that_does_not_wait() -> None:
    """The detail names where a thread is that may have the lock, after the threads that wait."""
    reader = ThreadStack(1, "cache-reader", (Frame("/home/bob/cache.py", "load", 7),), tid=8)
    writer = ThreadStack(1, "cache-writer", (Frame("/home/bob/cache.py", "flush", 31),), tid=9)
    base = seen(idle("futex"), thread(), reader, writer, gil_age_s=0.1)
    threads = (
        *base.evidence.processes[0].threads,
        ThreadState(8, states="SSS", want=0.0, syscall="read"),
        ThreadState(9, states="SSS", want=0.0, syscall="futex"),
    )
    process = replace(base.evidence.processes[0], threads=threads)
    deadlock = diagnose_hang(replace(base, evidence=Evidence((process,))))
    assert deadlock.name == "lock-deadlock"
    assert deadlock.detail.endswith(
        "thread cache-writer waits at cache.py:31 in flush; thread cache-reader is at cache.py:7"
        " in load"
    )


def test_a_file_lock_names_its_holder() -> None:
    """The detail names the path and the process."""
    base = CASES["file-lock"]
    held = replace(base.evidence, locks=(HeldLock("/cache/x.lock", 77, "python other.py"),))
    assert "/cache/x.lock" in (text := diagnose_hang(replace(base, evidence=held)).detail)
    assert "process 77 holds it: python other.py" in text


def test_growing_memory_is_reported_with_the_loop_that_causes_it() -> None:
    """The cause is the growth, and the loop that causes it is listed under `also`."""
    runaway = diagnose_hang(seen(BUSY, thread(owns_gil=True), gil_age_s=0.2, memory=GROWTH))
    assert (runaway.name, runaway.also) == ("memory-runaway", ("python-loop",))
    assert "50 MB per second" in runaway.detail


# 200 MB in 4 s are enough with a short history
@pytest.mark.parametrize(
    ("points", "grows"),
    [
        (GROWTH, True),
        (GROWTH[:4], False),
        (
            tuple((t, r, c / 100) for t, r, c in GROWTH[:5]),
            True,
        ),
        (
            tuple(
                (t, 100_000_000 + min(i, 3) * 50_000_000, c) for i, (t, _, c) in enumerate(GROWTH)
            ),
            False,
        ),
        (tuple((t, 10**9, c) for t, _, c in GROWTH), False),
    ],
)
def test_growth_is_growth_in_every_quarter(
    points: tuple[tuple[float, int, float], ...], grows: bool
) -> None:
    """A step at the start, a plateau and a short history are not a runaway."""
    assert is_growing(points) is grows


def test_a_joined_thread_that_uses_a_cpu_fully_is_the_cause() -> None:
    """The wait-for graph includes threads."""
    busy = ThreadStack(
        1, "counter", (Frame("/home/bob/model.py", "count", 3),), owns_gil=True, tid=9
    )
    base = seen(
        idle("futex"), thread(Frame(STD + "threading.py", "Thread.join")), busy, gil_age_s=0.1
    )
    both = (*base.evidence.processes[0].threads, ThreadState(9, states="RRR", want=0.99))
    loop = diagnose_hang(
        replace(base, evidence=Evidence((replace(base.evidence.processes[0], threads=both),)))
    )
    assert loop.name == "python-loop" and "count" in loop.detail
    assert "counter" in loop.path[0]


def test_many_threads_that_wait_for_one_another_are_visited_once_each() -> None:
    """With forty idle threads, each thread is visited once, not once for each order."""
    wait = Frame(STD + "queue.py", "Queue.get")
    stacks = [thread(wait)] + [ThreadStack(1, f"t{n}", (wait, PASS), tid=n) for n in range(2, 42)]
    states = tuple(ThreadState(n, states="SSS", want=0.0, syscall="futex") for n in range(1, 42))
    base = seen(states[0], *stacks, gil_age_s=0.1)
    base = replace(base, evidence=Evidence((replace(base.evidence.processes[0], threads=states),)))
    assert diagnose_hang(with_native(base)).name == "thread-wait"


def test_a_cycle_of_parent_processes_ends() -> None:
    """A damaged evidence.json with a cycle of parents does not cause an endless loop."""
    ring = (
        replace(CHILD, pid=2, ppid=3),
        replace(CHILD, pid=3, ppid=2),
        replace(CHILD, pid=2, ppid=1),
    )
    assert diagnose_hang(with_children(seen(WAITS), *ring)).name == "child-stuck"


def test_a_compiler_that_was_seen_once_and_ran_is_busy() -> None:
    """A process that starts while the evidence is collected has one sample and no share of a CPU,
    and is busy.
    """
    young = ProcessState(3, 2, "cc1plus kernel.cpp", "R", None)
    assert (
        diagnose_hang(with_children(seen(WAITS), replace(CHILD, want=None, states="S"), young)).name
        == "child-busy"
    )


def test_a_command_is_cut_at_a_word() -> None:
    """A cut in the middle of a secret would leave a part that no redaction rule recognizes."""
    long = "python train.py --db " + "x" * 280 + "https://bob:hunter2secret@db/"
    assert "hunter" not in cut_words(long, 310) and cut_words("short words", 40) == "short words"
    assert (
        command_text(["x", "--password", "my secret phrase", "--token=a b", "-v"])
        == "x --password <hidden> --token=<hidden> -v"
    )


def test_a_team_of_native_threads_that_spins_is_a_loop() -> None:
    """The diagnosed thread waits at OpenMP's barrier, and the team that it waits for uses the CPUs
    fully.
    """
    base = CASES["native-wait"]
    team = tuple(ThreadState(n, states="RRR", want=0.9) for n in (50, 51))
    process = base.evidence.processes[0]
    loop = diagnose_hang(
        replace(base, evidence=Evidence((replace(process, threads=(*process.threads, *team)),)))
    )
    assert loop.name == "native-loop" and "native threads" in loop.detail


def test_a_thread_that_shares_the_gil_is_a_loop() -> None:
    """Three spinning threads want a third of a CPU each and are in futex: neither a native wait nor
    a lock.
    """
    running = seen(replace(IDLE, want=0.4), thread(owns_gil=True), gil_age_s=0.2, want=1.4)
    assert diagnose_hang(running).name == "python-loop"
    shares = replace(
        idle("futex", native=("0x7f9", "pthread_cond_timedwait", "<python>")), want=0.33
    )
    assert diagnose_hang(seen(shares, thread(owns_gil=True), gil_age_s=0.2)).name == "python-loop"


def test_endless_unrolling_is_named() -> None:
    """The detail has the line and the number of times that it was traced, whatever the stack
    shows.
    """
    loop = diagnose_hang(
        replace(CASES["native-loop"], endless_line="model.py:4 in f", endless_count=50_000)
    )
    assert loop.name == "python-loop"
    assert "model.py:4 in f was traced 50000 times" in loop.detail


def test_without_evidence_the_cause_is_unknown_and_says_so() -> None:
    """The cause is unknown when /proc is unreadable or the process has ended."""
    assert diagnose_hang(Observation()).name == "unknown"
    gone = diagnose_hang(Observation(main_pid=4))
    assert gone.name == "unknown" and "/proc" in gone.detail


def test_faulthandler_alone_distinguishes_a_sleep_from_a_loop() -> None:
    """Without py-spy there are no thread ids, but the main thread is known."""
    dump = Dump(1, "faulthandler", 1, (ThreadStack(1, "0x7f", (PASS,), is_main=True),))
    for state, cause in ((idle("clock_nanosleep"), "sleep"), (BUSY, "python-loop")):
        base = replace(seen(state, gil_age_s=0.1), dumps=(dump,))
        assert diagnose_hang(base).name == cause


def test_evidence_survives_its_file() -> None:
    """Evidence that is written to evidence.json comes back, and values of the wrong type are left
    out.
    """
    evidence = replace(FOLLOWED["child-busy"].evidence, waiting_calls={"/a/b.py:3": "get"})
    document = to_json(evidence)
    assert evidence_from_json(document) == replace(evidence, generated_lines={})
    document["processes"][0]["from_the_future"] = 1
    assert evidence_from_json(document) == replace(evidence, generated_lines={})
    assert evidence_from_json([]) == Evidence()
    document["processes"] += [
        {"ppid": 1},
        {"pid": "x"},
        {"pid": 9, "memory": 5, "threads": [{"tid": 9, "native": 3}, {}]},
    ]
    document |= {"generated_lines": [1], "locks": [{"path": 1}], "gpus": "many"}
    assert [p.pid for p in evidence_from_json(document).processes] == [
        *(p.pid for p in evidence.processes),
        9,
    ]
