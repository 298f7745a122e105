"""Make this process dumpable and introduce it in the journal; runs just before torch or Triton is
imported.
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import faulthandler
import functools
import os
import platform
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

_fault_file: IO[str] | None = None
_is_enabled_by_us = False
_is_introduced = False


def introduce_process() -> None:
    """Journal who this is, let the host take stacks, and hear of uncaught exceptions and warnings;
    the first time.
    """
    global _is_introduced
    if _is_introduced:  # it imports torch and Triton, in either order
        return
    _is_introduced = True
    can_dump = _open_stack_files()
    _allow_tracer()
    journal.write(
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
    atexit.register(_leave)
    _hear_exceptions()
    _hear_warnings()


def _open_stack_files() -> bool:
    """faulthandler writes this process's stacks to files of its own; False where the user's handler
    stands.
    """
    global _fault_file, _is_enabled_by_us
    folder = os.path.join(journal.RUN_DIR, run_names.STACKS_FOLDER)
    try:
        # it is open as long as the process lives
        path = os.path.join(folder, f"faulthandler-{os.getpid()}.txt")
        _fault_file = open(path, "a")  # noqa: SIM115
    except OSError:
        return False
    if (
        _is_enabled_by_us or not faulthandler.is_enabled()
    ):  # after a fork it still writes to the parent's file
        faulthandler.enable(file=_fault_file, all_threads=True)
        _is_enabled_by_us = True
    if signal.getsignal(STACKS_SIGNAL) is not signal.SIG_DFL:
        return False
    faulthandler.register(STACKS_SIGNAL, file=_fault_file, all_threads=True, chain=False)
    return True


def _after_fork() -> None:
    can_dump = _open_stack_files() if _fault_file is not None else False
    _allow_tracer()
    journal.write(
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
    """Under Yama's scope 1 only a parent may attach; PR_SET_PTRACER (0x59616d61) lets the
    watchdog.
    """
    with contextlib.suppress(OSError, AttributeError, ValueError):
        watchdog = int(os.environ.get(run_names.WATCHDOG_VARIABLE, "0"))
        if watchdog:
            ctypes.CDLL(None).prctl(0x59616D61, ctypes.c_ulong(watchdog), 0, 0, 0)


def ranks() -> list[int]:
    """The rank of this process, where there are several."""
    rank = os.environ.get("RANK", "")
    return (
        [int(rank)]
        if rank.isdigit() and os.environ.get("WORLD_SIZE") not in (None, "", "1")
        else []
    )


def end_with_parent() -> None:
    """Be killed when the process that forked this one ends (PR_SET_PDEATHSIG is 1)."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(1, int(signal.SIGKILL), 0, 0, 0)


def _leave() -> None:
    used = resource.getrusage(resource.RUSAGE_SELF)
    journal.write(events.Exit(cpu_s=used.ru_utime + used.ru_stime, max_rss_kib=used.ru_maxrss))


def _hear_exceptions() -> None:
    before = sys.excepthook

    def excepthook(
        kind: type[BaseException], error: BaseException, trace: TracebackType | None
    ) -> None:
        with contextlib.suppress(
            Exception
        ):  # an exception object of the program may raise when it is read
            journal.write(
                events.ExceptionRaised(
                    where="uncaught",
                    chain=exceptions.describe_exception(error.with_traceback(trace)),
                )
            )
        before(kind, error, trace)

    sys.excepthook = excepthook
    thread_before = threading.excepthook

    def thread_excepthook(args: Any) -> None:
        if args.exc_value is not None:
            with contextlib.suppress(Exception):
                journal.write(
                    events.ExceptionRaised(
                        where="thread", chain=exceptions.describe_exception(args.exc_value)
                    )
                )
        thread_before(args)

    threading.excepthook = thread_excepthook


def _hear_warnings() -> None:
    """Journal each warning that Python shows or records, when it makes the object that describes
    it.

    ``warnings.showwarning`` stays the program's own, and nothing of ours is on the stack while it
    is called.
    """
    kind = warnings.WarningMessage
    before = kind.__init__

    @functools.wraps(before)
    def __init__(
        self: Any, message: Any, category: Any, filename: str, lineno: int, *rest: Any, **more: Any
    ) -> None:
        before(self, message, category, filename, lineno, *rest, **more)
        if (
            len(rest) == 3
        ):  # with a source: by the interpreter, not by a function that only formats a warning
            with contextlib.suppress(
                Exception
            ):  # a warning object of the program may raise when it is read
                journal.write(
                    events.WarningShown(
                        category=category.__name__,
                        message=cuts.cut_head(str(message), 4000),
                        file=filename,
                        line=lineno,
                    )
                )

    kind.__init__ = __init__  # type: ignore[method-assign]
