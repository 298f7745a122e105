"""Constructed hangs inside torch.compile, and healthy compiles that are only slow: ``python
kinds.py KIND``.

``EXPECTED`` has the correct causes and phases of each kind. ``gloo_*`` kinds need two ranks
(``RANK``, ``WORLD_SIZE``, ``MASTER_ADDR``, ``MASTER_PORT``). ``slow_*`` kinds end by themselves and
must never be called a hang.
"""

import contextlib
import ctypes
import fcntl
import importlib
import os
import queue
import re
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor

HERE = os.path.dirname(os.path.abspath(__file__))
LONG_S = 1000

PASS = ("fx-passes",)
EXPECTED = {
    # in a custom pass on Inductor's graph
    "python_loop": (("python-loop",), PASS),
    "two_functions": (("python-loop",), PASS),
    "sympy": (("python-loop", "memory-runaway"), PASS),
    "regex": (("native-loop-holding-gil",), PASS),
    "native_spin": (("native-loop",), PASS),
    "native_spin_gil": (("native-loop-holding-gil",), PASS),
    "native_lock": (("native-wait",), PASS),
    "native_lock_gil": (("gil-blocked",), PASS),
    "torch_op": (("native-loop-holding-gil", "native-loop"), PASS),
    "uninterruptible": (("uninterruptible",), PASS),
    "stopped": (("stopped",), PASS),
    "memory": (("memory-runaway",), PASS),
    "memory_loop": (("memory-runaway",), PASS),
    "deadlock": (("lock-deadlock",), PASS),
    "self_deadlock": (("lock-deadlock",), PASS),
    "rlock": (("lock-deadlock",), PASS),
    "join": (("thread-wait",), PASS),
    "join_busy": (("python-loop",), PASS),
    "queue": (("thread-wait",), PASS),
    "event": (("thread-wait",), PASS),
    "future": (("python-loop",), PASS),
    "pipe": (("io-wait",), PASS),
    "socket": (("io-wait",), PASS),
    "filelock": (("file-lock",), PASS),
    "flock": (("file-lock",), PASS),
    "lockf": (("file-lock",), PASS),
    "baton": (("file-lock",), PASS),
    "child_sleep": (("child-stuck",), PASS),
    "child_spin": (("child-busy",), PASS),
    "child_stopped": (("child-stopped",), PASS),
    "child_setsid": (("child-stuck",), PASS),
    "process_pool": (("child-stuck",), PASS),
    "shared_gil": (("python-loop",), PASS),
    "lock_of_a_loop": (("python-loop",), PASS),
    "worker_spin": (("compile-worker-busy",), PASS),
    "worker_sleep": (("compile-worker-stuck",), PASS),
    "worker_stop": (("compile-worker-stopped",), PASS),
    "worker_child": (("compile-worker-child-stuck",), PASS),
    "sidecar_stopped": (("compile-worker-sidecar-stopped",), PASS),
    "sleep": (("sleep",), PASS),
    # in other parts of the compiler
    "unroll": (("python-loop",), ("dynamo-trace",)),
    "unroll_calls": (("python-loop",), ("dynamo-trace",)),
    "in_thread": (("sleep",), PASS),
    "cxx_sleep": (("child-stuck",), ("cpp-build",)),
    "cxx_spin": (("child-busy",), ("cpp-build",)),
    "cxx_stop": (("child-stopped",), ("cpp-build",)),
    "phase:dynamo": (("sleep",), ("dynamo-trace",)),
    "phase:guards": (("sleep",), ("guards",)),
    "phase:backend": (("sleep",), ("backend",)),
    "phase:aot": (("sleep",), ("aot",)),
    "phase:partition": (("sleep",), ("partition",)),
    "phase:pre_grad": (("sleep",), PASS),
    "phase:joint": (("sleep",), PASS),
    "phase:lowering": (("sleep",), ("lowering",)),
    "phase:scheduler": (("sleep",), ("scheduler",)),
    "phase:codegen": (("sleep",), ("codegen",)),
    "phase:worker_wait": (("sleep",), ("worker-wait",)),
    "phase:bw_lowering": (("sleep",), ("lowering",)),
    "phase:bw_pass": (("sleep",), PASS),
    "phase:first_run": (("sleep",), ("kernel-run",)),
    "phase:kernel_spin": (("native-loop",), ("kernel-run",)),
    # several ranks
    "gloo_eager": (("collective",), ("collective",)),
    "gloo_mismatch": (("collective",), ("collective",)),
    "gloo_compile": (("sleep",), PASS),
    "gloo_compiled": (("collective",), ("collective",)),
    # healthy and slow: no cause, and never a hang
    "slow_graphs": ((), ()),
    "slow_graph": ((), ()),
    "slow_layers": ((), ()),
    "slow_conv": ((), ()),
    "slow_train": ((), ()),
    "slow_breaks": ((), ()),
    "slow_dynamic": ((), ()),
    "slow_loop": ((), ()),
    "slow_inline": ((), ()),
    "slow_cat": ((), ()),
    "slow_aot": ((), ()),
    "slow_cxx": ((), ()),
    "slow_kernel": ((), ()),
}


