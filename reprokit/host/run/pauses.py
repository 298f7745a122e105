"""Stop the program together with reprokit on Ctrl-Z, and let both go on together.

The program has a session of its own, so the terminal stops only reprokit.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from types import FrameType

import psutil

from reprokit.host.system import host_log, process_tree
from reprokit.host.system.guardian_client import GuardedProcess


class Pauses:
    """While it is entered, SIGTSTP stops the processes of a run and then reprokit."""

    def __init__(self, child: GuardedProcess) -> None:
        self._child = child
        self._is_handled = False
        self.seconds = 0.0
        """The time during which both were stopped."""

    def __enter__(self) -> Pauses:
        is_main = threading.current_thread() is threading.main_thread()
        # a shell without job control ignores the signal for its children
        self._is_handled = is_main and signal.getsignal(signal.SIGTSTP) is signal.SIG_DFL
        if self._is_handled:
            signal.signal(signal.SIGTSTP, self._pause)
        return self

    def __exit__(self, *raised: object) -> None:
        if self._is_handled:
            signal.signal(signal.SIGTSTP, signal.SIG_DFL)

    def _pause(self, number: int, frame: FrameType | None) -> None:
        began, stopped = time.monotonic(), list[psutil.Process]()
        for process in process_tree.processes_of_run(self._child.run_id, self._child.guardian_pid):
            with host_log.suppress(psutil.Error):
                if process.status() != psutil.STATUS_STOPPED:
                    process.send_signal(signal.SIGSTOP)
                    stopped.append(process)
        signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)  # it returns when the shell continues this process
        signal.signal(number, self._pause)
        for process in stopped:
            with host_log.suppress(psutil.Error):
                process.send_signal(signal.SIGCONT)
        self.seconds += time.monotonic() - began
