"""Measure what redaction and packing cost for each MB of a large TORCH_TRACE.

python -m benchmarks run pack_cost [--megabytes 200] [--beside FOLDER]

A run that trains a compiled encoder is captured once. Its trace is copied until all traces have
``--megabytes``; in each copy, hashes, times and numbers of graph nodes are different, as in the
traces of other ranks. ``redaction`` redacts these texts in one process. ``packing`` is ``reprokit
pack`` of the run directory: redaction, the page of the compiles, compression and the tarball; the
cost of ``reprokit pack`` before the copies were added is subtracted. ``--beside`` names the source
tree of an older reprokit, which does the same work on the same files.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import re
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ...harness import (
    ROOT,
    MeasurementFailed,
    quiet_environ,
    run_child,
    run_reprokit,
    show_progress,
)
from ...measurement import Measurement, add_beside_option, positive_int
from ...results import Column, Row, revision_of

COLUMNS = (
    Column("work", "work"),
    Column("mb", "MB", 0),
    Column("before", "revision before"),
    Column("old_cpu_s_mb", "CPU s for each MB before", 3),
    Column("cpu_s_mb", "CPU s for each MB", 3),
    Column("ratio", "before / now", 1),
    Column("old_peak_mb", "peak memory before, MB", 0),
    Column("peak_mb", "peak memory, MB", 0),
    Column("is_same", "same text"),
)
MOST_COPIED_BYTES = 48_000_000
"""Copies are added to a file until it has this size; a longer trace is cut in the middle."""
PROGRAM = """
import torch
layer = torch.nn.TransformerEncoderLayer(32, 4, 64, dropout=0.0, batch_first=True)
model = torch.compile(torch.nn.TransformerEncoder(layer, 6, enable_nested_tensor=False))
for size in (5, 6):
    model(torch.randn(2, size, 32)).sum().backward()
"""
REDACT = """
import hashlib, json, sys, time
from pathlib import Path
from reprokit.host.system import private_names
redactor = private_names.get_redactor()
digest, cpu_s = hashlib.sha256(), 0.0
for path in sorted(Path(sys.argv[1]).glob("*.log")):
    text = path.read_text(errors="replace")
    began = time.process_time()
    text = redactor.redact_text(text)
    cpu_s += time.process_time() - began
    digest.update(text.encode("utf-8", "replace"))
print(json.dumps({"cpu_s": cpu_s, "digest": digest.hexdigest()}))
"""
_NUMBER = re.compile(r"\b[0-9a-f]{32}\b|(?<=_)\d+\b|(?<=\d\.)\d{6}\b")


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the size of the traces, and the older reprokit."""
    parser.add_argument(
        "--megabytes", type=positive_int, default=200, metavar="N", help="default: 200"
    )
    add_beside_option(parser, "redacts and packs the same files")


def measure_rows(options: argparse.Namespace) -> Iterator[Row]:
    """Yield a row for redaction, and one for packing."""
    trees = {"old_": options.beside, "": ROOT} if options.beside else {"": ROOT}
    with tempfile.TemporaryDirectory(prefix="pack-cost-") as name:
        run_path = _capture(Path(name))
        base_s = {}
        for prefix, tree in trees.items():
            _pack(tree, run_path)  # it compiles the modules of the tree
            base_s[prefix] = _pack(tree, run_path)[0]
        small_mb = _trace_mb(run_path)
        _enlarge(run_path / "trace", options.megabytes * 1_000_000)
        mb = _trace_mb(run_path)
        for work in ("redaction", "packing"):
            row: dict[str, Any] = {"work": work, "mb": round(mb)}
            digests = set()
            for prefix, tree in trees.items():
                if work == "redaction":
                    cpu_s, peak_mb, digest = _redact(tree, run_path)
                    row[f"{prefix}cpu_s_mb"] = round(cpu_s / mb, 4)
                else:
                    cpu_s, peak_mb, digest = _pack(tree, run_path)
                    cost = (cpu_s - base_s[prefix]) / (mb - small_mb)
                    row[f"{prefix}cpu_s_mb"] = round(cost, 4)
                row[f"{prefix}peak_mb"] = round(peak_mb)
                digests.add(digest)
                show_progress(f"{work} {prefix}: {cpu_s:.1f} CPU s, {peak_mb:.0f} MB at its peak")
            if options.beside:
                row["before"] = revision_of(options.beside)
                row["ratio"] = round(row["old_cpu_s_mb"] / row["cpu_s_mb"], 2)
                row["is_same"] = "yes" if len(digests) == 1 else "no"
            yield row


def _capture(folder: Path) -> Path:
    script = folder / "script.py"
    script.write_text(PROGRAM)
    done = run_reprokit(
        *("capture", "--output-dir", folder / "out", "--", sys.executable, script),
        environ=quiet_environ(TORCHINDUCTOR_CACHE_DIR=str(folder / "cache")),
        cwd=folder,
    )
    run_path = Path(done.answer.get("run_dir") or "absent")
    if not list(run_path.glob("trace/*.log")):
        raise MeasurementFailed(f"the capture left no trace: {done.last_error}")
    return run_path


def _trace_mb(run_path: Path) -> float:
    return sum(path.stat().st_size for path in (run_path / "trace").glob("*.log")) / 1e6


def _enlarge(folder: Path, wanted: int) -> None:
    """Write copies of the largest trace, in which hashes, times and numbers are different."""
    text = max((path.read_text() for path in folder.glob("*.log")), key=len)
    have = sum(path.stat().st_size for path in folder.glob("*.log"))
    number = 0

    def changed(match: re.Match[str]) -> str:
        word = match.group()
        if len(word) == 32:
            return hashlib.md5(f"{number}{word}".encode(), usedforsecurity=False).hexdigest()
        return f"{(int(word) + 7919 * number) % 1_000_000:0{len(word)}d}"

    files = 0
    while have < wanted:
        files += 1
        path = folder / f"dedicated_log_torch_trace_rank_{files}_copies.log"
        with path.open("w", encoding="utf-8") as file:
            while file.tell() < MOST_COPIED_BYTES and have + file.tell() < wanted:
                number += 1
                file.write(_NUMBER.sub(changed, text))
        have += path.stat().st_size


def _redact(tree: Path, run_path: Path) -> tuple[float, float, str]:
    """Return the CPU seconds, the peak memory in MB, and the digest of the redacted traces."""
    environ = {**quiet_environ(), "PYTHONPATH": str(tree)}
    command: list[str | Path] = [sys.executable, "-c", REDACT, run_path / "trace"]
    child = run_child(command, environ=environ, cwd=run_path)
    if child.status:
        raise MeasurementFailed(f"redaction failed: {child.last_error}")
    answer = json.loads(child.out)
    return answer["cpu_s"], child.peak_mb, answer["digest"]


def _pack(tree: Path, run_path: Path) -> tuple[float, float, str]:
    """Return the CPU seconds, the peak memory in MB, and a digest of the packed traces."""
    environ = {**quiet_environ(), "PYTHONPATH": str(tree)}
    done = run_reprokit("pack", run_path, environ=environ, cwd=run_path, tree=tree)
    packed = sorted((run_path / "pack" / "trace").glob("*.log*"))
    if not done.answer or not packed:
        raise MeasurementFailed(f"reprokit pack failed: {done.last_error}")
    digest = hashlib.sha256()
    for path in packed:
        digest.update(path.name.encode() + path.read_bytes())
    return done.cpu_s, done.peak_mb, digest.hexdigest()


MEASUREMENT = Measurement(COLUMNS, measure_rows, add_options)
