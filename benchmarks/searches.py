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


def weighted_ddmin(things: Sequence[T], holds: Holds[T], weight: Callable[[T], float]) -> list[T]:
    """Leave out blocks of equal weight, such as the length of their text, as ddmin does.

    Zhou, Xu, Zhang, Tian and Sun: WDD: Weighted Delta Debugging, ICSE 2025.
    """
    kept, blocks = list(things), 2
    while len(kept) >= 2:
        parts = (
            _by_weight(kept, blocks, weight) if blocks < len(kept) else [[thing] for thing in kept]
        )
        for part in parts:
            rest = [thing for thing in kept if thing not in part]
            if rest and holds(rest):
                kept, blocks = rest, max(blocks - 1, 2)
                break
        else:
            if len(parts) == len(kept):
                break
            blocks = min(len(kept), blocks * 2)
    return kept


def _by_weight(things: Sequence[T], count: int, weight: Callable[[T], float]) -> list[list[T]]:
    limit = sum(map(weight, things)) / count
    parts: list[list[T]] = [[]]
    heavy = 0.0
    for thing in things:
        if parts[-1] and heavy + weight(thing) > limit + 1e-9:
            parts.append([])
            heavy = 0.0
        parts[-1].append(thing)
        heavy += weight(thing)
    return parts if len(parts) > 1 else [[thing] for thing in things]
