"""Real gloo ranks of which one differs, with the dumps of their flight recorders."""

from __future__ import annotations

import datetime
import multiprocessing
import multiprocessing.connection
import os
import signal
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

STEPS, ODD_STEP = 6, 3
KINDS = tuple("skip swap shape dtype exception death teardown recompile slow".split())
SIZES = (2, 4, 8, 16, 64)
CASES = tuple((kind, size) for size in SIZES for kind in KINDS) + tuple(
    (kind, 32) for kind in ("skip", "swap", "shape", "death", "slow")
)
"""50 desyncs, as (kind, number of ranks)."""


def odd_rank(kind: str, size: int) -> int:
    """Return the rank that differs."""
    return (KINDS.index(kind) * 7 + size // 2) % size


def record_case(kind: str, size: int, folder: Path, seconds: float) -> None:
    """Run ``size`` ranks in forks of this process, and write ``folder/rank_N`` for each that lives
    after ``seconds``, and ``folder/launcher_N.log`` for each that failed: what torchrun prints on a
    node with this rank.
    """
    os.environ["TORCH_FR_BUFFER_SIZE"] = "2000"
    import torch
    import torch.distributed as dist
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError, ProcessFailure

    torch.set_num_threads(1)
    assert dist.is_available()
    store = Path(tempfile.mkdtemp(), "store")
    context = multiprocessing.get_context("fork")
    ranks = [
        context.Process(target=_run_rank, args=(kind, rank, size, store, folder, seconds))
        for rank in range(size)
    ]
    for process in ranks:
        process.start()
    end = time.monotonic() + seconds * 2 + 30
    running = dict(enumerate(ranks))
    while running and time.monotonic() < end:
        multiprocessing.connection.wait([process.sentinel for process in running.values()], 1.0)
        for rank in [r for r, process in running.items() if process.exitcode is not None]:
            process = running.pop(rank)
            if process.exitcode:
                failure = ProcessFailure(0, process.pid or 0, process.exitcode, "<N/A>")
                text = str(ChildFailedError("train.py", {rank: failure}))
                (folder / f"launcher_{rank}.log").write_text(text)
    for process in running.values():
        process.kill()


def _run_rank(kind: str, rank: int, size: int, store: Path, folder: Path, seconds: float) -> None:
    import torch.distributed as dist

    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
    dist.init_process_group(
        "gloo",
        init_method=f"file://{store}",
        rank=rank,
        world_size=size,
        timeout=datetime.timedelta(minutes=10),
    )
    threading.Thread(target=_dump_later, args=(rank, folder, seconds), daemon=True).start()
    try:
        for step in range(STEPS):
            _step(kind if step == ODD_STEP and rank == odd_rank(kind, size) else "", size)
    except RuntimeError:  # a peer is gone
        time.sleep(1000)
    except KeyError:
        os._exit(1)
    time.sleep(1000)


def _step(kind: str, size: int) -> None:
    """Run one step of a program, or the step of the odd rank."""
    import torch
    import torch.distributed as dist

    x = torch.ones(256, dtype=torch.float64 if kind == "dtype" else torch.float32)
    dist.all_reduce(torch.ones(512) if kind == "shape" else x)
    if kind == "exception":
        raise KeyError("a defect of one rank")
    if kind == "death":
        os.kill(os.getpid(), signal.SIGKILL)
    if kind == "teardown":
        dist.destroy_process_group()
        os._exit(0)
    if kind == "recompile":
        _compile_without_end()
    if kind == "slow":
        time.sleep(1000)
    if kind == "swap":
        dist.broadcast(x, 0)
    if kind != "skip":
        dist.all_gather([torch.empty_like(x) for _ in range(size)], x)
    if kind != "swap":
        dist.broadcast(x, 0)
    dist.barrier()


def _compile_without_end() -> None:
    import torch

    class Pass:
        def __call__(self, graph: Any) -> None:
            time.sleep(1000)

        def uuid(self) -> None:
            return None

    torch._inductor.config.post_grad_custom_pre_pass = Pass()
    torch.compile(lambda x: x + 1)(torch.ones(4))


def _dump_later(rank: int, folder: Path, seconds: float) -> None:
    """Write what the flight recorder has after ``seconds``, and end this rank."""
    import torch._C._distributed_c10d as c10d

    time.sleep(seconds)
    dump: Any = c10d._dump_fr_trace  # type: ignore[attr-defined]
    (folder / f"rank_{rank}").write_bytes(dump(True, True, False))
    os._exit(0)


if __name__ == "__main__":
    record_case(sys.argv[1], int(sys.argv[2]), Path(sys.argv[3]), float(sys.argv[4]))
