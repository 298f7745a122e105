"""How long warm calls take, compiled and in eager, and which parts of a compiled call take the
time.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from reprokit.core.shared.contract.events import CallPart

SLOWER, NOT_SLOWER, UNSURE = "slower", "not slower", "cannot be told"
"""The answers to the question whether compiled calls are slower."""


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
    guards: dict[str, Any] = field(default_factory=dict)
    """The line with the slowest guards: see ``agent/timing/guard_costs.py``."""
    no_parts: str = ""
    """Why the parts were not measured, as a clause."""

    @property
    def total_s(self) -> float:
        """The seconds of a compiled pass; the parts are measured apart from it, and may be more."""
        return max(self.compiled_s, sum(part.seconds for part in self.parts)) or 1.0

    @property
    def guards_s(self) -> float:
        """The seconds in which a pass checks guards."""
        return sum(part.seconds for part in self.parts if part.kind == "guards")

    @property
    def computing_s(self) -> float:
        """The seconds of kernels and operators in a compiled pass."""
        return sum(part.seconds for part in self.parts if part.kind != "guards")

    @property
    def rest_s(self) -> float:
        """The seconds of a compiled pass outside of guards, kernels and operators."""
        return self.total_s - self.guards_s - self.computing_s

    def share(self, seconds: float) -> str:
        """Return seconds as a share of a compiled pass, such as ``62 %``."""
        return f"{100 * seconds / self.total_s:.0f} %"

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
