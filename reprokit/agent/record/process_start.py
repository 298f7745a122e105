"""Prepare this process for the host, and journal it, just before it imports torch or Triton.

The host can then take its stacks, and its uncaught exceptions and warnings are in the journal.
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import faulthandler
import functools
import os
import platform
import re
import resource
import signal
import sys
import threading
import warnings
from types import TracebackType
from typing import IO, Any

from ...core.shared import cuts
from ...core.shared.contract import events, run_names
from ...core.shared.contract.journal_format import STACKS_SIGNAL
from . import exceptions, journal

OF_COMPILER = re.compile("/torch/(_dynamo|_functorch|_inductor|_subclasses|fx)/")
"""Where the warnings of the compiler come from. Other warnings of torch are about the program."""
MAX_WARNINGS = 1000
"""Warnings that a process journals: a program may show each one of them each time."""
_fault_file: IO[str] | None = None
_is_enabled_by_us = False
_is_journaled = False


def journal_process() -> None:
    """Journal this process, let the host take its stacks, and journal exceptions and warnings.

    Only the first call has an effect.
    """
    global _is_journaled
    if _is_journaled:  # a program may import torch and Triton, in either order
        return
    _is_journaled = True
    can_dump = _open_stack_files()
    _allow_tracer()
    journal.write_event(
        events.Process(
            ppid=os.getppid(),
            argv=sys.orig_argv,
            executable=sys.executable,
            python=platform.python_version(),
            cwd=os.getcwd(),
            can_dump=can_dump,
            rank=os.environ.get("RANK"),
            world_size=os.environ.get("WORLD_SIZE"),
        )
    )
    os.register_at_fork(after_in_child=_after_fork)
    atexit.register(_journal_exit)
    _journal_exceptions()
    _journal_warnings()


def _open_stack_files() -> bool:
    """Let faulthandler write this process's stacks to a file of this process.

    Return False if that is not possible, or if the program handles the signal itself.
    """
    global _fault_file, _is_enabled_by_us
    folder = os.path.join(journal.RUN_DIR, run_names.STACKS_FOLDER)
    try:
        path = os.path.join(folder, f"faulthandler-{os.getpid()}.txt")
        _fault_file = open(path, "a")  # noqa: SIM115 - it stays open until the process ends
    except OSError:
        return False
    # a forked child would else write to the file of its parent
    if _is_enabled_by_us or not faulthandler.is_enabled():
        faulthandler.enable(file=_fault_file, all_threads=True)
        _is_enabled_by_us = True
    if signal.getsignal(STACKS_SIGNAL) is not signal.SIG_DFL:
        return False
    faulthandler.register(STACKS_SIGNAL, file=_fault_file, all_threads=True, chain=False)
    return True


def _after_fork() -> None:
    can_dump = _open_stack_files() if _fault_file is not None else False
    _allow_tracer()
    journal.write_event(
        events.Process(
            ppid=os.getppid(),
            argv=sys.orig_argv,
            executable=sys.executable,
            forked=True,
            can_dump=can_dump,
            rank=os.environ.get("RANK"),
        )
    )


def _allow_tracer() -> None:
    """Let the watchdog attach to this process.

    With Yama's ``ptrace_scope`` 1 only a parent may attach; PR_SET_PTRACER (0x59616d61) adds one.
    """
    with contextlib.suppress(OSError, AttributeError, ValueError):
        watchdog = int(os.environ.get(run_names.WATCHDOG_VARIABLE, "0"))
        if watchdog:
            ctypes.CDLL(None).prctl(0x59616D61, ctypes.c_ulong(watchdog), 0, 0, 0)


def rank_if_several() -> list[int]:
    """Return the rank of this process, or no rank if it is the only process."""
    rank = os.environ.get("RANK", "")
    has_several = os.environ.get("WORLD_SIZE") not in (None, "", "1")
    return [int(rank)] if rank.isdigit() and has_several else []


def end_with_parent() -> None:
    """Let the kernel kill this process when the process that forked it ends."""
    with contextlib.suppress(OSError, AttributeError):
        # 1 is PR_SET_PDEATHSIG
        ctypes.CDLL(None).prctl(1, int(signal.SIGKILL), 0, 0, 0)


def _journal_exit() -> None:
    used = resource.getrusage(resource.RUSAGE_SELF)
    journal.write_event(
        events.Exit(cpu_s=used.ru_utime + used.ru_stime, max_rss_kib=used.ru_maxrss)
    )


def _journal_exceptions() -> None:
    real = sys.excepthook

    def excepthook(
        kind: type[BaseException], error: BaseException, trace: TracebackType | None
    ) -> None:
        # an exception object of the program may raise when it is converted to text
        with contextlib.suppress(Exception):
            journal.write_event(
                events.ExceptionRaised(
                    where="uncaught",
                    chain=exceptions.describe_exception(error.with_traceback(trace)),
                )
            )
            trace = exceptions.hide_agent(error)
        real(kind, error, trace)

    sys.excepthook = excepthook
    real_of_threads = threading.excepthook

    def thread_excepthook(args: threading.ExceptHookArgs) -> None:
        if args.exc_value is not None:
            with contextlib.suppress(Exception):
                journal.write_event(
                    events.ExceptionRaised(
                        where="thread", chain=exceptions.describe_exception(args.exc_value)
                    )
                )
                exceptions.hide_agent(args.exc_value)
        real_of_threads(args)

    threading.excepthook = thread_excepthook


def _journal_warnings() -> None:
    """Journal the warnings of the compiler that Python shows or records, when it creates the
    ``WarningMessage``. A function that only formats a warning creates one too.

    The program keeps its own ``warnings.showwarning``, and no frame of the agent is on the stack
    while Python calls it.
    """
    message_class = warnings.WarningMessage
    real = message_class.__init__
    left = MAX_WARNINGS

    @functools.wraps(real)
    def __init__(
        self: Any, message: Any, category: Any, filename: str, lineno: int, *rest: Any, **more: Any
    ) -> None:
        nonlocal left
        real(self, message, category, filename, lineno, *rest, **more)
        # no contextlib: Dynamo compiles its functions if a compiled function shows the warning
        try:
            is_shown = sys._getframe(1).f_code.co_name not in ("formatwarning", "showwarning")
            is_of_compiler = is_shown and left and OF_COMPILER.search(filename)
            if is_of_compiler and not _is_hidden(message, category, filename, lineno):
                left -= 1
                journal.write_event(
                    events.WarningShown(
                        category=category.__name__,
                        message=cuts.cut_head(str(message), 4000),
                        file=filename,
                        line=lineno,
                    )
                )
        except Exception:  # a warning object of the program may raise when it is converted to text
            pass

    message_class.__init__ = __init__  # type: ignore[method-assign]


def _is_hidden(*warning: Any) -> bool:
    """Return whether torch hides a warning: ``torch._logging.hide_warnings`` replaces
    ``warnings.showwarning`` with a function that asks a filter.
    """
    show: Any = warnings.showwarning
    if getattr(show, "__qualname__", "") != "hide_warnings.<locals>._showwarning":
        return False
    cells = dict(zip(show.__code__.co_freevars, show.__closure__, strict=True))
    return not cells["filter_fn"].cell_contents(*warning)
