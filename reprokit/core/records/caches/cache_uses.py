"""Look-ups in the caches of compiled graphs, and those that should find an entry and do not."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from reprokit.core.shared.contract.cache_events import CacheUsed

MISS_MESSAGE = "the entry of the first process is not used"
"""The message of an assertion in a program that counts its own look-ups."""
DYNAMO = "dynamo"
"""The cache of precompiled code: the code and the guards of Dynamo."""
GRAPH_PARTS = frozenset({"gm", "mod"})
"""The parts of a key that are the graph itself. If they differ, the program is a different one."""


@dataclass(frozen=True)
class MissedEntry:
    """A look-up without a result, for which the cache has an entry of the same graph."""

    cache: str
    """``fx-graph``, ``aot-autograd`` or ``dynamo``."""
    key: str
    changed: tuple[str, ...] = ()
    """The parts of the key that differ from the key of the entry; empty if the keys are equal."""
    detail: str = ""
    """What torch reports about the look-up."""

    @property
    def cause(self) -> str:
        """Why there is no result, without names of the run."""
        if self.changed:
            return f"{self.cache} key changes: {', '.join(self.changed)}"
        return f"{self.cache} entry is not used"


def count_uses(uses: Iterable[CacheUsed]) -> dict[str, int]:
    """Return how many look-ups and writes there were, such as ``{"fx-graph hit": 2}``."""
    counts: dict[str, int] = {}
    for use in uses:
        name = f"{use.cache} {use.outcome}"
        counts[name] = counts.get(name, 0) + 1
    return dict(sorted(counts.items()))


def stored_keys(uses: Iterable[CacheUsed]) -> dict[str, set[str]]:
    """Return the keys of the entries that were written, by cache."""
    keys: dict[str, set[str]] = {}
    for use in uses:
        if use.outcome == "stored":
            keys.setdefault(use.cache, set()).add(use.key)
    return keys


def missed_entries(
    stored: Mapping[str, Collection[str]],
    wrote: Iterable[CacheUsed],
    reads: Iterable[CacheUsed],
) -> tuple[MissedEntry, ...]:
    """Return the look-ups of ``reads`` that must have a result and have none, each key once.

    ``stored`` has the keys of the entries in the cache before the reader began. A look-up with one
    of these keys must find its entry. A look-up with a different key is an error of the key if the
    writer of the cache stored an entry of the same graph that the reader never looked up; ``wrote``
    are the look-ups of the writer.
    """
    uses = [use for use in reads if use.outcome in ("hit", "miss") and use.key]
    looked_up = {(use.cache, use.key) for use in uses}
    unused = [
        use
        for use in wrote
        if use.outcome == "miss"
        and use.key in stored.get(use.cache, ())
        and (use.cache, use.key) not in looked_up
    ]
    missed: dict[tuple[str, str], MissedEntry] = {}
    for use in uses:
        if use.outcome != "miss" or (use.cache, use.key) in missed:
            continue
        if use.key in stored.get(use.cache, ()):
            missed[use.cache, use.key] = MissedEntry(use.cache, use.key, (), use.detail)
            continue
        twin = next((w for w in unused if _is_same_graph(w, use)), None)
        if twin is not None:
            unused.remove(twin)
            names = {**twin.parts, **use.parts}
            changed = sorted(n for n in names if twin.parts.get(n) != use.parts.get(n))
            missed[use.cache, use.key] = MissedEntry(use.cache, use.key, tuple(changed))
    return tuple(missed.values())


def unused_precompiled_code(reads: Iterable[CacheUsed], graphs: int) -> tuple[MissedEntry, ...]:
    """Return the function whose precompiled code was found and is not used, as an entry.

    ``graphs`` is the number of graphs that the reader compiled. With an entry of each function it
    compiles none, unless a guard of an entry fails.
    """
    uses = [use for use in reads if use.cache == DYNAMO]
    if not uses or not graphs or any(use.outcome != "hit" for use in uses):
        return ()
    again = f"{graphs} graph{'s were' if graphs != 1 else ' was'} compiled again"
    return (MissedEntry(DYNAMO, uses[0].key, (), again),)


def _is_same_graph(one: CacheUsed, two: CacheUsed) -> bool:
    names = GRAPH_PARTS & one.parts.keys() & two.parts.keys()
    return (
        one.cache == two.cache and bool(names) and all(one.parts[n] == two.parts[n] for n in names)
    )
