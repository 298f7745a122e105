"""What the compiler warned of: the same warning of every layer, size and symbol is one remark."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from reprokit.core.shared.contract.events import WarningShown

MOST_REMARKS = 20
SYMBOLIC = "symbolic shapes"
_OF_SYMBOLIC = (
    "torch.fx.experimental.symbolic_shapes",
    "torch.fx.experimental.recording",
    "torch._inductor.sizevars",
    "torch.utils._sympy",
)
"""Loggers of torch that warn about them; warnings of others go by their loggers' names."""
_VARIES = re.compile(r"0x[0-9a-f]+|\b[suzn]\d+\b|\d+(\.\d+)?", re.IGNORECASE)


@dataclass(frozen=True)
class CompilerWarning:
    """One warning, however often it was given."""

    about: str
    """``symbolic shapes``, or the logger's name or the warning's class."""
    text: str
    """Its first line, as it was given first."""
    count: int = 1

    def __str__(self) -> str:
        """One line: how often, by whom, what."""
        often = f" {self.count} times" if self.count > 1 else ""
        return f"the compiler warned{often} ({self.about}): {self.text}"


def group_warnings(events: Sequence[WarningShown]) -> tuple[CompilerWarning, ...]:
    """Group the ``warning`` events of torch's own code; those about symbolic shapes first, then the
    most frequent.
    """
    found: dict[tuple[str, str], CompilerWarning] = {}
    for event in events:
        category, text = event.category, " ".join(event.message.splitlines()[:1])
        if not (category.startswith("torch.") or "/torch/" in event.file):
            continue
        about = SYMBOLIC if category.startswith(_OF_SYMBOLIC) else category
        key = about, _VARIES.sub("#", text)
        known = found.get(key, CompilerWarning(about, text[:300], 0))
        found[key] = CompilerWarning(about, known.text, known.count + 1)
    order = sorted(found.values(), key=lambda r: (r.about != SYMBOLIC, -r.count))
    return tuple(order[:MOST_REMARKS])
