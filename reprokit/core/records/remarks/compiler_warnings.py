"""Warnings of the compiler. Warnings that differ only in layer, size or symbol are one record."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from reprokit.core.shared.contract.events import WarningShown

MAX_WARNINGS = 20
SYMBOLIC = "symbolic shapes"
_OF_SYMBOLIC = (
    "torch.fx.experimental.symbolic_shapes",
    "torch.fx.experimental.recording",
    "torch._inductor.sizevars",
    "torch.utils._sympy",
)
"""The loggers of torch that warn about symbolic shapes. Other warnings are grouped by logger."""
_VARIES = re.compile(r"0x[0-9a-f]+|\b[suzn]\d+\b|\d+(\.\d+)?", re.IGNORECASE)


@dataclass(frozen=True)
class CompilerWarning:
    """One warning, and how many times it occurred."""

    about: str
    """``symbolic shapes``, the name of the logger, or the class of the warning."""
    text: str
    """The first line of its first occurrence."""
    count: int = 1

    def __str__(self) -> str:
        """Return one line: how many times, from which logger, and the text."""
        times = f" {self.count} times" if self.count > 1 else ""
        return f"the compiler warned{times} ({self.about}): {self.text}"


def group_warnings(events: Sequence[WarningShown]) -> tuple[CompilerWarning, ...]:
    """Group the ``warning`` events of torch's own code, with those about symbolic shapes first and
    then the most frequent.
    """
    groups: dict[tuple[str, str], CompilerWarning] = {}
    for event in events:
        category, text = event.category, " ".join(event.message.splitlines()[:1])
        if not (category.startswith("torch.") or "/torch/" in event.file):
            continue
        about = SYMBOLIC if category.startswith(_OF_SYMBOLIC) else category
        key = about, _VARIES.sub("#", text)
        known = groups.get(key, CompilerWarning(about, text[:300], 0))
        groups[key] = CompilerWarning(about, known.text, known.count + 1)
    order = sorted(groups.values(), key=lambda w: (w.about != SYMBOLIC, -w.count))
    return tuple(order[:MAX_WARNINGS])
