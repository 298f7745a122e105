"""Measure whether unit tests of known failures fail where the bug is and pass where it is not.

python -m benchmarks run written_tests --fixed-python PYTHON [--only ISSUE ...]

The programs are those of the catalogue that fail with the torch of this interpreter and pass with
that of PYTHON. Both have pytest and expecttest, which PyTorch's test cases import. Each program
becomes the two tests that ``reprokit issue --as-test`` writes. The plain test runs with pytest. The
test in PyTorch's style runs as it is, where its failure is expected, and without the decorator, as
with a fix. A test that is skipped, because the machine cannot show the bug, is not right.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from reprokit.core.records.finding import identity_of_title
from reprokit.core.triage import known_failures, unit_tests
from reprokit.core.triage.known_failures import KnownFailure, ProvedRun
from reprokit.host.catalogue import catalogue_files

from ...harness import MeasurementFailed, quiet_environ, show_progress
from ...measurement import Measurement, add_only_option
from ...results import Column, Row

COLUMNS = (
    Column("issue", "issue"),
    Column("kind", "kind"),
    Column("plain_bug", "pytest, bug"),
    Column("plain_fixed", "pytest, fixed"),
    Column("expected", "PyTorch, bug expected"),
    Column("torch_bug", "PyTorch, bug"),
    Column("torch_fixed", "PyTorch, fixed"),
    Column("is_right", "right"),
)
WANTED = {
    "plain_bug": "fails",
    "plain_fixed": "passes",
    "expected": "passes",
    "torch_bug": "fails",
    "torch_fixed": "passes",
}
LIMIT_S = 600.0
DECORATOR = "    @unittest.expectedFailure  # delete this line with the fix\n"
VERSION = "import torch; print(torch.__version__.partition('+')[0])"


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the interpreter with the fixed torch, and the choice of issues."""
    entries = catalogue_files.own_catalogue()
    add_only_option(parser, [entry.issue.rpartition("#")[2] for entry in entries], "issue")
    parser.add_argument(
        "--fixed-python",
        default=sys.executable,
        metavar="PYTHON",
        help="an interpreter whose torch does not have the bugs; default: this one",
    )


def measure_rows(options: argparse.Namespace) -> Iterator[Row]:
    """Yield one row for each known failure that the two versions of torch tell apart."""
    bad, good = (_version(python) for python in (sys.executable, options.fixed_python))
    for entry in catalogue_files.own_catalogue():
        failing = _run_with(entry, bad)
        fixed = _run_with(entry, good)
        number = entry.issue.rpartition("#")[2]
        if options.only and number not in options.only:
            continue
        if not (failing and failing.answer == known_failures.FAILS):
            continue
        if fixed and fixed.answer == known_failures.PASSES:
            yield _measure_entry(entry, failing, options.fixed_python)


def _version(python: str) -> str:
    done = subprocess.run([python, "-c", VERSION], capture_output=True, text=True, check=False)
    if done.returncode:
        raise MeasurementFailed(f"{python} has no torch")
    return done.stdout.strip()


def _run_with(entry: KnownFailure, torch: str) -> ProvedRun | None:
    return next((run for run in entry.runs if run.torch == torch), None)


def _measure_entry(entry: KnownFailure, failing: ProvedRun, fixed_python: str) -> Row:
    row: Row = {"issue": entry.issue.rpartition("/")[2], "kind": entry.kind}
    try:
        in_torch, plain = unit_tests.unit_tests(
            entry.program, identity_of_title(failing.title), entry.url
        )
    except ValueError as problem:
        return {**row, **dict.fromkeys(WANTED, ""), "is_right": f"no test: {problem}"}
    with tempfile.TemporaryDirectory(prefix="written-tests-") as folder:
        own = Path(folder, plain.file)
        own.write_text(plain.text)
        marked = Path(folder, in_torch.file)
        marked.write_text(in_torch.text)
        unmarked = Path(folder, f"unmarked_{in_torch.file}")
        unmarked.write_text(in_torch.text.replace(DECORATOR, ""))
        pytest = ("-m", "pytest", "-q", "-p", "no:cacheprovider", str(own))
        row["plain_bug"] = _outcome(sys.executable, pytest)
        row["plain_fixed"] = _outcome(fixed_python, pytest)
        row["expected"] = _outcome(sys.executable, (str(marked),))
        row["torch_bug"] = _outcome(sys.executable, (str(unmarked),))
        row["torch_fixed"] = _outcome(fixed_python, (str(unmarked),))
    is_right = all(row[name] == wanted for name, wanted in WANTED.items())
    show_progress(f"{row['issue']}: {'right' if is_right else row}")
    return {**row, "is_right": "yes" if is_right else "no"}


def _outcome(python: str, words: Sequence[str]) -> str:
    """Return how a test ended: ``passes``, ``fails``, ``skipped`` or ``no end``."""
    with tempfile.TemporaryDirectory(prefix="written-cache-") as cache:
        try:
            done = subprocess.run(
                [python, *words],
                capture_output=True,
                text=True,
                env=quiet_environ(TORCHINDUCTOR_CACHE_DIR=cache),
                timeout=LIMIT_S,
                check=False,
            )
        except subprocess.TimeoutExpired:
            return "no end"
    output = done.stdout + done.stderr
    if done.returncode == 0:
        return "skipped" if "skipped" in output else "passes"
    is_test = "Ran 1 test" in output or "1 failed" in output
    return "fails" if is_test else f"exit code {done.returncode}"


def summarise_rows(rows: Sequence[Row]) -> list[str]:
    """Return how many programs have two right tests."""
    right = sum(row["is_right"] == "yes" for row in rows)
    return [f"Both tests are right for {right} of {len(rows)} known failures."]


MEASUREMENT = Measurement(COLUMNS, measure_rows, add_options, summarise_rows)
