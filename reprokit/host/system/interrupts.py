"""Ctrl-C, SIGTERM and SIGHUP: heard where a step can be given up, and kept for later everywhere
else.

A pack is always left: an interrupt ends the target, or a question, never the clean-up and never the
packing.
"""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator
from types import FrameType

_is_heard = False
_is_waiting = False
_count_before: int | None = None
"""The value of ``count`` when interrupts began to be held; None while they are not held."""
last = int(signal.SIGINT)
"""The number of the signal that came last."""
count = 0
"""The number of all signals that came while interrupts were held."""


def interrupt_has_come() -> bool:
    """Whether a signal came since interrupts began to be held. If so, the caller stops its work."""
    return _count_before is not None and count > _count_before


def _on_signal(number: int, frame: FrameType | None) -> None:
    global _is_waiting, last, count
    last = number
    count += 1
    _is_waiting = (
        True  # until somebody has caught it: what is raised in a finalizer, Python only prints
    )
    if _is_heard:
        raise KeyboardInterrupt


@contextlib.contextmanager
def deferred() -> Iterator[None]:
    """Keep interrupts back for the whole line; what was ignored before (nohup) stays ignored."""
    global _is_waiting, _count_before
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    _is_waiting, outer = False, _count_before
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
    """Keep interrupts back inside a block that hears them: a clean-up is never given up."""
    global _is_heard
    before, _is_heard = _is_heard, False
    try:
        yield
    finally:
        _is_heard = before


@contextlib.contextmanager
def allowed() -> Iterator[None]:
    """Let an interrupt raise KeyboardInterrupt inside this block; one that is waiting raises at
    once.
    """
    global _is_heard, _is_waiting
    before = _is_heard
    try:
        _is_heard = (
            True  # inside, so that an interrupt between the two is caught and undone here too
        )
        raise_if_interrupted()
        yield
    except KeyboardInterrupt:
        _is_waiting = False
        raise
    finally:
        _is_heard = before


def raise_if_interrupted() -> None:
    """Raise an interrupt that is waiting, where one is heard; loops that wait call this."""
    if _is_waiting and _is_heard:
        raise KeyboardInterrupt
