"""The status of a long operation, for the terminal."""

from __future__ import annotations

import time
from dataclasses import dataclass, field


@dataclass
class OperationStatus:
    """How a reduction stands."""

    trying: str = ""
    words: str = ""
    """How it stands, where it is no reduction."""
    lines: int = 0
    probes: int = 0
    asked: int = 0
    """Questions that were answered without a probe, too."""
    began: float = field(default_factory=time.monotonic)
