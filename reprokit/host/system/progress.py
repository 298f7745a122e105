"""The status of a long operation, which the terminal shows."""

from __future__ import annotations

import time
from dataclasses import dataclass, field

MIN_ESTIMATED_S = 2.0
"""Seconds of an operation before its end is estimated."""


@dataclass
class OperationStatus:
    """How far a reduction, or a different long operation, has come."""

    activity: str
    """What is done, such as ``reducing``."""
    trying: str = ""
    """The part that is running."""
    done: int = 0
    """Number of the part that is running, from 1; 0 if the parts are not counted."""
    total: int = 0
    """Number of all parts; 0 if it is not known."""
    limit_s: float = 0.0
    """Seconds that the operation may take; 0 for no limit."""
    is_search: bool = False
    """The operation looks for a smaller program, so ``lines`` and ``probes`` have a meaning."""
    lines: int = 0
    """Lines of the smallest program with the same failure; 0 before there is one."""
    probes: int = 0
    answered: int = 0
    """Answered candidates, including those that needed no probe."""
    began: float = field(default_factory=time.monotonic)

    def describe(self, now: float) -> str:
        """Return one line: the activity, what is counted, what is tried, and the seconds left.

        ``now`` is a time of ``time.monotonic``.
        """
        head = f"{self.activity}, {self.done} of {self.total}" if self.total else self.activity
        if not self.total and self.done:
            head = f"{self.activity}, {self.done}"
        size = f"{self.lines} lines so far" if self.lines else "nothing smaller yet"
        elapsed_s = now - self.began
        parts = [
            f"{self.probes} tried, {size}" if self.is_search else "",
            self.trying,
            f"at most {max(self.limit_s - elapsed_s, 0):.0f} s left" if self.limit_s else "",
            "" if self.limit_s else self._estimate(elapsed_s),
        ]
        rest = ", ".join(part for part in parts if part)
        return f"{head}: {rest}" if rest else head

    def _estimate(self, elapsed_s: float) -> str:
        """Return how long the remaining parts take if they take as long as those before; empty if
        that is not known yet.
        """
        ended = self.done - 1
        if not self.total or ended < 1 or elapsed_s < MIN_ESTIMATED_S:
            return ""
        left_s = elapsed_s / ended * (self.total - ended)
        return (
            f"about {left_s / 60:.0f} min left" if left_s >= 120 else f"about {left_s:.0f} s left"
        )
