"""Simulate a GPU: the process compiles for it on fake tensors, to the end of code generation.

An environment variable requests the simulation, so that it is the same for a factory target, a
repro and a forked probe. If it cannot be set up, ``problem`` says why. It imports ``record`` and
``torch_hooks``, and must not import ``target`` or ``experiments``.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any, TypedDict

from ...core.shared import simulation
from ...core.shared.contract import events, run_names
from ...core.shared.errors import BadInput, BadTarget
from ..record import journal
from .guard import CannotSimulate, load_guard


class SimulationRequest(TypedDict):
    """The JSON value of the environment variable that requests a simulation."""

    gpu: dict[str, Any]
    """The properties of :class:`core.shared.simulation.Gpu`."""
    cache: str
    """The folder of the device guard's library."""


REQUEST: SimulationRequest | None = json.loads(os.environ.get(run_names.GPU_VARIABLE) or "null")
DIFFERENCES = (
    "nothing runs: tensors are fake, and kernels are generated but not launched",
    (
        "the attention kernel is selected from shapes and types, as in sdp_utils.cpp; a device may"
        " prefer cuDNN's kernel"
    ),
    "constants are folded on the CPU",
    (
        "nothing is timed: shapes are not padded, and max-autotune always selects the first Triton"
        " template"
    ),
    "caches of compiled graphs are off",
    "all memory of the device is free, and nothing runs out of it",
)
"""Differences between a simulated device and a real one."""
problem = ""
"""Why there is no simulation, as one line for the user."""


def before_torch() -> None:
    """Load the device guard, which torch looks up while it is imported."""
    global problem
    if REQUEST is None:
        return
    try:
        load_guard(Path(REQUEST["cache"]))
    except (CannotSimulate, OSError) as error:
        problem = str(error)
        journal.write_event(events.AgentProblem(hook="simulate", problem=problem))


def after_torch() -> None:
    """Install the simulated GPU, and make all tensors fake for the rest of the process."""
    global problem
    if REQUEST is None or problem:
        return
    try:
        _install(REQUEST)
    except (CannotSimulate, BadTarget, BadInput) as error:
        problem = str(error)
    except Exception as error:  # a newer torch may have moved a symbol
        problem = f"this torch cannot simulate a GPU: {error!r}; --gpu needs torch 2.12 to 2.15"
    if problem:
        journal.write_event(events.AgentProblem(hook="simulate", problem=problem))


def _install(request: SimulationRequest) -> None:
    import torch

    try:
        import triton
    except ImportError as error:
        raise CannotSimulate(
            f"--gpu needs triton in the target's interpreter ({error}); install the version for"
            f" torch {torch.__version__}"
        ) from error
    if "torch._dynamo.device_interface" in sys.modules:
        raise CannotSimulate(
            "Dynamo was imported before reprokit could prepare the simulation of a GPU"
        )
    from ..torch_hooks import codegen_only, symbols
    from . import cuda, cudagraph_inputs

    gpu = simulation.read_gpu(request["gpu"], "--gpu")
    missing = cuda.install_gpu(gpu)
    if missing:
        raise CannotSimulate(
            f"torch {torch.__version__} with triton {triton.__version__} cannot simulate a GPU: it"
            f" has no {', '.join(missing)}; --gpu needs torch 2.12 to 2.15"
        )
    codegen_only.stop_after_codegen()
    symbols.INDUCTOR_HOOKS.append(cudagraph_inputs.watch_cudagraph_inputs)
    from torch._subclasses.fake_tensor import FakeTensorMode

    FakeTensorMode().__enter__()  # for the rest of the process
    journal.write_event(
        events.GpuSimulated(
            gpu=request["gpu"], triton=triton.__version__, differences=list(DIFFERENCES)
        )
    )
