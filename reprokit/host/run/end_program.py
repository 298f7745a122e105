"""End a program: send a signal that it can handle, wait for a grace period, then kill the rest.

A signal of the user is forwarded in the way that a terminal or ``kill`` sends it. At a deadline or
a stall, the signal is SIGTERM, if the program handles it and can still run Python.
"""

from __future__ import annotations

import os
import resource
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass

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
