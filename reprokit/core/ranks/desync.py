"""Find the rank that differs: the first collective that not all ranks of a group call alike.

The calls of a group have numbers. Up to the first problem, all ranks called the same operations.
There, the ranks that call something different from most, or that do not call it, are the odd ones.
With two ranks there is no majority; then the history decides: programs repeat their collectives, so
the call that followed the same calls before is the expected one.
"""

from __future__ import annotations

import collections
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace

from reprokit.core.ranks.rank_names import rank_ranges
from reprokit.core.ranks.rank_records import RankRecord, RankState, RecordedCall

EQUAL_SIZES = frozenset(
    "all_reduce allreduce allreduce_coalesced broadcast reduce all_gather allgather"
    " _allgather_base allgather_into_tensor_coalesced _reduce_scatter_base reduce_scatter".split()
)
"""Operations whose tensors have the same sizes and types on all ranks."""
DEFAULT_GROUPS = ("", "0", "default_pg")
MIN_HISTORY = 3
"""Equal calls before it that tell which call a single record should have."""
MAX_HISTORY = 64
"""Calls before a problem that are compared with earlier ones."""


@dataclass(frozen=True)
class Desync:
    """The first disagreement of the ranks."""

    kind: str
    """``missing``, ``operation``, ``sizes``, ``dtypes``, or ``incomplete`` if all ranks agree and
    the collective does not end.
    """
    odd: tuple[int, ...]
    """The ranks that differ; all ranks in question if nothing decides."""
    group: str
    number: int
    expected: RecordedCall
    """The call of the other ranks."""
    others: tuple[int, ...]
    """The ranks that wait; none where a rank has ended when the calls did not fit."""
    since_ns: int
    """When the first of the others began to wait, in nanoseconds since the epoch."""
    details: tuple[str, ...] = ()
    """One line for each odd rank."""
    is_sure: bool = True
    """Whether a majority or the history decides."""


def find_desync(
    records: Mapping[int, RankRecord],
    states: Mapping[int, RankState] | None = None,
    world: Collection[int] = (),
) -> Desync | None:
    """Return the first disagreement; None if no rank is known to wait for others.

    ``world`` has all global ranks, also those without a record.
    """
    groups: dict[str, dict[int, list[RecordedCall]]] = {}
    members: dict[str, set[int]] = {}
    for rank, record in records.items():
        for name, ranks in record.members.items():
            members.setdefault(name, set()).update(ranks)
        for call in record.calls:
            groups.setdefault(call.group, {}).setdefault(rank, []).append(call)
    default = set(world) | set(records)
    found = []
    for name, calls in groups.items():
        known = members.get(name) or (default if name in DEFAULT_GROUPS else set())
        if desync := _of_group(name, calls, known | set(calls), states or {}, bool(known)):
            found.append(desync)
    sure = [d for d in found if d.kind != "incomplete"]
    blocked = {rank for d in sure for rank in d.others}
    # a rank that waits in a different group is not the first cause
    roots = [d for d in sure if not set(d.odd) <= blocked]
    return min(roots or sure or found, key=lambda d: d.since_ns, default=None)


def _of_group(
    name: str,
    calls: Mapping[int, list[RecordedCall]],
    members: set[int],
    states: Mapping[int, RankState],
    are_members_known: bool,
) -> Desync | None:
    by_rank = {rank: {call.number: call for call in row} for rank, row in calls.items()}
    is_over = all(call.is_done for row in calls.values() for call in row)
    if len(by_rank) == 1 and len(members) == 2 and is_over:
        return _of_own_history(name, by_rank, members)
    # a recorder keeps the last calls only, so earlier ones are not comparable
    first = max(min(row) for row in by_rank.values())
    numbers = {number for row in by_rank.values() for number in row if number >= first}
    for number in sorted(numbers):
        here = {rank: row[number] for rank, row in by_rank.items() if number in row}
        absent = members - here.keys()
        waiting = {rank: call for rank, call in here.items() if not call.is_done}
        if not waiting:
            continue
        if problem := _disagreement(here):
            return _of_difference(problem, name, number, here, by_rank)
        if absent:
            return _of_absence(name, number, here, absent, by_rank, states)
        if len(waiting) == len(here):
            call = min(here.values(), key=lambda c: c.created_ns)
            details = () if are_members_known else ("the members of the group are not recorded",)
            ranks = tuple(sorted(here))
            return Desync("incomplete", (), name, number, call, ranks, call.created_ns, details)
    return None


def _of_own_history(
    name: str, by_rank: Mapping[int, Mapping[int, RecordedCall]], members: set[int]
) -> Desync | None:
    """Return the difference between the last call of the only record and the call that followed the
    same calls before: of two ranks, the other one has ended when its call did not fit.
    """
    ((rank, row),) = by_rank.items()
    last = row[max(row)]
    choices = {_key(call) for call in row.values() if call.operation == last.operation}
    expected = _expected_key(last.number, by_rank, choices, MIN_HISTORY)
    if last.operation not in EQUAL_SIZES or expected in (None, _key(last)):
        return None
    before = next(c for n, c in sorted(row.items()) if _key(c) == expected and n < last.number)
    kind = "sizes" if last.sizes != before.sizes else "dtypes"
    detail = _difference_of(kind, rank, last, replace(before, number=last.number), by_rank)
    (other,) = members - {rank}
    details = (f"{detail}, as before", f"rank {other} left no data")
    return Desync(kind, (rank,), name, last.number, before, (), last.created_ns, details)


