"""Hooks on Dynamo's recompiles, recompile limits and graph breaks."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

from ...core.shared import cuts
from ...core.shared.contract import events
from ..record import journal
from .symbols import compile_id, has_symbol, wrap_symbol


def hook_recompiles() -> None:
    """Journal each recompile with its reasons."""

    def make_hook(real: Callable[..., Any]) -> Callable[..., Any]:
        def get_and_maybe_log_recompilation_reasons(
            entries: Any, frame: Any, *args: Any, **kwargs: Any
        ) -> Any:
            reasons = real(entries, frame, *args, **kwargs)
            code = getattr(frame, "f_code", None)
            journal.write_event(
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

    wrap_symbol("torch._dynamo.convert_frame:get_and_maybe_log_recompilation_reasons", make_hook)


def hook_recompile_limits() -> None:
    """Journal each function that Dynamo no longer compiles because it recompiled too many times."""

    def make_hook(real: Callable[..., Any]) -> Callable[..., Any]:
        def exceeds_recompile_limit(*args: Any, **kwargs: Any) -> Any:
            exceeded, limit = result = real(*args, **kwargs)
            if exceeded:
                journal.write_event(events.RecompileLimit(limit=str(limit), cid=compile_id()))
            return result

        return exceeds_recompile_limit

    wrap_symbol("torch._dynamo.convert_frame:exceeds_recompile_limit", make_hook)


def hook_graph_breaks() -> None:
    """Journal each graph break.

    ``phases_and_graphs.hook_failures`` journals a break after which Dynamo compiles nothing of the
    function.
    """

    def make_hook(real: Callable[..., Any]) -> Callable[..., Any]:
        def log_graph_break(
            self: Any, code_options: Any, reason: str, exc: Any, *args: Any, **kwargs: Any
        ) -> Any:
            if not getattr(exc, "logged", False):
                note_break(exc)
            return real(self, code_options, reason, exc, *args, **kwargs)

        return log_graph_break

    def make_older_hook(real: Callable[..., Any]) -> Callable[..., Any]:
        def log_graph_break(*args: Any, **kwargs: Any) -> Any:
            error = sys.exc_info()[1]  # Dynamo calls this function in an exception handler
            if type(error).__name__ == "Unsupported":
                note_break(error)
            return real(*args, **kwargs)

        return log_graph_break

    older = "torch._dynamo.symbolic_convert:log_graph_break"
    if has_symbol(older):
        wrap_symbol(older, make_older_hook)
    else:
        wrap_symbol(
            "torch._dynamo.symbolic_convert:InstructionTranslatorBase.log_graph_break", make_hook
        )


def note_break(error: Any, is_given_up: bool = False) -> None:
    """Journal one graph break. ``error`` is Dynamo's exception."""
    message = str(getattr(error, "msg", "") or error).strip()
    rows = list(getattr(error, "real_stack", None) or ())
    where = f"{rows[-1].filename}:{rows[-1].lineno}" if rows else ""
    # a break that has caused other breaks is the first line
    reason = (message.splitlines() or [type(error).__name__])[0]
    journal.write_event(
        events.GraphBreakFound(
            reason=cuts.cut_head(reason, 300),
            detail=cuts.cut_head(message, 2000),
            where=where,
            is_given_up=is_given_up,
        )
    )


HOOKS = (hook_recompiles, hook_recompile_limits, hook_graph_breaks)
