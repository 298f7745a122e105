"""Hooks that hear what Dynamo compiles again, the limits that it hits, and where it breaks a
graph.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

from ...core.shared import cuts
from ...core.shared.contract import events
from ..record import journal
from .hooking import compile_id, wrap_function


def _recompiles() -> None:
    from torch._dynamo import convert_frame

    def make(real: Callable[..., Any]) -> Callable[..., Any]:
        def get_and_maybe_log_recompilation_reasons(
            entries: Any, frame: Any, *args: Any, **kwargs: Any
        ) -> Any:
            reasons = real(entries, frame, *args, **kwargs)
            code = getattr(frame, "f_code", None)
            journal.write(
                events.Recompile(
                    function=getattr(code, "co_name", None),
                    file=getattr(code, "co_filename", None),
                    line=getattr(code, "co_firstlineno", None),
                    cid=compile_id(),
                    reasons=[cuts.cut_head(str(r), 2000) for r in reasons[:20]],
                )
            )
            return reasons

        return get_and_maybe_log_recompilation_reasons

    wrap_function(convert_frame, "get_and_maybe_log_recompilation_reasons", make)


def _limits() -> None:
    from torch._dynamo import convert_frame

    def make(real: Callable[..., Any]) -> Callable[..., Any]:
        def exceeds_recompile_limit(*args: Any, **kwargs: Any) -> Any:
            exceeded, limit = result = real(*args, **kwargs)
            if exceeded:
                journal.write(events.RecompileLimit(limit=str(limit), cid=compile_id()))
            return result

        return exceeds_recompile_limit

    wrap_function(convert_frame, "exceeds_recompile_limit", make)


def _breaks() -> None:
    """Hear each graph break; those at which Dynamo gives a whole function up are heard where it is
    compiled.
    """
    from torch._dynamo import symbolic_convert
    from torch._dynamo.symbolic_convert import InstructionTranslatorBase

    def make(real: Callable[..., Any]) -> Callable[..., Any]:
        def log_graph_break(
            self: Any, code_options: Any, reason: str, exc: Any, *args: Any, **kwargs: Any
        ) -> Any:
            if not getattr(exc, "logged", False):
                note_break(exc)
            return real(self, code_options, reason, exc, *args, **kwargs)

        return log_graph_break

    def make_older(real: Callable[..., Any]) -> Callable[..., Any]:
        def log_graph_break(*args: Any, **kwargs: Any) -> Any:
            error = sys.exc_info()[1]  # it is called where the exception is handled
            if type(error).__name__ == "Unsupported":
                note_break(error)
            return real(*args, **kwargs)

        return log_graph_break

    if hasattr(InstructionTranslatorBase, "log_graph_break"):
        wrap_function(InstructionTranslatorBase, "log_graph_break", make)
    else:  # torch 2.9
        wrap_function(symbolic_convert, "log_graph_break", make_older)


def note_break(error: Any, is_given_up: bool = False) -> None:
    """Journal one graph break: ``error`` is Dynamo's exception."""
    said = str(getattr(error, "msg", "") or error).strip()
    rows = list(getattr(error, "real_stack", None) or ())
    where = f"{rows[-1].filename}:{rows[-1].lineno}" if rows else ""
    reason = (said.splitlines() or [type(error).__name__])[
        0
    ]  # the first break, where it has caused others
    journal.write(
        events.GraphBreakFound(
            reason=cuts.cut_head(reason, 300),
            detail=cuts.cut_head(said, 2000),
            where=where,
            is_given_up=is_given_up,
        )
    )


HOOKS = (_recompiles, _limits, _breaks)
