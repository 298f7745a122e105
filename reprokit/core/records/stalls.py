"""A stall: a time without progress that is longer than ``--stall``, and whether reprokit may end
the program for it.

The compiler works for the user and must advance. A program outside the compiler may wait for as
long as it likes: for data, for a request, for another rank. So a stall inside the compiler ends a
run, and a stall outside is reported.
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
"""What ``--on-stall`` can ask for."""


@dataclass(frozen=True)
class Stall:
    """One stall, as far as it was seen."""

    state: str
    """``inside``, ``outside`` or ``idle``."""
    phase: str = ""
    cause: str = ""
    """A name of ``data/causes.json``."""
    detail: str = ""
    """Where the thread at work is, and what it waits for."""
    stack: tuple[str, ...] = ()
    """The thread at work, innermost frame first, as ``file:line in function``."""
    began_s: float = 0.0
    """When the last progress was, in seconds from the start of the run."""
    seconds: float = 0.0
    """Its length; of one that has not ended, its length so far."""

    @property
    def says(self) -> str:
        """One clause."""
        if self.state == IDLE:
            return f"idle for {self.seconds:.0f} s: {self.detail}"
        where = f"in phase {self.phase}" if self.state == INSIDE else "outside the compiler"
        return f"no progress for {self.seconds:.0f} s {where}, {self.cause}: {self.detail}"


def ends_program(stall: Stall, on_stall: str, is_command: bool) -> bool:
    """Whether a stall ends the program. ``on_stall`` is ``report``, ``end``, or empty for the
    default.

    The default reports a stall of a command outside the compiler. A factory was written to be run
    here, and is ended.
    """
    if on_stall:
        return on_stall == END
    return stall.state == INSIDE or not is_command
