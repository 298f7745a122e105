"""What an ablation step replaces in Inductor."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ...core.shared import cuts, operators
from ...core.shared.contract import result_events
from ..record import journal
from .symbols import wrap_symbol


def use_fallback(operator: str) -> None:
    """Make Inductor call the ATen operator ``operator`` instead of lowering it."""
    import torch
    from torch._inductor import lowering

    lowering.make_fallback(getattr(torch.ops.aten, operator).default, override_decomp=True)


def mark_inputs(
    sizes: Mapping[str, Sequence[int]] | None = None, static: Sequence[str] = ()
) -> None:
    """Mark dimensions as dynamic and addresses as static when Dynamo begins to compile a frame with
    tensors of these names, as ``torch._dynamo.mark_dynamic`` and ``mark_static_address`` before the
    call do.
    """
    import torch

    def make_hook(real: Callable[..., Any]) -> Callable[..., Any]:
        def _compile(code: Any, globals: Any, locals: Any, *args: Any, **kwargs: Any) -> Any:
            for name, dims in (sizes or {}).items():
                if isinstance(tensor := locals.get(name), torch.Tensor):
                    torch._dynamo.mark_dynamic(tensor, [*dims])
            for name in static:
                if isinstance(tensor := locals.get(name), torch.Tensor):
                    torch._dynamo.mark_static_address(tensor)
            if "skip" in kwargs:  # the frames that Dynamo omits from the stacks that it logs
                kwargs["skip"] += 1
            return real(code, globals, locals, *args, **kwargs)

        return _compile

    wrap_symbol("torch._dynamo.convert_frame:_compile", make_hook)


def skip_compiler_steps(
    subsystem: str, most: int | None = None, only: str = "", without: Sequence[str] = ()
) -> None:
    """Apply the first ``most`` steps of a subsystem, or only those of the operator ``only``.

    The subsystems ``without`` are not applied at all. The number of each step is journaled, with
    the description of step ``most``.
    """
    from torch._inductor.compiler_bisector import CompilerBisector

    count = 0

    def disable_subsystem(
        backend: str, name: str, debug_info: Callable[[], str] | None = None
    ) -> bool:
        nonlocal count
        if name in without:
            return True
        if name != subsystem:
            return False
        count += 1
        info = debug_info() if debug_info is not None and (only or count == most) else ""
        if only:
            return operators.plain_operator(info) != only
        journal.write_event(result_events.Bisected(n=count, info=cuts.cut_head(info, 500)))
        return most is not None and count > most

    replacement = staticmethod(disable_subsystem)
    CompilerBisector.disable_subsystem = replacement  # type: ignore[method-assign, assignment]
