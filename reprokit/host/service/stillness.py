"""Decide from looks at a process tree when it has not moved for long enough to be examined."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from reprokit.host.service.look import Look, Position

CHECK_S = 5.0
"""An examination of a suspect takes about this long."""
MAX_BACKOFF = 16
SWITCHES_PER_S = 1.0
"""A thread of a busy server waits for its next request at least as often."""
UNSURE_FACTOR = 4
"""A thread in compiled code that waits now and then is examined after this many times the limit."""


def enough_s(stall_s: float, unseen_s: float) -> float:
    """Return the seconds without progress after which a suspect is examined, so that a report comes
    in time. ``unseen_s`` is how long it may have been in this state before it was seen.
    """
    return max(stall_s - unseen_s - CHECK_S, stall_s / 2)


@dataclass
class Stillness:
    """Follows the position of a process tree."""

    stall_s: float
    """A lock-up is to be reported at most this long after it began."""
    gap_s: float
    """Seconds between two looks."""
    position: Position | None = None
    is_reported: bool = False
    """The lock-up at this position was reported."""
    _began: float = 0.0
    _last: float = 0.0
    _switches: int = 0
    _is_unsure: bool = False
    _factor: int = field(default=1)

    def add_look(self, look: Look, now: float) -> None:
        """Add a look at ``now``, in seconds."""
        if not look.is_readable:
            return
        position, self._last = look.position, now
        if position is None or position != self.position:
            self.position, self._began, self._factor = position, now, 1
            self.is_reported = self._is_unsure = False
        elif position.phase in ("kernel-run", "eager"):
            waits = look.switches - self._switches
            self._is_unsure |= waits > SWITCHES_PER_S * self.gap_s
        self._switches = look.switches

    @property
    def still_s(self) -> float:
        """Seconds between the first and the last look at this position."""
        return self._last - self._began if self.position else 0.0

    @property
    def is_suspect(self) -> bool:
        """Whether the tree has been still for long enough to be examined."""
        return self.left_s <= 0.0

    @property
    def left_s(self) -> float:
        """Seconds from the last look until the tree is a suspect, if it does not move."""
        if self.position is None or self.is_reported:
            return math.inf
        factor = self._factor * (UNSURE_FACTOR if self._is_unsure else 1)
        # it may have begun directly after the look before the first one at this position
        return enough_s(self.stall_s, self.gap_s) * factor - self.still_s

    def clear(self) -> None:
        """The examination found no lock-up: examine this position later, and then less often."""
        self._factor = min(self._factor * 2, MAX_BACKOFF)
