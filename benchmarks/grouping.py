"""How well signatures group sightings of one bug: pairwise precision and recall, beside two
baselines.

python benchmarks/grouping.py [FILE ...]

FILE (benchmarks/data/sightings.jsonl) is written by benchmarks/sightings.py; the label of a line is
its true bug. Of all pairs of sightings, precision is the share of pairs in one group that are one
bug, recall the share of pairs of one bug that are in one group. The baselines group by the exact
message of the innermost exception, and by its three innermost frames; a sighting that has neither
is alone.
"""

from __future__ import annotations

import itertools
import json
import sys
from collections import Counter
from collections.abc import Callable, Hashable, Sequence
from pathlib import Path
from typing import Any

sys.path[:0] = [str(Path(__file__).resolve().parents[1]), str(Path(__file__).resolve().parent)]

import evidence

from reprokit.core.judge.signature import ALGORITHM

Row = dict[str, Any]
METHODS: dict[str, Callable[[Row], Hashable]] = {
    "exact message": lambda row: row["message"],
    "three innermost frames": lambda row: tuple(row["top3"]),
    "signature": lambda row: row["signature"]["id"],
}
SORTS = {
    "exceptions": ("exception", "oom", "error-in-eager"),
    "crashes": ("crash",),
    "wrong results": ("wrong-result",),
    "graph breaks, recompiles": ("graph-break", "recompile-limit", "recompile-storm"),
    "hangs, slow compiles": ("hang", "slow-compile", "superlinear-compile"),
}


def pairwise(
    labels: Sequence[Hashable],
    groups: Sequence[Hashable],
    counts: Callable[[int, int], bool] = lambda i, j: True,
) -> tuple[float, float]:
    """Precision and recall over the pairs that count; 1 where there is no pair to be wrong about.
    An empty group is none.
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


def read(file: Path) -> list[Row]:
    """The sightings of a file, each signed by today's rules."""
    rows: list[Row] = [json.loads(line) for line in file.read_text().splitlines()]
    for row in rows:
        signed = evidence.sign(row["evidence"])
        row["signature"] = {"id": signed.id, "title": signed.title}
    return rows


def table(rows: Sequence[Row]) -> list[str]:
    """The table's lines: all pairs, those across versions of torch, and each sort of failure by
    itself.
    """
    parts: list[tuple[str, Sequence[Row], bool]] = [
        ("all", rows, False),
        ("all, pairs across versions of torch", rows, True),
    ]
    parts += [
        (name, [r for r in rows if r["kind"] in kinds], False) for name, kinds in SORTS.items()
    ]
    head = " | ".join(f"{name}: precision, recall" for name in METHODS)
    lines = [f"| sightings | number, bugs | {head} |", "| --- " * (2 + len(METHODS)) + "|"]
    for name, part, is_across in parts:
        labels = [r["label"] for r in part]
        cells = []
        for method in METHODS.values():

            def counts(
                i: int, j: int, part: Sequence[Row] = part, is_across: bool = is_across
            ) -> bool:
                return not is_across or part[i]["torch"] != part[j]["torch"]

            precision, recall = pairwise(labels, [method(r) for r in part], counts)
            cells.append(f"{precision:.3f}, {recall:.3f}")
        lines.append(f"| {name} | {len(part)}, {len(set(labels))} | {' | '.join(cells)} |")
    return lines


def wrong_groups(rows: Sequence[Row]) -> list[str]:
    """Signatures that two bugs share, with what is in them."""
    found = []
    for signed in dict.fromkeys(r["signature"]["id"] for r in rows):
        inside = [r for r in rows if r["signature"]["id"] == signed]
        labels = Counter(r["label"] for r in inside)
        pairs = sum(a * b for a, b in itertools.combinations(labels.values(), 2))
        if pairs:
            told = ", ".join(f"{label} ({n})" for label, n in labels.items())
            found.append(f"{inside[0]['signature']['title']}\n    {pairs} wrong pairs: {told}")
    return found


def split_labels(rows: Sequence[Row]) -> list[str]:
    """Bugs that have several signatures, with where each was seen."""
    found = []
    for label in dict.fromkeys(r["label"] for r in rows):
        titles: dict[str, list[Row]] = {}
        for row in rows:
            if row["label"] == label:
                titles.setdefault(row["signature"]["title"], []).append(row)
        if len(titles) > 1:
            found.append(
                label
                + "".join(
                    f"\n    {len(seen):3} {title}\n        {_where(seen)}"
                    for title, seen in titles.items()
                )
            )
    return found


def _where(seen: Sequence[Row]) -> str:
    versions = Counter(r["torch"] for r in seen)
    ways = Counter(
        " ".join([r["target"].split(":")[-1], r["settings"]["host"], *r["settings"]["options"]])
        for r in seen
    )
    return "; ".join(", ".join(f"{n} {name}" for name, n in c.items()) for c in (versions, ways))


def main() -> None:
    """Print the tables of the files that the command line names."""
    if {"-h", "--help"} & set(sys.argv):
        sys.exit(print(__doc__))
    files = [Path(a) for a in sys.argv[1:]] or [
        Path(__file__).resolve().parent / "data" / "sightings.jsonl"
    ]
    rows = [row for file in files for row in read(file)]
    versions = Counter(r["torch"] for r in rows)
    told = ", ".join(f"{n} with torch {v}" for v, n in versions.items())
    print(f"{len(rows)} sightings ({told}), signed with algorithm {ALGORITHM}\n")
    print("\n".join(table(rows)))
    for head, found in (
        ("Several bugs, one signature", wrong_groups(rows)),
        ("One bug, several signatures", split_labels(rows)),
    ):
        print(f"\n{head}: {len(found)}")
        print("\n".join(f"- {row}" for row in found))


if __name__ == "__main__":
    main()
