"""Hooks on Dynamo's recompiles, recompile limits and graph breaks."""

from __future__ import annotations

import os
import sys
import types
from collections.abc import Callable, Sequence
from typing import Any

from ...core.shared import cuts
from ...core.shared.contract import events
from ..record import journal, program_code
from .symbols import compile_id, has_symbol, wrap_symbol


def users_place(traced: Sequence[Any] = ()) -> str:
    """Return ``file:line`` of the user's line that Dynamo traces, or from which the compiled
    function was called; empty if there is none.

    ``traced`` are the lines that Dynamo traced, the outermost first.
    """
    torchs = os.path.join(os.path.dirname(sys.modules["torch"].__file__ or ""), "")
    others = ("<", torchs, *program_code.library_folders())

    def is_users(file: str) -> bool:
        return not file.startswith(others)

    for row in reversed(traced):
        if is_users(row.filename):
            return f"{row.filename}:{row.lineno}"
    frame: types.FrameType | None = sys._getframe()
    while frame is not None:
        if is_users(frame.f_code.co_filename):
            return f"{frame.f_code.co_filename}:{frame.f_lineno}"
        frame = frame.f_back
    return ""


def hook_recompiles() -> None:
    """Journal each recompile with its reasons."""

    def make_hook(real: Callable[..., Any]) -> Callable[..., Any]:
        def get_and_maybe_log_recompilation_reasons(*args: Any, **kwargs: Any) -> Any:
            reasons = real(*args, **kwargs)
            frame = kwargs.get("frame") or (args[1] if len(args) > 1 else None)
            code = getattr(frame, "f_code", None)
            journal.write_event(
                events.Recompile(
                    function=getattr(code, "co_name", None),
                    file=getattr(code, "co_filename", None),
                    line=getattr(code, "co_firstlineno", None),
                    cid=compile_id(),
                    reasons=[cuts.cut_head(str(r), 2000) for r in list(reasons)[:20]],
                    caller=users_place(),
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
        def log_graph_break(*args: Any, **kwargs: Any) -> Any:
            # before torch 2.11 Dynamo passes no exception, but calls this function in its handler
            error = kwargs.get("exc", sys.exc_info()[1])
            is_break = "exc" in kwargs or type(error).__name__ == "Unsupported"
            if is_break and not getattr(error, "logged", False):
                note_break(error)
            return real(*args, **kwargs)

        return log_graph_break

    module = "torch._dynamo.symbolic_convert"
    before_2_10 = f"{module}:log_graph_break"
    method = f"{module}:InstructionTranslatorBase.log_graph_break"
    wrap_symbol(before_2_10 if has_symbol(before_2_10) else method, make_hook)


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
            caller=users_place(rows),
            is_given_up=is_given_up,
        )
    )


HOOKS = (hook_recompiles, hook_recompile_limits, hook_graph_breaks)
