"""Memory that grows with each call of compiled code."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from reprokit.core.judge.stacks import frames as fr
from reprokit.core.judge.stacks.evidence import ends_by_itself
from reprokit.core.judge.stacks.location import as_sentence
from reprokit.core.records.call_growth import CallGrowth, GrowingSeries
from reprokit.core.records.finding import Verdict
from reprokit.core.records.observation import Observation
from reprokit.core.shared.contract import growth_events as names
from reprokit.core.shared.contract.growth_events import GrowingHolder
from reprokit.core.shared.contract.measured_kinds import MEMORY_GROWTH

DYNAMO_CACHE = "Dynamo's cache"
"""``GrowingHolder.what`` of compiled code that Dynamo keeps."""
_HOLDERS_OF = {
    names.ENTRIES: DYNAMO_CACHE,
    names.GUARDS: DYNAMO_CACHE,
    names.NODES: "autograd graph",
    names.DESCRIPTORS: "file descriptor",
}
"""``GrowingHolder.what`` of the series that only one kind of holder can explain."""
OBJECT_OF = "an object of "
"""The start of a path that begins with an object."""
MAX_SERIES, MAX_HOLDERS, MAX_LINES = 6, 4, 2
"""Limits of the rows of evidence."""
_NAMED = ("torch", "triton", "numpy", "sympy")
"""Packages whose types are a part of the signature."""

Frames = Sequence[tuple[str, str, int]]


def judge_growth(seen: Observation) -> Verdict | None:
    """Return the verdict on calls that leave something behind; None if nothing grows."""
    growth = seen.call_growth
    if growth is None or not growth.growing or not ends_by_itself(seen):
        return None
    first = growth.growing[0]
    where = (
        "in eager as fast"
        if first.is_in_eager
        else "and not in eager"
        if not first.eager_slope and growth.has_eager
        else f"in eager by {_amount(first.eager_slope)}"
        if growth.has_eager
        else "and eager was not measured"
    )
    does = "grow" if first.slope > 0 else "fall"
    why = f"{_subject(first)} {does} by {_amount(abs(first.slope))} with each call, {where}"
    holder = holder_of(growth)
    if holder is not None:
        why += f": {_holder_words(holder)}"
    elif growth.falls_to_zero_after:
        why += f": Python ends the program after some {growth.falls_to_zero_after:,} calls"
    line = line_of(growth)
    return Verdict(
        MEMORY_GROWTH,
        None,
        _cause(first),
        as_sentence(why),
        _evidence(growth),
        detail=_holder_words(holder) if holder else "",
        work={"line": line} if line else {},
    )


def notes_on_calls(seen: Observation) -> list[str]:
    """Return the note on a run of many calls in which nothing grows."""
    growth = seen.call_growth
    if growth is None or growth.growing:
        return []
    return [
        f"Nothing grows over {growth.calls} calls: {growth.samples} samples of memory, objects,"
        " guards, cache entries and file descriptors."
    ]


def holder_of(growth: CallGrowth) -> GrowingHolder | None:
    """Return what holds what grows: a part of the program before one of torch."""
    wanted = _HOLDERS_OF.get(growth.growing[0].name, "")
    rows = [row for row in growth.holders if not wanted or row.what == wanted]
    rows.sort(key=lambda row: (not is_of_program(row), row.what != DYNAMO_CACHE, -row.grew))
    return rows[0] if rows else None


def is_of_program(holder: GrowingHolder) -> bool:
    """Return whether the program's own code keeps what grows: it is in a variable of the program,
    or the program adds what it makes to an object.
    """
    if holder.what == DYNAMO_CACHE:
        return False
    is_added = bool(holder.path) and holder.path[0].startswith(OBJECT_OF)
    is_added &= bool(_own_line(holder.made[:1]))
    return _is_own_place(holder.place) or is_added


def line_of(growth: CallGrowth) -> str:
    """Return ``FILE:LINE`` of the program that makes what grows, or that holds it; empty if it is
    not known.
    """
    holder = holder_of(growth)
    places = [_own_line(holder.made)] if holder else []
    places += [_own_line(row.frames[:1]) for row in growth.lines]
    places += [holder.place] if holder and _is_own_place(holder.place) else []
    places += [_own_line(row.frames) for row in growth.lines]
    return next(filter(None, places), "")


def is_own(file: str) -> bool:
    """Return whether a file is the program's or a package's, and not of Python or torch."""
    normal = fr.normalise_file(file)
    return normal == fr.USER or not normal.startswith(("<", "torch/", "triton/"))


def _own_line(frames: Frames) -> str:
    return next((f"{file}:{line}" for file, _, line in frames if is_own(file)), "")


def _is_own_place(place: str) -> bool:
    return bool(place) and is_own(place.rpartition(":")[0])


def _subject(series: GrowingSeries) -> str:
    return f"objects of {series.name}" if series.is_type else series.name


def _cause(series: GrowingSeries) -> str:
    """Return what grows, without the names of the program."""
    top = series.name.partition(".")[0]
    if not series.is_type:
        return series.name
    is_named = "." not in series.name or top in (*_NAMED, *sys.stdlib_module_names)
    return f"objects of {series.name}" if is_named else "objects of the program"


def _amount(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 or value == round(value) else f"{value:.3g}"


def _holder_words(holder: GrowingHolder) -> str:
    where = " ".join(holder.path).replace(" .", ".").replace(" [", "[")
    what = f"the {holder.what} {where}" if holder.what in ("list", "dict", "set") else where
    at = f" at {holder.place}" if holder.place else ""
    return f"held by {what}{at}"


def _evidence(growth: CallGrowth) -> tuple[str, ...]:
    rows = []
    for row in growth.growing[:MAX_SERIES]:
        eager = (
            f"; {row.eager_slope:+.4g} in eager" if growth.has_eager else "; eager was not measured"
        )
        rows.append(
            f"{row.words}, from {row.first:,.0f} to {row.last:,.0f} over {growth.calls} calls,"
            f" {growth.samples} samples{eager}"
        )
    for holder in growth.holders[:MAX_HOLDERS]:
        made = f", made at {line}" if (line := _own_line(holder.made)) else ""
        rows.append(
            f"{_holder_words(holder)}: {holder.grew:+.3g} with each call; its newest element is of"
            f" type {holder.holds}{made}"
        )
    own = [(row.size, line) for row in growth.lines if (line := _own_line(row.frames))]
    rows += [
        f"{size:,.0f} bytes of Python with each call, allocated at {line}"
        for size, line in own[:MAX_LINES]
    ]
    rows.append(f"a cache with room for more than {growth.calls} calls looks the same")
    rows += [f"not measured: {name}: {why}" for name, why in growth.not_measured.items()]
    return tuple(rows)
