"""The probe server: one process that imports torch once and forks a child for each probe. Several
probes may run at once.

It imports and warms up the modules that each probe needs (torch, Dynamo, and for some probes
Inductor and its C++ compiler), and the installed libraries that the program imports. It starts no
thread, uses no GPU and runs no other code of a candidate. It reads requests as JSON lines on stdin,
and writes the pid and the end of each probe as JSON lines on stdout. The host enforces deadlines:
it kills a probe.

Each compile starts the driver where torch sees a GPU, because Dynamo saves the state of its random
numbers. A driver does not survive a fork. On such a machine the server therefore imports the
modules and compiles nothing. If even that opens the driver, a child must show that it can compute.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import importlib
import json
import os
import select
import signal
import sys
import threading
import time
from collections.abc import Collection

from ...core.shared.contract.probe_messages import (
    ProbeEnded,
    ProbeRequest,
    ProbeStarted,
    ServerReady,
    ServerSpec,
)
from ...core.shared.contract.serialize import from_json, to_json
from .. import simulate
from ..torch_hooks import phases_and_graphs, stop_after_phase, symbols
from . import gpu_driver, probe

POLL_MS = 4
PR_SET_CHILD_SUBREAPER = 36
GUARDIAN_DELAY_S = 3.0
"""If the host ends, its guardian ends this server and its descendants. Compilers delete their files
before they end.
"""


def main(spec: ServerSpec) -> int:
    """Warm up, then serve until stdin ends; return the exit status."""
    out = os.dup(1)
    os.dup2(2, 1)  # the output of torch must not mix with the messages
    with contextlib.suppress(OSError, AttributeError):
        # this process becomes the parent of a descendant whose parent dies
        ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    os.environ["TORCHINDUCTOR_CACHE_DIR"] = spec.cache
    threads = _warm_up(spec.depth)
    _import_libraries(spec.imports)
    gc.collect()
    gc.freeze()  # without it, a garbage collection in a child copies the pages of every object
    count, is_started = _thread_count(), gpu_driver.is_started()
    is_ready = count == 1 and not is_started
    if is_started and spec.depth != "triton" and gpu_driver.is_needed():
        is_ready = gpu_driver.works_in_child()
    if is_started and not is_ready:
        os.write(2, b"the driver of a GPU was started before the first fork\n")
    cpu_s = round(time.process_time(), 2)
    _send_message(out, ServerReady(ready=is_ready, threads=count, cpu_s=cpu_s))
    return _serve(out, threads) if is_ready else 1


def _serve(out: int, threads: int) -> int:
    """Fork a child for each request, and report how each ends, until stdin ends."""
    rest, running = b"", dict[int, int]()  # pid -> number of the request
    # not poll of a pidfd, which older kernels of clusters lack
    poll = select.poll()
    poll.register(0, select.POLLIN | select.POLLHUP)
    while True:
        events = dict(poll.poll(POLL_MS if running else None)).get(0, 0)
        if events & select.POLLIN:
            if not (data := os.read(0, 1 << 16)):
                break
            *lines, rest = (rest + data).split(b"\n")
            for line in lines:
                request = from_json(ProbeRequest, json.loads(line))
                running[_fork_probe(out, request, threads)] = request.id
        elif events & (select.POLLHUP | select.POLLERR):
            break
        for pid in [pid for pid in running if _has_ended(pid)]:
            number = running.pop(pid)
            _end_probe(out, pid, number, running)
    if running:
        time.sleep(GUARDIAN_DELAY_S)
    for pid in running:
        with contextlib.suppress(OSError):
            os.killpg(pid, signal.SIGKILL)
    return 0


def _fork_probe(out: int, request: ProbeRequest, threads: int) -> int:
    """Fork a child for one probe, report its start, and return its pid."""
    pid = os.fork()
    if pid == 0:
        os.setsid()
        os.close(out)
        probe.run_probe(request, threads)
    _send_message(out, ProbeStarted(id=request.id, pid=pid))
    return pid


def _has_ended(pid: int) -> bool:
    return os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None


def _end_probe(out: int, pid: int, number: int, running: Collection[int]) -> None:
    """End what is left of a probe that has ended, and report its end."""
    with contextlib.suppress(OSError):
        os.killpg(pid, signal.SIGKILL)
    _, status, used = os.wait4(pid, 0)
    _end_strays(pid, running)
    ended = ProbeEnded(
        id=number,
        status=os.waitstatus_to_exitcode(status),
        cpu_s=round(used.ru_utime + used.ru_stime, 4),
        peak_rss_bytes=used.ru_maxrss * 1024,
    )
    _send_message(out, ended)


def _end_strays(session: int, running: Collection[int]) -> None:
    """Kill the processes that a probe left running.

    While other probes run, only those in its session are known to be its own. The rest are killed
    after the last of the probes.
    """
    for _ in range(50):
        pids = [pid for pid in _children() if pid not in running]
        if running:
            pids = [pid for pid in pids if _session_of(pid) == session]
        if not pids:
            break
        for pid in pids:
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGKILL)
            with contextlib.suppress(OSError):
                os.waitpid(pid, 0)


def _session_of(pid: int) -> int:
    with contextlib.suppress(OSError):
        return os.getsid(pid)
    return 0


def _children() -> list[int]:
    """Return the pids of the children of this process.

    A kernel without CONFIG_PROC_CHILDREN has no list of them, so every process is read.
    """
    with (
        contextlib.suppress(FileNotFoundError),
        open(f"/proc/self/task/{os.getpid()}/children") as file,
    ):
        return [int(word) for word in file.read().split()]
    pids = []
    for name in filter(str.isdigit, os.listdir("/proc")):
        with (
            contextlib.suppress(OSError, ValueError, IndexError),
            open(f"/proc/{name}/stat", "rb") as file,
        ):
            text = file.read()
            if int(text[text.rindex(b")") + 2 :].split()[1]) == os.getpid():
                pids.append(int(name))
    return pids


def _warm_up(depth: str) -> int:
    """Import and compile what each child needs, and return torch's default number of threads."""
    if depth == "triton":
        for name in (
            "triton.compiler",
            "triton.backends.compiler",
            "triton.language.extra.libdevice",
        ):
            importlib.import_module(name)
        return 1
    simulate.before_torch()
    import torch

    with contextlib.suppress(ImportError, AttributeError):
        progress_bars = importlib.import_module("tqdm").tqdm  # which torch uses
        progress_bars.monitor_interval = 0  # its monitor would be a thread of the server
        # a child that is killed with its usual lock, which all of them share, blocks the others
        progress_bars.set_lock(threading.RLock())
    threads: int = torch.get_num_threads()
    # OpenMP threads do not survive a fork, and a child would wait for them
    torch.set_num_threads(1)
    simulate.after_torch()
    if simulate.problem:
        raise SystemExit(simulate.problem)
    with gpu_driver.asking_nvml():
        import torch._dynamo

        if depth == "dynamo":
            torch._dynamo.list_backends()  # imports the modules of the backends
        else:
            import torch._inductor.codegen.cpp
            import torch._inductor.compile_fx
    if depth != "dynamo":
        import torch._inductor.config as config

        config.compile_threads = 1  # more would be threads of the server
    for prepare in (phases_and_graphs.exclude_agent, phases_and_graphs.skip_guard_timing):
        symbols.attempt_hook(prepare)
    if not gpu_driver.is_needed():
        _compile_small(depth)
    elif depth in ("inductor", "build"):
        from torch._inductor.cpu_vec_isa import pick_vec_isa

        pick_vec_isa()  # otherwise each child builds C++ programs that test vector instructions
    return threads


