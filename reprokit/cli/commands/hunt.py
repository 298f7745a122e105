"""``reprokit hunt``: look for failures of the compiler that nobody has reported."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING

import click

from reprokit.cli.shared import options as shared
from reprokit.cli.shared import out, terminal
from reprokit.cli.shared.option_types import PLACE, SECONDS

if TYPE_CHECKING:
    from reprokit.host.hunt.families import HuntDocument


@shared.command(
    epilog=(
        "Exit codes: 0 nothing new, 1 a failure that the catalogue does not know, 2 wrong usage, 3"
        " the hunt itself failed, 130 interrupted."
    )
)
@shared.option(
    "--source",
    "sources",
    default="opinfo,types,views,python",
    show_default=True,
    metavar="NAME[,NAME]",
    help=(
        "Where programs come from: opinfo, types, views, python, config, mutate (known failures,"
        " changed), mutate=FILE.py[:FACTORY] (your own program, changed), models (of transformers)"
        " and models=TYPE[+TYPE]."
    ),
)
@shared.option(
    "--seed",
    type=click.IntRange(min=0),
    default=0,
    show_default=True,
    help="The seed of all programs. What the programs have run steers the choices after it.",
)
@shared.option(
    "--for",
    "limit_s",
    type=SECONDS,
    default="1h",
    show_default=True,
    help="How long this part of the hunt may take.",
)
@shared.option(
    "--targets",
    type=shared.at_least(1),
    help="End when this number of programs have run in all parts together.",
)
@shared.option(
    "--timeout",
    "target_limit_s",
    type=SECONDS,
    default="90s",
    show_default=True,
    help="How long one program may take; one that takes longer hangs.",
)
@shared.option("--python", type=PLACE, help=f"Interpreter; default: {shared.DEFAULT_PYTHON}.")
@shared.option(
    "--output-dir",
    type=click.Path(path_type=Path),
    default=Path("reprokit-hunt"),
    show_default=True,
    help="Folder of the hunt; a hunt in the same folder goes on where it ended.",
)
@shared.JSON
@click.pass_context
def hunt(
    ctx: click.Context,
    sources: str,
    seed: int,
    limit_s: float,
    targets: int | None,
    target_limit_s: float,
    python: str | None,
    output_dir: Path,
    as_json: bool,
) -> None:
    """Generate programs, run each with and without torch.compile, and capture what differs.

    Programs run isolated, many in one process. A program that fails only when it is compiled is
    captured, reduced, proved and looked up in the catalogue. Failures with the same kind, phase and
    cause are one family. NaN, the sign of zero, rounding, integer overflow, uninitialised memory,
    random numbers and what the compiler refuses are counted, and are no findings.

    \b
    Examples:
      reprokit hunt --for 8h
      reprokit hunt --source python --seed 3 --targets 500 --output-dir hunts/python-3
      reprokit hunt --source mutate=model.py:make --for 1h --output-dir hunts/model
    """
    from reprokit.host.hunt import hunt_runner, source_places
    from reprokit.host.hunt.outcomes import HuntPlan
    from reprokit.host.nightly.night_runner import NightFailed
    from reprokit.host.probe.client import ServerLost
    from reprokit.host.system import interrupts
    from reprokit.host.system.progress import OperationStatus

    names = source_places.read_sources(sources)
    chosen = shared.interpreter_option(python)
    began = time.monotonic()
    with terminal.LiveStatus(is_quiet=as_json) as live, interrupts.deferred():
        try:
            document = hunt_runner.run_hunt(
                output_dir.resolve(),
                HuntPlan(names, seed, chosen),
                limit_s,
                targets,
                target_limit_s,
                live.show_message,
                lambda words: live.show_status(
                    OperationStatus("hunting", words, limit_s=limit_s, began=began)
                ),
            )
        except (NightFailed, ServerLost) as problem:
            out.print_line(str(problem))
            if as_json:
                from reprokit.cli.documents.error_documents import error_document

                out.RESULTS.print_json(error_document("hunt-failed", str(problem)))
            ctx.exit(3)
    if as_json:
        out.RESULTS.print_json(document)
    else:
        print_hunt(document)
    ctx.exit(document["exit_code"])


def print_hunt(document: HuntDocument) -> None:
    """Print the counts and the families of a hunt."""
    counts = ", ".join(f"{count} {kind}" for kind, count in document["counts"].items())
    out.RESULTS.print_line(
        f"{document['targets']} programs in {document['cpu_s']:.0f} CPU seconds: {counts}"
    )
    rows = []
    for family in document["families"]:
        lines = [m["repro_lines"] for m in family["members"] if m["repro_lines"]]
        rows.append(
            (
                "known" if family["is_known"] else "new",
                family["title"],
                str(family["findings"]),
                f"{min(lines)} lines" if lines else family["members"][0]["says"] or "no repro",
                next((m["issue"] for m in family["members"] if m["issue"]), ""),
            )
        )
    if rows:
        out.RESULTS.print_table(("", "failure", "programs", "repro", "issue"), rows)
    else:
        out.RESULTS.print_line("no failure of the compiler is captured")
    if document["unconfirmed"]:
        out.RESULTS.print_line(f"{len(document['unconfirmed'])} findings were not confirmed")
    if document["pending"]:
        out.RESULTS.print_line(
            f"{len(document['pending'])} groups of findings are not captured yet; run the same"
            " command again"
        )
