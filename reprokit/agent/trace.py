"""Keep the file of TORCH_TRACE that reprokit asks for apart from what torch does without it."""

from __future__ import annotations

import logging
import os
import sys
from types import FrameType
from typing import Any

from . import journal

_ours: Any = None
_emit: Any = None


def keep_apart() -> None:
    """Give torch the trace handler that it has without our TORCH_TRACE, beside one of our own.

    Torch removes its handler at the first record, and puts it back when the program sets its logs. A trace that the
    program itself asks for stays as it is.
    """
    global _ours, _emit
    import torch._logging._internal as internal

    handler = internal.LOG_TRACE_HANDLER
    if handler is None or handler.root_dir != os.path.join(journal.RUN_DIR, "trace"):
        return
    place = None
    if os.environ.get("TORCH_COMPILE_DEBUG", "0") == "1":  # the default of torch there
        import torch._dynamo.config as config

        place = os.path.join(config.debug_dir_root, "tlparse")
    theirs = internal.LazyTraceHandler(place)
    theirs.setFormatter(handler.formatter)
    internal.LOG_TRACE_HANDLER = internal._track_handler(theirs)
    internal.handlers.discard(handler)  # torch keeps its hands off handlers that it does not know
    log = internal.trace_log
    log.addHandler(theirs)  # behind ours: it may remove itself while the list is gone through
    _ours, _emit = handler, internal.LazyTraceHandler.emit.__code__

    def makeRecord(*args: Any) -> logging.LogRecord:
        """Only records that torch would have made without us come from the record factory of the program."""
        if theirs in log.handlers and not _is_for_ours(sys._getframe(1)):
            return type(log).makeRecord(log, *args)  # type: ignore[no-any-return]
        name, level, fn, line, msg, given, exc_info, func, extra, sinfo = args
        record = logging.LogRecord(name, level, fn, line, msg, given, exc_info, func, sinfo)
        vars(record).update(extra or {})
        return record

    vars(log)["makeRecord"] = makeRecord


def _is_for_ours(caller: FrameType | None) -> bool:
    """Whether our handler logs this itself, at the head of its file."""
    while caller is not None and caller.f_globals.get("__name__") in ("logging", "torch._logging._internal"):
        if is_about_our_file(caller):
            return True
        caller = caller.f_back
    return False


def is_about_our_file(caller: FrameType | None) -> bool:
    """Whether torch is logging where our handler writes to: no record without us."""
    return caller is not None and caller.f_code is _emit and caller.f_locals.get("self") is _ours
