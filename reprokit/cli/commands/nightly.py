"""``reprokit nightly``: run a suite every night, and report what is new."""

from __future__ import annotations

import shlex
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from reprokit.cli.shared import open_ledger, out, print_night, terminal
from reprokit.cli.shared import options as shared
from reprokit.cli.shared.command_classes import CommandGroup
from reprokit.core.judge.stacks.location import plural
from reprokit.core.shared.errors import BadInput

OUTPUT_DIR = shared.option(
    "--output-dir",
    type=click.Path(path_type=Path),
    default=Path("reprokit-nightly"),
    show_default=True,
    help="Folder for runs, packs and reports.",
)
LEDGER = shared.option(
    "--ledger",
    "ledger_path",
    type=click.Path(path_type=Path),
    help="The ledger; default ledger.sqlite in --output-dir.",
)
WHY = shared.option("--why", default="", help="The reason, for the history of the bug.")


@click.group(
    cls=CommandGroup,
    epilog=(
        "Exit codes of run and report: 0 nothing new, 1 a new or regressed bug, 2 wrong usage, 3"
        " the nightly run itself failed, 130 interrupted."
    ),
)
def nightly() -> None:
    """Run a suite every night, and report which bugs are new, which are back and which are fixed.

    \b
    Examples:
      reprokit nightly init suite.toml
      reprokit nightly run suite.toml
      reprokit nightly report --json
    """


@nightly.command()
@click.argument("suite", type=click.Path(path_type=Path), default=Path("suite.toml"))
@shared.JSON
def init(suite: Path, as_json: bool) -> None:
    """Write an example suite.

    \b
    Example: reprokit nightly init suite.toml
    """
    from reprokit.host.nightly.suite import suite_file
    from reprokit.host.system import files

    if suite.exists():
        raise BadInput(f"{suite} exists already; name another file")
    try:
        files.write_atomically(suite, suite_file.example_suite())
    except OSError as problem:
        raise BadInput(f"cannot write {suite}: {problem.strerror}") from problem
    if as_json:
        out.RESULTS.print_json({"schema": 1, "suite": str(suite)})
    else:
        command = shlex.join(["reprokit", "nightly", "run", str(suite)])
        out.RESULTS.print_line(f"wrote {suite}; edit it, then run: {command}")


@nightly.command()
@click.argument("suite", type=click.Path(path_type=Path))
@OUTPUT_DIR
@LEDGER
@shared.option("--tag", "tags", multiple=True, help="Only targets with this tag; may be repeated.")
@shared.option(
    "--only",
    multiple=True,
    metavar="PATTERN",
    help="Only targets whose name matches this pattern, such as 'hf:*'.",
)
@shared.option(
    "--cores",
    type=shared.at_least(1),
    help="Use at most this many cores of this machine; default: all.",
)
@shared.option(
    "--engine",
    type=click.Choice(["local", "slurm"]),
    default="local",
    show_default=True,
    help="Run on this machine, or as jobs of a Slurm cluster that shares --output-dir.",
)
@shared.JSON
@click.pass_context
def run(
    ctx: click.Context,
    suite: Path,
    output_dir: Path,
    ledger_path: Path | None,
    tags: tuple[str, ...],
    only: tuple[str, ...],
    cores: int | None,
    engine: str,
    as_json: bool,
) -> None:
    """Run a suite, add the results to the ledger, and report. An interrupted run continues.

    \b
    Examples:
      reprokit nightly run suite.toml
      reprokit nightly run suite.toml --tag quick --cores 4
      reprokit nightly run suite.toml --engine slurm --output-dir /shared/nightly
    """
    from reprokit.host.nightly import night_runner
    from reprokit.host.nightly.suite import suite_file
    from reprokit.host.system import interrupts

    suite_spec = suite_file.read_suite(suite)
    cells = suite_spec.choose_cells(tags, only)
    with terminal.LiveStatus(is_quiet=as_json) as live, interrupts.deferred():
        try:
            folder, show = output_dir.resolve(), _status_callback(live)
            document = night_runner.run_night(
                suite_spec, cells, folder, ledger_path, engine, cores, live.show_message, show
            )
        except night_runner.NightFailed as problem:
            out.print_line(str(problem))
            if as_json:
                from reprokit.cli.documents.error_documents import error_document

                failed = error_document("nightly-run-failed", str(problem))
                out.RESULTS.print_json({**failed, "exit_code": 3, "problem": str(problem)})
            ctx.exit(3)
    if as_json:
        out.RESULTS.print_json(document)
    else:
        print_night.print_night(document, output_dir)
    ctx.exit(130 if document["is_interrupted"] else document["exit_code"])


