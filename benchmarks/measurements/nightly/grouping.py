"""Measure how well signatures group the sightings of one bug, beside two simpler methods.

python -m benchmarks run grouping [--sightings FILE ...]

The sightings are those that collect_sightings recorded; the label of each is its true bug. Of all
pairs of sightings, precision is the share of pairs in one group that are one bug, and recall the
share of pairs of one bug that are in one group. The simpler methods group by the exact message of
the innermost exception, and by its three innermost frames; a sighting without them is in a group of
its own. The progress lists each signature that several bugs share, and each bug that has several.
"""

from __future__ import annotations

import argparse
import itertools
import json
from collections import Counter
from collections.abc import Callable, Hashable, Iterator, Sequence
from pathlib import Path
from typing import Any

from reprokit.core.judge.signature import ALGORITHM

from ...harness import DATA, show_progress
from ...measurement import Measurement, existing_file
from ...results import Column, Row
from ...sighting_evidence import sign_evidence

Sighting = dict[str, Any]
"""A line of sightings.jsonl, as JSON."""
SIGHTINGS = DATA / "sightings.jsonl"
METHODS: dict[str, Callable[[Sighting], Hashable]] = {
    "exact message": lambda sighting: sighting["message"],
    "three innermost frames": lambda sighting: tuple(sighting["top3"]),
    "signature": lambda sighting: sighting["signature"]["id"],
}
KINDS = {
    "exceptions": ("exception", "oom", "error-in-eager"),
    "crashes": ("crash",),
    "wrong results": ("wrong-result",),
    "graph breaks, recompiles": ("graph-break", "recompile-limit", "recompile-storm"),
    "hangs, slow compiles": ("hang", "slow-compile", "superlinear-compile"),
}
COLUMNS = (
    Column("sightings", "sightings"),
    Column("number", "number"),
    Column("bugs", "bugs"),
    *(
        Column(f"{method}, {measure}", f"{method}: {measure}", 3)
        for method in METHODS
        for measure in ("precision", "recall")
    ),
)


def pairwise(
    labels: Sequence[Hashable],
    groups: Sequence[Hashable],
    counts: Callable[[int, int], bool] = lambda i, j: True,
) -> tuple[float, float]:
    """Return precision and recall over the pairs that count; 1 where there is no pair. Sightings
    with an empty group are in no group.
    """
    together = same = both = 0
    for i, j in itertools.combinations(range(len(labels)), 2):
        if not counts(i, j):
            continue
        is_together, is_same = bool(groups[i]) and groups[i] == groups[j], labels[i] == labels[j]
        together += is_together
        same += is_same
        both += is_together and is_same
    return (both / together if together else 1.0), (both / same if same else 1.0)


def read_sightings(path: Path) -> list[Sighting]:
    """Return the sightings of a file, each signed by today's rules."""
    sightings: list[Sighting] = [json.loads(line) for line in path.read_text().splitlines()]
    for sighting in sightings:
        signature = sign_evidence(sighting["evidence"])
        sighting["signature"] = {"id": signature.id, "title": signature.title}
    return sightings


def table_row(title: str, sightings: Sequence[Sighting], is_across_versions: bool = False) -> Row:
    """Return precision and recall of each method, over all pairs or over those of different
    versions of torch.
    """

    def counts(i: int, j: int) -> bool:
        return not is_across_versions or sightings[i]["torch"] != sightings[j]["torch"]

    labels = [sighting["label"] for sighting in sightings]
    row: Row = {"sightings": title, "number": len(sightings), "bugs": len(set(labels))}
    for name, method in METHODS.items():
        precision, recall = pairwise(labels, [method(s) for s in sightings], counts)
        row[f"{name}, precision"] = round(precision, 3)
        row[f"{name}, recall"] = round(recall, 3)
    return row


def shared_signatures(sightings: Sequence[Sighting]) -> dict[str, str]:
    """Return the title of each signature that several bugs share, with these bugs."""
    shared = {}
    for signed in dict.fromkeys(s["signature"]["id"] for s in sightings):
        inside = [s for s in sightings if s["signature"]["id"] == signed]
        labels = Counter(s["label"] for s in inside)
        pairs = sum(a * b for a, b in itertools.combinations(labels.values(), 2))
        if pairs:
            bugs = ", ".join(f"{label} ({n})" for label, n in labels.items())
            shared[inside[0]["signature"]["title"]] = f"{pairs} wrong pairs: {bugs}"
    return shared


def split_bugs(sightings: Sequence[Sighting]) -> dict[str, list[str]]:
    """Return the label of each bug that has several signatures, with where each one was seen."""
    split = {}
    for label in dict.fromkeys(s["label"] for s in sightings):
        by_title: dict[str, list[Sighting]] = {}
        for sighting in sightings:
            if sighting["label"] == label:
                by_title.setdefault(sighting["signature"]["title"], []).append(sighting)
        if len(by_title) > 1:
            split[label] = [
                f"{len(seen):3} {title}: {_settings_of(seen)}" for title, seen in by_title.items()
            ]
    return split


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the files of sightings."""
    parser.add_argument(
        "--sightings",
        nargs="+",
        type=existing_file,
        default=[SIGHTINGS],
        metavar="FILE",
        help="default: benchmarks/data/sightings.jsonl",
    )


def measure_rows(options: argparse.Namespace) -> Iterator[Row]:
    """Yield a row for all sightings, for pairs of different versions of torch, and for each kind of
    failure.
    """
    sightings = [sighting for path in options.sightings for sighting in read_sightings(path)]
    versions = Counter(sighting["torch"] for sighting in sightings)
    counts = ", ".join(f"{n} with torch {version}" for version, n in versions.items())
    show_progress(f"{len(sightings)} sightings ({counts}), signed with algorithm {ALGORITHM}")
    for title, bugs in shared_signatures(sightings).items():
        show_progress(f"several bugs have the signature {title}: {bugs}")
    for label, places in split_bugs(sightings).items():
        show_progress("\n    ".join([f"the bug {label} has several signatures:", *places]))
    yield table_row("all", sightings)
    yield table_row("all, pairs across versions of torch", sightings, is_across_versions=True)
    for title, kinds in KINDS.items():
        yield table_row(title, [s for s in sightings if s["kind"] in kinds])


def _settings_of(sightings: Sequence[Sighting]) -> str:
    versions = Counter(s["torch"] for s in sightings)
    settings = Counter(
        " ".join([s["target"].split(":")[-1], s["settings"]["host"], *s["settings"]["options"]])
        for s in sightings
    )
    return "; ".join(
        ", ".join(f"{n} {name}" for name, n in count.items()) for count in (versions, settings)
    )


MEASUREMENT = Measurement(COLUMNS, measure_rows, add_options)
