"""End a program: with a signal that it can answer first, then a grace period, then SIGKILL for what
is left.

A signal of the user's goes on to the program as a terminal or ``kill`` would have sent it. A
deadline or a stall sends SIGTERM, where the program handles it and can still run Python.
"""

from __future__ import annotations

import contextlib
import os
import resource
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass

import psutil

from reprokit.core.judge.hangs.thread_facts import GIL_STALE_S
from reprokit.core.records.process_state import Evidence
from reprokit.host.system import compiler_cache, interrupts, process_tree
from reprokit.host.system.guardian_client import GuardedProcess
from reprokit.host.watch import blocked_on

POLL_S = 0.05
STRAYS_EVERY_S = 0.5
"""How often processes outside of the process tree are searched, which reads the environment of each
process.
"""
_TO_GROUP = (signal.SIGINT, signal.SIGHUP)
"""A terminal sends these to the whole process group; SIGTERM is sent to one process."""
Say = Callable[[str], None]


@dataclass(frozen=True)
class ProgramEnding:
    """What is left of a program that has ended, or was ended."""

    status: int | None
    """Its exit status; None where it could not be reaped."""
    usage: resource.struct_rusage | None
    """What it used, with the children that it waited for."""
    stubborn: list[int]
    """Processes that could not be ended."""
    root_cpu_s: float
    """Processor seconds of the root alone."""


def end_politely(child: GuardedProcess, number: int, grace_s: float, say: Say) -> None:
    """Send signal ``number`` and wait for at most ``grace_s`` until the program and all that it
    started are gone.

    Raises KeyboardInterrupt for a further Ctrl-C, which ends the grace. Another signal is sent on
    as well.
    """
    with interrupts.blocked():
        _politely(child, number, grace_s, say)


def _politely(child: GuardedProcess, number: int, grace_s: float, say: Say) -> None:
    name = signal.Signals(number).name
    say(f"sent {name} to the program; it has {grace_s:g} s to end (Ctrl-C kills it now)")
    _send(child.pid, number)
    until, looked = time.monotonic() + grace_s, 0.0
    asked: set[int] = set()
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
        for process in strays:  # a shell passes no signal on, and its program outlives it
            if process.pid not in asked:
                asked.add(process.pid)
                with contextlib.suppress(psutil.Error):
                    process.send_signal(number)
    say(f"the program had not ended {grace_s:g} s after {name}; killing it")


def can_answer(evidence: Evidence, pid: int) -> bool:
    """Whether ``pid`` handles SIGTERM itself and, as far as the evidence says, can still run the
    handler.

    A handler in Python runs in the main thread between two instructions, so that thread must get
    the GIL.
    """
    if not blocked_on.catches_signal(pid, signal.SIGTERM):
        return False
    process = evidence.process(pid)
    if process is None:
        return True
    is_free = process.gil_age_s is None or process.gil_age_s < GIL_STALE_S
    return is_free and not process.is_stopped and "D" not in process.states[-1:]


def end_everything(child: GuardedProcess) -> ProgramEnding:
    """Kill what is left of the whole tree and reap the root."""
    stubborn = process_tree.kill_all(child.pid, child.run_id, child.guardian_pid)
    compiler_cache.fix_headers()
    own_s = 0.0
    with contextlib.suppress(psutil.Error):  # the kernel still knows a process that is not reaped
        times = psutil.Process(child.pid).cpu_times()
        own_s = round(times.user + times.system, 3)
    reaped = child.reap(waits=child.pid not in stubborn)
    if reaped is None:
        return ProgramEnding(None, None, stubborn, own_s)
    raw, usage = reaped
    return ProgramEnding(os.waitstatus_to_exitcode(raw), usage, stubborn, own_s)


def _send(root_pid: int, number: int) -> None:
    """The root is not reaped, so its pid and its group are its own."""
    with contextlib.suppress(OSError):
        (os.killpg if number in _TO_GROUP else os.kill)(root_pid, number)