def main(kind):
    import torch
    import torch._inductor.config as inductor

    torch.set_num_threads(1)
    inductor.cpp_cache_precompile_headers = False
    inductor.cpp.simdlen = 1
    if kind.startswith("cxx_"):
        inductor.cpp.cxx = (None, os.path.join(HERE, "fake", kind))
    if kind.startswith("phase:"):
        return in_phase(kind.removeprefix("phase:"))
    if kind.startswith("slow_"):
        return globals()[kind]()
    if kind.startswith("gloo_"):
        return ranks(kind)
    if kind in ("unroll", "unroll_calls"):
        return unroll(kind)
    if kind == "in_thread":
        thread = threading.Thread(target=in_pass, args=(hang_sleep,), name="compiles")
        thread.start()
        return thread.join()
    if kind.startswith("cxx_"):
        return compile_it()
    return in_pass(globals()[f"hang_{kind}"])


def compile_it(**options):
    import torch

    def function(x, y):
        return torch.nn.functional.relu(x @ y + 1).sin().sum()

    return torch.compile(function, **options)(
        torch.randn(64, 64, requires_grad=True), torch.randn(64, 64)
    )


def in_pass(body, hook="post_grad_custom_post_pass"):
    import torch._inductor.config as inductor
    from torch._inductor.custom_graph_pass import CustomGraphPass

    class Pass(CustomGraphPass):
        def __call__(self, graph):
            body()

        def uuid(self):
            return None

    setattr(inductor, hook, Pass())
    return compile_it()


def native(kind=ctypes.CDLL):
    """Build and load the native library: ``PyDLL`` keeps the GIL during a call, ``CDLL`` releases
    it.
    """
    path = os.path.join(tempfile.mkdtemp(), "native.so")
    subprocess.check_call(
        ["gcc", "-shared", "-fPIC", "-O1", "-o", path, os.path.join(HERE, "native.c"), "-lpthread"]
    )
    return kind(path)


def hang_python_loop():
    number = 0
    while True:
        number += 1


def hang_two_functions():
    def there(x):
        return sum(range(x))

    def back(x):
        return sorted(range(x))

    while True:
        there(500)
        back(500)


def hang_sympy():
    import sympy

    sympy.expand(sum(sympy.symbols("s0:9")) ** 14)


def hang_regex():
    re.match(r"(a+)+$", "a" * 64 + "b")


def hang_native_spin():
    native().spin()


def hang_native_spin_gil():
    native(ctypes.PyDLL).spin()


def hang_native_lock():
    library = native()
    library.take()
    library.take()


def hang_native_lock_gil():
    library = native(ctypes.PyDLL)
    library.take()
    library.take()


def hang_torch_op():
    import torch

    torch.linalg.eigvals(torch.randn(6000, 6000))


def hang_uninterruptible():
    native().uninterruptible()


def hang_stopped():
    os.kill(os.getpid(), signal.SIGSTOP)


