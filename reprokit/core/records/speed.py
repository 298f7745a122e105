"""How long warm calls take, compiled and in eager, and which parts of a compiled call take the
time.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from reprokit.core.shared.contract.events import CallPart

SLOWER, NOT_SLOWER, UNSURE = "slower", "not slower", "cannot be told"
"""The answers to the question whether compiled calls are slower."""
MIN_SHARE_OF_EXCESS = 0.5
"""A smaller program must have at least this share of what the ratio of the original has above 1."""


@dataclass(frozen=True)
class Ratio:
    """The cost of compiled calls divided by that of eager calls, with a 95 % interval."""

    value: float
    low: float
    high: float
    pairs: int
    """The number of pairs of blocks that were measured in turns."""
    is_of_instructions: bool = False
    """The cost is CPU instructions; otherwise it is time."""

    def __str__(self) -> str:
        return f"{self.value:.2f} (95 % interval {self.low:.2f} to {self.high:.2f})"


@dataclass(frozen=True)
class Speed:
    """The comparison of warm calls, compiled and in eager."""

    answer: str
    """``slower``, ``not slower`` or ``cannot be told``."""
    ratio: Ratio
    """The ratio that decides: of several processes, the smallest one."""
    processes: int = 1
    """The number of processes that measured it."""
    why: str = ""
    """Why it cannot be told, as a clause."""
    eager_s: float = 0.0
    """Seconds of one pass over the calls: the lower quartile of the blocks."""
    compiled_s: float = 0.0
    no_instructions: str = ""
    """Why CPU instructions were not counted, as a clause; empty if they were."""
    parts: tuple[CallPart, ...] = ()
    """The parts of a compiled pass, the most expensive first."""
    eager_operators: dict[str, float] = field(default_factory=dict)
    """The seconds of each operator in an eager pass."""
    regions: float = 0.0
    """The number of compiled regions that a pass enters."""
    most_rest_s: float = 0.0
    """The seconds of a pass under the profiler that are in no part."""
    guards: dict[str, Any] = field(default_factory=dict)
    """The line with the slowest guards: see ``agent/timing/guard_costs.py``."""
    no_parts: str = ""
    """Why the parts were not measured, as a clause."""

    @property
    def guards_s(self) -> float:
        """The seconds in which a pass checks guards."""
        seconds = sum(part.seconds for part in self.parts if part.kind == "guards")
        return min(seconds, self.compiled_s)

    @property
    def rest_s(self) -> float:
        """The seconds of a compiled pass outside of guards, kernels and operators.

        The profiler makes short calls longer, so its rest is only an upper limit.
        """
        rest_s = max(self.compiled_s - self.guards_s - self._profiled_s, 0.0)
        return min(rest_s, self.most_rest_s) if self._profiled_s else rest_s

    @property
    def computing_s(self) -> float:
        """The seconds of kernels and operators in a compiled pass."""
        return self.compiled_s - self.guards_s - self.rest_s

    @property
    def _profiled_s(self) -> float:
        return sum(part.seconds for part in self.parts if part.kind != "guards")

    def share(self, seconds: float) -> str:
        """Return seconds as a share of a compiled pass, such as ``62 %``."""
        return f"{100 * seconds / (self.compiled_s or 1.0):.0f} %"

    def share_of(self, part: CallPart) -> str:
        """Return the share of a kernel or an operator in a compiled pass."""
        return self.share(self.computing_s * part.seconds / (self._profiled_s or 1.0))

    @property
    def sentence(self) -> str:
        """The comparison, without a period."""
        what = "CPU instructions" if self.ratio.is_of_instructions else "time"
        ratio = f"the {what} of a warm compiled call is {self.ratio} of that in eager"
        if self.answer == UNSURE:
            return (
                f"whether compiled calls are slower than eager cannot be told: {ratio}; {self.why}"
            )
        return ratio
