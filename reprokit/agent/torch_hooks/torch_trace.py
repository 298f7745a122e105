"""Keep reprokit's TORCH_TRACE separate from the tracing that the program sees."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from typing import Any

from ...core.shared.contract import run_names
from ..record import journal
from .symbols import wrap_symbol
from .trace_file import TraceFile

_FOLDER = os.path.dirname(os.path.dirname(os.path.dirname(__file__))) + os.sep
_own_handler: TraceFile | None = None


def separate_handlers() -> None:
    """Replace the handler that torch has for reprokit's folder by a ``TraceFile``, and by the
    handler that torch has without that folder.

    Torch removes its handler at the first record, and adds it again when the program sets its logs.
    A trace that the program itself requests does not change.
    """
    global _own_handler
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
    internal.handlers.discard(handler)
    internal.trace_log.removeHandler(handler)
    max_bytes = int(os.environ[run_names.TRACE_LIMIT_VARIABLE])
    _own_handler = TraceFile(handler.root_dir, max_bytes, handler.formatter)
    internal.trace_log.addHandler(_own_handler)  # torch removes no handlers that it does not know
    # it is last, because it may remove itself during a loop over the list
    internal.trace_log.addHandler(default_handler)
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
        if any(handler is not _own_handler for handler in log.handlers):
            return type(log).makeRecord(
                log, name, level, fn, line, msg, args, exc_info, func, extra, sinfo
            )
        record = TraceRecord(name, level, fn, line, msg, args, exc_info, func, sinfo)
        vars(record).update(extra or {})
        if _own_handler is not None:
            _own_handler.handle(record)
        return record

    vars(log).update(makeRecord=makeRecord, filter=lambda record: filter_record(log, record))


class TraceRecord(logging.LogRecord):
    """A record that only the agent wants. The function that creates it also writes it."""


def filter_record(logger: logging.Logger, record: logging.LogRecord) -> Any:
    """Return False for a record that only the agent wants, else the result of ``logger.filter``."""
    return False if isinstance(record, TraceRecord) else type(logger).filter(logger, record)


def _without_agent_frames(real: Callable[..., Any]) -> Callable[..., Any]:
    def from_traceback(tb: Any) -> Any:
        return real([frame for frame in tb if not frame.filename.startswith(_FOLDER)])

    return from_traceback
