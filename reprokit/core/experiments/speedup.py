"""Decide whether compiling is worth it, and whether compiled calls are slower, from repeated
timings of eager and compiled calls.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from reprokit.core.records.speed import NOT_SLOWER, SLOWER, UNSURE, Ratio, Speed
from reprokit.core.shared.contract.events import CallParts, CallsTimed

MIN_GAIN = 1.05
"""The smallest speedup for which compiling is worth it, and the smallest slowdown that counts."""
MIN_PAIRS = 8
"""With fewer pairs, chance alone can place a whole interval above 1.05."""
RESAMPLES = 1_000
SIZES = (
    (1e9, "below 1 B parameters: compile the whole model"),
    (1e10, "1 to 10 B: compile the whole model, and watch how compile time grows with depth"),
    (4e10, "10 to 40 B: compile layer by layer"),
    (float("inf"), "above 40 B: compile layer by layer, the first layers only, or not at all"),
)
"""Advice by the number of parameters, before anything is measured."""


@dataclass(frozen=True)
class Gain:
    """The speedup of compiled calls: a ratio of lower quartiles, with a 95 % bootstrap interval."""

    ratio: float
    low: float
    high: float
    eager_s: float
    """Seconds of one pass over the calls: the lower quartile."""
    compiled_s: float

    @property
    def advice(self) -> str:
        """``compile``, ``eager`` or ``unsure``: eager unless the gain is at least 5 %."""
        if self.low >= MIN_GAIN:
            return "compile"
        return "eager" if self.high < MIN_GAIN or self.ratio < MIN_GAIN else "unsure"

    def calls_to_pay(self, compile_s: float) -> int | None:
        """Return the number of passes that save the time of the compile; None if none do."""
        saved = self.eager_s - self.compiled_s
        return round(compile_s / saved) + 1 if saved > 0 else None

    def __str__(self) -> str:
        return (
            f"{self.ratio:.2f} times as fast as eager (95 % interval {self.low:.2f} to"
            f" {self.high:.2f})"
        )


def measure_gain(eager: Sequence[float], compiled: Sequence[float]) -> Gain | None:
    """Compare timings that were taken in turns; None with fewer than three pairs.

    Pairs are resampled together, because a disturbance of the machine affects both timings of a
    pair.
    """
    pairs = [(a, b) for a, b in zip(eager, compiled, strict=False) if a > 0 and b > 0]
    if len(pairs) < 3:
        return None
    draw = random.Random(0)  # noqa: S311 - for resampling, not for a secret
    ratios = sorted(_ratio(draw.choices(pairs, k=len(pairs))) for _ in range(RESAMPLES))
    low, high = ratios[int(RESAMPLES * 0.025)], ratios[int(RESAMPLES * 0.975)]
    eager_s, compiled_s = (_typical(side) for side in zip(*pairs, strict=True))
    return Gain(_ratio(pairs), low, high, eager_s, compiled_s)


def compare_speed(runs: Sequence[CallsTimed], parts: CallParts) -> Speed | None:
    """Decide whether compiled calls are slower than eager; None without timings.

    Each run is one process. Calls are slower if every run says so: the whole interval of the ratio
    is above 1.05. Time decides, and CPU instructions where the interval of the time is too wide.
    ``parts`` are those of the last run.
    """
    found = [(_ratios_of(run), run) for run in runs]
    answered = [(*_answer(ratios), run) for ratios, run in found if ratios]
    if not answered:
        return None
    answers = [answer for answer, _, _ in answered]
    answer = SLOWER if set(answers) == {SLOWER} else answers[0]
    why = "measure it on an idle machine, or with OMP_NUM_THREADS=1"
    if len(set(answers)) > 1:
        answer, why = UNSURE, "another process does not confirm it"
    _, ratio, run = min(answered, key=lambda row: row[1].value)
    if ratio.pairs < MIN_PAIRS:
        why = f"the calls are so slow that only {ratio.pairs} pairs were measured"
    return Speed(
        answer,
        ratio,
        len(answered),
        why if answer == UNSURE else "",
        _typical(run.eager),
        _typical(run.compiled),
        run.no_instructions,
        tuple(parts.parts),
        parts.eager_operators,
        parts.regions,
        parts.rest_s,
        parts.guards,
        parts.not_measured,
    )


def _ratios_of(run: CallsTimed) -> list[Ratio]:
    """Return the ratio of the times, and that of the instructions if they were counted."""
    ratios = []
    for is_of_instructions, eager, compiled in (
        (False, run.eager, run.compiled),
        (True, run.eager_instructions, run.compiled_instructions),
    ):
        if gain := measure_gain(eager, compiled):
            value, low, high = 1 / gain.ratio, 1 / gain.high, 1 / gain.low
            ratios.append(Ratio(value, low, high, len(eager), is_of_instructions))
    return ratios


def _answer(ratios: Sequence[Ratio]) -> tuple[str, Ratio]:
    """Return the answer of the first ratio that has one, and that ratio."""
    for ratio in ratios:
        if ratio.high < MIN_GAIN:
            return NOT_SLOWER, ratio
        if ratio.low > MIN_GAIN and ratio.pairs >= MIN_PAIRS:
            return SLOWER, ratio
    return UNSURE, ratios[0]


def guess_gain(parameters: int) -> str:
    """Return the advice for a number of parameters."""
    return next(text for limit, text in SIZES if parameters < limit)


def _ratio(pairs: Sequence[tuple[float, float]]) -> float:
    return _typical(a for a, _ in pairs) / _typical(b for _, b in pairs)


def _typical(costs: Iterable[float]) -> float:
    """Return the lower quartile: other programs on the machine only ever add to a cost."""
    ordered = sorted(costs)
    return ordered[len(ordered) // 4]
