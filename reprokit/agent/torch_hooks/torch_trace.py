"""Keep the file of TORCH_TRACE that reprokit asks for apart from what torch does without it."""

from __future__ import annotations

import logging
import os
import sys
from types import FrameType
from typing import Any

from ...core.shared.contract import run_names
from ..record import journal
from .hooking import wrap_function

_FOLDER = os.path.dirname(os.path.dirname(os.path.dirname(__file__))) + os.sep
_ours: Any = None
_emit: Any = None


def keep_apart() -> None:
    """Give torch the trace handler that it has without our TORCH_TRACE, beside one of our own.

    Torch removes its handler at the first record, and puts it back when the program sets its logs.
    A trace that the program itself asks for stays as it is.
    """
    global _ours, _emit
    import torch._logging._internal as internal

    handler = internal.LOG_TRACE_HANDLER
    if handler is None or handler.root_dir != os.path.join(journal.RUN_DIR, run_names.TRACE_FOLDER):
        return
    place = None
    if os.environ.get("TORCH_COMPILE_DEBUG", "0") == "1":  # the default of torch there
        import torch._dynamo.config as config

        place = os.path.join(config.debug_dir_root, "tlparse")
    theirs = internal.LazyTraceHandler(place)
    theirs.setFormatter(handler.formatter)
    internal.LOG_TRACE_HANDLER = internal._track_handler(theirs)
    internal.handlers.discard(handler)  # torch leaves handlers alone that it does not know
    internal.trace_log.addHandler(
        theirs
    )  # behind ours: it may remove itself during a loop over the list
    _ours, _emit = handler, internal.LazyTraceHandler.emit.__code__
    _hide_records(internal.trace_log)
    wrap_function(internal.torch._logging.structured, "from_traceback", _without_our_frames)


def _hide_records(log: logging.Logger) -> None:
    """Keep records that torch makes only for us from the program's record factory and from other
    handlers.
    """

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
        if not is_head and any(handler is not _ours for handler in log.handlers):
            return type(log).makeRecord(
                log, name, level, fn, line, msg, args, exc_info, func, extra, sinfo
            )
        record = TraceRecord(name, level, fn, line, msg, args, exc_info, func, sinfo)
        vars(record).update(extra or {})
        _ours.handle(record)
        return record

    vars(log).update(makeRecord=makeRecord, filter=lambda record: drop_ours(log, record))


class TraceRecord(logging.LogRecord):
    """A record that the program would not have had; who makes it also writes it."""


def drop_ours(logger: logging.Logger, record: logging.LogRecord) -> Any:
    """The answer of ``logger.filter``, and False for a record of ours."""
    return False if isinstance(record, TraceRecord) else type(logger).filter(logger, record)


def _writes_head(caller: FrameType | None) -> bool:
    """Whether our handler logs this itself, at the head of its file."""
    while caller is not None and caller.f_globals.get("__name__") in (
        "logging",
        "torch._logging._internal",
    ):
        if is_about_our_file(caller):
            return True
        caller = caller.f_back
    return False


def is_about_our_file(caller: FrameType | None) -> bool:
    """Whether torch logs where our handler writes; without us there is no such record."""
    return caller is not None and caller.f_code is _emit and caller.f_locals.get("self") is _ours


def _without_our_frames(real: Any) -> Any:
    def from_traceback(tb: Any) -> Any:
        return real([frame for frame in tb if not frame.filename.startswith(_FOLDER)])

    return from_traceback