@nightly.command()
@OUTPUT_DIR
@LEDGER
@shared.option(
    "--junit",
    "junit_path",
    section=shared.OUTPUT_SECTION,
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="Also write the nightly run as JUnit XML: one test case for each cell.",
)
@shared.JSON
@click.pass_context
def report(
    ctx: click.Context,
    output_dir: Path,
    ledger_path: Path | None,
    junit_path: Path | None,
    as_json: bool,
) -> None:
    """Report the last nightly run: here, and as digest.md and report.html in --output-dir.

    \b
    Examples:
      reprokit nightly report
      reprokit nightly report --junit nightly.xml
    """
    from reprokit.host.nightly import night_junit, night_report, night_report_files

    with open_ledger.open_for_command(output_dir, ledger_path, prints_refused=True) as store:
        document = night_report.make_report(store, None, output_dir.resolve())
        if junit_path is not None:
            night_junit.write_junit(store, junit_path)
    if as_json:
        out.RESULTS.print_json(document)
    else:
        try:
            night_report_files.write_report(document, output_dir)
        except OSError as problem:
            raise BadInput(
                f"cannot write the report in {output_dir}: {problem.strerror}"
            ) from problem
        print_night.print_night(document, output_dir)
    ctx.exit(document["exit_code"])


@nightly.command()
@click.argument("bug")
@click.argument("others", nargs=-1, required=True)
@OUTPUT_DIR
@LEDGER
@WHY
@shared.JSON
def merge(
    bug: str,
    others: tuple[str, ...],
    output_dir: Path,
    ledger_path: Path | None,
    why: str,
    as_json: bool,
) -> None:
    """Merge OTHERS into BUG: their signatures become aliases of BUG.

    \b
    Example: reprokit nightly merge 12 15 --why "both are the missing buffer"
    """
    from reprokit.host.nightly.ledger import bugs

    with open_ledger.open_for_command(output_dir, ledger_path) as store:
        into = bugs.find_bug(store, bug)
        names = [bugs.find_bug(store, other) for other in others]
        bugs.merge_bugs(store, into, names, why)
    merged = " and ".join(map(str, names))
    _print_result(
        {"schema": 1, "bug": into, "merged": names},
        f"bug {into} now has the signatures of {merged}",
        as_json,
    )


@nightly.command()
@click.argument("bug")
@click.argument("other", metavar="SIGNATURE|OTHER")
@OUTPUT_DIR
@LEDGER
@WHY
@shared.JSON
def split(
    bug: str, other: str, output_dir: Path, ledger_path: Path | None, why: str, as_json: bool
) -> None:
    """Make a SIGNATURE of BUG a separate bug, or reject the proposal to merge BUG and OTHER.

    \b
    Examples:
      reprokit nightly split 12 e9f6d67184c2
      reprokit nightly split 12 15
    """
    from reprokit.host.nightly.ledger import bugs

    with open_ledger.open_for_command(output_dir, ledger_path) as store:
        bug_id = bugs.find_bug(store, bug)
        new_id = bugs.split_bug(store, bug_id, other, why)
    _print_result(
        {"schema": 1, "bug": bug_id, "split": new_id},
        f"bugs {bug_id} and {new_id} are different bugs",
        as_json,
    )


@nightly.command()
@click.argument("bug")
@shared.option("--off", is_flag=True, help="Unmute the bug.")
@OUTPUT_DIR
@LEDGER
@WHY
@shared.JSON
def mute(
    bug: str, off: bool, output_dir: Path, ledger_path: Path | None, why: str, as_json: bool
) -> None:
    """Mute BUG: it is known, and is not reported as new. A slower compile is then the baseline.

    \b
    Examples:
      reprokit nightly mute 12 --why "waiting for 2.14"
      reprokit nightly mute 12 --off
    """
    from reprokit.host.nightly.ledger import bugs

    with open_ledger.open_for_command(output_dir, ledger_path) as store:
        bug_id = bugs.find_bug(store, bug)
        bugs.mute_bug(store, bug_id, None if off else why)
    _print_result(
        {"schema": 1, "bug": bug_id, "is_muted": not off},
        f"bug {bug_id} is {'no longer muted' if off else 'muted'}",
        as_json,
    )


