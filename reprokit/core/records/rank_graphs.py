"""The recorded graphs, and the comparison of the graphs of several ranks: a rank may have a
different graph, or skip a collective.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class CollectiveCall:
    """One collective in a compiled graph."""

    name: str
    """With its argument: ``all_reduce of f32[4, 8]``."""
    where: str = ""
    """The user's line."""


@dataclass(frozen=True)
class GraphRecord:
    """One graph that was recorded before it was compiled."""

    number: int
    level: str
    """``dynamo`` or ``export`` for a graph with which the compiler is entered, else ``aten``."""
    cid: str
    nodes: int
    is_backward: bool = False
    is_done: bool = False
    rank: str = ""
    """The rank in a distributed program; else empty."""
    calls: tuple[CollectiveCall, ...] = ()
    """The collectives in it, in their order."""
    digest: str = ""
    """Equal for graphs with the same operators and shapes; empty if there is only one rank."""

    @property
    def is_entered(self) -> bool:
        """Return whether the compiler was entered with this graph."""
        return self.level != "aten"


@dataclass(frozen=True)
class Mismatch:
    """The first collective that differs between ranks."""

    ranks: tuple[str, ...]
    """The ranks that differ from the majority."""
    does: str
    """What they do: ``skips``, ``adds`` or ``calls another``."""
    call: CollectiveCall
    """The call of the majority; for ``adds``, the additional call."""
    summary: str


def mismatch_of_graphs(graphs: Sequence[GraphRecord]) -> Mismatch | None:
    """Compare the order of collectives in the compiled graphs of each rank; None if it is the same,
    or if there is only one rank.
    """
    ranks = sorted({g.rank for g in graphs if g.rank}, key=int)
    lowered = {g.rank for g in graphs if g.level == "aten"}
    level = "aten" if lowered >= set(ranks) else "dynamo"
    called = {
        r: [c for g in graphs if g.rank == r and g.level == level for c in g.calls] for r in ranks
    }
    if len(ranks) < 2 or len({tuple(c.name for c in calls) for calls in called.values()}) == 1:
        return None
    index = next(
        i
        for i in range(max(map(len, called.values())))
        if len({_name(calls, i) for calls in called.values()}) > 1
    )
    usual = _usual(called, index)
    odd = tuple(r for r in ranks if _name(called[r], index) != usual)
    others = [r for r in ranks if r not in odd]
    there, here = called[others[0]][index:], called[odd[0]][index:]
    names, own = [c.name for c in there], [c.name for c in here]
    if names and (own == names[1:] or not own):
        does, call, verb = "skips", there[0], f"skip{_s(odd)} {_call_text(there[0])}"
        rest = f", which {_rank_words(others)} call{_s(others)}"
    elif own[1:] == names or not names:
        does, call, verb = "adds", here[0], f"call{_s(odd)} {_call_text(here[0])}"
        rest = f", which {_rank_words(others)} do{'es' * (len(others) == 1)} not"
    else:
        does, call, verb = "calls another", there[0], f"call{_s(odd)} {_call_text(here[0])}"
        rest = f" where {_rank_words(others)} call{_s(others)} {_call_text(there[0])}"
    after = f", after {index} collectives that all of them call" if index else ""
    return Mismatch(odd, does, call, f"{_rank_words(odd)} {verb}{rest}{after}")


def mismatch_of_ranks(graphs: Sequence[GraphRecord]) -> tuple[GraphRecord, GraphRecord] | None:
    """Return the first graph of a rank that differs from the graph of most ranks, and the graph of
    one of those; None if there is none.
    """
    ranks = sorted({g.rank for g in graphs if g.rank}, key=int)
    own = {r: [g for g in graphs if g.rank == r and g.level == "dynamo"] for r in ranks}
    for index in range(max(map(len, own.values()), default=0)):
        there = [rows[index] for rows in own.values() if index < len(rows)]
        counts = Counter(g.digest for g in there)
        if len(counts) > 1:
            usual = max(counts, key=lambda d: (counts[d], d == there[0].digest))
            odd = next(g for g in there if g.digest != usual)
            return odd, next(g for g in there if g.digest == usual)
    return None


def describe_mismatch(graphs: Sequence[GraphRecord]) -> str:
    """Describe two ranks that compiled different graphs; empty if there are none."""
    pair = mismatch_of_ranks(graphs)
    if pair is None:
        return ""
    odd, usual = pair
    how = f"{odd.nodes} nodes, not {usual.nodes}"
    if odd.nodes == usual.nodes:
        how = f"{odd.nodes} nodes too, with other operators or shapes"
    return f"rank {odd.rank} compiled a different graph {odd.cid} than rank {usual.rank}: {how}"


def _name(calls: Sequence[CollectiveCall], index: int) -> str:
    return calls[index].name if index < len(calls) else ""


def _usual(called: Mapping[str, Sequence[CollectiveCall]], index: int) -> str:
    """Return the call of most ranks; in a tie, the call of the first rank."""
    counts = Counter(_name(calls, index) for calls in called.values())
    first = _name(next(iter(called.values())), index)
    return max(counts, key=lambda name: (counts[name], name == first))


def _call_text(call: CollectiveCall) -> str:
    return f"{call.name} at {call.where}" if call.where else call.name


def _rank_words(ranks: Sequence[str]) -> str:
    return (
        f"rank {ranks[0]}" if len(ranks) == 1 else f"ranks {', '.join(ranks[:-1])} and {ranks[-1]}"
    )


def _s(ranks: Sequence[str]) -> str:
    return "s" if len(ranks) == 1 else ""
