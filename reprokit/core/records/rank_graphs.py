"""The graphs that were recorded, and ranks whose graphs do not fit together: one has another, or
skips a collective.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class CollectiveCall:
    """One collective that a compiled graph holds."""

    name: str
    """With what it is called on: ``all_reduce of f32[4, 8]``."""
    where: str = ""
    """The user's line."""


@dataclass(frozen=True)
class GraphRecord:
    """One graph that was recorded before it was compiled."""

    number: int
    level: str
    """``dynamo`` or ``aten``."""
    cid: str
    nodes: int
    is_backward: bool = False
    is_done: bool = False
    rank: str = ""
    """Of a distributed program."""
    calls: tuple[CollectiveCall, ...] = ()
    """Collectives in it, in their order."""
    digest: str = ""
    """Equal for graphs with the same operators and shapes; empty where no other rank has one to
    compare with.
    """


@dataclass(frozen=True)
class Mismatch:
    """The first collective at which the ranks part."""

    ranks: tuple[str, ...]
    """Those that are the odd ones out."""
    does: str
    """``skips``, ``adds`` or ``calls another``."""
    call: CollectiveCall
    """What the others call; what the odd ones add."""
    says: str


def mismatch_of_graphs(graphs: Sequence[GraphRecord]) -> Mismatch | None:
    """Compare the order of collectives in the compiled graphs of each rank; None where it is the
    same, or there is one rank.
    """
    ranks = sorted({g.rank for g in graphs if g.rank}, key=int)
    lowered = {g.rank for g in graphs if g.level == "aten"}
    level = "aten" if lowered >= set(ranks) else "dynamo"
    called = {
        r: [c for g in graphs if g.rank == r and g.level == level for c in g.calls] for r in ranks
    }
    if len(ranks) < 2 or len({tuple(c.name for c in calls) for calls in called.values()}) == 1:
        return None
    place = next(
        i
        for i in range(max(map(len, called.values())))
        if len({_name(calls, i) for calls in called.values()}) > 1
    )
    usual = _usual(called, place)
    odd = tuple(r for r in ranks if _name(called[r], place) != usual)
    others = [r for r in ranks if r not in odd]
    there, here = called[others[0]][place:], called[odd[0]][place:]
    names, own = [c.name for c in there], [c.name for c in here]
    if names and (own == names[1:] or not own):
        does, call, verb = "skips", there[0], f"skip{_s(odd)} {_told(there[0])}"
        rest = f", which {_who(others)} call{_s(others)}"
    elif own[1:] == names or not names:
        does, call, verb = "adds", here[0], f"call{_s(odd)} {_told(here[0])}"
        rest = f", which {_who(others)} do{'es' * (len(others) == 1)} not"
    else:
        does, call, verb = "calls another", there[0], f"call{_s(odd)} {_told(here[0])}"
        rest = f" where {_who(others)} call{_s(others)} {_told(there[0])}"
    after = f", after {place} collectives that all of them call" if place else ""
    return Mismatch(odd, does, call, f"{_who(odd)} {verb}{rest}{after}")


def mismatch_of_ranks(graphs: Sequence[GraphRecord]) -> tuple[GraphRecord, GraphRecord] | None:
    """The first graph of a rank that is not what most ranks have in that place, and one of
    theirs.
    """
    ranks = sorted({g.rank for g in graphs if g.rank}, key=int)
    own = {r: [g for g in graphs if g.rank == r and g.level == "dynamo"] for r in ranks}
    for place in range(max(map(len, own.values()), default=0)):
        there = [rows[place] for rows in own.values() if place < len(rows)]
        counts = Counter(g.digest for g in there)
        if len(counts) > 1:
            usual = max(counts, key=lambda d: (counts[d], d == there[0].digest))
            odd = next(g for g in there if g.digest != usual)
            return odd, next(g for g in there if g.digest == usual)
    return None


def _name(calls: Sequence[CollectiveCall], place: int) -> str:
    return calls[place].name if place < len(calls) else ""


def _usual(called: Mapping[str, Sequence[CollectiveCall]], place: int) -> str:
    """What most ranks call there; of as many, what the first rank does."""
    counts = Counter(_name(calls, place) for calls in called.values())
    first = _name(next(iter(called.values())), place)
    return max(counts, key=lambda name: (counts[name], name == first))


def _told(call: CollectiveCall) -> str:
    return f"{call.name} at {call.where}" if call.where else call.name


def _who(ranks: Sequence[str]) -> str:
    return (
        f"rank {ranks[0]}" if len(ranks) == 1 else f"ranks {', '.join(ranks[:-1])} and {ranks[-1]}"
    )


def _s(ranks: Sequence[str]) -> str:
    return "s" if len(ranks) == 1 else ""
