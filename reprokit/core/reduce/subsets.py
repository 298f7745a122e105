"""Find a small subset of items that still satisfies a predicate, such as "the failure occurs".

Each function takes a list and a predicate on sublists in the list's order. The functions do not
depend on graphs, programs, processes or caches. The predicate must hold for the whole list. The
result is a sublist for which it held. Only :func:`one_minimal` guarantees that no single item can
be left out.

Windows and QuickXplain (Junker 2004) are cheapest for a few scattered items, and ddmin (Zeller and
Hildebrandt 2002) for a block of neighbours. Predicates may be non-monotone, so one_minimal runs
last.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import Generic, TypeVar

T = TypeVar("T")
Holds = Callable[[list[T]], bool]
FEW_ITEMS = 12
"""Of so few items, trying to leave out each one costs less than a search for those that are needed.
"""


class Implied(Generic[T]):
    """A predicate that is not asked about a part of a list for which it does not hold.

    For a predicate that is not monotone, this can keep an item that is not needed.
    """

    def __init__(self, answer: Callable[[list[T]], bool | None]) -> None:
        """``answer`` returns None for a list that says nothing about its parts."""
        self._answer = answer
        self._refused: list[frozenset[T]] = []

    def holds(self, some: list[T]) -> bool:
        """Return whether the predicate holds for a list."""
        part = frozenset(some)
        if any(part <= refused for refused in self._refused):
            return False
        answer = self._answer(some)
        if answer is False:
            self._refused = [r for r in self._refused if not r <= part] + [part]
        return bool(answer)


def smallest_subset(
    things: Sequence[T],
    holds: Holds[T],
    hints: Sequence[T] = (),
    kind: Callable[[T], Hashable] | None = None,
) -> list[T]:
    """Reduce ``things`` to a 1-minimal list.

    First it tries only the ``hints``. Then it tries one item of each ``kind``, because most
    failures need one operator, and a probe of few items is cheap. Then it tries the hints with
    their neighbours.
    """
    kept = list(things)
    if len(kept) < 2:
        return kept
    known = [h for h in kept if h in set(hints)]
    if known and len(known) < len(kept) and holds(known):
        return one_minimal(known, holds) if len(known) > 1 else known
    sample = {kind(thing): thing for thing in reversed(kept)}.values() if kind is not None else kept
    chosen = [thing for thing in kept if thing in set(sample)]
    if 2 * len(chosen) <= len(kept) and holds(chosen):
        kept = chosen
    elif known:
        kept = around_window(kept, known[-1:], holds)
    kept = split_in_halves(kept, holds)
    if len(kept) > FEW_ITEMS:
        kept = needed_items(smallest_window(kept, holds), holds)
    return one_minimal(kept, holds)


def around_window(things: list[T], hints: Sequence[T], holds: Holds[T]) -> list[T]:
    """Widen a window around ``hints`` until the predicate holds, by a factor of four each time."""
    indices = [i for i, thing in enumerate(things) if thing in set(hints)]
    first, last, margin = min(indices), max(indices), 2
    while True:
        low, high = max(0, first - margin), min(len(things), last + 1 + margin)
        if low == 0 and high == len(things):
            return things
        if holds(things[low:high]):
            return things[low:high]
        margin *= 4


def split_in_halves(things: list[T], holds: Holds[T]) -> list[T]:
    """Halve the list while the predicate holds for the last, the first or the middle half. The
    needed items are mostly neighbours, and a probe of half of the items costs half.
    """
    while len(things) >= 4:
        half, quarter = len(things) // 2, len(things) // 4
        parts = (things[half:], things[:half], things[quarter : quarter + half])
        held = next((part for part in parts if holds(part)), None)
        if held is None:
            break
        things = held
    return things


def smallest_window(things: list[T], holds: Holds[T]) -> list[T]:
    """Return the shortest suffix of the shortest prefix for which the predicate holds, by
    bisection.
    """
    low, high = 1, len(things)
    while low < high:
        middle = (low + high) // 2
        if holds(things[:middle]):
            high = middle
        else:
            low = middle + 1
    things = things[:high]
    low, high = 0, len(things) - 1
    while low < high:
        middle = (low + high + 1) // 2
        if holds(things[middle:]):
            low = middle
        else:
            high = middle - 1
    return things[low:]


def needed_items(things: list[T], holds: Holds[T]) -> list[T]:
    """Return the needed items of a window whose ends are needed, by QuickXplain; ``things`` if the
    result does not hold.
    """
    if len(things) <= 2:
        return things
    ends, inner = [things[0], things[-1]], things[1:-1]
    index = {id(thing): i for i, thing in enumerate(things)}

    def ordered(some: list[T]) -> list[T]:
        return sorted(some, key=lambda thing: index[id(thing)])

    def split(base: list[T], is_new: bool, rest: list[T]) -> list[T]:
        if is_new and holds(ordered(base)):
            return []
        if len(rest) == 1:
            return rest
        half = len(rest) // 2
        first, second = rest[:half], rest[half:]
        of_second = split(base + first, True, second)
        of_first = split(base + of_second, bool(of_second), first)
        return of_first + of_second

    needed = ordered(ends + split(ends, True, inner))
    return needed if len(needed) == len(things) or holds(needed) else things


def ddmin(things: Sequence[T], holds: Holds[T]) -> list[T]:
    """Leave out smaller and smaller blocks, with the ddmin algorithm; it suits neighbours that
    depend on each other.
    """
    kept, blocks = list(things), 2
    while len(kept) >= 2:
        size = -(-len(kept) // blocks)
        for start in range(0, len(kept), size):
            rest = kept[:start] + kept[start + size :]
            if rest and holds(rest):
                kept, blocks = rest, max(blocks - 1, 2)
                break
        else:
            if size == 1:
                break
            blocks = min(len(kept), blocks * 2)
    return kept


def leave_out(
    things: Sequence[T], holds: Holds[T], weight: Callable[[T], float] | None = None
) -> list[T]:
    """Leave out blocks like :func:`ddmin`, or like :func:`weighted_ddmin` if there is a weight; the
    result may be empty.
    """
    kept = list(things)
    if kept and holds([]):
        return []
    return ddmin(kept, holds) if weight is None else weighted_ddmin(kept, holds, weight)


def weighted_ddmin(things: Sequence[T], holds: Holds[T], weight: Callable[[T], float]) -> list[T]:
    """Leave out blocks of about the same weight, such as the length of their text, as ddmin does.

    Zhou, Xu, Zhang, Tian and Sun: WDD: Weighted Delta Debugging, ICSE 2025.
    """
    kept, count = list(things), 2
    while len(kept) >= 2:
        blocks = (
            _by_weight(kept, count, weight) if count < len(kept) else [[thing] for thing in kept]
        )
        for block in blocks:
            rest = [thing for thing in kept if thing not in block]
            if rest and holds(rest):
                kept, count = rest, max(count - 1, 2)
                break
        else:
            if len(blocks) == len(kept):
                break
            count = min(len(kept), count * 2)
    return kept


def _by_weight(things: Sequence[T], count: int, weight: Callable[[T], float]) -> list[list[T]]:
    limit = sum(map(weight, things)) / count
    blocks: list[list[T]] = [[]]
    heavy = 0.0
    for thing in things:
        if blocks[-1] and heavy + weight(thing) > limit + 1e-9:
            blocks.append([])
            heavy = 0.0
        blocks[-1].append(thing)
        heavy += weight(thing)
    return blocks if len(blocks) > 1 else [[thing] for thing in things]


def one_minimal(things: Sequence[T], holds: Holds[T]) -> list[T]:
    """Leave out single items until no item can be left out."""
    kept = list(things)
    index = len(kept) - 1
    unchanged = 0
    while len(kept) > 1 and unchanged < len(kept):
        index %= len(kept)
        rest = kept[:index] + kept[index + 1 :]
        if holds(rest):
            kept, unchanged = rest, 0
        else:
            unchanged += 1
        index -= 1
    return kept
