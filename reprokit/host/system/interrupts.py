"""Handle Ctrl-C, SIGTERM and SIGHUP where a step can be cancelled, and defer them elsewhere.

An interrupt can end the target or a probe, but neither the clean-up nor the packing. So reprokit
always writes a pack.
"""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator
from types import FrameType

_is_allowed = False
_is_pending = False
_count_before: int | None = None
"""The value of ``count`` when interrupts began to be deferred; None while they are not."""
last = int(signal.SIGINT)
"""The last signal that arrived."""
count = 0
"""How many signals arrived while interrupts were deferred."""


def interrupt_has_come() -> bool:
    """Return whether a signal arrived since interrupts were deferred; if so, the caller stops."""
    return _count_before is not None and count > _count_before


def _on_signal(number: int, frame: FrameType | None) -> None:
    global _is_pending, last, count
    last = number
    count += 1
    # True until the exception is caught: Python only prints an exception that a finalizer raises
    _is_pending = True
    if _is_allowed:
        raise KeyboardInterrupt


@contextlib.contextmanager
def deferred() -> Iterator[None]:
    """Defer interrupts in this block. A signal that was ignored before (nohup) stays ignored."""
    global _is_pending, _count_before
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    _is_pending, outer = False, _count_before
    _count_before = count if outer is None else outer
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    before = {n: signal.getsignal(n) for n in numbers if signal.getsignal(n) is not signal.SIG_IGN}
    for number in before:
        signal.signal(number, _on_signal)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        _count_before = outer


@contextlib.contextmanager
def blocked() -> Iterator[None]:
    """Defer interrupts in this block, even inside :func:`allowed`: a clean-up is not cancelled."""
    global _is_allowed
    if threading.current_thread() is not threading.main_thread():
        yield  # only the main thread is interrupted
        return
    before, _is_allowed = _is_allowed, False
    try:
        yield
    finally:
        _is_allowed = before


@contextlib.contextmanager
def allowed() -> Iterator[None]:
    """Let an interrupt raise KeyboardInterrupt in this block; a deferred one raises at once."""
    global _is_allowed, _is_pending
    before = _is_allowed
    try:
        # inside the try block, so that an interrupt directly after this line is handled too
        _is_allowed = True
        raise_if_interrupted()
        yield
    except KeyboardInterrupt:
        _is_pending = False
        raise
    finally:
        _is_allowed = before


def raise_if_interrupted() -> None:
    """Raise a deferred interrupt if interrupts are allowed; loops that wait call this."""
    if _is_pending and _is_allowed:
        raise KeyboardInterrupt
