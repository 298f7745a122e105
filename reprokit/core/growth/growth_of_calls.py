"""What grows with each call of compiled code, and whether it grows in eager too."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from reprokit.core.growth.straight_lines import Line, fit_line
from reprokit.core.records.call_growth import CallGrowth, GrowingSeries
from reprokit.core.shared.contract import growth_events as names
from reprokit.core.shared.contract.growth_events import CallsSampled

SURE = (
    names.TENSORS,
    names.GPU,
    names.ENTRIES,
    names.GUARDS,
    names.NODES,
    names.DESCRIPTORS,
    names.OBJECTS,
    names.HEAP,
)
"""Series that show a growth alone, those that say most first."""
WEAK = (names.NONE, names.CONSTANTS, names.BLOCKS)
"""Series that show a growth only if something holds more after each call. Torch 2.13 itself adds 8
references to None with each call of compiled code (CPython 3.11), which hold no memory, and Python
keeps some blocks for later.
"""
MIN_SLOPES = {names.HEAP: 16.0, names.TENSORS: 1.0, names.GPU: 1.0, names.BLOCKS: 0.5}
"""A smaller slope is noise. A sample itself leaves up to one block."""
MIN_EXCESS = 0.1
"""The share of its slope that a growth must have only in compiled code, not to be that of eager."""
MIN_SLOPE = 0.05
"""As ``MIN_SLOPES``, for counts: one more in 20 calls."""
_ELEMENTS = {
    names.NONE: ("NoneType",),
    names.CONSTANTS: ("bool", "int"),
    names.BLOCKS: ("str", "bytes", "int", "float", "complex", "tuple"),
}
"""Types of the elements of a holder that a weak series counts."""


def growth_of_calls(compiled: CallsSampled, eager: CallsSampled | None) -> CallGrowth:
    """Return what grows in the compiled run, with its slope in eager, what says most first.

    ``eager`` is None if that run is not needed, or left no samples.
    """
    rows = [*_series(compiled, eager), *_types(compiled, eager)]
    rows.sort(key=lambda row: (row.is_in_eager, _rank(row), -abs(row.slope)))
    return CallGrowth(
        calls=compiled.calls,
        samples=len(compiled.at),
        has_eager=eager is not None,
        growing=tuple(rows),
        holders=tuple(compiled.holders),
        lines=tuple(compiled.lines),
        not_measured=dict(compiled.not_measured),
        falls_to_zero_after=_calls_until_zero(compiled, rows),
    )


def may_grow(compiled: CallsSampled) -> bool:
    """Return whether something grows, so that a run in eager is needed."""
    return bool(growth_of_calls(compiled, None).growing)


def _series(compiled: CallsSampled, eager: CallsSampled | None) -> list[GrowingSeries]:
    rows = []
    for name, values in compiled.series.items():
        line = _fit(name, compiled.at, values)
        is_rising = _is_growth(name, line) and line.slope > 0
        is_falling = _is_growth(name, line) and line.slope < 0 and name == names.NONE
        has_holder = any(h.holds in _ELEMENTS.get(name, ()) for h in compiled.holders)
        if (is_rising and (name in SURE or has_holder)) or is_falling:
            rows.append(_row(name, values, line, eager.series if eager else {}, eager))
    return rows


def _types(compiled: CallsSampled, eager: CallsSampled | None) -> list[GrowingSeries]:
    rows = []
    for name, values in compiled.types.items():
        line = _fit(name, compiled.at, values)
        if _is_growth(name, line) and line.slope > 0:
            row = _row(name, values, line, eager.types if eager else {}, eager)
            rows.append(row)
    return rows


def _fit(name: str, at: Sequence[int], values: Sequence[int]) -> Line:
    """Fit a line to a series; to its second half where the first calls fill what Python keeps."""
    start = len(at) // 2 if name == names.BLOCKS else 0
    return fit_line(at[start:], values[start:])


def _is_growth(name: str, line: Line) -> bool:
    return line.is_straight and abs(line.slope) >= MIN_SLOPES.get(name, MIN_SLOPE)


def _row(
    name: str,
    values: Sequence[int],
    line: Line,
    others: Mapping[str, Sequence[int]],
    eager: CallsSampled | None,
) -> GrowingSeries:
    other = _fit(name, eager.at, others[name]) if eager is not None and name in others else None
    if other is not None and not _is_growth(name, other):
        other = None
    is_as_steep = (
        other is not None
        and other.slope * line.slope > 0
        and abs(other.high if line.slope > 0 else other.low)
        >= (1 - MIN_EXCESS) * abs(line.low if line.slope > 0 else line.high)
    )
    return GrowingSeries(
        name=name.removeprefix("builtins."),
        is_type=name not in (*SURE, *WEAK),
        first=values[0],
        last=values[-1],
        slope=round(line.slope, 4),
        low=round(line.low, 4),
        high=round(line.high, 4),
        eager_slope=round(other.slope, 4) if other is not None else 0.0,
        is_in_eager=is_as_steep,
    )


def _rank(row: GrowingSeries) -> int:
    """Return the place of a series among those that grow; a type says more than the sum."""
    order = (*SURE, *WEAK)
    at_types = SURE.index(names.OBJECTS)
    if row.is_type:
        return at_types
    place = order.index(row.name)
    return place + (place >= at_types)


def _calls_until_zero(compiled: CallsSampled, rows: Sequence[GrowingSeries]) -> int:
    falling = next((row for row in rows if row.name == names.NONE and row.slope < 0), None)
    return round(falling.last / -falling.slope) if falling else 0