def hang_memory():
    kept = []
    while True:
        kept.append(b"x" * 2_000_000)
        time.sleep(0.03)


def hang_memory_loop():
    kept = []
    while True:
        kept.append(b"x" * 100_000)
        sum(range(60_000))


def hang_deadlock():
    first, second = threading.Lock(), threading.Lock()

    def lock_in_reverse():
        with second:
            time.sleep(0.3)
            with first:
                pass

    with first:
        threading.Thread(target=lock_in_reverse, daemon=True, name="cache-writer").start()
        time.sleep(0.1)
        with second:
            pass


def hang_self_deadlock():
    lock = threading.Lock()
    with lock, lock:
        pass


def hang_rlock():
    lock = threading.RLock()
    threading.Thread(target=lock.acquire, daemon=True, name="gone").start()
    time.sleep(0.2)
    lock.acquire()


def hang_join():
    thread = threading.Thread(target=time.sleep, args=(LONG_S,), daemon=True, name="sleeper")
    thread.start()
    thread.join()


def hang_join_busy():
    thread = threading.Thread(target=hang_python_loop, daemon=True, name="counter")
    thread.start()
    thread.join()


def hang_queue():
    queue.Queue().get()


def hang_event():
    threading.Event().wait()


def hang_future():
    with ThreadPoolExecutor(1) as pool:
        pool.submit(hang_python_loop).result()


def hang_pipe():
    os.read(os.pipe()[0], 1)


def hang_socket():
    server = socket.create_server(("127.0.0.1", 0))
    client = socket.create_connection(server.getsockname())
    client.recv(1)


def held_by_a_child(path, take):
    """Take the lock in a child process that keeps it."""
    if os.fork() == 0:
        kept = take(path)
        time.sleep(LONG_S)
        os._exit(kept is None)
    time.sleep(0.5)


def take_filelock(path):
    from torch.utils._filelock import FileLock

    lock = FileLock(path)
    lock.acquire()
    return lock


def hang_filelock():
    path = os.path.join(tempfile.mkdtemp(), "held.lock")
    held_by_a_child(path, take_filelock)
    take_filelock(path)


def take_flock(path):
    file = open(path, "a")
    fcntl.flock(file, fcntl.LOCK_EX)
    return file


def hang_flock():
    path = os.path.join(tempfile.mkdtemp(), "held.lock")
    held_by_a_child(path, take_flock)
    take_flock(path)


def hang_lockf():
    path = os.path.join(tempfile.mkdtemp(), "held.lock")

    def take(path):
        file = open(path, "a")
        fcntl.lockf(file, fcntl.LOCK_EX)
        return file

    held_by_a_child(path, take)
    take(path)


def hang_baton():
    from torch.utils.file_baton import FileBaton

    baton = FileBaton(os.path.join(tempfile.mkdtemp(), "lock"))
    baton.try_acquire()
    baton.wait()


def hang_child_sleep():
    subprocess.run(["sleep", str(LONG_S)])


def hang_child_spin():
    subprocess.run(["sh", "-c", "while :; do :; done"])


def hang_child_stopped():
    subprocess.run(["sh", "-c", "kill -STOP $$"])


def hang_child_setsid():
    subprocess.run(["sleep", str(LONG_S)], start_new_session=True)


def hang_process_pool():
    sys.path.insert(0, HERE)
    import jobs

    with ProcessPoolExecutor(1) as pool:
        pool.submit(jobs.sleep).result()


def hang_shared_gil():
    for _ in range(2):
        threading.Thread(target=hang_python_loop, daemon=True).start()
    hang_python_loop()


def hang_lock_of_a_loop():
    lock = threading.Lock()

    def own():
        with lock:
            hang_python_loop()

    threading.Thread(target=own, daemon=True, name="owner").start()
    time.sleep(0.2)
    lock.acquire()


def in_worker(name):
    sys.path.insert(0, HERE)
    import jobs
    from torch._inductor.async_compile import AsyncCompile

    AsyncCompile.process_pool().submit(getattr(jobs, name)).result()


def hang_worker_spin():
    in_worker("spin")


