"""Change inherited settings that reprokit cannot work with, and restore them for the target.

If a parent ignores SIGCHLD (``trap '' CHLD``), its children ignore it too: the kernel then reaps
every child itself, and the exit statuses are lost. If a parent closes stdin, stdout or stderr, the
next file that is opened gets that number, and printed text goes into that file.
"""

from __future__ import annotations

import os
import signal

_ignores_children = False


def take_over_settings() -> None:
    """Stop ignoring SIGCHLD, and open ``/dev/null`` in place of closed standard streams.

    Call this before any file is opened.
    """
    global _ignores_children
    _ignores_children = signal.getsignal(signal.SIGCHLD) is signal.SIG_IGN
    if _ignores_children:
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    # these descriptors are closed on exec, so the target also inherits closed streams
    while (number := os.open(os.devnull, os.O_RDWR)) <= 2:
        pass
    os.close(number)


def ignored_signals() -> list[int]:
    """Return the signals that the parent of reprokit ignores, so that the target ignores them
    too.
    """
    return [int(signal.SIGCHLD)] if _ignores_children else []
