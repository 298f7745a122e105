"""Similarities of two failures by their stacks, as published tools compute them.

Each is written from its paper or its source, for frames that are named ``FILE:FUNCTION``, innermost
first.
"""

from __future__ import annotations

import difflib
import math
from collections import Counter
from collections.abc import Mapping, Sequence

Frames = Sequence[str]


def clusterfuzz_similarity(a: Frames, b: Frames) -> float:
    """Return the similarity of ClusterFuzz's CrashComparer, which compares three frames.

    Two common frames in order make a match (1.0); otherwise it is the mean of the similarity of
    the texts of the frames, place by place.
    """
    first, second = [*a[:3]], [*b[:3]]
    if not first or not second:
        return 0.0
    if first == second or _common_subsequence(first, second) >= 2:
        return 1.0
    ratios = [
        difflib.SequenceMatcher(None, x, y, autojunk=False).ratio()
        for x, y in zip(first, second, strict=False)
    ]
    return sum(ratios) / max(len(first), len(second))


def _common_subsequence(a: Frames, b: Frames) -> int:
    row = [0] * (len(b) + 1)
    for x in a:
        previous = 0
        for place, y in enumerate(b, 1):
            before = row[place]
            row[place] = previous + 1 if x == y else max(row[place], row[place - 1])
            previous = before
    return row[-1]


CASR_DEPTH, CASR_SHIFT = 0.04, 0.13
"""How much less deeper frames and shifted frames count, as in CASR."""


def casr_similarity(a: Frames, b: Frames) -> float:
    """Return the similarity of CASR, which follows Wu et al.: matches near the crash count most."""
    if not a or not b:
        return 0.0
    best = [[0.0] * (len(b) + 1) for _ in range(len(a) + 1)]
    for i, x in enumerate(a, 1):
        for j, y in enumerate(b, 1):
            value = max(best[i - 1][j], best[i][j - 1])
            if x == y:
                weight = math.exp(-CASR_DEPTH * min(i - 1, j - 1) - CASR_SHIFT * abs(i - j))
                value = max(value, best[i - 1][j - 1] + weight)
            best[i][j] = value
    whole = sum(math.exp(-CASR_DEPTH * i) for i in range(min(len(a), len(b))))
    return best[-1][-1] / whole


class TraceSim:
    """TraceSim (Vasiliev et al., 2020): an edit distance whose frames are weighted by their place
    and by their rarity.
    """

    def __init__(
        self, stacks: Sequence[Frames], alpha: float = 1.0, beta: float = 2.0, gamma: float = 0.5
    ) -> None:
        """Create it; ``stacks`` are those in which the rarity of frames is counted."""
        self.alpha, self.beta, self.gamma = alpha, beta, gamma
        self._total = len(stacks)
        self._seen: Mapping[str, int] = Counter(frame for s in stacks for frame in set(s))

    def __call__(self, a: Frames, b: Frames) -> float:
        """Return the similarity, from 0 to 1."""
        if not a or not b:
            return 0.0
        of_a, of_b = self._weights(a), self._weights(b)
        row = [0.0]
        for weight in of_b:
            row.append(row[-1] + weight)
        for x, weight_x in zip(a, of_a, strict=True):
            previous, row[0] = row[0], row[0] + weight_x
            for place, (y, weight_y) in enumerate(zip(b, of_b, strict=True), 1):
                replace = previous + (0.0 if x == y else weight_x + weight_y)
                previous = row[place]
                row[place] = min(row[place] + weight_x, row[place - 1] + weight_y, replace)
        whole = sum(of_a) + sum(of_b)
        return 1.0 - row[-1] / whole if whole else 1.0

    def _weights(self, frames: Frames) -> list[float]:
        """Return the weight of each frame: its place to the power alpha, times its rarity."""
        return [
            (1.0 / (1 + place) ** self.alpha) * self._rarity(frame)
            for place, frame in enumerate(frames)
        ]

    def _rarity(self, frame: str) -> float:
        idf = math.log(self._total / max(self._seen.get(frame, 0), 1)) if self._total else 0.0
        return 1.0 / (1.0 + math.exp(-self.beta * (idf - self.gamma)))
