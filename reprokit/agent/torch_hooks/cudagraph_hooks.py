"""Hear why Inductor skips CUDA graphs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ...core.shared import cuts
from ...core.shared.contract import events
from ..record import journal
from .hooking import wrap_function


def watch_cudagraph_skips() -> None:
    """Journal every skip of a program that has a GPU; without one no graph was to be had."""
    import torch
    from torch._inductor import compile_fx, cudagraph_utils, output_code

    def make(real: Callable[..., Any]) -> Callable[..., Any]:
        def log_cudagraph_skip_and_bump_counter(msg: str) -> None:
            if torch.cuda.is_available():
                journal.write(events.CudagraphSkipped(message=cuts.cut_head(str(msg), 4000)))
            real(msg)

        return log_cudagraph_skip_and_bump_counter

    for module in (cudagraph_utils, output_code, compile_fx):  # those that have it by name
        wrap_function(module, "log_cudagraph_skip_and_bump_counter", make)
