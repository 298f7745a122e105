"""``reprokit scale``: measure how compile cost grows with a size, and predict the full size."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from reprokit.cli.commands import capture as capture_command
from reprokit.cli.shared import options as shared
from reprokit.cli.shared import out, terminal

if TYPE_CHECKING:
    from reprokit.host.request.run_request import Request

FIXED = {"compare": False, "ablate": False, "kernels": "none"}
"""Options of ``capture`` in each run. The options that ``scale`` does not have are defaults."""
KNOBS = ("layers", "batch_size", "sequence_length")


@shared.target_command(
    epilog=(
        "Exit codes: 0 no failure, 1 superlinear or a size failed, 2 wrong usage, 3 unknown, 130"
        " interrupted."
    ),
)
@shared.NAMING
@shared.option("--layers", section=shared.MODEL, metavar="N,N,N", help="Numbers of layers.")
@shared.option("--batch-size", section=shared.MODEL, metavar="N,N,N", help="Batch sizes.")
@shared.option(
    "--sequence-length", section=shared.MODEL, metavar="N,N,N", help="Tokens in a sequence."
)
@shared.option(
    "--set",
    "assigned",
    section=shared.MODEL,
    multiple=True,
    metavar="NAME=N,N,N",
    help=(
        "Any integer keyword argument of the target. Exactly one of these options has several"
        " values; the others are fixed."
    ),
)
@shared.option(
    "--at",
    section="Measurement",
    type=shared.at_least(1),
    help="The size to predict; default: the zoo model's own, else 4 times the largest.",
)
@shared.option(
    "--repeats",
    section="Measurement",
    type=shared.at_least(1),
    default=1,
    show_default=True,
    help="Run each size this many times and use the lowest cost of each phase; for a busy machine.",
)
@shared.SHAPING
@shared.WATCHING
@shared.REDUCING
@shared.OUTPUT
@click.pass_context
def scale(
    ctx: click.Context,
    /,
    target: str | None,
    rest: tuple[str, ...],
    model: str | None,
    assigned: tuple[str, ...],
    at: int | None,
    repeats: int,
    as_json: bool,
    output_dir: Path | None,
    **options: Any,
) -> None:
    """Run TARGET at several sizes, and report how its compile cost grows.

    The costs are CPU seconds of each compiler phase, and peak memory. For each phase the simplest
    law that explains the costs is fitted, and the cost at the full size is predicted with an
    interval. If a phase grows faster than the model, and its cost matters at the full size, the
    verdict is superlinear-compile.

    \b
    Examples:
      reprokit scale --model llama40b --layers 1,2,4,8
      reprokit scale --model llama-tiny --sequence-length 32,64,128,256 --layers 4 --at 4096
      reprokit scale model.py:make --set depth=2,4,8,16 --train
    """
    from reprokit.core.shared.errors import BadInput
    from reprokit.host.pipeline import measure_growth

    try:
        if "command" in ctx.meta:
            raise BadInput(
                "reprokit cannot set the size of a command; scale needs a model or a factory"
            )
        knob, sizes, fixed = _sizes({k: options[k] for k in KNOBS}, assigned)
        if at is not None and at < max(sizes):
            raise BadInput(
                f"--at {at} is smaller than the largest size that runs ({max(sizes)}); name the"
                " full size"
            )
        words = {k: fixed.get(k, sizes[0] if k == knob else None) for k in KNOBS}
        defaults = capture_command.capture.make_context("capture", ["target"]).params
        request = capture_command.read_request(
            ctx, target, rest, model, {**defaults, **FIXED, **options, **words}
        )
        _check_knobs(request, (knob, *fixed))
        request.knobs.update(fixed)
        with terminal.LiveStatus(is_quiet=as_json) as live:
            captured = measure_growth.measure_growth(
                request,
                knob,
                sizes,
                at,
                output_dir,
                live.show_message,
                live.show_progress,
                repeats,
                live.show_status,
            )
    except BadInput as problem:
        if as_json:
            from reprokit.cli.documents import capture_documents

            refused = capture_documents.refuse_capture(problem.code, str(problem))
            out.RESULTS.print_json({**refused, "growth": None})
        raise
    if as_json:
        out.RESULTS.print_json({**captured.to_json(), "growth": captured.seen.growth})
    else:
        from reprokit.cli.shared import print_capture, print_report

        print_report.print_table(captured.seen.growth)
        out.RESULTS.print_line()
        print_capture.print_captured(captured)
    ctx.exit(captured.exit_code)


def _sizes(
    texts: dict[str, str | None], assigned: tuple[str, ...]
) -> tuple[str, list[int], dict[str, int]]:
    """Return the knob with several values, its values, and the knobs with one value."""
    from reprokit.core.shared.errors import BadInput

    rows = [
        (name, text, f"--{name.replace('_', '-')}")
        for name, text in texts.items()
        if text is not None
    ]
    for word in assigned:
        name, equals, text = word.partition("=")
        if not equals or not name.isidentifier():
            raise BadInput(f"--set {word}: write NAME=N,N,N, such as --set depth=2,4,8")
        rows.append((name, text, f"--set {name}"))
    values: dict[str, list[int]] = {}
    for name, text, words in rows:
        parts = [part.strip() for part in text.split(",")]
        wrong = [part for part in parts if not re.fullmatch(r"[0-9]{1,9}", part) or not int(part)]
        if wrong:
            raise BadInput(
                f"{words}: {wrong[0]!r} is not a size; give positive integers with commas between"
                " them, such as 1,2,4,8"
            )
        if name in values:
            raise BadInput(f"{name} is given twice")
        values[name] = [int(part) for part in parts]
    several = [name for name, sizes in values.items() if len(sizes) > 1]
    if len(several) != 1:
        holders = f"{' and '.join(several)} have" if several else "none has"
        raise BadInput(
            f"exactly one size must have several values, and {holders}; write for example"
            " --layers 1,2,4,8"
        )
    knob = several[0]
    sizes = values.pop(knob)
    if len(set(sizes)) < len(sizes):
        raise BadInput(f"{knob}={','.join(map(str, sizes))} has a size twice; each runs once")
    if len(sizes) < 3:
        raise BadInput(
            f"{knob} has {len(sizes)} sizes, and a law needs at least 3; four or more are better"
        )
    return knob, sorted(sizes), {name: row[0] for name, row in values.items()}


def _check_knobs(request: Request, names: tuple[str, ...]) -> None:
    """Raise BadInput for a knob that a zoo model lacks; the agent checks those of a factory."""
    from reprokit.core.shared.errors import BadInput
    from reprokit.core.shared.zoo import ZOO

    if request.target.kind == "zoo":
        takes = [k for k, v in ZOO[request.target.name].knobs.items() if isinstance(v, int)]
        unknown = [name for name in names if name not in takes]
        if unknown:
            raise BadInput(
                f"{request.target.name} has no argument {unknown[0]}; it has {', '.join(takes)}"
            )
