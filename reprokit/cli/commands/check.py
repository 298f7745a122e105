"""``reprokit check``: report by exit code whether a program has the failure of a pack."""

from __future__ import annotations

import tempfile
from pathlib import Path

import click

from reprokit.cli.shared import option_types, out
from reprokit.cli.shared import options as shared

SKIP = 125
"""The exit code with which ``git bisect run`` skips a commit."""


@shared.command(
    epilog=(
        "Exit codes: 0 the result of --exit-zero-if, 1 the opposite, 125 unknown, 2 wrong usage,"
        " 130 interrupted."
    )
)
@click.argument("file", type=click.Path(path_type=Path))
@shared.option(
    "--same-as",
    "pack",
    required=True,
    type=option_types.PackPath(),
    help="The pack with the failure.",
)
@shared.option(
    "--exit-zero-if",
    "polarity",
    required=True,
    type=click.Choice(["bug", "good"]),
    help=(
        "bug: exit code 0 if the program has the failure, for reducers; good: 0 if it does not, for"
        " git bisect run."
    ),
)
@shared.option(
    "--python",
    type=option_types.PLACE,
    help=f"Interpreter to run FILE with; default: {shared.DEFAULT_PYTHON}.",
)
@shared.option(
    "-n",
    "--times",
    type=shared.at_least(1),
    default=1,
    show_default=True,
    help="Maximum number of runs.",
)
@shared.STALL
@shared.JSON
@click.pass_context
def check(
    ctx: click.Context,
    file: Path,
    pack: Path,
    polarity: str,
    python: str | None,
    times: int,
    stall: float,
    as_json: bool,
) -> None:
    """Run FILE and report whether it has the failure of a pack.

    A different failure is not the bug. A run without a result is skipped (125).

    \b
    Examples:
      git bisect run reprokit check repro.py --same-as PACK --exit-zero-if good
      reprokit check candidate.py --same-as PACK --exit-zero-if bug
    """
    from reprokit.core.judge import same_failure
    from reprokit.core.records import process_state
    from reprokit.core.shared.errors import BadInput
    from reprokit.host.minimize import rerun_repro
    from reprokit.host.pack import reopen
    from reprokit.host.system import interrupts

    opened = reopen.open_pack(pack)
    try:
        text = file.read_text(encoding="utf-8")
        checked = shared.interpreter_option(python)
    except (OSError, UnicodeDecodeError, BadInput) as problem:
        # git must skip a commit without this file or with a broken build
        out.print_line(f"unknown: {problem}")
        if as_json:
            error = {"code": BadInput.code, "message": str(problem)}
            document = {"schema": 1, "answer": "unresolved", "runs": 0, "unmet": "", "titles": []}
            out.RESULTS.print_json({**document, "error": error})
        ctx.exit(SKIP)
    with tempfile.TemporaryDirectory(prefix="reprokit-check-") as folder, interrupts.deferred():
        done = rerun_repro.replay_repro(
            text,
            checked,
            opened.signature,
            times,
            Path(folder),
            stall,
            until=same_failure.SAME,
            file=file.resolve(),
            growth=opened.growth,
            gpu=opened.gpu,
        )
    if as_json:
        titles = [run.signature.title for run in done.runs]
        document = {"schema": 1, "answer": done.answer, "runs": len(done.runs)}
        out.RESULTS.print_json({**document, "unmet": done.unmet, "titles": titles})
    else:
        for run in done.runs:
            unmet = f"this machine {process_state.UNMET_WORDS}{run.unmet}" if run.unmet else ""
            out.RESULTS.print_line(f"{run.answer}: {unmet or run.signature.title}")
    if done.is_interrupted:
        ctx.exit(130)
    if done.answer == same_failure.UNRESOLVED:
        ctx.exit(SKIP)
    is_bug = done.answer == same_failure.SAME
    ctx.exit(0 if is_bug == (polarity == "bug") else 1)
