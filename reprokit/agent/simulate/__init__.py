"""A GPU that is not there: the whole process compiles for it, to the end of code generation, on
fake tensors.

Asked for by the environment, so that a factory target, a repro and a forked probe are simulated
alike. A failure to set it up is kept in ``problem``, for whoever can tell the user. It imports
``record`` and ``torch_hooks``, and must not import ``target`` or ``experiments``.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

from ...core.shared import simulation
from ...core.shared.contract import events, run_names
from ...core.shared.errors import BadInput, BadTarget
from ..record import journal
from .guard import CannotSimulate, load_guard

ASKED: dict[str, Any] | None = json.loads(os.environ.get(run_names.GPU_VARIABLE) or "null")
"""``gpu``: the properties of :class:`core.shared.simulation.Gpu`; ``cache``: a folder for the
device guard.
"""
DIFFERENCES = (
    "nothing runs: tensors are fake, and kernels are generated but not launched",
    (
        "attention is chosen from shapes and types as sdp_utils.cpp does; a device may prefer"
        " cuDNN's kernel"
    ),
    "constants are folded on the CPU",
    (
        "nothing is timed: shapes are not padded, and of what max-autotune may choose from the"
        " first Triton template is taken"
    ),
    "caches of compiled graphs are off",
    "all memory of the device is free, and nothing runs out of it",
)
"""Between a simulated device and a real one; a run adds what else it did otherwise."""
problem = ""
"""Why there is no simulation, as a line for the user."""


def before_torch() -> None:
    """Prepare what torch looks up while it is imported."""
    global problem
    if ASKED is None:
        return
    try:
        load_guard(Path(ASKED["cache"]))
    except (CannotSimulate, OSError) as error:
        problem = str(error)
        journal.write(events.AgentProblem(hook="simulate", problem=problem))


def after_torch() -> None:
    """Put the GPU in place, and have all tensors fake from here on."""
    global problem
    if ASKED is None or problem:
        return
    try:
        _install(ASKED)
    except (CannotSimulate, BadTarget, BadInput) as error:
        problem = str(error)
    except Exception as error:  # the next torch may have moved something
        problem = f"this torch cannot be simulated on: {error!r}; --gpu is for torch 2.10 to 2.15"
    if problem:
        journal.write(events.AgentProblem(hook="simulate", problem=problem))


def _install(asked: dict[str, Any]) -> None:
    import torch

    try:
        import triton
    except ImportError as error:
        raise CannotSimulate(
            f"--gpu needs triton in the target's interpreter ({error}); install the one that goes"
            f" with torch {torch.__version__}"
        ) from error
    if "torch._dynamo.device_interface" in sys.modules:
        raise CannotSimulate(
            "Dynamo was imported before reprokit could prepare the simulation of a GPU"
        )
    from ..torch_hooks import codegen_only, hooking
    from . import cuda, cudagraph_inputs

    gpu = simulation.read_gpu(asked["gpu"], "--gpu")
    missing = cuda.install_gpu(torch, gpu)
    if missing:
        raise CannotSimulate(
            f"torch {torch.__version__} with triton {triton.__version__} cannot be simulated on: it"
            f" has no {', '.join(missing)}; --gpu is for torch 2.10 to 2.15"
        )
    codegen_only.stop_after_codegen()
    hooking.INDUCTOR_HOOKS.append(cudagraph_inputs.watch_cudagraph_inputs)
    from torch._subclasses.fake_tensor import FakeTensorMode

    FakeTensorMode().__enter__()  # for good
    journal.write(
        events.GpuSimulated(
            gpu=asked["gpu"], triton=triton.__version__, differences=list(DIFFERENCES)
        )
    )
