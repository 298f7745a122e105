"""The choices of one program: random numbers, and what ran rarely is chosen more often.

Each choice has a name, such as ``operator:cumsum``. A choice is worth more if programs with it ran
a lowering of Inductor or a handler of Dynamo that few programs had run, and less the more often it
was tried.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Sequence
from typing import TypeVar

from ...core.shared.hunted_programs import Steering, no_steering

T = TypeVar("T")


class Drawing:
    """The random numbers of one program, and the choices that it has made."""

    def __init__(self, seed: str, steering: Steering | None = None, place: str = "") -> None:
        """``place`` is the argument of the source, such as a folder of programs."""
        self.random = random.Random(seed)  # noqa: S311
        self.place = place
        self.chosen: dict[str, None] = {}
        """The names of the choices of this program."""
        self._steering = steering or no_steering()

    def choose(self, kind: str, table: Sequence[T], names: Sequence[str] = ()) -> T:
        """Return a row of a table; ``names`` are the names of its rows if they are no texts."""
        keys = [f"{kind}:{name}" for name in names or table]
        weights = list(itertools.accumulate(map(self._weight, keys)))
        (number,) = self.random.choices(range(len(keys)), cum_weights=weights)
        self.chosen[keys[number]] = None
        return table[number]

    def is_chosen(self, share: float) -> bool:
        """Return True with the probability ``share``."""
        return self.random.random() < share

    def _weight(self, key: str) -> float:
        tried = self._steering["tried"].get(key, 0)
        return (1 + self._steering["gained"].get(key, 0)) / (1 + tried)
