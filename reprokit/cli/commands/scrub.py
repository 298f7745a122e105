"""``reprokit scrub``: run the program of an issue, and draft a comment for it."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from reprokit.cli.shared import consent, known_matches, option_types, out, terminal
from reprokit.cli.shared import options as shared
from reprokit.core.judge.stacks.location import plural
from reprokit.core.shared.errors import BadInput

if TYPE_CHECKING:
    from reprokit.core.triage.known_failures import KnownMatch
    from reprokit.host.scrub.jail import Jail
    from reprokit.host.scrub.run_issue import IssueProgram, ScrubResult

EXIT_CODES = {"passes": 0, "fails": 1, "different": 1, "cannot tell": 3}
COMMENT_FILE = "comment.md"


@shared.command(
    epilog=(
        "Exit codes: 0 it passes, 1 it fails, also in a different way, 2 wrong usage, 3 unknown,"
        " 130 interrupted."
    )
)
@click.argument("issue", type=click.Path(path_type=Path), metavar="ISSUE.md|-")
@shared.option(
    "--python",
    "pythons",
    type=option_types.PLACE,
    multiple=True,
    help=(
        "Interpreter whose torch runs the program; default:"
        f" {shared.DEFAULT_PYTHON}. With several, the comment says which fail."
    ),
)
@shared.option(
    "--versions",
    metavar="V,V,V",
    help="Also run it with these versions of torch, which reprokit installs.",
)
@shared.option(
    "--block",
    type=shared.at_least(1),
    help="Number of the code block with the program; default: the first complete program.",
)
@shared.option(
    "--no-jail",
    is_flag=True,
    help="Run the program without a jail, with your own rights.",
)
@known_matches.CATALOGUES
@shared.OUTPUT_DIR
@shared.YES
@shared.JSON
@click.pass_context
def scrub(
    ctx: click.Context,
    issue: Path,
    pythons: tuple[str, ...],
    versions: str | None,
    block: int | None,
    no_jail: bool,
    catalogues: tuple[Path, ...],
    output_dir: Path | None,
    yes: bool,
    as_json: bool,
) -> None:
    """Say whether the failure of an issue still occurs, and draft a comment for the issue.

    ISSUE.md has the Markdown text of the issue, as its edit field shows it. The program runs in a
    jail without a network and without your files. Nothing is posted.

    \b
    Examples:
      reprokit scrub issue.md
      reprokit scrub issue.md --python v212/bin/python --python v213/bin/python --yes
      gh issue view 196570 --repo pytorch/pytorch --json body -q .body | reprokit scrub - --yes
    """
    from reprokit.core.reported.issue_programs import NoProgram
    from reprokit.host.bisect import torch_environments
    from reprokit.host.catalogue import catalogue_files
    from reprokit.host.run import run_directory
    from reprokit.host.scrub import draft_comment, jail, read_issue, run_issue
    from reprokit.host.system import files

    if str(issue) == "-":
        text = read_issue.check_text(sys.stdin.buffer.read(read_issue.MAX_BYTES + 1), "stdin")
    else:
        text = read_issue.read_file(issue)
    catalogue_files.all_entries(catalogues)  # a damaged one is refused first
    try:
        programs = read_issue.read_issue(text, block or 0)
    except NoProgram as problem:
        _print_unread(ctx, str(problem), as_json)
        return
    if launcher := programs[0].command.launcher:
        _print_unread(ctx, f"{launcher} starts several processes", as_json)
        return
    consent.require_consent(issue, yes, "programs that a stranger wrote; read them")
    places = [shared.interpreter_option(one) for one in pythons or (None,)]
    wanted = [one.strip() for one in versions.split(",")] if versions else []
    for version in wanted:
        torch_environments.parse_version(version)
    run = run_directory.create_run_directory(output_dir, "scrub")
    try:
        with terminal.LiveStatus(is_quiet=as_json) as live:
            with consent.deleted_if_refused(run):
                chosen = consent.find_jail(run.path, no_jail, has_option=True)
                _ask(programs, chosen, jail.visible_folders([sys.executable, *places]), yes, live)
                places += _installed(wanted, places[0], live)
            found, result = run_issue.run_programs(
                programs, chosen, run.path, places, live.show_message
            )
    except torch_environments.CannotInstall as problem:
        raise BadInput(str(problem)) from problem
    finally:
        run.release_lock()
    opened = result.failure.opened if result.failure else None
    known = known_matches.find_known_of_pack(opened, catalogues) if opened else []
    comment = draft_comment.draft_comment(found, result, known, run.path)
    path = files.write_atomically(run.output / COMMENT_FILE, out.clean_text(comment.text))
    document = _document(found, result, chosen, known, path)
    claims = [{"number": n, **row.to_json()} for n, row in enumerate(comment.claims)]
    files.write_json(run.path / draft_comment.RESULT_FILE, {**document, "claims": claims})
    if as_json:
        out.RESULTS.print_json(document)
    else:
        _print_result(result, known, path)
    ctx.exit(EXIT_CODES[result.answer])


def _print_unread(ctx: click.Context, why: str, as_json: bool) -> None:
    """Print why nothing can be run, and exit."""
    document = {"schema": 1, "answer": "cannot tell", "why": why, "runs": [], "comment": None}
    if as_json:
        out.RESULTS.print_json(document)
    else:
        out.RESULTS.print_line((out.one_line(f"cannot tell: {why}"), "bold"))
    ctx.exit(EXIT_CODES["cannot tell"])


def _ask(
    programs: Sequence[IssueProgram],
    chosen: Jail,
    visible: Sequence[str],
    is_agreed: bool,
    live: terminal.LiveStatus,
) -> None:
    """Show what would run, and ask for consent; raises BadInput without it."""
    from reprokit.host.scrub import run_issue

    live.pause()
    for name, value in _shown(programs[0], chosen, visible):
        out.PROGRESS.print_line(f"{name:<12} {out.one_line(value)}")
    for found in programs[: run_issue.MAX_PROGRAMS]:
        program = found.program
        lines = " and ".join(map(str, program.lines))
        size = len(program.text.splitlines())
        added = f"; added: {'; '.join(program.added)}" if program.added else ""
        out.PROGRESS.print_line(
            f"{'program':<12} {plural(size, 'line')}, from line {lines} of the text"
            + out.one_line(added)
        )
        if not is_agreed:
            out.PROGRESS.print_line(program.text)  # the whole text: any part of it may matter
    if not is_agreed and not out.confirm_question("Run this?"):
        raise consent.NoConsent("nothing was run")
    live.resume()


def _shown(found: IssueProgram, chosen: Jail, visible: Sequence[str]) -> list[tuple[str, str]]:
    """Return what is run and how, in words."""
    reported, command = found.reported, found.command
    failure = " ".join(
        filter(None, (reported.kind, f"{reported.error}: {reported.message}".strip(": ")))
    )
    rows = [
        ("issue", found.title),
        ("reports", f"{failure or 'a failure without a name'}"),
        ("settings", " ".join(f"{name}={value}" for name, value in command.variables.items())),
        ("arguments", " ".join(command.arguments)),
        ("runs in", chosen.description),
        ("visible", ", ".join(visible) if chosen.kind else "all files of the user"),
    ]
    if reported.torch:
        rows.insert(2, ("with", f"torch {reported.torch}"))
    return [(name, value) for name, value in rows if value]


def _installed(versions: Sequence[str], python: str, live: terminal.LiveStatus) -> list[str]:
    """Return interpreters with versions of torch; raises BadInput if one cannot be installed."""
    from reprokit.host.bisect import torch_environments

    options = torch_environments.InstallOptions(python=python)
    found = []
    for version in versions:
        try:
            done = torch_environments.obtain_environment(version, options, live.show_message)
        except torch_environments.CannotInstall as problem:
            raise BadInput(f"--versions {version}: {problem}") from problem
        found.append(done.python)
    return found


def _document(
    found: IssueProgram, result: ScrubResult, chosen: Jail, known: Sequence[KnownMatch], path: Path
) -> dict[str, Any]:
    """Return the JSON document of a result."""
    return {
        "schema": 1,
        "answer": result.answer,
        "why": result.runs[0].why,
        "title": found.title,
        "reported": {
            "kind": found.reported.kind,
            "error": found.reported.error,
            "message": found.reported.message,
            "torch": found.reported.torch,
        },
        "program": {
            "text": found.program.text,
            "lines": list(found.program.lines),
            "added": list(found.program.added),
            "variables": dict(found.command.variables),
            "arguments": list(found.command.arguments),
        },
        "jail": chosen.kind,
        "runs": [
            {"torch": run.torch, "answer": run.answer, "why": run.why, "runs": run.runs}
            for run in result.runs
        ],
        "pack": _pack_of(result),
        "known": [match.to_json() for match in known],
        "comment": str(path),
    }


def _pack_of(result: ScrubResult) -> str | None:
    opened = result.failure.opened if result.failure else None
    return str(opened.pack.path) if opened else None


def _print_result(result: ScrubResult, known: Sequence[KnownMatch], path: Path) -> None:
    for run in result.runs:
        line = f"{run.answer} with torch {run.torch}: {run.why}"
        out.RESULTS.print_line((out.one_line(line), "bold"))
    for match in known[:1]:
        out.RESULTS.print_line(out.one_line(match.sentence))
    if pack := _pack_of(result):
        out.RESULTS.print_line(f"pack     {pack}")
    out.RESULTS.print_line(f"comment  {path}")
    out.RESULTS.print_line("Nothing was posted.")
