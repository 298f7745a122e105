"""Refuse calls that the simulation does not replace and that would reach a CUDA driver.

A torch with CUDA has the C entry points, and on a machine with a GPU they would use it. A torch
without CUDA lacks them, and its errors name them too (``core.judge.responsible.simulation_gaps``).
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any

import torch

from ...core.shared.contract import events
from ...core.shared.simulation import gap_in_message, refusal_message
from ..record import journal

STATE_ONLY = frozenset(
    {
        "_cuda_allocationTraceback",
        "_cuda_attach_out_of_memory_observer",
        "_cuda_clearCublasWorkspaces",
        "_cuda_cudaCachingAllocator_enable",
        "_cuda_cudaHostAllocator",
        "_cuda_customAllocator",
        "_cuda_getAllocator",
        "_cuda_getAllocatorBackend",
        "_cuda_getArchFlags",
        "_cuda_getCompiledVersion",
        "_cuda_getCublasLtWorkspaceSize",
        "_cuda_getCublasWorkspaceSize",
        "_cuda_get_conv_benchmark_empty_cache",
        "_cuda_get_cudnn_benchmark_limit",
        "_cuda_get_sync_debug_mode",
        "_cuda_isHistoryEnabled",
        "_cuda_isInBadFork",
        "_cuda_memoryMetadataSupported",
        "_cuda_record_untuned_enable",
        "_cuda_record_untuned_is_enabled",
        "_cuda_resetCublasLtWorkspaceSize",
        "_cuda_resetCublasWorkspaceSize",
        "_cuda_setCublasLtWorkspaceSize",
        "_cuda_setCublasWorkspaceSize",
        "_cuda_set_cudnn_benchmark_limit",
        "_cuda_set_sync_debug_mode",
        "_cuda_tunableop_is_enabled",
        "_cuda_tunableop_tuning_is_enabled",
        "_cuda_tunableop_enable",
        "_cuda_tunableop_tuning_enable",
    }
)
"""Entry points that read or set a variable of torch and call no driver."""
CLASSES = ("Stream", "ExternalStream", "Event", "CUDAGraph", "MemPool")
"""Classes of ``torch.cuda`` whose objects need the driver."""


class SimulationGap(RuntimeError):
    """The simulation does not support a call; the message names it."""


def is_gap(error: BaseException | None) -> bool:
    """Whether an exception, or one of its causes, is a gap of the simulation of a GPU."""
    while error is not None:
        if gap_in_message(str(error), is_gpu=True)[0]:
            return True
        error = error.__cause__
    return False


def refuse_entry_points(replaced: frozenset[str]) -> None:
    """Make each CUDA entry point, such as ``torch._C._cuda_init``, raise SimulationGap.

    The symbols in ``replaced`` do not change.
    """
    for name in CLASSES:
        if owner := getattr(torch.cuda, name, None):
            owner.__new__ = staticmethod(_refuse_call(owner.__new__, f"torch.cuda.{name}"))
    if not hasattr(torch._C, "_cuda_init"):
        return  # a build without CUDA
    refusing: dict[int, Callable[..., Any]] = {}
    for owner, start in ((torch._C, "_cuda_"), (getattr(torch._C, "_cudart", torch._C), "cuda")):
        for name, value in list(vars(owner).items()):
            symbol = f"{owner.__name__}.{name}"
            is_function = name.startswith(start) and callable(value) and not isinstance(value, type)
            if is_function and name not in STATE_ONLY and symbol not in replaced:
                refusing[id(value)] = _refuse_call(value, symbol)
                setattr(owner, name, refusing[id(value)])
    for module in [
        m
        for name, m in sys.modules.items()
        if name.startswith("torch.") and isinstance(m, ModuleType)
    ]:
        for name, value in list(vars(module).items()):
            if id(value) in refusing:  # the module has imported the function
                setattr(module, name, refusing[id(value)])


def _refuse_call(real: Callable[..., Any], symbol: str) -> Callable[..., Any]:
    @functools.wraps(real, updated=())
    def refused(*args: Any, **kwargs: Any) -> Any:
        journal.write_event(events.SimulationGapMet(symbol=symbol))
        raise SimulationGap(refusal_message(symbol))

    return refused
