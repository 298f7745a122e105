"""Measure whether unit tests of known failures fail where the bug is and pass where it is not.

python -m benchmarks run written_tests --fixed-python PYTHON ... [--only ISSUE ...]

The programs are those of the catalogue that fail with the torch of this interpreter and pass with
the torch of a PYTHON. The first such PYTHON counts. All have pytest and expecttest, which PyTorch's
test cases import. Each program is captured, and ``reprokit issue PACK --as-test`` writes the two
tests of its pack. The plain test runs with pytest. The test in PyTorch's style runs as it is, where
its failure is expected, and without the decorator, as with a fix. A test that is skipped, because
the machine cannot show the bug, is not right.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from reprokit.core.triage import known_failures
from reprokit.core.triage.known_failures import KnownFailure
from reprokit.host.catalogue import catalogue_files

from ...harness import MeasurementFailed, quiet_environ, run_reprokit, show_progress
from ...measurement import Measurement, add_only_option
from ...results import Column, Row

COLUMNS = (
    Column("issue", "issue"),
    Column("kind", "kind"),
    Column("lines", "lines of the repro"),
    Column("fixed", "passes with torch"),
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
        nargs="+",
        default=[sys.executable],
        metavar="PYTHON",
        help="interpreters whose torch does not have some of the bugs; default: this one",
    )


def measure_rows(options: argparse.Namespace) -> Iterator[Row]:
    """Yield one row for each known failure that two versions of torch tell apart."""
    bad = _version(sys.executable)
    fixed = {_version(python): python for python in options.fixed_python}
    for entry in catalogue_files.own_catalogue():
        answers = {run.torch: run.answer for run in entry.runs}
        if options.only and entry.issue.rpartition("#")[2] not in options.only:
            continue
        good = [one for one in fixed if answers.get(one) == known_failures.PASSES]
        if answers.get(bad) == known_failures.FAILS and good:
            yield _measure_entry(entry, good[0], fixed[good[0]])


def _version(python: str) -> str:
    done = subprocess.run([python, "-c", VERSION], capture_output=True, text=True, check=False)
    if done.returncode:
        raise MeasurementFailed(f"{python} has no torch")
    return done.stdout.strip()


def _measure_entry(entry: KnownFailure, good: str, fixed_python: str) -> Row:
    row: Row = {"issue": entry.issue.rpartition("/")[2], "kind": entry.kind, "fixed": good}
    with tempfile.TemporaryDirectory(prefix="written-tests-") as path:
        folder = Path(path)
        row["lines"], tests, why = _tests_of(entry, folder)
        if why:
            show_progress(f"{row['issue']}: {why}")
            return {**row, **dict.fromkeys(WANTED, ""), "is_right": f"no test: {why}"}
        plain, marked = tests["pytest"], tests["pytorch"]
        unmarked = marked.with_name(f"unmarked_{marked.name}")
        unmarked.write_text(marked.read_text().replace(DECORATOR, ""))
        pytest = ("-m", "pytest", "-q", "-p", "no:cacheprovider", str(plain))
        row["plain_bug"] = _outcome(sys.executable, pytest)
        row["plain_fixed"] = _outcome(fixed_python, pytest)
        row["expected"] = _outcome(sys.executable, (str(marked),))
        row["torch_bug"] = _outcome(sys.executable, (str(unmarked),))
        row["torch_fixed"] = _outcome(fixed_python, (str(unmarked),))
    is_right = all(row[name] == wanted for name, wanted in WANTED.items())
    show_progress(f"{row['issue']}: {'right' if is_right else row}")
    return {**row, "is_right": "yes" if is_right else "no"}


def _tests_of(entry: KnownFailure, folder: Path) -> tuple[int | None, dict[str, Path], str]:
    """Capture a program, and write the tests of its pack.

    Return the lines of the repro, the file of each style of test, and why there is none.
    """
    (folder / "program.py").write_text(entry.program)
    more = ("--fail-on", "graph-break") if entry.kind == "graph-break" else ()
    out = folder / "out"
    done = run_reprokit(
        "capture",
        *("--output-dir", out, "--compare", "--no-ablate", "--timeout", "60", *more),
        *("--", sys.executable, "program.py"),
        environ=quiet_environ(),
        cwd=folder,
        limit_s=LIMIT_S,
    )
    if not done.answer.get("pack"):
        return None, {}, f"no pack: {done.last_error}"
    words = ("--as-test", "--output-dir", folder / "tests")
    written = run_reprokit("issue", done.answer["pack"], *words, environ=quiet_environ())
    if "tests" not in written.answer:
        return None, {}, written.last_error
    lines = (done.answer.get("minimized") or {}).get("lines")
    tests = {test["style"]: Path(test["path"]) for test in written.answer["tests"]}
    return lines, tests, ""


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
