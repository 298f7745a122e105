"""Check what a capture states, by a route that does not use the code that stated it.

python -m benchmarks run claims [--only NUMBER ...] [--scrub] [--attach KIND ...]
                               [--runs FOLDER ...] [--at-once N]

Each program of the catalogue is captured as a command; with --scrub, it is the program of an issue.
With --attach, reprokit attaches to hangs of ``tests/hangs/kinds.py``. With --runs, the run
directories in a folder are taken as they are, such as those that ``programs --keep`` leaves. Every
statement of ``issue/claims.json``, of the comment of a scrubbed issue, of the summary that the
capture printed (``terminal.txt`` beside the output folder) and of ``report.html`` is checked in
fresh processes that do not import reprokit: the program and the repro run with Python alone, with a
different backend, setting or environment, py-spy reads the stack of a hang, and the settings are
compared with those of a fresh torch. A statement that no check fits is counted as unchecked, and
shown.
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
from tests.hangs.kinds import EXPECTED

from ...cases.program_cases import PLACE
from ...claim_checks import FALSE, TRUE, UNCHECKED
from ...claim_runs import DraftedIssue, ForkServer
from ...hang_captures import hanging_process
from ...harness import REPROKIT, quiet_environ, run_child, show_progress
from ...measurement import Measurement, add_only_option
from ...printed_checks import PRINTED_CHECKS
from ...printed_claims import Statement, read_statements
from ...record_checks import CHECKS
from ...results import Column, Row

COLUMNS = (
    Column("failure", "failure"),
    Column("kind", "kind"),
    Column("claims", "claims"),
    Column("true", "true"),
    Column("false", "false"),
    Column("unchecked", "unchecked"),
    Column("printed", "printed and in the page"),
    Column("printed_false", "false"),
    Column("printed_unchecked", "unchecked"),
)
LIMIT_S = 900.0
WARM_UP_S, ATTACH_OPTIONS = 20.0, ("--stall", "10", "--output-dir", "out")
"""CPU seconds after which a program hangs that uses the CPU, and how reprokit attaches to it."""
CLAIMS, COMMENT, TERMINAL = "pack/issue/claims.json", "scrub.json", "terminal.txt"


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the choice of issues, and folders with run directories."""
    entries = catalogue_files.own_catalogue()
    add_only_option(parser, [entry.issue.rpartition("#")[2] for entry in entries], "issue")
    parser.add_argument(
        "--scrub", action="store_true", help="the programs are those of issues that are scrubbed"
    )
    parser.add_argument(
        "--attach",
        nargs="+",
        choices=[kind for kind, (causes, _) in EXPECTED.items() if causes],
        default=[],
        metavar="KIND",
        help="attach to these kinds of hangs instead of capturing programs",
    )
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
    with tempfile.TemporaryDirectory(prefix="claims-") as name:
        folder = Path(name)
        server = ForkServer(folder)
        cases: list[Callable[[], Row | None]]
        if options.runs or options.attach:
            cases = [
                functools.partial(_measure_run, path, folder, server)
                for path in _runs_in(options.runs)
            ]
            cases += [
                functools.partial(_measure_attached, kind, folder / kind, server)
                for kind in options.attach
            ]
        else:
            cases = list(_entries(options, folder, server))
        with ThreadPoolExecutor(options.at_once) as pool:
            yield from filter(None, pool.map(lambda case: case(), cases))
        server.close()


def _runs_in(folders: Sequence[Path]) -> list[Path]:
    """Return the run directories that state something: those with an issue or with a comment."""
    found = {path.parents[2] for folder in folders for path in folder.rglob(CLAIMS)}
    for comment in (path for folder in folders for path in folder.rglob(COMMENT)):
        found |= {*comment.parent.glob("program-1/0-1/run-*")}
    return sorted(found)


def _entries(
    options: argparse.Namespace, folder: Path, server: ForkServer
) -> Iterator[Callable[[], Row | None]]:
    for entry in catalogue_files.own_catalogue():
        number = entry.issue.rpartition("#")[2]
        if entry.program and not entry.gpu and (not options.only or number in options.only):
            measure = _measure_scrubbed if options.scrub else _measure_entry
            yield functools.partial(measure, entry, folder / number, server)


def _measure_run(run_dir: Path, cache: Path, server: ForkServer) -> Row | None:
    """Check the claims of one run directory, whose target is beside its output folder."""
    own = Path(tempfile.mkdtemp(prefix="claims-", dir=cache))
    (own / "inductor").symlink_to(cache / "inductor")
    (cache / "inductor").mkdir(exist_ok=True)
    folder = _folder_of_target(run_dir.parents[1])
    program = folder / "program.py"
    text = program.read_text() if program.exists() else ""
    entries = (entry for entry in catalogue_files.own_catalogue() if entry.program == text)
    is_scrubbed = (run_dir.parents[2] / COMMENT).exists()
    name = run_dir.parts[-6 if is_scrubbed else -3]
    drafted = DraftedIssue(name, run_dir, folder, next(entries, None), own, server)
    return check_claims(drafted)


def _folder_of_target(beside: Path) -> Path:
    """Return the folder of a target; the measurement ``programs`` keeps it below two more."""
    inner = beside / PLACE / beside.name
    return inner if inner.is_dir() else beside


