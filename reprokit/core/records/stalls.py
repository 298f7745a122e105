"""A stall: a time without progress that is longer than ``--stall``, and whether it ends the
program.

The compiler must advance. A program outside the compiler may wait for any time: for data, for a
request, for another rank. So a stall inside the compiler ends a run, and a stall outside is only
reported.
"""

from __future__ import annotations

from dataclasses import dataclass

INSIDE = "inside"
"""In the compiler, in compiled code, in a compile worker, or in a collective that compiled code
waits for.
"""
OUTSIDE = "outside"
IDLE = "idle"
"""Outside, and every thread waits for something that may come at any time: a request, a queue, a
timer, a terminal.
"""

REPORT, END = "report", "end"
"""The values of ``--on-stall``."""


@dataclass(frozen=True)
class Stall:
    """One stall."""

    state: str
    """``inside``, ``outside`` or ``idle``."""
    phase: str = ""
    cause: str = ""
    """A name of ``hang_causes.json``."""
    detail: str = ""
    """The position of the working thread, and what it waits for."""
    stack: tuple[str, ...] = ()
    """The stack of the working thread, innermost frame first, as ``file:line in function``."""
    began_s: float = 0.0
    """The time of the last progress, in seconds from the start of the run."""
    seconds: float = 0.0
    """Its length, or its length so far."""

    @property
    def summary(self) -> str:
        """A clause that describes the stall."""
        if self.state == IDLE:
            return f"idle for {self.seconds:.0f} s: {self.detail}"
        where = f"in phase {self.phase}" if self.state == INSIDE else "outside the compiler"
        return f"no progress for {self.seconds:.0f} s {where}, {self.cause}: {self.detail}"


def ends_program(stall: Stall, on_stall: str, is_command: bool) -> bool:
    """Return whether a stall ends the program. ``on_stall`` is ``report``, ``end``, or empty for
    the default.

    By default a stall inside the compiler ends the program. A stall outside ends a factory, and is
    only reported for a command.
    """
    if on_stall:
        return on_stall == END
    return stall.state == INSIDE or not is_command
