"""Journal why Inductor skips CUDA graphs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ...core.shared import cuts
from ...core.shared.contract import events
from ..record import journal
from .symbols import wrap_symbol


def watch_cudagraph_skips() -> None:
    """Journal each skip in a process that has a GPU; without a GPU, CUDA graphs are impossible."""
    import torch

    def make_hook(real: Callable[..., Any]) -> Callable[..., Any]:
        def log_cudagraph_skip_and_bump_counter(msg: str) -> None:
            if torch.cuda.is_available():
                journal.write_event(events.CudagraphSkipped(message=cuts.cut_head(str(msg), 4000)))
            real(msg)

        return log_cudagraph_skip_and_bump_counter

    # the last two import the function of the first
    for module in ("cudagraph_utils", "output_code", "compile_fx"):
        wrap_symbol(f"torch._inductor.{module}:log_cudagraph_skip_and_bump_counter", make_hook)
