"""Measure how often the catalogue of known failures names the right issue, and a wrong one.

python -m benchmarks run known_hits [--sightings FILE ...]

The sightings are those that collect_sightings recorded: known bugs in other host models, sizes and
versions of torch than the programs of the catalogue. Bugs without a public issue, which are planted
or made, have no entry and must not be called known. A hit is a sighting whose issue is among the
named ones; a false hit is one for which a wrong issue is called known or probably known. The last
rows are the failures of the catalogue's own programs, each compared with the other entries, so
nothing may be called known.
"""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Iterator, Sequence

from reprokit.core.records.finding import Signature
from reprokit.core.triage import known_failures, traits
from reprokit.core.triage.known_failures import KnownFailure
from reprokit.host.catalogue import catalogue_files

from ...harness import show_progress
from ...measurement import Measurement
from ...results import Column, Row
from ...sighting_evidence import judge_evidence
from .grouping import KINDS, add_options, read_sightings

ISSUES = {"jacfwd-dynamic-fw-primal": ("160508", "183015")}
"""Label of a bug -> the issues that report it: forward mode hits the same assertion in each."""
ONE_BUG = (frozenset({"160508", "183015"}), frozenset({"182649", "182651"}))
"""Issues that report the same assertion of the same function of the compiler."""
COLUMNS = (
    Column("sightings", "sightings"),
    Column("number", "number"),
    Column("public", "with an issue in the catalogue"),
    Column("hits", "issue named"),
    Column("known", "called known"),
    Column("hit_rate", "hit rate", 3),
    Column("false_known", "wrongly called known"),
    Column("false_likely", "wrongly called probably known"),
    Column("false_rate", "false hits", 3),
)


def measure_rows(options: argparse.Namespace) -> Iterator[Row]:
    """Yield a row for all sightings, and one for each group of kinds."""
    sightings = [s for path in options.sightings for s in read_sightings(path)]
    counts = [(str(s["kind"]), _count_matches(s)) for s in sightings]
    yield _row("all", [count for _, count in counts])
    for name, kinds in KINDS.items():
        yield _row(name, [count for kind, count in counts if kind in kinds])
    entries = catalogue_files.own_catalogue()
    left_out = [
        (entry.kind, count) for entry in entries for count in _without_entry(entry, entries)
    ]
    yield _row("without their entry: all", [count for _, count in left_out])
    for name, kinds in KINDS.items():
        if rows := [count for kind, count in left_out if kind in kinds]:
            yield _row(f"without their entry: {name}", rows)


def _without_entry(entry: KnownFailure, entries: Sequence[KnownFailure]) -> Iterator[Counter[str]]:
    """Yield what the other entries say about each failure of an entry's program."""
    number = entry.issue.rpartition("#")[2]
    same = next((group for group in ONE_BUG if number in group), {number})
    others = [other for other in entries if other.issue.rpartition("#")[2] not in same]
    for run in entry.failing:
        signature = Signature(run.signature, run.title, run.algorithm)
        matches = known_failures.find_known_failures(signature, run.traits(), others)
        how = matches[0].how if matches else ""
        found = Counter(
            false_known=how == known_failures.SAME, false_likely=how == known_failures.LIKELY
        )
        if found["false_known"] or found["false_likely"]:
            show_progress(f"{entry.issue} with {run.torch} is called {matches[0].sentence}")
        yield found


def _count_matches(sighting: dict[str, object]) -> Counter[str]:
    """Return what the catalogue says about one sighting, as counts of 0 and 1."""
    verdict, seen, signature = judge_evidence(sighting["evidence"])  # type: ignore[arg-type]
    entries = catalogue_files.own_catalogue()
    matches = known_failures.find_known_failures(
        signature, traits.traits_of_failure(verdict, seen, signature), entries
    )
    label = str(sighting["label"])
    issues = [f"pytorch/pytorch#{number}" for number in ISSUES.get(label, (label,))]
    right = [match for match in matches if match.entry.issue in issues]
    best = matches[0] if matches else None
    is_wrong = best is not None and not right
    found = Counter(
        public=any(entry.issue in issues for entry in entries),
        hits=bool(right),
        known=bool(right) and right[0].how not in known_failures.MAYBE,
        false_known=is_wrong and best is not None and best.how == known_failures.SAME,
        false_likely=is_wrong and best is not None and best.how == known_failures.LIKELY,
    )
    if found["public"] and not right:
        show_progress(f"missed {label}: {signature.title}")
    if found["false_known"] or found["false_likely"]:
        assert best is not None
        show_progress(f"{sighting['label']} is called {best.sentence}")
    return found


def _row(name: str, counts: Sequence[Counter[str]]) -> Row:
    total = sum(counts, Counter())
    false = total["false_known"] + total["false_likely"]
    return {
        "sightings": name,
        "number": len(counts),
        **{key: total[key] for key in ("public", "hits", "known", "false_known", "false_likely")},
        "hit_rate": total["hits"] / total["public"] if total["public"] else None,
        "false_rate": false / len(counts) if counts else None,
    }


MEASUREMENT = Measurement(COLUMNS, measure_rows, add_options)
