"""What grew in a process that called a model again and again."""

from __future__ import annotations

from dataclasses import dataclass, field

from reprokit.core.shared.contract.growth_events import AllocatingLine, GrowingHolder


@dataclass(frozen=True)
class GrowingSeries:
    """A count that grows with each call, as a straight line."""

    name: str
    """What was counted: one of ``growth_events``, or a type of which there are more objects."""
    is_type: bool
    first: float
    last: float
    """The values at the first and at the last sample."""
    slope: float
    """For each call; negative if the count shrinks."""
    low: float
    high: float
    """The 95 % interval of the slope."""
    eager_slope: float = 0.0
    """The slope in eager; 0 if it does not grow there."""
    is_in_eager: bool = False
    """It grows in eager as fast."""

    @property
    def words(self) -> str:
        """What grows, and how much with each call."""
        what = f"objects of {self.name}" if self.is_type else self.name
        interval = "" if self.low == self.high else f" ({self.low:.3g} to {self.high:.3g})"
        return f"{what}: {self.slope:+.4g}{interval} with each call"


@dataclass(frozen=True)
class CallGrowth:
    """What grew over the calls of a compiled model, and what holds it."""

    calls: int
    samples: int
    has_eager: bool = False
    """The same calls were made without torch.compile."""
    growing: tuple[GrowingSeries, ...] = ()
    """What says most first; what grows in eager as fast is last."""
    holders: tuple[GrowingHolder, ...] = ()
    """What held more after some of the last calls."""
    lines: tuple[AllocatingLine, ...] = ()
    """Where Python allocated memory in these calls that is still in use."""
    not_measured: dict[str, str] = field(default_factory=dict)
    """Why a series is missing, by its name."""
    falls_to_zero_after: int = 0
    """After this many further calls no reference to None is left, and Python ends the program; 0 if
    their number does not fall.
    """
