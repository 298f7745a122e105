"""Searches for a small list of items that still satisfies a predicate, to compare with reprokit's.

Each takes a list and a predicate on its parts, and returns a part for which the predicate holds.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TypeVar

T = TypeVar("T")
Holds = Callable[[list[T]], bool]
FIRST_PROBABILITY = 0.1
"""That an item is needed, before the first test (Wang et al. 2021)."""


def prob_dd(things: Sequence[T], holds: Holds[T]) -> list[T]:
    """Leave out the block with the largest expected gain, by a probability for each item.

    Wang, Shen, Chen, Xiong and Zhang: Probabilistic Delta Debugging, ESEC/FSE 2021.
    """
    kept = list(range(len(things)))
    needed = dict.fromkeys(kept, FIRST_PROBABILITY)
    while open_items := [i for i in kept if needed[i] < 1.0]:
        ordered = sorted(open_items, key=lambda i: (needed[i], i))
        size, passes = 1, 1.0 - needed[ordered[0]]
        while size < len(ordered):
            next_passes = passes * (1.0 - needed[ordered[size]])
            if (size + 1) * next_passes <= size * passes:
                break
            size, passes = size + 1, next_passes
        block = set(ordered[:size])
        rest = [i for i in kept if i not in block]
        if rest and holds([things[i] for i in rest]):
            kept = rest
            continue
        for i in block:
            needed[i] = 1.0 if size == 1 else min(needed[i] / (1.0 - passes), 1.0)
    return [things[i] for i in kept]


def counter_dd(things: Sequence[T], holds: Holds[T]) -> list[T]:
    """Leave out blocks whose size decreases from round to round as in :func:`prob_dd`.

    Zhang, Xu, Tian, Cheng and Sun: Deep Dive into Probabilistic Delta Debugging: Insights and
    Simplifications, 2024. They call it CDD.
    """
    kept, probability, size = list(things), FIRST_PROBABILITY, 0
    while size != 1:
        size = max(1, min(len(kept), round(-1 / math.log(1 - probability))))
        index = 0
        while index < len(kept):
            rest = kept[:index] + kept[index + size :]
            if rest and holds(rest):
                kept = rest
            else:
                index += size
        probability = min(probability / (1 - (1 - probability) ** size), 0.99)
    return kept
