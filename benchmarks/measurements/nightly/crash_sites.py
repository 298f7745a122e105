"""Measure what a run with sanitizers names of the recorded crashes, and how well that groups them.

python -m benchmarks run crash_sites [--collect] [--python PYTHON] [--sites FILE]

--collect runs the target of each recorded crash in compiled code of the torch of PYTHON, with its
C++ built with sanitizers, and adds what they report to FILE; runs that have a line are not
repeated. Precision and recall are those of pairs of crashes: before, with the signature of the
recorded evidence, and after, with the site too where the run found one.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from reprokit.core.records.crash_sites import CrashSite
from reprokit.core.records.observation import Observation
from reprokit.core.shared.contract.serialize import to_json
from reprokit.host.experiments import sanitized_run
from reprokit.host.request.run_request import Request
from reprokit.host.request.target import parse_target

from ...cases.sighting_cases import CASES
from ...harness import DATA, quiet_environ, run_child, show_progress
from ...measurement import Measurement
from ...results import Column, Row
from ...sighting_evidence import judge_evidence
from .collect_sightings import KNOWN_BUGS, run_key, without_paths
from .grouping import SIGHTINGS, pairwise

SITES = DATA / "crash_sites.jsonl"
FIRST_RUN_S = 30.0
"""The time of the run that failed, which is not recorded: it gives the deadline."""
COLUMNS = (
    Column("bug", "bug"),
    Column("sightings", "sightings"),
    Column("sites", "with a site"),
    Column("operator", "operator"),
    Column("index", "index or expression"),
    Column("buffer", "buffer"),
    Column("line", "user's line"),
    Column("identities", "identities"),
    Column("precision_before", "precision before", 3),
    Column("precision", "precision", 3),
    Column("recall_before", "recall before", 3),
    Column("recall", "recall", 3),
)
Sighting = dict[str, Any]


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the file of sites, and what is collected."""
    parser.add_argument("--collect", action="store_true", help="run what has no line yet")
    parser.add_argument(
        "--python", default=sys.executable, metavar="PYTHON", help="the interpreter with torch"
    )
    parser.add_argument(
        "--sites", type=Path, default=SITES, metavar="FILE", help="default: %(default)s"
    )


def measure_rows(options: argparse.Namespace) -> Iterator[Row]:
    """Collect sites, and yield a row for all crashes, for those with a site, and for each bug."""
    sightings = [json.loads(line) for line in SIGHTINGS.read_text().splitlines()]
    crashes = [s for s in sightings if s["kind"] == "crash"]
    inside = [s for s in crashes if s["evidence"]["verdict"]["phase"] == "kernel-run"]
    found = _read_sites(options.sites)
    if options.collect:
        _collect(inside, options.python, options.sites, found)
    for sighting in inside:
        if site := found.get(_key_of(sighting)):
            sighting["evidence"]["seen"]["crash_site"] = site
    yield _row("all crashes", crashes)
    yield _row("in compiled code", inside)
    with_site = [s for s in inside if "crash_site" in s["evidence"]["seen"]]
    yield _row("in compiled code, with a site", with_site)
    for label in dict.fromkeys(s["label"] for s in inside):
        yield _row(label, [s for s in inside if s["label"] == label])


def _key_of(sighting: Sighting) -> str:
    return run_key(sighting["target"], sighting["settings"], sighting["torch"])


def _read_sites(path: Path) -> dict[str, Any]:
    """Return the site of each run that has a line; None where the run found none."""
    lines = path.read_text().splitlines() if path.exists() else []
    return {_key_of(row): row["site"] for row in map(json.loads, lines)}


def _row(title: str, sightings: Sequence[Sighting]) -> Row:
    labels = [s["label"] for s in sightings]
    signed = [judge_evidence(s["evidence"])[2].parts for s in sightings]
    sites = [s["evidence"]["seen"].get("crash_site") or {} for s in sightings]
    before = pairwise(labels, [parts.title_without_site for parts in signed])
    after = pairwise(labels, [parts.title for parts in signed])
    return {
        "bug": title,
        "sightings": len(sightings),
        "sites": sum(bool(site) for site in sites),
        "operator": sum(bool(site.get("operator")) for site in sites),
        "index": sum(bool(site.get("index") or site.get("code")) for site in sites),
        "buffer": sum(bool(site.get("buffer")) for site in sites),
        "line": sum(bool(site.get("line")) for site in sites),
        "identities": len({parts.title for parts in signed}),
        "precision_before": round(before[0], 3),
        "precision": round(after[0], 3),
        "recall_before": round(before[1], 3),
        "recall": round(after[1], 3),
    }


def _collect(crashes: Sequence[Sighting], python: str, path: Path, found: dict[str, Any]) -> None:
    torch = run_child([python, "-c", "import torch; print(torch.__version__)"]).out.strip()
    for sighting in crashes:
        if sighting["torch"] != torch or _key_of(sighting) in found:
            continue
        site = _run(sighting, python)
        is_site = isinstance(site, CrashSite)
        row = {
            **{name: sighting[name] for name in ("label", "target", "settings", "torch")},
            "site": without_paths(to_json(site)) if is_site else None,
            "why": "" if is_site else without_paths(site),
        }
        found[_key_of(row)] = row["site"]
        with path.open("a") as lines:
            lines.write(json.dumps(row, sort_keys=True) + "\n")
        show_progress(f"{row['label']}, {row['settings']}: {row['site'] or row['why']}")


def _run(sighting: Sighting, python: str) -> CrashSite | str:
    """Run the target of a sighting with sanitizers."""
    factory = sighting["target"].rpartition(":")[2]
    case = CASES[factory]
    options, settings = sighting["settings"]["options"], sighting["settings"]
    compile: dict[str, Any] = {"dynamic": True} if "--dynamic" in options else {}
    if "--mode" in options:
        compile["mode"] = options[options.index("--mode") + 1]
    request = Request(
        parse_target(f"{KNOWN_BUGS}/crashing.py:{factory}"),
        python=python,
        knobs={"size": settings["size"], "host": settings["host"]},
        compile=compile,
    )
    environ = quiet_environ({"BUG": case.bug} if case.bug else None)
    with tempfile.TemporaryDirectory() as folder, _environment(environ):
        return sanitized_run.run_target(
            request, Observation(seconds=FIRST_RUN_S), Path(folder), None
        )


@contextlib.contextmanager
def _environment(environ: dict[str, str]) -> Iterator[None]:
    before = dict(os.environ)
    os.environ.clear()
    os.environ.update(environ)
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


MEASUREMENT = Measurement(COLUMNS, measure_rows, add_options)
