"""``reprokit replay``: run the repro of a pack, and report whether it fails in the same way."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import click

from reprokit.cli.shared import consent, option_types, out, replayed_places, terminal
from reprokit.cli.shared import options as shared

if TYPE_CHECKING:
    from reprokit.host.minimize.rerun_repro import ReplayResult

WORST = ("same", "unresolved", "other", "passes")
"""The answers of several places, the best first."""
EXIT_CODES = {"same": 0, "other": 1, "passes": 1, "unresolved": 3}


@shared.command(
    epilog=(
        "Exit codes: 0 reproduced, 1 not reproduced, 2 wrong usage, 3 unknown, 130 interrupted."
    )
)
@click.argument("pack", type=option_types.PackPath())
@shared.option(
    "--python",
    type=option_types.PLACE,
    help=f"Interpreter to use, such as that of a nightly build; default: {shared.DEFAULT_PYTHON}.",
)
@shared.option(
    "-n",
    "--times",
    type=shared.at_least(1),
    default=1,
    show_default=True,
    help="Number of runs, each in a fresh process.",
)
@replayed_places.PLACES
@shared.STALL
@shared.YES
@shared.JSON
@click.pass_context
def replay(
    ctx: click.Context,
    pack: Path,
    python: str | None,
    times: int,
    places: tuple[str, ...],
    stall: float,
    yes: bool,
    as_json: bool,
) -> None:
    """Run the repro of PACK in fresh processes and compare signatures.

    With --in, it runs in other places of this machine, and the exit code is that of the worst one.

    \b
    Examples:
      reprokit replay reprokit-train-exception-1f2e3d4c5b6a.tar.gz
      reprokit replay PACK --python ~/nightly/bin/python -n 5 --yes
      reprokit replay PACK --yes --in here --in isolated+cores=1 --in cpu=none
    """
    from reprokit.cli.documents.study_documents import signature_keys
    from reprokit.host.pack import reopen

    named = replayed_places.check_places(places or ("here",))
    opened = reopen.open_pack(pack)
    reopen.require_program(opened, "replay")
    chosen = replayed_places.with_interpreters(named, python, opened)
    with (
        terminal.LiveStatus(is_quiet=as_json) as live,
        tempfile.TemporaryDirectory(prefix="reprokit-replay-") as folder,
    ):
        consent.ask_consent(pack, opened.program, chosen[0].python, yes, live)
        replayed = replayed_places.replay_in_places(
            opened, chosen, times, Path(folder), stall, live
        )
    results = [one.result for one in replayed]
    rows = [one.to_json() for one in replayed]
    worst = max(results, key=lambda done: WORST.index(done.answer))
    document = {
        "schema": 1,
        "signature": signature_keys(opened.signature),
        "answer": worst.answer,
        "hits": sum(done.hits for done in results),
        "runs": sum(len(done.runs) for done in results),
        "unmet": next((done.unmet for done in results if done.unmet), ""),
        "python": replayed[0].place.python,
        "details": [run for row in rows for run in row["details"]],
        "places": rows,
    }
    if as_json:
        out.RESULTS.print_json(document)
    else:
        out.RESULTS.print_line(f"wanted     {opened.signature.title}")
        for one in replayed:
            _print_result(one.result, f"{one.place.name}: " if places else "")
    ctx.exit(130 if results[-1].is_interrupted else EXIT_CODES[worst.answer])


def _print_result(done: ReplayResult, where: str) -> None:
    from reprokit.core.records import process_state

    for run in done.runs:
        out.RESULTS.print_line(f"{run.answer:<10} {run.signature.title}")
    words = "reproduced" if done.hits else "not reproduced"
    line = f"{words}: {done.hits} of {len(done.runs)} runs"
    if done.unmet:
        line = f"cannot tell: this machine {process_state.UNMET_WORDS}{done.unmet}"
    out.RESULTS.print_line((where + line, "bold"))
