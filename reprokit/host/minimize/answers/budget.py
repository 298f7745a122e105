"""How long a search may take."""

from __future__ import annotations

import math
import time
from collections.abc import Callable

MOST_LONGER = 2.0
"""How much longer a budget becomes on a busy machine, at most, as a multiple of it."""


class Budget:
    """The seconds of a search, without those in which its probes wait for a CPU."""

    def __init__(
        self, seconds: float = float("inf"), waited: Callable[[], float] = lambda: 0.0
    ) -> None:
        """``waited`` returns the seconds in which all probes so far waited."""
        self._seconds, self._waited, self._before = seconds, waited, waited()
        self._began = time.monotonic()

    @property
    def left_s(self) -> float:
        """The seconds that are left; negative when the budget has ended."""
        return self._began + self._with_waiting() - time.monotonic()

    @property
    def limit_s(self) -> float:
        """The seconds from the start to the end as it is known now; 0 for no limit."""
        return 0.0 if math.isinf(self._seconds) else self._with_waiting()

    def _with_waiting(self) -> float:
        waited_s = self._waited() - self._before
        return self._seconds + min(waited_s, MOST_LONGER * self._seconds)
