"""Split a model over several ranks: those of torchrun, or this process in a fake process group.

A fake group executes no collective, so that one machine can compile the graphs of any rank.
"""

from __future__ import annotations

import contextlib
import logging
import os
import signal
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NoReturn

from ...core.shared.contract import events
from ...core.shared.errors import BadTarget
from ...core.shared.source.process_group import STYLES
from ..record import exceptions, graph_recorder, journal, process_start

if TYPE_CHECKING:
    import torch
    from torch.distributed.device_mesh import DeviceMesh

DIFFERENCE = (
    "rank 0 of {count} in a fake process group, which executes no collective; a rank that passes"
    " the guards of rank 0 has its graphs, and the others stop after Dynamo has traced them"
)
_RUN, _END = b"r", b"e"
PLAN = "tp_plan"
"""Attribute of a model: patterns of its modules' names -> the style of the split. The models of
transformers have it.
"""


def is_real() -> bool:
    """Whether torch's elastic launcher started this process."""
    return "TORCHELASTIC_RUN_ID" in os.environ


def device_of(requested: str | None, count: int) -> str:
    """Return the device of this rank: the requested device, else a GPU, else the CPU.

    Raises BadTarget if there are not enough GPUs.
    """
    import torch

    local_rank = int(os.environ.get("LOCAL_RANK", "0"))
    gpus = torch.cuda.device_count() if is_real() else 0
    device = requested or ("cuda" if gpus else "cpu")
    if is_real() and device.startswith("cuda"):
        if gpus < count:
            raise BadTarget(
                f"--tensor-parallel-gpus {count} needs {count} GPUs, and torch sees {gpus} here;"
                " simulate them with --gpu NAME, or run on the CPU with --device cpu"
            )
        torch.cuda.set_device(local_rank)
        return f"cuda:{local_rank}"
    return device


def join_group(device: str, count: int) -> DeviceMesh:
    """Join the process group, and return the mesh of all ``count`` ranks on ``device``."""
    import torch
    import torch.distributed as dist

    if not dist.is_available():
        raise BadTarget(
            f"--tensor-parallel-gpus needs torch.distributed, which this torch {torch.__version__}"
            " lacks"
        )
    from torch._subclasses.fake_tensor import unset_fake_temporarily
    from torch.distributed.device_mesh import init_device_mesh

    device_type = torch.device(device).type
    with unset_fake_temporarily():  # a mesh is a real tensor
        if is_real():
            dist.init_process_group("nccl" if device_type == "cuda" else "gloo")
        else:
            from torch.testing._internal.distributed.fake_pg import FakeStore

            rank = int(os.environ.get("RANK", "0"))
            dist.init_process_group("fake", rank=rank, world_size=count, store=FakeStore())
            if rank == 0:
                journal.write_event(
                    events.RanksSimulated(difference=DIFFERENCE.format(count=count))
                )
        return init_device_mesh(device_type, (count,))


def leave_group() -> None:
    """Leave the process group.

    A thread of Gloo that still holds a tensor aborts the process when Python ends
    (https://github.com/pytorch/pytorch/pull/179291).
    """
    import torch.distributed as dist

    dist.destroy_process_group()


def split_model(model: Any, mesh: DeviceMesh) -> None:
    """Split ``model`` over ``mesh`` in place, as its ``tp_plan`` says.

    A model that its factory has already split does not change.
    """
    import torch
    from torch.distributed.tensor import DTensor, Replicate, parallel

    plan = getattr(model, PLAN, None) or {}
    is_split = isinstance(model, torch.nn.Module) and any(
        isinstance(p, DTensor) for p in model.parameters()
    )
    if is_split or not plan:
        journal.write_event(
            events.ModelSplit(device=mesh.device_type, plan={}, is_split=is_split, left_out=[])
        )
        return
    layouts: dict[str, dict[str, Any]] = {
        "Replicate": {"output_layouts": Replicate()},
        "": {},
    }
    styles = {
        name: getattr(parallel, kind)(**layouts[layout]) for name, (kind, layout) in STYLES.items()
    }
    known = {pattern: style for pattern, style in plan.items() if style in styles}
    journal.write_event(
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


def trace_only(gm: torch.fx.GraphModule, example_inputs: Any, **options: Any) -> Any:
    """Compile nothing. As a backend, it is called after the graph is recorded."""
    return gm.forward


def run_ranks(
    count: int, run_rank: Callable[[int], None], find_same_ranks: Callable[[], set[int]]
) -> None:
    """Call ``run_rank`` in this process as rank 0, and in forks as the ranks that are not like it.

    ``find_same_ranks`` is called after rank 0, and returns the ranks that need no call. The other
    ranks are forked before rank 0 runs, so each of them starts in the same state. At most as many
    of them run at once as there are CPUs. The function returns after all forks have ended. A fork
    that fails journals the exception. If a signal ends a fork, the same signal ends this process.
    """
    turns, orders = os.pipe(), {}
    children: dict[int, int] = {}
    for rank in range(1, count):
        os.environ["RANK"] = os.environ["LOCAL_RANK"] = str(rank)
        orders[rank] = os.pipe()
        child = os.fork()
        if child == 0:
            _run_fork(rank, run_rank, orders[rank][0], turns)
        children[rank] = child
    os.environ["RANK"] = os.environ["LOCAL_RANK"] = "0"
    try:
        run_rank(0)
        same = find_same_ranks()
        os.write(turns[1], b"x" * len(os.sched_getaffinity(0)))
        for rank, (_, writing) in orders.items():
            os.write(writing, _END if rank in same else _RUN)
        while children:
            rank = next(iter(children))
            _, status = os.waitpid(children[rank], 0)
            del children[rank]
            if os.WIFSIGNALED(status):
                signal.signal(os.WTERMSIG(status), signal.SIG_DFL)
                os.kill(os.getpid(), os.WTERMSIG(status))
    finally:
        for child in children.values():
            with contextlib.suppress(OSError):
                os.kill(child, signal.SIGKILL)
                os.waitpid(child, 0)
        for pipe in (turns, *orders.values()):
            for fd in pipe:
                os.close(fd)


def _run_fork(
    rank: int, run_rank: Callable[[int], None], orders: int, turns: tuple[int, int]
) -> NoReturn:
    """Run one rank in this fork, if rank 0 says so."""
    status = 1
    has_turn = False
    try:
        process_start.end_with_parent()
        if os.read(orders, 1) == _RUN:
            graph_recorder.is_only_new = True
            # the TORCH_TRACE file of rank 0 is enough
            logging.getLogger("torch.__trace").handlers.clear()
            has_turn = bool(os.read(turns[0], 1))
            run_rank(rank)
        status = 0
    except BaseException as error:
        journal.write_event(
            events.ExceptionRaised(where="call", chain=exceptions.describe_exception(error))
        )
    finally:
        if has_turn:
            os.write(turns[1], b"x")
        os._exit(status)
