"""Find processes that are still alive, wait for a condition, and restore signal handlers."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable

import psutil


def restore_signals() -> None:
    """Restore the default handlers in a child (``preexec_fn``): a shell makes background jobs ignore
    SIGINT, and nohup makes them ignore SIGHUP.
    """
    for number in (signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)


def survivors(mark: str) -> list[psutil.Process]:
    """Return the living processes that have ``mark`` in a value of their environment."""
    alive = []
    for process in psutil.process_iter():
        try:
            is_alive = process.status() != psutil.STATUS_ZOMBIE
            if is_alive and any(mark in value for value in process.environ().values()):
                alive.append(process)
        except psutil.Error:
            continue
    return alive


def survivors_after_wait(mark: str) -> list[psutil.Process]:
    """Return the survivors that are still alive after 30 s. Targets sleep longer than that."""
    wait_until(lambda: not survivors(mark), 30)
    return survivors(mark)


def wait_until(is_true: Callable[[], object], limit_s: float = 180) -> bool:
    """Poll ``is_true`` until it holds. Return False if it never does."""
    end = time.monotonic() + limit_s
    while time.monotonic() < end:
        if is_true():
            return True
        time.sleep(0.05)
    return bool(is_true())
