"""Which parts of the compiler a program ran: lowerings of Inductor, and handlers of Dynamo.

They are counted by two functions that each of them passes through, which costs less than
``sys.monitoring`` and is there in each Python.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..torch_hooks import symbols


def watch_handlers() -> set[str]:
    """Return a set that gets the names of the lowerings and handlers that run from now on."""
    seen: set[str] = set()

    def hook_lowering(real: Callable[..., Any]) -> Callable[..., Any]:
        def call_function(self: Any, target: Any, *args: Any, **kwargs: Any) -> Any:
            seen.add(f"lowering {target}")
            return real(self, target, *args, **kwargs)

        return call_function

    def hook_handler(real: Callable[..., Any]) -> Callable[..., Any]:
        def call_function(self: Any, fn: Any, args: Any, kwargs: Any) -> Any:
            name = f"{type(fn).__name__} {_value_name(fn)}"
            kinds = " ".join(sorted({type(one).__name__ for one in args}))
            seen.add(f"handler {name} ({kinds})")
            return real(self, fn, args, kwargs)

        return call_function

    symbols.attempt_hook(
        lambda: symbols.wrap_symbol(
            "torch._inductor.graph:GraphLowering.call_function", hook_lowering
        )
    )
    symbols.attempt_hook(
        lambda: symbols.wrap_symbol(
            "torch._dynamo.symbolic_convert:InstructionTranslatorBase.call_function", hook_handler
        )
    )
    return seen


def _value_name(fn: Any) -> str:
    """Return the name of what is called, if it is a part of Python or torch."""
    value = fn.__dict__.get("value", fn.__dict__.get("fn"))
    module = str(getattr(value, "__module__", ""))
    is_known = module.partition(".")[0] in ("torch", "builtins", "_operator", "itertools")
    return str(getattr(value, "__name__", "")) if is_known else ""
