"""Check whether a CUDA graph would change its inputs.

Inductor itself checks this when the graph runs, and on a simulated GPU no graph runs.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..torch_hooks.symbols import wrap_symbol


def watch_cudagraph_inputs() -> None:
    """Log each CUDA graph that Inductor would skip at its first call.

    The condition is that of ``cudagraph_utils.check_for_mutation``.
    """
    wrap_symbol("torch._inductor.output_code:CompiledFxGraph.post_compile", _make_hook)


def _make_hook(real: Callable[..., Any]) -> Callable[..., Any]:
    def post_compile(self: Any, *args: Any, **kwargs: Any) -> Any:
        import torch._inductor.config as config
        from torch._inductor import cudagraph_utils

        result = real(self, *args, **kwargs)
        info = self.cudagraph_info
        static = set(self.fx_kwargs.get("static_input_idxs") or ())
        mutated = [n for n in self.mutated_input_idxs or () if n not in static]
        uses_cudagraphs = (
            config.triton.cudagraphs and info is not None and not self.disabled_cudagraphs_reason
        )
        if uses_cudagraphs and mutated:
            reason = cudagraph_utils.get_mutation_stack_trace(info.placeholders, mutated)
            cudagraph_utils.log_cudagraph_skip_and_bump_counter(reason)
        return result

    return post_compile
