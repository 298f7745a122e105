"""Check what the drafts of issues state, by a route that does not use the code that stated it.

python -m benchmarks run claims [--only NUMBER ...] [--runs FOLDER ...]
                               [--at-once N]

Each program of the catalogue is captured as a command; with --runs, the run directories in a folder
are taken as they are. Every statement of ``issue/claims.json`` is checked in fresh processes that
do not import reprokit: the program and the repro run with Python alone, with a different backend,
setting or environment, py-spy reads the stack of a hang, and the settings are compared with those
of a fresh torch. A statement that no check fits is counted as unchecked, and shown.
"""

from __future__ import annotations

import argparse
import functools
import json
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from reprokit.core.triage.known_failures import KnownFailure
from reprokit.host.catalogue import catalogue_files

from ...claim_checks import CHECKS, FALSE, TRUE, UNCHECKED
from ...claim_runs import DraftedIssue
from ...harness import quiet_environ, run_reprokit, show_progress
from ...measurement import Measurement, add_only_option
from ...results import Column, Row

COLUMNS = (
    Column("failure", "failure"),
    Column("kind", "kind"),
    Column("claims", "claims"),
    Column("true", "true"),
    Column("false", "false"),
    Column("unchecked", "unchecked"),
)
LIMIT_S = 900.0


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the choice of issues, and folders with run directories."""
    entries = catalogue_files.own_catalogue()
    add_only_option(parser, [entry.issue.rpartition("#")[2] for entry in entries], "issue")
    parser.add_argument(
        "--runs",
        type=Path,
        nargs="+",
        default=[],
        metavar="FOLDER",
        help="check the run directories in these folders instead of capturing programs",
    )
    parser.add_argument("--at-once", type=int, default=1, help="failures at once; default: 1")


def measure_rows(options: argparse.Namespace) -> Iterator[Row]:
    """Yield a row for each failure."""
    with tempfile.TemporaryDirectory(prefix="claims-") as folder:
        cases = (
            [functools.partial(_measure_run, path, Path(folder)) for path in _runs_in(options.runs)]
            if options.runs
            else list(_entries(options, Path(folder)))
        )
        with ThreadPoolExecutor(options.at_once) as pool:
            yield from filter(None, pool.map(lambda case: case(), cases))


def _runs_in(folders: Sequence[Path]) -> list[Path]:
    found = (path for folder in folders for path in folder.rglob("pack/issue/claims.json"))
    return sorted(path.parents[2] for path in found)


def _entries(options: argparse.Namespace, folder: Path) -> Iterator[Callable[[], Row | None]]:
    for entry in catalogue_files.own_catalogue():
        number = entry.issue.rpartition("#")[2]
        if entry.program and not entry.gpu and (not options.only or number in options.only):
            yield functools.partial(_measure_entry, entry, folder / number)


def _measure_run(run_dir: Path, cache: Path) -> Row | None:
    """Check the claims of one run directory, whose target is beside its output folder."""
    own = Path(tempfile.mkdtemp(prefix="claims-", dir=cache))
    (own / "inductor").symlink_to(cache / "inductor")
    (cache / "inductor").mkdir(exist_ok=True)
    drafted = DraftedIssue("/".join(run_dir.parts[-3:-1]), run_dir, run_dir.parents[1], None, own)
    return check_claims(drafted)


def _measure_entry(entry: KnownFailure, folder: Path) -> Row | None:
    folder.mkdir()
    (folder / "program.py").write_text(entry.program)
    more = ("--graph-breaks", "0") if entry.kind == "graph-break" else ()
    done = run_reprokit(
        "capture",
        *("--output-dir", folder / "out", "--budget", "60", "--timeout", "60", *more),
        *("--", sys.executable, "program.py"),
        environ=quiet_environ(),
        cwd=folder,
        limit_s=LIMIT_S,
    )
    if not done.answer.get("issue"):
        show_progress(f"{entry.issue}: no issue: {done.kind} {done.last_error}")
        return None
    cache = folder / "cache"
    cache.mkdir()
    inductor = folder.parent / "inductor"
    inductor.mkdir(exist_ok=True)
    (cache / "inductor").symlink_to(inductor)
    run_dir = Path(done.answer["run_dir"])
    return check_claims(DraftedIssue(entry.issue, run_dir, folder, entry, cache))


def check_claims(drafted: DraftedIssue) -> Row:
    """Check each statement of an issue, and return how many are true."""
    claims = json.loads((drafted.run_dir / "pack" / "issue" / "claims.json").read_text())
    answers: list[str] = []
    for claim in claims:
        results = [
            (check, CHECKS[check["how"]](drafted, claim, check)) for check in claim["checks"]
        ]
        for check, answer in results or [({"how": "none"}, UNCHECKED)]:
            answers.append(answer)
            if answer != TRUE:
                what = {k: v for k, v in check.items() if k != "words" or check["how"] == "output"}
                show_progress(f"{drafted.name}: {answer}: {claim['text'][:160]} {what}"[:420])
    return {
        "failure": drafted.name,
        "kind": drafted.verdict["kind"],
        "claims": len(answers),
        **{answer: answers.count(answer) for answer in (TRUE, FALSE, UNCHECKED)},
    }


def summarise_rows(rows: Sequence[Row]) -> list[str]:
    """Return the sums."""
    names = ("claims", FALSE, UNCHECKED)
    total = {name: sum(int(row[name] or 0) for row in rows) for name in names}
    return [
        f"Of {total['claims']} checks of statements about {len(rows)} failures, {total[FALSE]} are"
        f" false and {total[UNCHECKED]} could not be made."
    ]


MEASUREMENT = Measurement(COLUMNS, measure_rows, add_options, summarise_rows)
