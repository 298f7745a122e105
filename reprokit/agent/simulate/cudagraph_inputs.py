"""Look for inputs that a CUDA graph would change; Inductor itself looks when the graph runs, and
here nothing runs.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..torch_hooks.hooking import wrap_function


def watch_cudagraph_inputs() -> None:
    """Report a CUDA graph that Inductor would skip at its first call
    (``cudagraph_utils.check_for_mutation``).
    """
    from torch._inductor import output_code

    wrap_function(output_code.CompiledFxGraph, "post_compile", _look_ahead)


def _look_ahead(real: Callable[..., Any]) -> Callable[..., Any]:
    def post_compile(self: Any, *args: Any, **kwargs: Any) -> Any:
        import torch._inductor.config as config
        from torch._inductor import cudagraph_utils

        result = real(self, *args, **kwargs)
        info = self.cudagraph_info
        static = set(self.fx_kwargs.get("static_input_idxs") or ())
        mutated = [n for n in self.mutated_input_idxs or () if n not in static]
        is_asked = (
            config.triton.cudagraphs and info is not None and not self.disabled_cudagraphs_reason
        )
        if is_asked and mutated:
            said = cudagraph_utils.get_mutation_stack_trace(info.placeholders, mutated)
            cudagraph_utils.log_cudagraph_skip_and_bump_counter(said)
        return result

    return post_compile
