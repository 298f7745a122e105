"""Measure how well similarities find sightings of one bug, with a third of the bugs held out.

python -m benchmarks run similarities [--sightings FILE ...]

The sightings are those that collect_sightings recorded; the label of each is its true bug. Each
method gets a threshold from two thirds of the bugs, the one with the best F1 over their pairs. The
recorded numbers are of the pairs that have at least one sighting of the other third. The last two
are of all pairs, also of those from which the threshold is. ClusterFuzz and CASR use their own
thresholds in rows of their own. Stacks have up to 24 frames.
"""

from __future__ import annotations

import argparse
import functools
import hashlib
import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from reprokit.core.judge.stacks import frames as fr
from reprokit.core.records.finding import Signature
from reprokit.core.triage import known_failures, likeness, traits
from reprokit.core.triage.likeness import Traits

from ... import similarities
from ...harness import show_progress
from ...measurement import Measurement
from ...results import Column, Row
from ...sighting_evidence import judge_evidence
from .grouping import KINDS, add_options, read_sightings

COLUMNS = (
    Column("method", "method"),
    Column("threshold", "threshold", 2),
    Column("precision", "precision", 3),
    Column("recall", "recall", 3),
    Column("f1", "F1", 3),
    *(Column(f"{kind}, f1", f"F1: {kind}", 3) for kind in KINDS),
    Column("precision_of_all", "precision, all pairs", 3),
    Column("recall_of_all", "recall, all pairs", 3),
)
THRESHOLDS = tuple(step / 100 for step in range(5, 101, 5))
PUBLISHED = {"ClusterFuzz": 0.8, "CASR": 0.7}
"""The thresholds of the tools: CASR joins clusters with a distance of up to 0.3."""
HELD_OUT = 3
"""One bug of this many is held out."""


@dataclass(frozen=True)
class Seen:
    """One sighting, as the methods see it."""

    label: str
    kind: str
    stack: tuple[str, ...]
    traits: Traits
    signature: Signature

    @property
    def is_held_out(self) -> bool:
        """Whether its bug is not used to choose thresholds."""
        return int(hashlib.sha256(self.label.encode()).hexdigest(), 16) % HELD_OUT == 0


Similarity = Callable[[Seen, Seen], float]


def our_similarity(a: Seen, b: Seen) -> float:
    """Return 1 for the same signature, else the likeness of the traits. A signature that many bugs
    have is no proof if the generated kernels have no operator in common.
    """
    is_vague = known_failures.is_vague(a.signature.title)
    if a.signature.id == b.signature.id and not (
        is_vague and likeness.is_of_other_kernel(a.traits, b.traits)
    ):
        return 1.0
    return min(likeness.compare_traits(a.traits, b.traits).score, 0.999)


def measure_rows(options: argparse.Namespace) -> Iterator[Row]:
    """Yield a row for each method."""
    sightings = [_seen(one) for path in options.sightings for one in read_sightings(path)]
    labels = {one.label for one in sightings}
    held = {one.label for one in sightings if one.is_held_out}
    show_progress(f"{len(sightings)} sightings of {len(labels)} bugs, {len(held)} held out")
    trace_sim = similarities.TraceSim([one.stack for one in sightings if not one.is_held_out])
    methods: dict[str, Similarity] = {
        "same signature": lambda a, b: float(a.signature.id == b.signature.id),
        "signature or likeness": our_similarity,
        "TraceSim": _of_stacks(trace_sim),
        "ClusterFuzz": _of_stacks(similarities.clusterfuzz_similarity),
        "CASR": _of_stacks(similarities.casr_similarity),
    }
    for name, method in methods.items():
        scores = _scores(sightings, method)
        yield _row(name, sightings, scores, _best_threshold(sightings, scores))
        if name in PUBLISHED:
            yield _row(f"{name}, its own threshold", sightings, scores, PUBLISHED[name])


def _of_stacks(compare: Callable[[Sequence[str], Sequence[str]], float]) -> Similarity:
    cached = functools.cache(compare)
    return lambda a, b: cached(a.stack, b.stack)


def _seen(sighting: dict[str, object]) -> Seen:
    verdict, seen, signature = judge_evidence(sighting["evidence"])  # type: ignore[arg-type]
    frames = traits.frames_of_failure(verdict, seen)
    return Seen(
        str(sighting["label"]),
        str(sighting["kind"]),
        tuple(fr.show_frame(frame) for frame in frames),
        traits.traits_of_failure(verdict, seen, signature),
        signature,
    )


Scores = dict[tuple[int, int], float]


def _scores(sightings: Sequence[Seen], method: Similarity) -> Scores:
    pairs = itertools.combinations(range(len(sightings)), 2)
    return {(i, j): method(sightings[i], sightings[j]) for i, j in pairs}


def _best_threshold(sightings: Sequence[Seen], scores: Scores) -> float:
    """Return the threshold with the best F1 over the pairs of bugs that are not held out."""
    known = {
        pair: score
        for pair, score in scores.items()
        if not any(sightings[index].is_held_out for index in pair)
    }
    return max(THRESHOLDS, key=lambda limit: _measures(sightings, known, limit)[2])


def _measures(
    sightings: Sequence[Seen], scores: Scores, limit: float
) -> tuple[float, float, float]:
    """Return precision, recall and F1 of the pairs of ``scores``."""
    together = same = both = 0
    for (i, j), score in scores.items():
        is_together, is_same = score >= limit, sightings[i].label == sightings[j].label
        together += is_together
        same += is_same
        both += is_together and is_same
    precision, recall = both / together if together else 1.0, both / same if same else 1.0
    return precision, recall, 2 * precision * recall / (precision + recall or 1.0)


def _row(name: str, sightings: Sequence[Seen], scores: Scores, limit: float) -> Row:
    """Return the measures over the pairs with a bug that is held out."""
    held = {
        pair: score
        for pair, score in scores.items()
        if any(sightings[index].is_held_out for index in pair)
    }
    precision, recall, f1 = _measures(sightings, held, limit)
    row: Row = {
        "method": name,
        "threshold": limit,
        "precision": round(precision, 3),
        "recall": round(recall, 3),
        "f1": round(f1, 3),
    }
    precision, recall, _ = _measures(sightings, scores, limit)
    row |= {"precision_of_all": round(precision, 3), "recall_of_all": round(recall, 3)}
    for title, kinds in KINDS.items():
        of_kind = {
            (i, j): score
            for (i, j), score in held.items()
            if sightings[i].kind in kinds and sightings[j].kind in kinds
        }
        row[f"{title}, f1"] = round(_measures(sightings, of_kind, limit)[2], 3)
    return row


MEASUREMENT = Measurement(COLUMNS, measure_rows, add_options)
