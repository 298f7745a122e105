"""The status of a long operation, which the terminal shows."""

from __future__ import annotations

import time
from dataclasses import dataclass, field


@dataclass
class OperationStatus:
    """How far a reduction, or another long operation, has come."""

    trying: str = ""
    """The step that is running."""
    text: str = ""
    """The whole status, if the operation is not a reduction."""
    lines: int = 0
    """Lines of the smallest program with the same failure."""
    probes: int = 0
    answered: int = 0
    """Answered candidates, including those that needed no probe."""
    began: float = field(default_factory=time.monotonic)
