"""End a program: send a signal that it can handle, wait for a grace period, then kill the rest.
Or stop it together with reprokit on Ctrl-Z, until both go on.

A signal of the user is forwarded in the way that a terminal or ``kill`` sends it. At a deadline or
a stall, the signal is SIGTERM, if the program handles it and can still run Python.
"""

from __future__ import annotations

import os
import resource
import signal
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from types import FrameType

import psutil

from reprokit.core.judge.hangs.thread_facts import MAX_GIL_AGE_S
from reprokit.core.records.process_state import Evidence
from reprokit.host.system import compiler_cache, host_log, interrupts, process_tree
from reprokit.host.system.guardian_client import GuardedProcess
from reprokit.host.watch import blocked_on

POLL_S = 0.05
STRAYS_EVERY_S = 0.5
"""Seconds between searches for processes outside of the process tree; a search reads the
environment of each process.
"""
_TO_GROUP = (signal.SIGINT, signal.SIGHUP)
"""A terminal sends these to the whole process group; SIGTERM is sent to one process."""
Say = Callable[[str], None]


@dataclass(frozen=True)
class ProgramEnding:
    """How a program ended."""

    status: int | None
    """Its exit status; None if it could not be reaped."""
    usage: resource.struct_rusage | None
    """Its resource usage, with that of the children that it waited for."""
    stubborn: list[int]
    """Processes that could not be killed."""
    root_cpu_s: float
    """CPU seconds of the root process alone."""


def end_with_signal(child: GuardedProcess, number: int, grace_s: float, say: Say) -> None:
    """Send signal ``number`` and wait at most ``grace_s`` until the program and its descendants
    have ended.

    Raises KeyboardInterrupt for a further Ctrl-C, which ends the grace period. Other signals are
    forwarded as well.
    """
    with interrupts.blocked():
        _signal_and_wait(child, number, grace_s, say)


def _signal_and_wait(child: GuardedProcess, number: int, grace_s: float, say: Say) -> None:
    name = signal.Signals(number).name
    say(f"sent {name} to the program; it has {grace_s:g} s to end (Ctrl-C kills it now)")
    _send(child.pid, number)
    until, looked = time.monotonic() + grace_s, 0.0
    signalled: set[int] = set()
    while time.monotonic() < until:
        try:
            with interrupts.allowed():
                time.sleep(POLL_S)
        except KeyboardInterrupt:
            if interrupts.last == signal.SIGINT:
                say("Ctrl-C again: killing the program")
                raise
            _send(child.pid, interrupts.last)
        if not process_tree.has_ended(child.pid) or time.monotonic() - looked < STRAYS_EVERY_S:
            continue
        looked = time.monotonic()
        strays = process_tree.processes_of_run(child.run_id, child.guardian_pid)
        if not strays:
            return
        for process in strays:  # a shell does not forward signals, and its program outlives it
            if process.pid not in signalled:
                signalled.add(process.pid)
                with host_log.suppress(psutil.Error):
                    process.send_signal(number)
    say(f"the program had not ended {grace_s:g} s after {name}; killing it")


def handles_sigterm(evidence: Evidence, pid: int) -> bool:
    """Return whether ``pid`` handles SIGTERM and, as far as the evidence shows, can run the
    handler.

    A Python handler runs in the main thread, so that thread must be able to take the GIL.
    """
    if not blocked_on.catches_signal(pid, signal.SIGTERM):
        return False
    process = evidence.process_of_pid(pid)
    if process is None:
        return True
    is_free = process.gil_age_s is None or process.gil_age_s < MAX_GIL_AGE_S
    return is_free and not process.is_stopped and "D" not in process.states[-1:]


def kill_and_reap(child: GuardedProcess) -> ProgramEnding:
    """Kill the remaining processes of the run and reap the root."""
    stubborn = process_tree.kill_process_tree(child.pid, child.run_id, child.guardian_pid)
    compiler_cache.delete_partial_headers()
    own_s = 0.0
    with host_log.suppress(psutil.Error):  # the root is not reaped yet
        times = psutil.Process(child.pid).cpu_times()
        own_s = round(times.user + times.system, 3)
    reaped = child.reap_program(waits=child.pid not in stubborn)
    if reaped is None:
        return ProgramEnding(None, None, stubborn, own_s)
    raw, usage = reaped
    return ProgramEnding(os.waitstatus_to_exitcode(raw), usage, stubborn, own_s)


def _send(root_pid: int, number: int) -> None:
    """Send a signal to the root or its process group; it is not reaped, so the pid is still its
    own.
    """
    with host_log.suppress(OSError):
        (os.killpg if number in _TO_GROUP else os.kill)(root_pid, number)


class Pauses:
    """While it is entered, SIGTSTP stops the processes of a run and then reprokit.

    The program has a session of its own, so the terminal stops only reprokit.
    """

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
