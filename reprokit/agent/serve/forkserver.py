"""The probe server: one warm process that forks a child for each probe.

It imports and warms up once what each probe needs (torch, Dynamo, perhaps Inductor and its C++
compiler), never starts a thread, never touches a GPU, and runs nothing of a candidate itself. It
speaks JSON lines: a probe comes in on stdin, its pid and later its end go out on what was stdout.
Deadlines are the host's, which kills.
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
import time
from typing import Any

from ...core.shared.contract.probe_messages import (
    ProbeEnded,
    ProbeRequest,
    ProbeStarted,
    ServerReady,
    ServerSpec,
)
from ...core.shared.contract.serialize import from_json, to_json
from .. import simulate
from . import probe

POLL_MS = 4
PR_SET_CHILD_SUBREAPER = 36
GUARDIAN_S = 3.0
"""If the host ends, its guardian ends this server and all processes below it. Compilers first
delete their files.
"""


def main(spec: ServerSpec) -> int:
    """Warm up, then serve until stdin ends."""
    out = os.dup(1)
    os.dup2(2, 1)  # what torch prints must not stand between our lines
    with contextlib.suppress(OSError, AttributeError):
        # a grandchild that leaves its process group still comes to us when its parent dies
        ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    os.environ["TORCHINDUCTOR_CACHE_DIR"] = spec.cache
    threads = _warm_up(spec.depth)
    gc.collect()
    gc.freeze()  # or each child would copy the pages of every object that it looks at
    _say(out, ServerReady(ready=True, threads=_threads(), cpu_s=round(time.process_time(), 2)))
    if _threads() != 1:
        return 1
    return _serve(out, threads)


def _serve(out: int, threads: int) -> int:
    rest = b""
    while True:
        data = os.read(0, 1 << 16)
        if not data:
            return 0
        *lines, rest = (rest + data).split(b"\n")
        for line in lines:
            asked = from_json(ProbeRequest, json.loads(line))
            if not _one(out, asked, threads):
                return 0


def _one(out: int, asked: ProbeRequest, threads: int) -> bool:
    """Fork for one probe and tell its end; False when the host is gone."""
    pid = os.fork()
    if pid == 0:
        os.setsid()
        os.close(out)
        probe.run_probe(asked, threads)
    _say(out, ProbeStarted(id=asked.id, pid=pid))
    is_heard = True
    poll = select.poll()  # of a pidfd would be neater, and kernels of clusters may be older than it
    poll.register(0, select.POLLHUP)
    while is_heard and os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None:
        events = dict(poll.poll(POLL_MS))
        is_heard = not events.get(0, 0) & (select.POLLHUP | select.POLLERR)
    if not is_heard:
        time.sleep(GUARDIAN_S)
    with contextlib.suppress(OSError):
        os.killpg(pid, signal.SIGKILL)
    _, status, used = os.wait4(pid, 0)
    strays = _end_strays()
    ended = ProbeEnded(
        id=asked.id,
        status=os.waitstatus_to_exitcode(status),
        cpu_s=round(used.ru_utime + used.ru_stime, 4),
        peak_rss_bytes=used.ru_maxrss * 1024,
        strays=strays,
    )
    _say(out, ended)
    return is_heard


def _end_strays() -> int:
    """End what the probe started and left behind; every orphan below us is ours to reap."""
    ended = 0
    for _ in range(50):
        pids = _children()
        if not pids:
            break
        for pid in pids:
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGKILL)
            with contextlib.suppress(OSError):
                os.waitpid(pid, 0)
                ended += 1
    return ended


def _children() -> list[int]:
    """Our children; where the kernel keeps no list of them (CONFIG_PROC_CHILDREN), every process is
    asked.
    """
    with (
        contextlib.suppress(FileNotFoundError),
        open(f"/proc/self/task/{os.getpid()}/children") as file,
    ):
        return [int(word) for word in file.read().split()]
    found = []
    for name in filter(str.isdigit, os.listdir("/proc")):
        with (
            contextlib.suppress(OSError, ValueError, IndexError),
            open(f"/proc/{name}/stat", "rb") as file,
        ):
            text = file.read()
            if int(text[text.rindex(b")") + 2 :].split()[1]) == os.getpid():
                found.append(int(name))
    return found


def _warm_up(depth: str) -> int:
    """Do once what every child would do again; gives the number of threads that torch would use by
    itself.
    """
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

    with contextlib.suppress(
        ImportError, AttributeError
    ):  # torch draws bars with it where it is installed,
        importlib.import_module(
            "tqdm"
        ).tqdm.monitor_interval = 0  # and a monitor would be a thread of the server
    threads: int = torch.get_num_threads()
    torch.set_num_threads(
        1
    )  # a pool of OpenMP threads would not survive the fork, and its waiters would spin
    simulate.after_torch()
    if simulate.problem:
        raise SystemExit(simulate.problem)
    import torch._dynamo

    if depth == "dynamo":
        torch._dynamo.list_backends()  # imports the modules that have them
        _compile(torch, "eager")
        return threads
    import torch._inductor.codegen.cpp
    import torch._inductor.compile_fx
    import torch._inductor.config as config

    _compile(torch, "aot_eager")
    config.compile_threads = 1  # more would be threads
    if depth in ("inductor", "build"):
        # a warm-up that hits a cache would leave to every child what the cache saved
        with config.patch(fx_graph_cache=False, fx_graph_remote_cache=False):
            _compile(torch, "inductor", "lowering" if depth == "inductor" else None)
    return threads


class _Stopped(BaseException):
    """Leaves the warm-up behind the lowering, before anything is built."""


def _compile(torch: Any, backend: str, stop: str | None = None) -> None:
    def warm(x: Any, w: Any) -> Any:
        return torch.softmax(torch.nn.functional.linear(x, w).sin() + 1, -1)

    def raise_stopped(*_: Any) -> None:
        raise _Stopped

    torch._dynamo.reset()
    device = "cuda" if simulate.ASKED else "cpu"
    x, w = torch.randn(4, 16, device=device), torch.randn(16, 16, device=device)
    with contextlib.ExitStack() as stack:
        if backend != "eager":
            from torch._functorch import config as functorch

            stack.enter_context(functorch.patch(enable_autograd_cache=False))
        if stop:
            from torch._inductor.graph import GraphLowering

            real = GraphLowering.codegen
            GraphLowering.codegen = raise_stopped
            stack.callback(setattr, GraphLowering, "codegen", real)
            stack.enter_context(contextlib.suppress(_Stopped))
        torch.compile(warm, backend=backend)(x, w)
    torch._dynamo.reset()


def _threads() -> int:
    return len(os.listdir("/proc/self/task"))


def _say(out: int, message: ServerReady | ProbeStarted | ProbeEnded) -> None:
    with contextlib.suppress(OSError):  # a host that is gone is noticed at stdin
        os.write(out, json.dumps(to_json(message)).encode() + b"\n")


if __name__ == "__main__":
    sys.exit(main(from_json(ServerSpec, json.loads(sys.argv[1]))))
