"""A model over several ranks: those that torchrun started, or this process as one of them in a fake
process group.

In a fake group no collective is executed, so one machine can compile what any rank of any number
would compile.
"""

from __future__ import annotations

import contextlib
import logging
import os
import signal
from collections.abc import Iterator
from typing import Any

from ...core.shared.contract import events
from ...core.shared.errors import BadTarget
from ...core.shared.source.process_group import STYLES
from ..record import exceptions, graph_recorder, journal, process_start

DIFFERENCE = (
    "rank 0 of {count} in a fake process group, which executes no collective; the other ranks are"
    " traced by Dynamo and go no further"
)
PLAN = "tp_plan"
"""Attribute of a model: patterns of its modules' names -> how each is split; the one that
transformers' models have.
"""


def is_real() -> bool:
    """True in a process that torch's elastic launcher started."""
    return "TORCHELASTIC_RUN_ID" in os.environ


def device_of(torch: Any, wanted: str | None, count: int) -> str:
    """The device of this rank: what was asked for, else a GPU of its own where there are enough,
    else the CPU.
    """
    local, there = (
        int(os.environ.get("LOCAL_RANK", "0")),
        torch.cuda.device_count() if is_real() else 0,
    )
    if wanted is None:
        wanted = "cuda" if there else "cpu"
    if is_real() and wanted.startswith("cuda"):
        if there < count:
            raise BadTarget(
                f"--tensor-parallel-gpus {count} needs {count} GPUs, and torch sees {there} here;"
                " simulate them with --gpu NAME, or run on the CPU with --device cpu"
            )
        torch.cuda.set_device(local)
        return f"cuda:{local}"
    return wanted


def join_group(torch: Any, device: str, count: int) -> Any:
    """Join the process group and give the mesh of all ``count`` ranks on ``device``."""
    import torch.distributed as dist

    if not dist.is_available():
        raise BadTarget(
            f"--tensor-parallel-gpus needs torch.distributed, which torch {torch.__version__} lacks"
            " here"
        )
    from torch._subclasses.fake_tensor import unset_fake_temporarily
    from torch.distributed.device_mesh import init_device_mesh

    kind = torch.device(device).type
    with unset_fake_temporarily():  # a mesh is made of real numbers
        if is_real():
            dist.init_process_group("nccl" if kind == "cuda" else "gloo")
        else:
            from torch.testing._internal.distributed.fake_pg import FakeStore

            rank = int(os.environ.get("RANK", "0"))
            dist.init_process_group("fake", rank=rank, world_size=count, store=FakeStore())
            if rank == 0:
                journal.write(events.RanksSimulated(difference=DIFFERENCE.format(count=count)))
        return init_device_mesh(kind, (count,))


def leave_group() -> None:
    """Leave the process group: threads of Gloo's that still hold a tensor abort a process that
    Python takes down.

    https://github.com/pytorch/pytorch/pull/179291
    """
    import torch.distributed as dist

    dist.destroy_process_group()


def split_model(torch: Any, model: Any, mesh: Any) -> None:
    """Split ``model`` over ``mesh`` in place, as its ``tp_plan`` says; what a factory has split
    already is left as it is.
    """
    from torch.distributed.tensor import DTensor, Replicate, parallel

    plan = getattr(model, PLAN, None) or {}
    is_split = isinstance(model, torch.nn.Module) and any(
        isinstance(p, DTensor) for p in model.parameters()
    )
    if is_split or not plan:
        journal.write(
            events.ModelSplit(device=mesh.device_type, plan={}, is_split=is_split, left_out=[])
        )
        return
    layouts = {"Replicate": {"output_layouts": Replicate()}, "": {}}
    styles = {
        name: getattr(parallel, kind)(**layouts[layout]) for name, (kind, layout) in STYLES.items()
    }
    known = {pattern: style for pattern, style in plan.items() if style in styles}
    journal.write(
        events.ModelSplit(
            device=mesh.device_type,
            plan=known,
            is_split=True,
            left_out=sorted(set(plan) - set(known)),
        )
    )
    parallel.parallelize_module(
        model, mesh, {pattern: styles[style] for pattern, style in known.items()}
    )


def trace_only(gm: Any, example_inputs: Any, **options: Any) -> Any:
    """A backend that compiles nothing, whatever it is asked: the graph is recorded before it is
    called.
    """
    return gm.forward


@contextlib.contextmanager
def ranks(count: int) -> Iterator[int]:
    """Run the body once for each rank: here as rank 0, and in forks as the others, as many at once
    as there are processors.

    The forks are over when this is; one that fails has journalled how, and one that a signal ended
    ends this process so.
    """
    reading, writing = os.pipe()
    os.write(writing, b"x" * max(1, len(os.sched_getaffinity(0)) - 1))
    children: list[int] = []
    for rank in range(1, count):
        os.environ["RANK"] = os.environ["LOCAL_RANK"] = str(rank)
        child = os.fork()
        if child == 0:
            status = 1
            try:
                process_start.end_with_parent()
                graph_recorder.is_only_new = True
                logging.getLogger(
                    "torch.__trace"
                ).handlers.clear()  # TORCH_TRACE of rank 0 says all of it
                os.read(reading, 1)  # its turn
                yield rank
                status = 0
            except BaseException as error:
                journal.write(
                    events.ExceptionRaised(where="call", chain=exceptions.describe_exception(error))
                )
            finally:
                os.write(writing, b"x")
                os._exit(status)
        children.append(child)
    os.environ["RANK"] = os.environ["LOCAL_RANK"] = "0"
    try:
        yield 0
        while children:
            _, how = os.waitpid(children[0], 0)
            del children[0]
            if os.WIFSIGNALED(how):
                signal.signal(os.WTERMSIG(how), signal.SIG_DFL)
                os.kill(os.getpid(), os.WTERMSIG(how))
    finally:
        for child in children:
            with contextlib.suppress(OSError):
                os.kill(child, signal.SIGKILL)
                os.waitpid(child, 0)
        os.close(reading)
        os.close(writing)
