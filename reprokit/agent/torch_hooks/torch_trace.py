"""Keep reprokit's TORCH_TRACE file separate from the tracing that the program sees."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Callable
from types import CodeType, FrameType
from typing import Any

from ...core.shared.contract import run_names
from ..record import journal
from .symbols import wrap_symbol

_FOLDER = os.path.dirname(os.path.dirname(os.path.dirname(__file__))) + os.sep
_own_handler: Any = None
_emit_code: CodeType | None = None


def separate_handlers() -> None:
    """Add the trace handler that torch has without reprokit's TORCH_TRACE, beside reprokit's own.

    Torch removes its handler at the first record, and adds it again when the program sets its logs.
    A trace that the program itself requests does not change.
    """
    global _own_handler, _emit_code
    import torch._logging._internal as internal

    handler = internal.LOG_TRACE_HANDLER
    if handler is None or handler.root_dir != os.path.join(journal.RUN_DIR, run_names.TRACE_FOLDER):
        return
    folder = None
    if os.environ.get("TORCH_COMPILE_DEBUG", "0") == "1":  # torch has this default then
        import torch._dynamo.config as config

        folder = os.path.join(config.debug_dir_root, "tlparse")
    default_handler = internal.LazyTraceHandler(folder)
    default_handler.setFormatter(handler.formatter)
    internal.LOG_TRACE_HANDLER = internal._track_handler(default_handler)
    internal.handlers.discard(handler)  # torch does not remove handlers that it does not know
    # it is last, because it may remove itself during a loop over the list
    internal.trace_log.addHandler(default_handler)
    _own_handler, _emit_code = handler, internal.LazyTraceHandler.emit.__code__
    _hide_records(internal.trace_log)
    wrap_symbol("torch._logging.structured:from_traceback", _without_agent_frames)


def _hide_records(log: logging.Logger) -> None:
    """Hide records that torch makes only for the agent from record factories and other handlers."""

    def makeRecord(
        name: str,
        level: int,
        fn: str,
        line: int,
        msg: Any,
        args: Any,
        exc_info: Any,
        func: str | None = None,
        extra: Any = None,
        sinfo: str | None = None,
    ) -> logging.LogRecord:
        is_head = _writes_head(sys._getframe(1))
        if not is_head and any(handler is not _own_handler for handler in log.handlers):
            return type(log).makeRecord(
                log, name, level, fn, line, msg, args, exc_info, func, extra, sinfo
            )
        record = TraceRecord(name, level, fn, line, msg, args, exc_info, func, sinfo)
        vars(record).update(extra or {})
        _own_handler.handle(record)
        return record

    vars(log).update(makeRecord=makeRecord, filter=lambda record: filter_record(log, record))


class TraceRecord(logging.LogRecord):
    """A record that only the agent wants. The function that creates it also writes it."""


def filter_record(logger: logging.Logger, record: logging.LogRecord) -> Any:
    """Return False for a record that only the agent wants, else the result of ``logger.filter``."""
    return False if isinstance(record, TraceRecord) else type(logger).filter(logger, record)


def _writes_head(caller: FrameType | None) -> bool:
    """Whether the agent's handler logs this record itself, at the start of its file."""
    while caller is not None and caller.f_globals.get("__name__") in (
        "logging",
        "torch._logging._internal",
    ):
        if is_about_agent_file(caller):
            return True
        caller = caller.f_back
    return False


def is_about_agent_file(caller: FrameType | None) -> bool:
    """Whether torch logs the path of the agent's file; such a record does not exist without it."""
    return (
        caller is not None
        and caller.f_code is _emit_code
        and caller.f_locals.get("self") is _own_handler
    )


def _without_agent_frames(real: Callable[..., Any]) -> Callable[..., Any]:
    def from_traceback(tb: Any) -> Any:
        return real([frame for frame in tb if not frame.filename.startswith(_FOLDER)])

    return from_traceback
