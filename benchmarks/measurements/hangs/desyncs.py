"""Measure whether merge names the rank that differs, beside torch's torchfrtrace.

python -m benchmarks run desyncs [--only KIND ...] [--seconds 8]

Each case runs real gloo ranks, forked from one process, of which one differs
(benchmarks/cases/desync_cases.py). After some seconds each rank that lives writes the dump of its
flight recorder. A rank that fails leaves what torchrun prints of it. Both tools read the same
dumps, and only merge reads the output of torchrun. torchfrtrace of torch 2.13 raises KeyError for the
dumps of gloo, so it gets a copy with the group and the states that NCCL would write.
"""

from __future__ import annotations

import argparse
import collections
import json
import pickle
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from ...cases.desync_cases import CASES, KINDS, odd_rank
from ...harness import quiet_environ, show_progress
from ...measurement import Measurement, add_only_option, positive_seconds
from ...results import Column, Row

COLUMNS = (
    Column("kind", "one rank"),
    Column("sizes", "ranks"),
    Column("merge", "merge names it"),
    Column("torchfrtrace", "torchfrtrace names it"),
)
ROOT = Path(__file__).parents[3]


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the choice of kinds, and the seconds before the dumps."""
    add_only_option(parser, list(KINDS), "kind")
    parser.add_argument(
        "--seconds",
        type=positive_seconds,
        default=8.0,
        metavar="SECONDS",
        help="default: 8; before the dumps, and longer for 16 and more ranks",
    )


def record_dumps(kind: str, size: int, seconds: float) -> Path:
    """Run one case, and return the folder of its dumps."""
    folder = Path(tempfile.mkdtemp(prefix="reprokit-desync-"))
    words = [kind, str(size), str(folder), str(seconds * (1 if size < 16 else 1 + size / 8))]
    subprocess.run(
        [sys.executable, "-m", "benchmarks.cases.desync_cases", *words],
        cwd=ROOT,
        env=quiet_environ(),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        check=False,
        timeout=600,
    )
    return folder


def ranks_of_merge(folder: Path) -> set[int]:
    """Return the odd ranks that ``reprokit merge`` names."""
    done = subprocess.run(
        [sys.executable, "-m", "reprokit", "merge", "--json", str(folder)],
        cwd=ROOT,
        env=quiet_environ(),
        capture_output=True,
        text=True,
        check=False,
    )
    document = json.loads(done.stdout)
    return set(document.get("odd", ())) if document.get("is_sure") else set()


def ranks_of_torchfrtrace(folder: Path) -> set[int]:
    """Return the ranks that torchfrtrace names as culprits or as missing."""
    copy = Path(tempfile.mkdtemp(prefix="reprokit-desync-"))
    for path in folder.glob("rank_*"):
        dump = pickle.loads(path.read_bytes())
        ranks = dump["pg_config"][""]["ranks"]
        dump["pg_config"] = {"0": {"name": "0", "desc": "default_pg", "ranks": ranks}}
        for entry in dump["entries"]:
            entry["state"] = "completed" if entry["retired"] else "scheduled"
        (copy / path.name).write_bytes(pickle.dumps(dump))
    module = "torch.distributed.flight_recorder.fr_trace"
    done = subprocess.run(
        [sys.executable, "-m", module, str(copy), "-p", "rank_", "--allow-incomplete-ranks"],
        cwd=copy,
        capture_output=True,
        text=True,
        check=False,
    )
    shutil.rmtree(copy)
    text = done.stdout + done.stderr
    found = {int(number) for number in re.findall(r"Culprit rank (\d+)", text)}
    for row in re.findall(r"(?:missing ranks: |not joining.*?)\{([\d, ]+)\}", text):
        found |= {int(number) for number in re.findall(r"\d+", row)}
    return found


def measure_rows(options: argparse.Namespace) -> Iterator[Row]:
    """Yield one row for each kind."""
    for kind in options.only:
        sizes = [size for name, size in CASES if name == kind]
        right: collections.Counter[str] = collections.Counter()
        for size in sizes:
            folder = record_dumps(kind, size, options.seconds)
            odd = {odd_rank(kind, size)}
            ours, theirs = ranks_of_merge(folder), ranks_of_torchfrtrace(folder)
            right["merge"] += ours == odd
            right["torchfrtrace"] += theirs == odd
            show_progress(
                f"{kind} of {size} ranks, {len(list(folder.glob('rank_*')))} dumps, odd {odd}:"
                f" merge {ours or 'none'}, torchfrtrace {theirs or 'none'}"
            )
            if ours == odd:
                shutil.rmtree(folder)
        yield {
            "kind": kind,
            "sizes": ", ".join(map(str, sorted(sizes))),
            "merge": f"{right['merge']} of {len(sizes)}",
            "torchfrtrace": f"{right['torchfrtrace']} of {len(sizes)}",
        }


MEASUREMENT = Measurement(COLUMNS, measure_rows, add_options)