def _measure_entry(entry: KnownFailure, folder: Path, server: ForkServer) -> Row | None:
    folder.mkdir()
    (folder / "program.py").write_text(entry.program)
    more = ("--fail-on", "graph-break") if entry.kind == "graph-break" else ()
    done = run_child(
        (
            *(*REPROKIT, "capture", "--output-dir", folder / "out", "--budget", "60"),
            *("--timeout", "60", *more, "--", sys.executable, "program.py"),
        ),
        environ=quiet_environ(),
        cwd=folder,
        limit_s=LIMIT_S,
    )
    (folder / TERMINAL).write_text(done.out)
    run_dir = folder / "out" / "run-001"
    if not (run_dir / CLAIMS).exists():
        show_progress(f"{entry.issue}: no issue: {done.last_error}")
        return None
    cache = folder / "cache"
    cache.mkdir()
    inductor = folder.parent / "inductor"
    inductor.mkdir(exist_ok=True)
    (cache / "inductor").symlink_to(inductor)
    return check_claims(DraftedIssue(entry.issue, run_dir, folder, entry, cache, server))


def _measure_scrubbed(entry: KnownFailure, folder: Path, server: ForkServer) -> Row | None:
    """Scrub an issue that has the title and the program of an entry."""
    folder.mkdir()
    text = f"# {entry.title}\n\n```python\n{entry.program}\n```\n"
    (folder / "issue.md").write_text(text)
    command = (*REPROKIT, "scrub", "issue.md", "--yes", "--output-dir", "out")
    done = run_child(command, environ=quiet_environ(), cwd=folder, limit_s=2 * LIMIT_S)
    runs = _runs_in([folder])
    if not runs:
        show_progress(f"{entry.issue}: no answer: {done.last_error}")
        return None
    return _measure_run(runs[0], folder.parent, server)


def _measure_attached(kind: str, folder: Path, server: ForkServer) -> Row | None:
    """Attach to a process that hangs, and check what is stated by the stacks of a different one."""
    folder.mkdir()
    with hanging_process(kind, str(folder), WARM_UP_S) as process:
        command = (*REPROKIT, "attach", str(process.pid), "--native", *ATTACH_OPTIONS)
        done = run_child(command, environ=quiet_environ(), cwd=folder, limit_s=LIMIT_S)
    (folder / TERMINAL).write_text(done.out)
    runs = _runs_in([folder])
    if not runs:
        show_progress(f"{kind}: it is not called a hang: {done.last_error or done.out}")
        return None
    return _measure_run(runs[0], folder.parent, server)


def check_claims(drafted: DraftedIssue) -> Row:
    """Check each statement of an issue, of a comment of scrub, of the summary and of the page."""
    issue, comment = drafted.run_dir / CLAIMS, drafted.run_dir.parents[2] / COMMENT
    claims = json.loads(issue.read_text()) if issue.exists() else []
    answers = _answers(drafted, "issue", claims)
    if comment.exists():
        rows = json.loads(comment.read_text())["claims"]
        facts = [row for row in rows if not row["text"].startswith("Drafted with ")]
        answers += _answers(drafted, "comment", facts)
    terminal = drafted.folder / TERMINAL
    text = terminal.read_text() if terminal.exists() else ""
    printed = [
        answer
        for surface, rows in read_statements(text, drafted.run_dir).items()
        for answer in _answers(drafted, surface, [row for row in rows if _is_fact(row)])
    ]
    return {
        "failure": drafted.name,
        "kind": drafted.verdict["kind"],
        "claims": len(answers),
        **{answer: answers.count(answer) for answer in (TRUE, FALSE, UNCHECKED)},
        "printed": len(printed),
        "printed_false": printed.count(FALSE),
        "printed_unchecked": printed.count(UNCHECKED),
    }


def _is_fact(row: Statement) -> bool:
    return bool(row["checks"]) or not row["is_structure"]


def _answers(drafted: DraftedIssue, surface: str, claims: Sequence[Statement]) -> list[str]:
    answers: list[str] = []
    for claim in claims:
        for check in claim["checks"] or [{"how": "none"}]:
            checker = {**CHECKS, **PRINTED_CHECKS}.get(check["how"])
            answer = checker(drafted, claim, check) if checker else UNCHECKED
            answers.append(answer)
            if answer != TRUE:
                what = {k: v for k, v in check.items() if k != "words" or check["how"] == "output"}
                text = f"{drafted.name}: {surface}: {answer}: {claim['text'][:160]} {what}"
                show_progress(text[:420])
    return answers


def summarise_rows(rows: Sequence[Row]) -> list[str]:
    """Return the sums."""
    names = ("claims", FALSE, UNCHECKED, "printed", "printed_false", "printed_unchecked")
    total = {name: sum(int(row[name] or 0) for row in rows) for name in names}
    return [
        f"Of {total['claims']} checks of statements about {len(rows)} failures, {total[FALSE]} are"
        f" false and {total[UNCHECKED]} could not be made. Of {total['printed']} of the printed"
        f" summaries and the pages, {total['printed_false']} are false and"
        f" {total['printed_unchecked']} could not be made."
    ]


MEASUREMENT = Measurement(COLUMNS, measure_rows, add_options, summarise_rows)