@nightly.command(name="export")
@OUTPUT_DIR
@LEDGER
@shared.option(
    "--catalogue",
    type=click.Path(path_type=Path),
    metavar="FOLDER",
    help="Write the bugs as a catalogue of known failures instead, for --catalogue of capture.",
)
@shared.JSON
def export_(
    output_dir: Path, ledger_path: Path | None, catalogue: Path | None, as_json: bool
) -> None:
    """Write the ledger as JSON lines on stdout; --json only changes what --catalogue prints.

    \b
    Examples:
      reprokit nightly export > ledger.jsonl
      reprokit nightly export --catalogue team-catalogue
    """
    from reprokit.host.catalogue import catalogue_files
    from reprokit.host.nightly.ledger import exchange, known_bugs

    with open_ledger.open_for_command(output_dir, ledger_path) as store:
        if catalogue is None:
            for row in exchange.export_ledger(store):
                out.RESULTS.print_text(out.ascii_json(row, sort_keys=True) + "\n")
            return
        names = catalogue_files.write_catalogue(known_bugs.known_bugs(store), catalogue)
    document = {"schema": 1, "catalogue": str(catalogue), "issues": names}
    _print_result(document, f"{len(names)} bugs of the ledger are in {catalogue}", as_json)


@nightly.command(name="import")
@click.argument("file", type=click.Path(path_type=Path))
@OUTPUT_DIR
@LEDGER
@shared.JSON
def import_(file: Path, output_dir: Path, ledger_path: Path | None, as_json: bool) -> None:
    """Add an export to the ledger, which is created if there is none; known rows are skipped.

    Lines that do not match the schema are written to the quarantine folder, and the other lines are
    added.

    \b
    Example: reprokit nightly import other-machine.jsonl
    """
    from reprokit.host.nightly.ledger import exchange

    try:
        with (
            file.open("rb") as opened,
            open_ledger.open_for_command(output_dir, ledger_path, is_new_ok=True) as store,
        ):
            before = len(store.refused)
            added = exchange.import_rows(store, exchange.read_export_lines(opened))
            refused = store.refused[before:]
    except OSError as problem:
        raise BadInput(f"cannot read {file}: {problem}") from problem
    for why in refused:
        out.print_line(f"refused {why}")
    words = ", ".join(plural(count, kind) for kind, count in added.items()) or "nothing new"
    _print_result({"schema": 1, "added": added, "refused": refused}, f"imported: {words}", as_json)


@nightly.command()
@OUTPUT_DIR
@LEDGER
@shared.option("--dry-run", is_flag=True, help="Only report what would be removed.")
@click.argument("suite", type=click.Path(path_type=Path))
@shared.JSON
def prune(
    suite: Path, output_dir: Path, ledger_path: Path | None, dry_run: bool, as_json: bool
) -> None:
    """Remove old run directories by the [keep] of SUITE, as each nightly run does at its end.

    Packs of open bugs are kept.

    \b
    Example: reprokit nightly prune suite.toml --dry-run
    """
    from reprokit.host.nightly.ledger import prune
    from reprokit.host.nightly.schedule import night
    from reprokit.host.nightly.suite import suite_file

    suite_spec = suite_file.read_suite(suite)
    with (
        night.lock_output(output_dir.resolve()),
        open_ledger.open_for_command(output_dir, ledger_path) as store,
    ):
        gone = prune.prune_output(store, suite_spec, output_dir.resolve(), dry_run)
    words = (
        f"{'would remove' if dry_run else 'removed'} {plural(gone.folders, 'run folder')} and"
        f" {plural(gone.packs, 'pack')}, {gone.size_bytes / 1e6:.0f} MB"
    )
    _print_result(
        {"schema": 1, "folders": gone.folders, "packs": gone.packs, "size_bytes": gone.size_bytes},
        words,
        as_json,
    )


def _status_callback(live: terminal.LiveStatus) -> Any:
    from reprokit.host.system.progress import OperationStatus

    began = time.monotonic()
    return lambda words: live.show_status(OperationStatus(words, began=began))


def _print_result(document: Mapping[str, object], words: str, as_json: bool) -> None:
    if as_json:
        out.RESULTS.print_json(document)
    else:
        out.RESULTS.print_line(words)
