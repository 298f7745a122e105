"""``reprokit nightly``: run a suite every night, and say in the morning what is new."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import click

from reprokit.cli.shared import open_ledger, out, print_night, terminal

PLACE = click.option(
    "--output-dir",
    type=click.Path(path_type=Path),
    default=Path("reprokit-nightly"),
    show_default=True,
    help="Where nights, packs and reports lie.",
)
LEDGER = click.option(
    "--ledger",
    "ledger_path",
    type=click.Path(path_type=Path),
    help="The ledger; default ledger.sqlite in --output-dir.",
)
JSON = click.option(
    "--json", "as_json", is_flag=True, help="Print one JSON object on stdout and nothing else."
)
WHY = click.option("--why", default="", help="The reason, for its history.")


@click.group(
    epilog=(
        "Exit codes of run and report: 0 nothing new, 1 something new or regressed, 2 wrong usage,"
        " 3 the night itself went wrong, 130 interrupted."
    )
)
def nightly() -> None:
    """Run a suite every night; say in the morning what is new, what came back and what is gone.

    \b
    Examples:
      reprokit nightly init suite.toml
      reprokit nightly run suite.toml
      reprokit nightly report --json
    """


@nightly.command()
@click.argument("suite", type=click.Path(path_type=Path), default=Path("suite.toml"))
@JSON
def init(suite: Path, as_json: bool) -> None:
    """Write a suite to begin with.

    \b
    Example: reprokit nightly init suite.toml
    """
    from reprokit.core.shared.errors import BadInput
    from reprokit.host.nightly.suite import suite_file as suites
    from reprokit.host.system import files

    if suite.exists():
        raise BadInput(f"{suite} exists already; name another file")
    try:
        files.write_whole(suite, suites.example_suite())
    except OSError as problem:
        raise BadInput(f"cannot write {suite}: {problem.strerror}") from problem
    if as_json:
        out.RESULTS.json({"schema": 1, "suite": str(suite)})
    else:
        out.RESULTS.line(f"{suite} is written; edit it, and then: reprokit nightly run {suite}")


@nightly.command()
@click.argument("suite", type=click.Path(path_type=Path))
@PLACE
@LEDGER
@click.option(
    "--tag", "tags", multiple=True, help="Only targets with this tag; may be given several times."
)
@click.option(
    "--only",
    multiple=True,
    metavar="PATTERN",
    help="Only targets with a name like this, such as 'hf:*'.",
)
@click.option(
    "--cores",
    type=click.IntRange(1),
    help="Use at most so many cores of this machine; default: all.",
)
@click.option(
    "--engine",
    type=click.Choice(["local", "slurm"]),
    default="local",
    show_default=True,
    help="Where runs run: here, or as jobs of a Slurm cluster that shares --output-dir.",
)
@JSON
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
    """Run a suite, remember what it showed, and report; a night that was cut short goes on.

    \b
    Examples:
      reprokit nightly run suite.toml
      reprokit nightly run suite.toml --tag quick --cores 4
      reprokit nightly run suite.toml --engine slurm --output-dir /shared/nightly
    """
    from reprokit.host.nightly import night_runner
    from reprokit.host.nightly.suite import suite_file as suites
    from reprokit.host.system import interrupts

    asked = suites.read_suite(suite)
    cells = asked.chosen(tags, only)
    with terminal.LiveStatus(is_quiet=as_json) as live, interrupts.deferred():
        try:
            place, show = output_dir.resolve(), _show(live)
            told = night_runner.run_night(
                asked, cells, place, ledger_path, engine, cores, live.say, show
            )
        except night_runner.NightFailed as problem:
            if as_json:
                out.RESULTS.json({"schema": 1, "exit_code": 3, "problem": str(problem)})
            else:
                out.print_line(str(problem))
            ctx.exit(3)
    if as_json:
        out.RESULTS.json(told)
    else:
        print_night.print_night(told, output_dir)
    ctx.exit(130 if told["is_interrupted"] else told["exit_code"])


@nightly.command()
@PLACE
@LEDGER
@JSON
@click.pass_context
def report(ctx: click.Context, output_dir: Path, ledger_path: Path | None, as_json: bool) -> None:
    """Say what the last night came to: here, and as digest.md and report.html in --output-dir.

    \b
    Example: reprokit nightly report
    """
    from reprokit.core.shared.errors import BadInput
    from reprokit.host.nightly import night_report, night_report_files

    with open_ledger.opened_ledger(output_dir, ledger_path, is_told=True) as store:
        told = night_report.make_report(store, None, output_dir.resolve())
    if as_json:
        out.RESULTS.json(told)
    else:
        try:
            night_report_files.write_report(told, output_dir)
        except OSError as problem:
            raise BadInput(
                f"cannot write the report in {output_dir}: {problem.strerror}"
            ) from problem
        print_night.print_night(told, output_dir)
    ctx.exit(told["exit_code"])


@nightly.command()
@click.argument("bug")
@click.argument("others", nargs=-1, required=True)
@PLACE
@LEDGER
@WHY
@JSON
def merge(
    bug: str,
    others: tuple[str, ...],
    output_dir: Path,
    ledger_path: Path | None,
    why: str,
    as_json: bool,
) -> None:
    """Say that BUG and OTHERS are one: their signatures become aliases of BUG.

    \b
    Example: reprokit nightly merge 12 15 --why "both are the missing buffer"
    """
    from reprokit.host.nightly.ledger import bugs

    with open_ledger.opened_ledger(output_dir, ledger_path) as store:
        into = bugs.find_bug(store, bug)
        names = [bugs.find_bug(store, other) for other in others]
        bugs.merge_bugs(store, into, names, why)
    told = " and ".join(map(str, names))
    _said(
        {"schema": 1, "bug": into, "merged": names},
        f"bug {into} has the signatures of {told} now",
        as_json,
    )


@nightly.command()
@click.argument("bug")
@click.argument("other", metavar="SIGNATURE|OTHER")
@PLACE
@LEDGER
@WHY
@JSON
def split(
    bug: str, other: str, output_dir: Path, ledger_path: Path | None, why: str, as_json: bool
) -> None:
    """Make a SIGNATURE of BUG a bug of its own; or say that BUG and OTHER, proposed as one, are
    two.

    \b
    Examples:
      reprokit nightly split 12 e9f6d67184c2
      reprokit nightly split 12 15
    """
    from reprokit.host.nightly.ledger import bugs

    with open_ledger.opened_ledger(output_dir, ledger_path) as store:
        one = bugs.find_bug(store, bug)
        found = bugs.split_bug(store, one, other, why)
    _said({"schema": 1, "bug": one, "split": found}, f"bugs {one} and {found} are two", as_json)


@nightly.command()
@click.argument("bug")
@click.option("--off", is_flag=True, help="It counts again.")
@PLACE
@LEDGER
@WHY
@JSON
def mute(
    bug: str, off: bool, output_dir: Path, ledger_path: Path | None, why: str, as_json: bool
) -> None:
    """Say that BUG is known and no news; a slower compile is then the usual one.

    \b
    Examples:
      reprokit nightly mute 12 --why "waiting for 2.14"
      reprokit nightly mute 12 --off
    """
    from reprokit.host.nightly.ledger import bugs

    with open_ledger.opened_ledger(output_dir, ledger_path) as store:
        one = bugs.find_bug(store, bug)
        bugs.mute_bug(store, one, None if off else why)
    _said(
        {"schema": 1, "bug": one, "is_muted": not off},
        f"bug {one} is {'no longer muted' if off else 'muted'}",
        as_json,
    )


@nightly.command(name="export")
@PLACE
@LEDGER
@JSON
def export_(output_dir: Path, ledger_path: Path | None, as_json: bool) -> None:
    """Write the ledger as JSON lines on stdout; --json changes nothing.

    \b
    Example: reprokit nightly export > ledger.jsonl
    """
    from reprokit.host.nightly.ledger import exchange

    with open_ledger.opened_ledger(output_dir, ledger_path) as store:
        for row in exchange.export_ledger(store):
            out.RESULTS.text(out.ascii_json(row, sort_keys=True) + "\n")


@nightly.command(name="import")
@click.argument("file", type=click.Path(path_type=Path))
@PLACE
@LEDGER
@JSON
def import_(file: Path, output_dir: Path, ledger_path: Path | None, as_json: bool) -> None:
    """Add an export to the ledger, which is made where there is none; what is known already is
    passed over.

    Lines that do not agree with the schema go to the quarantine folder, and the others count.

    \b
    Example: reprokit nightly import other-machine.jsonl
    """
    from reprokit.core.shared.errors import BadInput
    from reprokit.host.nightly.ledger import exchange

    try:
        with (
            file.open("rb") as opened,
            open_ledger.opened_ledger(output_dir, ledger_path, is_new_ok=True) as store,
        ):
            before = len(store.refused)
            added = exchange.import_rows(store, exchange.read_lines(opened))
            refused = store.refused[before:]
    except OSError as problem:
        raise BadInput(f"cannot read {file}: {problem}") from problem
    for why in refused:
        out.print_line(f"refused {why}")
    words = (
        ", ".join(f"{count} {kind}s" for kind, count in added.items())
        or "nothing that was not known"
    )
    _said({"schema": 1, "added": added, "refused": refused}, f"taken in: {words}", as_json)


@nightly.command()
@PLACE
@LEDGER
@click.option("--dry-run", is_flag=True, help="Only say what would be removed.")
@click.argument("suite", type=click.Path(path_type=Path))
@JSON
def prune(
    suite: Path, output_dir: Path, ledger_path: Path | None, dry_run: bool, as_json: bool
) -> None:
    """Remove old run directories by the [keep] of SUITE, as each night's end does; packs of open
    bugs stay.

    \b
    Example: reprokit nightly prune suite.toml --dry-run
    """
    from reprokit.host.nightly.ledger import prune
    from reprokit.host.nightly.schedule import night
    from reprokit.host.nightly.suite import suite_file as suites

    asked = suites.read_suite(suite)
    with (
        night.hold_night(output_dir.resolve()),
        open_ledger.opened_ledger(output_dir, ledger_path) as store,
    ):
        gone = prune.prune_output(store, asked, output_dir.resolve(), dry_run)
    words = (
        f"{'would remove' if dry_run else 'removed'} {gone.folders} run directories and"
        f" {gone.packs} packs, {gone.size_bytes / 1e6:.0f} MB"
    )
    _said(
        {"schema": 1, "folders": gone.folders, "packs": gone.packs, "size_bytes": gone.size_bytes},
        words,
        as_json,
    )


def _show(live: terminal.LiveStatus) -> Any:
    from reprokit.host.system.progress import OperationStatus

    began = time.monotonic()
    return lambda words: live.show_status(OperationStatus(words=words, began=began))


def _said(told: dict[str, Any], words: str, as_json: bool) -> None:
    if as_json:
        out.RESULTS.json(told)
    else:
        out.RESULTS.line(words)
