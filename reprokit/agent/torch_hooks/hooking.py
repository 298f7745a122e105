"""How a hook is put around something of torch."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from typing import Any

from ...core.shared.contract import events
from ..record import journal

DYNAMO_HOOKS: list[Callable[[], None]] = []
"""Installed when ``torch._dynamo`` has been imported; what is asked for adds its own."""
INDUCTOR_HOOKS: list[Callable[[], None]] = []
"""Installed when ``torch._inductor.compile_fx`` has been imported."""


def attempt_hook(hook: Callable[[], None]) -> None:
    """Install one hook; one that does not fit this torch is journalled as missing."""
    try:
        hook()
    except Exception as problem:  # the next torch may have moved it
        journal.write(events.AgentProblem(hook=hook.__name__, problem=repr(problem)))


def wrap_function(
    owner: Any, name: str, make: Callable[[Callable[..., Any]], Callable[..., Any]]
) -> None:
    real = getattr(owner, name)
    setattr(owner, name, functools.wraps(real)(make(real)))


def compile_id() -> str | None:
    """Dynamo's name of the compile at work, such as ``0/1``."""
    guards = sys.modules.get("torch._guards")
    if guards is None:
        return None
    current = guards.CompileContext.current_compile_id()
    return str(current) if current is not None else None
