"""Read durations such as ``90s``, ``10m`` and ``1h30m``."""

from __future__ import annotations

import itertools
import re

UNITS_S = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
"""The units of a duration, in seconds."""
EXAMPLES = "90s, 10m or 1h30m"
_PART = re.compile(r"(\d+(?:\.\d*)?|\.\d+)\s*(ms|s|m|h|d)\s*")


def parse_duration(text: str) -> float:
    """Return a duration in seconds. A number without a unit is a number of seconds.

    Each unit occurs at most once, the largest first.

    Raises:
        ValueError: the text is not a duration; it has no message.
    """
    text = text.strip().lower()
    parts = list(_PART.finditer(text))
    if not parts or "".join(part[0] for part in parts) != text:
        return float(text)
    units = [UNITS_S[part[2]] for part in parts]
    if any(after >= before for before, after in itertools.pairwise(units)):
        raise ValueError
    return sum(float(part[1]) * unit for part, unit in zip(parts, units, strict=True))


def describe_duration(seconds: float) -> str:
    """Return a duration as it is written on a command line, such as ``1h30m``."""
    if seconds != round(seconds) or seconds < 1:
        return f"{seconds:g}s"
    text, rest = "", round(seconds)
    for unit in ("d", "h", "m", "s"):
        count, rest = divmod(rest, round(UNITS_S[unit]))
        text += f"{count}{unit}" if count else ""
    return text
