"""Find the few things of many that a failure needs, by asking one question: does this subset still
show it?

Every function here is plain: a list, and a predicate on sublists (in the list's order). They know
nothing of graphs, programs, processes or caches. The predicate must hold for the whole list. What a
function gives is a sublist for which it held; only :func:`one_minimal` promises that no single
thing can be left out.

Windows and QuickXplain (Junker 2004) are cheapest for a few scattered things, ddmin (Zeller and
Hildebrandt 2002) for a block of neighbours; predicates may be non-monotone, so the last word is
one_minimal's.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import TypeVar

T = TypeVar("T")
Holds = Callable[[list[T]], bool]


def smallest_subset(
    things: Sequence[T],
    holds: Holds[T],
    hints: Sequence[T] = (),
    kind: Callable[[T], Hashable] | None = None,
) -> list[T]:
    """Reduce ``things`` to a 1-minimal list.

    ``hints`` are tried first, alone; then one thing of each ``kind``: most failures need one
    operator, and a question about few is cheap; then the hints with their surroundings.
    """
    found = list(things)
    if len(found) < 2:
        return found
    known = [h for h in found if h in set(hints)]
    if known and len(known) < len(found) and holds(known):
        return one_minimal(known, holds) if len(known) > 1 else known
    sample = (
        {kind(thing): thing for thing in reversed(found)}.values() if kind is not None else found
    )
    chosen = [thing for thing in found if thing in set(sample)]
    if 2 * len(chosen) <= len(found) and holds(chosen):
        found = chosen
    elif known:
        found = around_window(found, known[-1:], holds)
    found = needed_items(smallest_window(split_in_halves(found, holds), holds), holds)
    return one_minimal(found, holds)


def around_window(things: list[T], hints: Sequence[T], holds: Holds[T]) -> list[T]:
    """Widen a window around ``hints`` until it holds; four times as wide each time."""
    places = [i for i, thing in enumerate(things) if thing in set(hints)]
    first, last, margin = min(places), max(places), 2
    while True:
        low, high = max(0, first - margin), min(len(things), last + 1 + margin)
        if low == 0 and high == len(things):
            return things
        if holds(things[low:high]):
            return things[low:high]
        margin *= 4


def split_in_halves(things: list[T], holds: Holds[T]) -> list[T]:
    """Halve as long as a half holds: the last, the first or the middle one. What is needed mostly
    lies together, and a question about half of the things costs half.
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
    """The shortest prefix that holds, and of it the shortest suffix, by bisection."""
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
    """Of a window whose ends are needed, what is needed between them (QuickXplain); ``things``
    where it misleads.
    """
    if len(things) <= 2:
        return things
    ends, inner = [things[0], things[-1]], things[1:-1]
    place = {id(thing): i for i, thing in enumerate(things)}

    def ordered(some: list[T]) -> list[T]:
        return sorted(some, key=lambda thing: place[id(thing)])

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

    found = ordered(ends + split(ends, True, inner))
    return found if len(found) == len(things) or holds(found) else things


def ddmin(things: Sequence[T], holds: Holds[T]) -> list[T]:
    """Leave out ever smaller blocks; good where neighbours belong together."""
    found, blocks = list(things), 2
    while len(found) >= 2:
        size = -(-len(found) // blocks)
        for start in range(0, len(found), size):
            rest = found[:start] + found[start + size :]
            if rest and holds(rest):
                found, blocks = rest, max(blocks - 1, 2)
                break
        else:
            if size == 1:
                break
            blocks = min(len(found), blocks * 2)
    return found


def leave_out(things: Sequence[T], holds: Holds[T]) -> list[T]:
    """As :func:`ddmin`, but everything may go: the predicate may hold for the empty list."""
    found = list(things)
    if found and holds([]):
        return []
    found = ddmin(found, holds)
    return found


def one_minimal(things: Sequence[T], holds: Holds[T]) -> list[T]:
    """Leave out single things until none can go."""
    found = list(things)
    place = len(found) - 1
    unchanged = 0
    while len(found) > 1 and unchanged < len(found):
        place %= len(found)
        rest = found[:place] + found[place + 1 :]
        if holds(rest):
            found, unchanged = rest, 0
        else:
            unchanged += 1
        place -= 1
    return found
