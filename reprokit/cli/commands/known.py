"""``reprokit known``: look a failure up in the catalogue, or prove the catalogue."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from reprokit.cli.shared import known_matches, option_types, out, terminal
from reprokit.cli.shared import options as shared
from reprokit.cli.shared.command_classes import is_given

if TYPE_CHECKING:
    from reprokit.core.triage.known_failures import KnownFailure, KnownMatch
    from reprokit.host.bisect.prove_entries import ProvedEntry


@shared.command(
    epilog=(
        "Exit codes: 0 the failure is known, or all entries are true, 1 not known, or an entry is"
        " not true, 2 wrong usage, 130 interrupted."
    )
)
@click.argument("failure", required=False, metavar="[PACK|SIGNATURE|TEXT]")
@known_matches.CATALOGUES
@shared.option(
    "--prove", is_flag=True, help="Run the programs of the entries, and compare with what they say."
)
@shared.option(
    "--python",
    "pythons",
    type=option_types.PLACE,
    multiple=True,
    help="With --prove: an interpreter with the torch to use. Can be repeated.",
)
@shared.option(
    "--write",
    "folder",
    type=click.Path(path_type=Path),
    metavar="FOLDER",
    help="With --prove: write the entries, with what happened, to FOLDER.",
)
@shared.YES
@shared.JSON
@click.pass_context
def known(
    ctx: click.Context,
    failure: str | None,
    catalogues: tuple[Path, ...],
    prove: bool,
    pythons: tuple[str, ...],
    folder: Path | None,
    yes: bool,
    as_json: bool,
) -> None:
    """Say whether a failure is known: its issue, the versions that fail, and what avoids it.

    The catalogue is a part of reprokit and needs no network. Without an argument, its entries are
    listed. With --prove, the argument chooses entries: the number of an issue, or words.

    \b
    Examples:
      reprokit known reprokit-train-exception-1f2e3d4c5b6a.tar.gz
      reprokit known "KeyError buf outer loop fusion"
      reprokit known --prove --python ~/nightly/bin/python 196570
    """
    from reprokit.core.shared.errors import BadInput
    from reprokit.core.triage import known_failures
    from reprokit.host.catalogue import catalogue_files

    if (folder or is_given(ctx, "pythons")) and not prove:
        raise BadInput("--python and --write need --prove")
    entries = catalogue_files.all_entries(catalogues)
    if prove:
        chosen = entries
        if failure is not None:
            found = known_failures.search_known_failures(failure, entries)
            chosen = [match.entry for match in found]
        if not chosen:
            raise BadInput(f"no entry of the catalogue matches {failure!r}")
        strangers = [entry for entry in chosen if entry.origin and entry.program]
        if strangers and not yes:
            raise BadInput(
                f"a stranger may have written the programs of {strangers[0].origin}; read them and"
                " add --yes to run them"
            )
        ctx.exit(_prove(chosen, pythons, folder, as_json))
    if failure is None:
        _list_entries(entries, as_json)
        ctx.exit(0)
    if _is_path(failure):
        matches = _matches_of_pack(Path(failure), catalogues)
    else:
        matches = known_failures.search_known_failures(failure, entries)
    if as_json:
        out.RESULTS.print_json({"schema": 1, "matches": [match.to_json() for match in matches]})
    else:
        print_matches(matches)
    ctx.exit(0 if any(match.how not in known_failures.MAYBE for match in matches) else 1)


def _is_path(text: str) -> bool:
    """Return whether a text names a pack or a run directory; a long text names nothing."""
    from reprokit.host.system import host_log

    with host_log.suppress(OSError, ValueError):
        return text.endswith(".tar.gz") or Path(text).exists()
    return False


def _matches_of_pack(path: Path, catalogues: Sequence[Path]) -> list[KnownMatch]:
    from reprokit.host.pack import reader, reopen

    opened = reopen.open_pack(reader.locate_pack(path))
    return known_matches.find_known_of_pack(opened, catalogues)


def print_matches(matches: Sequence[KnownMatch]) -> None:
    """Print each match with what agrees and what does not."""
    if not matches:
        out.RESULTS.print_line("not known: no entry of the catalogue is like it")
    for match in matches:
        out.RESULTS.print_line((out.one_line(match.sentence), "bold"))
        if match.entry.url:
            out.RESULTS.print_line(f"  {match.entry.url}")
        for word, rows in (("agrees", match.shared), ("differs", match.differs)):
            if any(rows):
                out.RESULTS.print_line(out.one_line(f"  {word}: {'; '.join(filter(None, rows))}"))


def _list_entries(entries: Sequence[KnownFailure], as_json: bool) -> None:
    if as_json:
        rows = [known_json(entry) for entry in entries]
        out.RESULTS.print_json({"schema": 1, "entries": rows})
        return
    out.RESULTS.print_table(
        ("issue", "kind", "component", "versions", "title"),
        [(e.issue, e.kind, e.component, e.versions, e.title) for e in entries],
    )


def known_json(entry: KnownFailure) -> dict[str, Any]:
    """Return the JSON object of an entry in a list."""
    return {
        "issue": entry.issue,
        "url": entry.url,
        "title": entry.title,
        "kind": entry.kind,
        "component": entry.component,
        "state": entry.state,
        "first_bad": entry.first_bad,
        "fixed_in": entry.fixed_in,
        "workaround": entry.workaround,
        "workaround_proved": entry.workaround_proved,
        "origin": entry.origin,
    }


def _prove(
    entries: Sequence[KnownFailure],
    pythons: Sequence[str],
    folder: Path | None,
    as_json: bool,
) -> int:
    from reprokit.core.shared.errors import BadInput
    from reprokit.host.bisect import prove_entries, torch_environments
    from reprokit.host.catalogue import catalogue_files
    from reprokit.host.system.progress import OperationStatus

    proved: list[ProvedEntry] = []
    latest = {entry.issue: entry for entry in entries}
    with terminal.LiveStatus(is_quiet=as_json) as live:
        for python in pythons or ("",):
            checked = shared.interpreter_option(python or None)
            status = OperationStatus(f"proving the catalogue with {checked}", total=len(entries))
            try:
                for one in prove_entries.prove_entries(entries, checked):
                    status.done += 1
                    status.trying = one.entry.issue
                    live.show_status(status)
                    live.show_message(_line_of(one))
                    proved.append(one)
                    entry = one.updated(latest[one.entry.issue])
                    latest[entry.issue] = entry
                    if folder is not None:
                        catalogue_files.write_catalogue([entry], folder)
            except torch_environments.CannotInstall as problem:
                raise BadInput(str(problem)) from problem
    wrong = [one for one in proved if not one.is_true]
    if as_json:
        rows = [
            {
                "issue": one.entry.issue,
                "torch": one.run.torch,
                "answer": one.run.answer,
                "recorded": one.recorded.answer if one.recorded else None,
                "signature": one.run.signature,
                "title": one.run.title,
                "workaround": one.run.workaround,
                "is_true": one.is_true,
            }
            for one in proved
        ]
        out.RESULTS.print_json({"schema": 1, "proved": rows, "is_true": not wrong})
    else:
        out.RESULTS.print_line(
            f"{len(proved) - len(wrong)} of {len(proved)} runs are as the catalogue says"
        )
    return 1 if wrong else 0


def _line_of(one: ProvedEntry) -> str:
    recorded, run = one.recorded, one.run
    says = ""
    if recorded is not None and not one.is_answer_true:
        says = f", and the entry says: {recorded.answer}"
    title = f" ({run.title})" if run.title else ""
    workaround = f"; the workaround {run.workaround}" if run.workaround else ""
    return f"{one.entry.issue}, torch {run.torch}: {run.answer}{title}{says}{workaround}"