def hang_worker_sleep():
    in_worker("sleep")


def hang_worker_stop():
    in_worker("stop")


def hang_worker_child():
    in_worker("child")


def hang_sidecar_stopped():
    from torch._inductor.async_compile import AsyncCompile

    pool = AsyncCompile.process_pool()
    pool.submit(os.getpid).result()
    os.kill(pool.process.pid, signal.SIGSTOP)
    pool.submit(os.getpid).result()


def hang_sleep():
    time.sleep(LONG_S)


def inject(module, name, owner=None, skip=0):
    """Make an internal function of torch hang on entry, after ``skip`` calls."""
    owner_object = importlib.import_module(module)
    owner_object = getattr(owner_object, owner) if owner else owner_object
    real, left = getattr(owner_object, name), [skip]

    def hanging(*args, **kwargs):
        left[0] -= 1
        if left[0] >= 0:
            return real(*args, **kwargs)
        time.sleep(LONG_S)

    setattr(owner_object, name, hanging)


def in_phase(name):
    import torch

    if name in ("first_run", "kernel_spin"):
        return first_run(hang_sleep if name == "first_run" else hang_native_spin)
    if name == "joint":
        return in_pass(hang_sleep, "joint_custom_post_pass")
    if name == "pre_grad":
        return in_pass(hang_sleep, "pre_grad_custom_pass")
    if name == "backend":
        return torch.compile(lambda x: x + 1, backend=lambda graph, inputs: hang_sleep())(
            torch.ones(2)
        )
    if name == "bw_pass":
        out = compile_it()
        import torch._inductor.fx_passes.post_grad

        inject("torch._inductor.fx_passes.post_grad", "decompose_auto_functionalized")
        return out.backward()
    if name == "bw_lowering":
        out = compile_it()
        inject("torch._inductor.graph", "call_function", "GraphLowering")
        return out.backward()
    inject(
        *{
            "dynamo": ("torch._dynamo.symbolic_convert", "step", "InstructionTranslatorBase"),
            "guards": ("torch._dynamo.guards", "__init__", "CheckFunctionManager"),
            "aot": ("torch._functorch._aot_autograd.graph_capture", "aot_dispatch_autograd_graph"),
            "partition": ("torch._inductor.compile_fx", "min_cut_rematerialization_partition"),
            "lowering": ("torch._inductor.graph", "call_function", "GraphLowering"),
            "scheduler": ("torch._inductor.scheduler", "fuse_nodes", "Scheduler"),
            "codegen": ("torch._inductor.codegen.cpp", "codegen_node", "CppScheduling"),
            "worker_wait": ("torch._inductor.async_compile", "_wait_futures", "AsyncCompile"),
        }[name]
    )
    return compile_it()


def first_run(body):
    import torch

    @torch.library.custom_op("hangs::slow", mutates_args=())
    def slow(x: torch.Tensor) -> torch.Tensor:
        body()
        return x.clone()

    slow.register_fake(torch.empty_like)
    return torch.compile(lambda x: torch.ops.hangs.slow(x).sin())(torch.randn(8))


def unroll(kind):
    import torch

    def step(x):
        return x + 1

    def plain(x):
        i = 0
        while i < 10**9:
            i += 1
            x = x + 1
        return x

    def calls(x):
        for _ in range(10**9):
            x = step(x)
        return x

    return torch.compile(plain if kind == "unroll" else calls)(torch.randn(4))


def ranks(kind):
    import datetime

    import torch
    import torch.distributed as dist

    dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=900))
    import torch._dynamo

    rank, last = dist.get_rank(), dist.get_world_size() - 1
    dist.all_reduce(torch.ones(4))
    if kind == "gloo_compiled":
        from torch.distributed._functional_collectives import all_reduce

        compiled = torch.compile(lambda x: all_reduce(x.sin(), "sum", dist.group.WORLD) + 1)
        compiled(torch.ones(8))
        if rank == last:
            hang_sleep()
        return compiled(torch.ones(8))
    if kind == "gloo_compile":
        if rank == last:
            return in_pass(hang_sleep)
        dist.all_reduce(torch.ones(8))
    elif kind == "gloo_mismatch" and rank == last:
        dist.broadcast(torch.ones(8), 0)
    elif rank == last:
        hang_sleep()
    dist.all_reduce(torch.ones(8))


