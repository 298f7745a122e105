"""``reprokit replay``: does the repro of a pack still show the failure, here or elsewhere?"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import click

from reprokit.cli.shared import consent, out, terminal
from reprokit.cli.shared import options as shared
from reprokit.cli.shared.options import SECONDS

EXIT_CODES = {"same": 0, "other": 1, "passes": 1, "unresolved": 3}


@click.command(
    epilog=(
        "Exit codes: 0 reproduced, 1 not reproduced, 2 wrong usage, 3 cannot tell, 130 interrupted."
    )
)
@click.argument("pack", type=click.Path(path_type=Path))
@click.option(
    "--python",
    help=f"Interpreter to run it with, such as another environment's; default: {shared.USUAL}.",
)
@click.option(
    "-n",
    "--times",
    type=click.IntRange(1),
    default=1,
    show_default=True,
    help="How many fresh runs.",
)
@click.option(
    "--stall",
    type=SECONDS,
    default=60.0,
    show_default=True,
    help="No progress for so many seconds is a hang.",
)
@click.option("--yes", is_flag=True, help="Run what the pack holds without asking.")
@click.option(
    "--json", "as_json", is_flag=True, help="Print one JSON object on stdout and nothing else."
)
@click.pass_context
def replay(
    ctx: click.Context,
    pack: Path,
    python: str | None,
    times: int,
    stall: float,
    yes: bool,
    as_json: bool,
) -> None:
    """Run the repro of PACK in fresh processes and compare signatures.

    \b
    Examples:
      reprokit replay reprokit-train-exception-1f2e3d4c5b6a.tar.gz
      reprokit replay PACK --python ~/nightly/bin/python -n 5 --yes
    """
    from reprokit.host.minimize import rerun_repro as player
    from reprokit.host.pack import reopen
    from reprokit.host.system import interrupts

    opened = reopen.open_pack(pack)
    reopen.require_program(opened, "replay")
    checked = shared.interpreter_option(python)
    with (
        terminal.LiveStatus(is_quiet=as_json) as live,
        tempfile.TemporaryDirectory(prefix="reprokit-replay-") as folder,
    ):
        consent.ask_person(pack, opened.program, checked, yes, live)

        def show(number: int, judged: Any) -> None:
            live.say(
                f"run {number} of {times}: {judged.answer} ({judged.signature.title}),"
                f" {judged.seconds:.1f} s"
            )

        with interrupts.deferred():
            done = player.replay_repro(
                opened.program,
                checked,
                opened.signature,
                times,
                Path(folder),
                stall,
                show,
                growth=opened.growth,
                gpu=opened.gpu,
            )
    told = {
        "schema": 1,
        "answer": done.answer,
        "hits": done.hits,
        "runs": len(done.runs),
        "signature": {"id": opened.signature.id, "title": opened.signature.title},
        "python": checked,
        "details": [
            {"answer": r.answer, "title": r.signature.title, "seconds": r.seconds, "cpu_s": r.cpu_s}
            for r in done.runs
        ],
    }
    if as_json:
        out.RESULTS.json(told)
    else:
        out.RESULTS.line(f"wanted     {opened.signature.title}")
        for run in done.runs:
            out.RESULTS.line(f"{run.answer:<10} {run.signature.title}")
        words = "reproduced" if done.hits else "not reproduced"
        out.RESULTS.line((f"{words}: {done.hits} of {len(done.runs)} runs", "bold"))
    ctx.exit(130 if done.is_interrupted else EXIT_CODES[done.answer])
