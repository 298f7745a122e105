"""Settings that reprokit inherits and cannot work with. It changes them for itself and restores
them for the target.

A parent that ignores SIGCHLD (``trap '' CHLD``) passes that on through exec: the kernel then reaps
every child itself, and the exit statuses are lost. If a parent closes stdin, stdout or stderr, the
next opened file gets that number, and printed text goes into that file.
"""

from __future__ import annotations

import os
import signal

_ignores_children = False


def take_over_settings() -> None:
    """Stop ignoring SIGCHLD, and occupy the numbers of closed standard streams. Call this before
    any file is opened.
    """
    global _ignores_children
    _ignores_children = signal.getsignal(signal.SIGCHLD) is signal.SIG_IGN
    if _ignores_children:
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    while (
        number := os.open(os.devnull, os.O_RDWR)
    ) <= 2:  # closed on exec, so the target also finds them closed
        pass
    os.close(number)


def ignored_signals() -> list[int]:
    """Signals that the target must ignore, as the parent of reprokit does, although reprokit does
    not.
    """
    return [int(signal.SIGCHLD)] if _ignores_children else []