def chain(torch, x, count):
    for number in range(count):
        x = torch.sin(x + number) * torch.cos(x) + x.sum(0, keepdim=True)
    return x


def slow_graphs():
    import torch

    for number in range(40):
        torch._dynamo.reset()
        torch.compile(lambda x, number=number: chain(torch, x + number, 12))(torch.randn(16, 16))


def slow_graph():
    import torch

    torch.compile(lambda x: chain(torch, x, 400))(torch.randn(16, 16))


def slow_layers():
    import torch

    layers = [torch.nn.TransformerEncoderLayer(16, 2, 32, batch_first=True) for _ in range(8)]
    torch.compile(torch.nn.Sequential(*layers))(torch.randn(1, 4, 16))


def slow_conv():
    import torch

    blocks = [
        torch.nn.Sequential(
            torch.nn.Conv2d(4, 4, 3, padding=1), torch.nn.BatchNorm2d(4), torch.nn.SiLU()
        )
    ]
    blocks = [b for _ in range(30) for b in blocks]
    torch.compile(torch.nn.Sequential(*blocks))(torch.randn(1, 4, 8, 8))


def slow_train():
    import torch

    layers = [
        torch.nn.Sequential(torch.nn.Linear(16, 16), torch.nn.LayerNorm(16), torch.nn.GELU())
        for _ in range(25)
    ]
    torch.compile(torch.nn.Sequential(*layers))(torch.randn(4, 16)).sum().backward()


def slow_breaks():
    import torch

    def function(x):
        for _ in range(25):
            x = chain(torch, x, 4)
            torch._dynamo.graph_break()
        return x

    torch.compile(function)(torch.randn(16, 16))


def slow_dynamic():
    import torch

    compiled = torch.compile(lambda x: chain(torch, x, 60), dynamic=True)
    for size in (4, 8, 16):
        compiled(torch.randn(size, size))


def slow_loop():
    """Trace many lines, none of them beyond the budget."""
    import torch

    def function(x):
        total = 0
        for number in range(8000):
            total += number % 7
        return x + total

    torch.compile(function)(torch.randn(4))
    slow_graphs()


def slow_inline():
    import torch

    def inner(x, depth):
        return x.sin() if depth == 0 else inner(x.cos(), depth - 1) + inner(x.sin(), depth - 1)

    torch.compile(lambda x: inner(x, 8))(torch.randn(16))


def slow_cat():
    import torch

    def function(x):
        parts = [chain(torch, x + n, 3) for n in range(60)]
        return torch.cat(parts).softmax(0)

    torch.compile(function)(torch.randn(8, 8))


def slow_aot():
    import torch

    torch.compile(lambda x: chain(torch, x, 900), backend="aot_eager")(torch.randn(8, 8))


def slow_kernel():
    """Call one kernel repeatedly for a long time without output."""
    import torch

    compiled = torch.compile(lambda x, y: x @ y)
    x, until = torch.randn(2500, 2500), time.monotonic() + 45
    with torch.no_grad():
        while time.monotonic() < until:
            compiled(x, x)


def slow_cxx():
    """Compile one kernel that takes the C++ compiler a long time without output."""
    import torch
    import torch._inductor.config as inductor

    inductor.cpp.simdlen = None
    inductor.realize_opcount_threshold = inductor.max_pointwise_cat_inputs = 10_000
    inductor.realize_reads_threshold = inductor.max_fusion_size = 10_000

    def function(x):
        for number in range(600):
            x = torch.sin(x + number) * torch.cos(x * 1.5) + torch.tanh(x)
        return x

    with contextlib.suppress(RecursionError):
        torch.compile(function)(torch.randn(64, 64))


if __name__ == "__main__":
    main(sys.argv[1])
    print("FINISHED")
