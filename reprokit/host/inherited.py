"""Settings that reprokit inherits and cannot work with. It changes them for itself and restores them for the target.

A parent that ignores SIGCHLD (``trap '' CHLD``) hands that on through exec: the kernel then reaps every child itself,
and the exit statuses are lost. A parent that has closed stdin, stdout or stderr makes the next file that is opened take
that number, so that what is printed goes into that file.
"""

from __future__ import annotations

import os
import signal

_ignores_children = False


def take_over() -> None:
    """Hear of children that end, and keep the numbers of the standard streams taken; before anything else is opened."""
    global _ignores_children
    _ignores_children = signal.getsignal(signal.SIGCHLD) is signal.SIG_IGN
    if _ignores_children:
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    while (number := os.open(os.devnull, os.O_RDWR)) <= 2:  # closed on exec: the target finds them closed too
        pass
    os.close(number)


def ignored_signals() -> list[int]:
    """Signals that the target must ignore as our parent does, though we do not."""
    return [int(signal.SIGCHLD)] if _ignores_children else []
