"""Hear why Inductor skips CUDA graphs, and, where nothing runs, what it would find when it did."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..core import cuts
from . import journal, simulate
from .hooks import wrap


def watch() -> None:
    """Journal every skip of a program that has a GPU; without one no graph was to be had."""
    import torch
    from torch._inductor import compile_fx, cudagraph_utils, output_code

    def make(real: Callable[..., Any]) -> Callable[..., Any]:
        def log_cudagraph_skip_and_bump_counter(msg: str) -> None:
            if torch.cuda.is_available():
                journal.write("cudagraph_skip", message=cuts.head(str(msg), 4000))
            real(msg)

        return log_cudagraph_skip_and_bump_counter

    for module in (cudagraph_utils, output_code, compile_fx):  # those that have it by name
        wrap(module, "log_cudagraph_skip_and_bump_counter", make)
    if simulate.ASKED is not None:
        wrap(output_code.CompiledFxGraph, "post_compile", _look_ahead)


def _look_ahead(real: Callable[..., Any]) -> Callable[..., Any]:
    """Inputs that a graph changes are looked at when it runs (cudagraph_utils.check_for_mutation): look at them here."""

    def post_compile(self: Any, *args: Any, **kwargs: Any) -> Any:
        import torch._inductor.config as config
        from torch._inductor import cudagraph_utils

        result = real(self, *args, **kwargs)
        info = self.cudagraph_info
        static = set(self.fx_kwargs.get("static_input_idxs") or ())
        mutated = [n for n in self.mutated_input_idxs or () if n not in static]
        is_asked = config.triton.cudagraphs and info is not None and not self.disabled_cudagraphs_reason
        if is_asked and mutated:
            said = cudagraph_utils.get_mutation_stack_trace(info.placeholders, mutated)
            cudagraph_utils.log_cudagraph_skip_and_bump_counter(said)
        return result

    return post_compile
