"""``reprokit check``: one question with an exit code, for ``git bisect run`` and for other
reducers.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import click

from reprokit.cli.shared import options as shared
from reprokit.cli.shared import out
from reprokit.cli.shared.options import SECONDS

SKIP = 125
"""``git bisect run`` and C-Vise's users know it: this one cannot be tested."""


@click.command(
    epilog=(
        "Exit codes: 0 as asked with --exit-zero-if, 1 the opposite, 125 cannot tell, 2 wrong"
        " usage, 130 interrupted."
    )
)
@click.argument("file", type=click.Path(path_type=Path))
@click.option(
    "--same-as",
    "pack",
    required=True,
    type=click.Path(path_type=Path),
    help="The pack whose failure is looked for.",
)
@click.option(
    "--exit-zero-if",
    "polarity",
    required=True,
    type=click.Choice(["bug", "good"]),
    help=(
        "bug: 0 when the failure shows, as reducers want it; good: 0 when it does not, as git"
        " bisect run does."
    ),
)
@click.option("--python", help=f"Interpreter to run FILE with; default: {shared.USUAL}.")
@click.option(
    "-n",
    "--times",
    type=click.IntRange(1),
    default=1,
    show_default=True,
    help="How many runs at most.",
)
@click.option(
    "--stall",
    type=SECONDS,
    default=60.0,
    show_default=True,
    help="No progress for so many seconds is a hang.",
)
@click.option(
    "--json", "as_json", is_flag=True, help="Print one JSON object on stdout and nothing else."
)
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
    """Run FILE and say whether it shows the failure of a pack.

    Another failure than the pack's is not the bug; a run that gives no answer is skipped (125).

    \b
    Examples:
      git bisect run reprokit check repro.py --same-as PACK --exit-zero-if good
      reprokit check candidate.py --same-as PACK --exit-zero-if bug
    """
    from reprokit.core.judge import same_failure
    from reprokit.core.shared.errors import BadInput
    from reprokit.host.minimize import rerun_repro as player
    from reprokit.host.pack import reopen
    from reprokit.host.system import interrupts

    opened = reopen.open_pack(pack)
    try:
        text = file.read_text(encoding="utf-8")
        checked = shared.interpreter_option(python)
    except (OSError, UnicodeDecodeError, BadInput) as problem:
        # a bisection must not take a commit without this file, or with a broken build, for a bad
        # one
        out.print_line(f"cannot tell: {problem}")
        ctx.exit(SKIP)
    with tempfile.TemporaryDirectory(prefix="reprokit-check-") as folder, interrupts.deferred():
        done = player.replay_repro(
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
        out.RESULTS.json(
            {"schema": 1, "answer": done.answer, "runs": len(done.runs), "titles": titles}
        )
    else:
        for run in done.runs:
            out.RESULTS.line(f"{run.answer}: {run.signature.title}")
    if done.is_interrupted:
        ctx.exit(130)
    if done.answer == same_failure.UNRESOLVED:
        ctx.exit(SKIP)
    is_bug = done.answer == same_failure.SAME
    ctx.exit(0 if is_bug == (polarity == "bug") else 1)