def _import_libraries(statements: Collection[str]) -> None:
    """Import installed libraries; the files of the program are not on the path of the server."""
    for statement in statements:
        with contextlib.suppress(Exception, SystemExit):
            exec(statement, {})  # noqa: S102


def _compile_small(depth: str) -> None:
    """Compile a small function, so that the modules and caches of the compiler are in memory."""
    if depth == "dynamo":
        return _compile("eager")
    _compile("aot_eager")
    if depth in ("inductor", "build"):
        import torch._inductor.config as config

        # with a cache hit, the warm-up would not run the code that each child runs
        with config.patch(fx_graph_cache=False, fx_graph_remote_cache=False):
            _compile("inductor", stops_after_lowering=depth == "inductor")
        from torch._inductor.codecache import torch_key

        torch_key()  # otherwise each child reads and hashes the source of the compiler


def _compile(backend: str, stops_after_lowering: bool = False) -> None:
    import torch

    def small(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        return torch.softmax(torch.nn.functional.linear(x, w).sin() + 1, -1)

    torch._dynamo.reset()
    device = "cuda" if simulate.REQUEST else "cpu"
    x, w = torch.randn(4, 16, device=device), torch.randn(16, 16, device=device)
    with contextlib.ExitStack() as stack:
        if backend != "eager":
            from torch._functorch import config as functorch

            stack.enter_context(functorch.patch(enable_autograd_cache=False))
        if stops_after_lowering:
            stack.enter_context(stop_after_phase.stopped_after_lowering())
        torch.compile(small, backend=backend)(x, w)
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()  # a program may count its graphs


def _thread_count() -> int:
    return len(os.listdir("/proc/self/task"))


def _send_message(out: int, message: ServerReady | ProbeStarted | ProbeEnded) -> None:
    with contextlib.suppress(OSError):  # the end of stdin shows that the host has ended
        os.write(out, json.dumps(to_json(message)).encode() + b"\n")


if __name__ == "__main__":
    sys.exit(main(from_json(ServerSpec, json.loads(sys.argv[1]))))
