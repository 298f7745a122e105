"""The families of failures that hunts found, from the folders of the hunts.

python -m benchmarks run hunted --folders FOLDER [FOLDER ...]

Nothing runs: the folders have the outcome of each program, and the captures of what was found.
"""

from __future__ import annotations

import argparse
import collections
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from reprokit.host.hunt import families, outcomes
from reprokit.host.hunt.outcomes import HuntPlan
from reprokit.host.system import files

from ...harness import MeasurementFailed
from ...measurement import Measurement
from ...results import Column, Row

COLUMNS = (
    Column("failure", "failure"),
    Column("captured", "captured"),
    Column("proved", "proved"),
    Column("lines", "lines of the shortest repro"),
    Column("known", "known"),
)
MAX_TITLE_CHARS = 150


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the folders of the hunts."""
    parser.add_argument("--folders", nargs="+", type=Path, default=[], help="folders of hunts")


def measure_rows(options: argparse.Namespace) -> Iterator[Row]:
    """Yield one row for each family, and the counts of programs first."""
    if not options.folders:
        raise MeasurementFailed("name the folders of hunts with --folders")
    documents = [_read_hunt(folder) for folder in options.folders]
    counts: Any = collections.Counter()
    for document in documents:
        counts.update(document["counts"])
    total = sum(document["targets"] for document in documents)
    cpu_s = sum(document["cpu_s"] for document in documents)
    groups = sum(document["groups"] for document in documents)
    shown = ", ".join(f"{count} {kind}" for kind, count in counts.most_common())
    yield {
        "failure": f"all: {total:,} programs, {cpu_s:,.0f} CPU s, {groups} groups ({shown})",
        "captured": sum(len(f["members"]) for d in documents for f in d["families"]),
        "proved": sum(_proved(f["members"]) for d in documents for f in d["families"]),
    }
    merged: dict[str, list[families.Family]] = {}
    for family in (family for document in documents for family in document["families"]):
        merged.setdefault(family["title"], []).append(family)
    for title, parts in merged.items():
        members = [member for part in parts for member in part["members"]]
        lines = [one["repro_lines"] for one in members if one["repro_lines"]]
        is_short = len(title) <= MAX_TITLE_CHARS
        yield {
            "failure": title if is_short else f"{title[: MAX_TITLE_CHARS - 3]}...",
            "captured": len(members),
            "proved": len(lines),
            "lines": min(lines, default=None),
            "known": "yes" if any(part["is_known"] for part in parts) else "no",
        }


def _read_hunt(folder: Path) -> families.HuntDocument:
    plan = files.read_json_object(folder / "hunt.json")
    if not plan:
        raise MeasurementFailed(f"{folder.name} is no folder of a hunt")
    chosen = HuntPlan(tuple(plan["sources"]), plan["seed"], plan["python"])
    with outcomes.open_hunt(folder, chosen, 0.0) as hunt:
        return families.describe_hunt(hunt, False)


def _proved(members: Sequence[families.FamilyMember]) -> int:
    return sum(member["repro_lines"] is not None for member in members)


MEASUREMENT = Measurement(COLUMNS, measure_rows, add_options)
