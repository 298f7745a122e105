"""``reprokit replay``: run the repro of a pack, and report whether it fails in the same way."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import click

from reprokit.cli.shared import consent, option_types, out, terminal
from reprokit.cli.shared import options as shared

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
    type=click.IntRange(1),
    default=1,
    show_default=True,
    help="Number of runs, each in a fresh process.",
)
@shared.STALL
@shared.YES
@shared.JSON
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
    from reprokit.cli.documents.study_documents import signature_keys
    from reprokit.core.experiments import conditions
    from reprokit.host.minimize import rerun_repro
    from reprokit.host.pack import reopen
    from reprokit.host.system import interrupts

    opened = reopen.open_pack(pack)
    reopen.require_program(opened, "replay")
    checked = shared.interpreter_option(python)
    with (
        terminal.LiveStatus(is_quiet=as_json) as live,
        tempfile.TemporaryDirectory(prefix="reprokit-replay-") as folder,
    ):
        consent.ask_consent(pack, opened.program, checked, yes, live)

        def show(number: int, judged: Any) -> None:
            live.show_message(
                f"run {number} of {times}: {judged.answer} ({judged.signature.title}),"
                f" {judged.seconds:.1f} s"
            )

        with interrupts.deferred():
            done = rerun_repro.replay_repro(
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
    document = {
        "schema": 1,
        "answer": done.answer,
        "hits": done.hits,
        "runs": len(done.runs),
        "unmet": done.unmet,
        "signature": signature_keys(opened.signature),
        "python": checked,
        "details": [
            {"answer": r.answer, "title": r.signature.title, "seconds": r.seconds, "cpu_s": r.cpu_s}
            for r in done.runs
        ],
    }
    if as_json:
        out.RESULTS.print_json(document)
    else:
        out.RESULTS.print_line(f"wanted     {opened.signature.title}")
        for run in done.runs:
            out.RESULTS.print_line(f"{run.answer:<10} {run.signature.title}")
        words = "reproduced" if done.hits else "not reproduced"
        line = f"{words}: {done.hits} of {len(done.runs)} runs"
        if done.unmet:
            line = f"cannot tell: this machine {conditions.UNMET_WORDS}{done.unmet}"
        out.RESULTS.print_line((line, "bold"))
    ctx.exit(130 if done.is_interrupted else EXIT_CODES[done.answer])