def _key(call: RecordedCall) -> tuple[str, str, str]:
    is_equal = call.operation in EQUAL_SIZES
    return call.operation, call.sizes if is_equal else "", call.dtypes if is_equal else ""


def _disagreement(here: Mapping[int, RecordedCall]) -> str:
    """Return in what the calls of the ranks differ; empty if they agree."""
    for index, kind in enumerate(("operation", "sizes", "dtypes")):
        if len({_key(call)[index] for call in here.values()}) > 1:
            return kind
    return ""


def _of_difference(
    kind: str,
    name: str,
    number: int,
    here: Mapping[int, RecordedCall],
    by_rank: Mapping[int, Mapping[int, RecordedCall]],
) -> Desync:
    counts = collections.Counter(_key(call) for call in here.values())
    (most, count), *rest = counts.most_common()
    is_sure = not rest or count > rest[0][1]
    if not is_sure:
        expected = _expected_key(number, by_rank, set(counts))
        is_sure = expected is not None
        most = expected or most
    odd = tuple(sorted(r for r, call in here.items() if _key(call) != most))
    others = tuple(sorted(here.keys() - set(odd)))
    if not is_sure:
        odd = tuple(sorted(here))
    call = next(here[rank] for rank in others)
    details = tuple(_difference_of(kind, rank, here[rank], call, by_rank) for rank in odd)
    began = min(here[rank].created_ns for rank in others)
    return Desync(kind, odd, name, number, call, others, began, details, is_sure)


def _difference_of(
    kind: str,
    rank: int,
    own: RecordedCall,
    call: RecordedCall,
    by_rank: Mapping[int, Mapping[int, RecordedCall]],
) -> str:
    at = f" at {own.place}" if own.place else ""
    if kind == "sizes":
        return f"rank {rank} calls {own.title} with sizes {own.sizes} instead of {call.sizes}{at}"
    if kind == "dtypes":
        return f"rank {rank} calls {own.title} with {own.dtypes} instead of {call.dtypes}{at}"
    following = by_rank[rank].get(call.number + 1)
    after = [
        row[call.number + 1]
        for other, row in by_rank.items()
        if other != rank and call.number + 1 in row
    ]
    is_skip = any(_key(one) == _key(own) for one in after)
    if is_skip and following is not None and _key(following) == _key(call):
        return f"rank {rank} calls {own.operation} before {call.operation} #{call.number}{at}"
    if is_skip:
        return f"rank {rank} left out {call.title}, and calls {own.operation}{at}"
    if following is not None and _key(following) == _key(call):
        return f"rank {rank} calls {own.title}, which the others do not call{at}"
    return f"rank {rank} calls {own.operation} instead of {call.title}{at}"


def _of_absence(
    name: str,
    number: int,
    here: Mapping[int, RecordedCall],
    absent: set[int],
    by_rank: Mapping[int, Mapping[int, RecordedCall]],
    states: Mapping[int, RankState],
) -> Desync:
    call = min(here.values(), key=lambda c: c.created_ns)
    odd, others = tuple(sorted(absent)), tuple(sorted(here))
    are_present = all(
        by_rank.get(rank) and not (states.get(rank) or RankState(rank)).has_ended for rank in absent
    )
    if len(here) < len(absent) and are_present:
        at = f" at {call.place}" if call.place else ""
        ranks = rank_ranges(others)
        details: tuple[str, ...] = (
            f"only {len(others)} of {len(here) + len(absent)} ranks called {call.title}{at} (rank"
            f" {ranks}): it is an additional call, or the others are late",
        )
        is_sure = False
    else:
        details = tuple(_absence_of(rank, number, call, by_rank, states) for rank in odd)
        is_sure = True
    return Desync("missing", odd, name, number, call, others, call.created_ns, details, is_sure)


def _absence_of(
    rank: int,
    number: int,
    call: RecordedCall,
    by_rank: Mapping[int, Mapping[int, RecordedCall]],
    states: Mapping[int, RankState],
) -> str:
    state = states.get(rank)
    if state is not None and state.summary:
        return f"rank {rank} did not call {call.title}: {state.summary}"
    if rank not in by_rank:
        return f"rank {rank} did not call {call.title}, and no call of it in this group is recorded"
    last = by_rank[rank].get(number - 1)
    after = f"; its last call was {last.title}" if last else ""
    at = f" at {last.place}" if last and last.place else ""
    return f"rank {rank} did not call {call.title}{after}{at}"


def _expected_key(
    number: int,
    by_rank: Mapping[int, Mapping[int, RecordedCall]],
    choices: set[tuple[str, str, str]],
    least: int = 1,
) -> tuple[str, str, str] | None:
    """Return which of the calls followed the same calls before, with the longest history of at
    least ``least`` calls.
    """
    history = next(iter(by_rank.values()))
    before = [history[n] for n in sorted(history) if n < number]
    keys = [_key(call) for call in before]
    best: tuple[int, tuple[str, str, str]] | None = None
    for end in range(len(keys) - 1, 0, -1):
        if keys[end] not in choices:
            continue
        length = 0
        while (
            length < min(MAX_HISTORY, end)
            and length < len(keys)
            and keys[end - 1 - length] == keys[-1 - length]
        ):
            length += 1
        if length >= least and (best is None or length > best[0]):
            best = length, keys[end]
    return best[1] if best else None
