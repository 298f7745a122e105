"""``reprokit scale``: how compile time and memory grow with a size, and what they are at full
size.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import click

from reprokit.cli.commands import capture as one_run
from reprokit.cli.shared import options as shared
from reprokit.cli.shared import out, print_capture, terminal

UNUSED = {
    "line_repeats": 20_000,
    "escalate": None,
    "logs": (),
    "no_trace": False,
    "compare": False,
    "ablate": False,
    "graph_breaks": None,
    "settings": (),
    "kernels": "none",
    "tensor_parallel": None,
    "compare_simulated": False,
}
"""What capture may be told and scale may not."""
KNOBS = ("layers", "batch_size", "sequence_length")


@click.command(
    cls=one_run.CommandWithTarget,
    epilog=(
        "Exit codes: 0 no failure, 1 superlinear or a size failed, 2 wrong usage, 3 unknown, 130"
        " interrupted."
    ),
)
@shared.NAMING
@click.option("--layers", metavar="N,N,N", help="Numbers of layers.")
@click.option("--batch-size", metavar="N,N,N", help="Batch sizes.")
@click.option("--sequence-length", metavar="N,N,N", help="Tokens in a sequence.")
@click.option(
    "--set",
    "assigned",
    multiple=True,
    metavar="NAME=N,N,N",
    help=(
        "Any integer keyword argument of the target. Of all these, one has several values and is"
        " scaled; others stay."
    ),
)
@click.option(
    "--at",
    type=click.IntRange(1),
    help="The size to predict; default: the zoo model's own, else 4 times the largest.",
)
@click.option(
    "--repeats",
    type=click.IntRange(1),
    default=1,
    show_default=True,
    help="Run each size so often and take the least cost of each phase; for a busy machine.",
)
@shared.SHAPING
@shared.WATCHING
@shared.REDUCING
@shared.LEAVING
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
    """Run TARGET at several sizes, one after the other, and say by which law its compile cost
    grows.

    Costs are CPU seconds of the compiler, phase by phase, and peak memory. For each phase the
    simplest law that explains them is fitted, and the full size is predicted with an interval. A
    phase that grows faster than the model, and matters at that size, is the verdict
    superlinear-compile.

    \b
    Examples:
      reprokit scale --model llama40b --layers 1,2,4,8
      reprokit scale --model llama-tiny --sequence-length 32,64,128,256 --layers 4 --at 4096
      reprokit scale model.py:make --set depth=2,4,8,16 --train
    """
    from reprokit.core.shared.errors import BadInput
    from reprokit.host.pipeline import measure_growth as line

    try:
        if "command" in ctx.meta:
            raise BadInput(
                "a command has no size that reprokit could set; scale needs a model or a factory"
            )
        knob, sizes, fixed = _sizes({k: options[k] for k in KNOBS}, assigned)
        if at is not None and at < max(sizes):
            raise BadInput(
                f"--at {at} is smaller than a size that is run ({max(sizes)}); name the full size"
            )
        words = {k: fixed.get(k, sizes[0] if k == knob else None) for k in KNOBS}
        request = one_run.read_request(ctx, target, rest, model, {**UNUSED, **options, **words})
        _check_knobs(request, (knob, *fixed))
        request.knobs.update(fixed)
        with terminal.LiveStatus(is_quiet=as_json) as live:
            captured = line.measure_growth(
                request, knob, sizes, at, output_dir, live.say, live.show, repeats, live.show_status
            )
    except BadInput as problem:
        if as_json:
            out.RESULTS.json({**one_run.refusal(str(problem)), "growth": None})
        raise
    if as_json:
        out.RESULTS.json({**captured.to_json(), "growth": captured.seen.growth})
    else:
        print_capture.print_table(captured.seen.growth)
        out.RESULTS.line()
        print_capture.captured_run(captured)
    ctx.exit(one_run.exit_code(captured.verdict))


def _sizes(
    given: dict[str, str | None], assigned: tuple[str, ...]
) -> tuple[str, list[int], dict[str, int]]:
    """The knob that has several values, these, and the knobs that have one."""
    from reprokit.core.shared.errors import BadInput

    rows = [
        (name, text, f"--{name.replace('_', '-')}")
        for name, text in given.items()
        if text is not None
    ]
    for word in assigned:
        name, equals, text = word.partition("=")
        if not equals or not name.isidentifier():
            raise BadInput(f"--set {word}: write NAME=N,N,N, such as --set depth=2,4,8")
        rows.append((name, text, f"--set {name}"))
    found: dict[str, list[int]] = {}
    for name, text, words in rows:
        parts = [part.strip() for part in text.split(",")]
        wrong = [part for part in parts if not re.fullmatch(r"[0-9]{1,9}", part) or not int(part)]
        if wrong:
            raise BadInput(
                f"{words}: {wrong[0]!r} is no size; give integers from 1 on with commas between,"
                " such as 1,2,4,8"
            )
        if name in found:
            raise BadInput(f"{name} is given twice")
        found[name] = [int(part) for part in parts]
    several = [name for name, sizes in found.items() if len(sizes) > 1]
    if len(several) != 1:
        said = f"{' and '.join(several)} have" if several else "none has"
        raise BadInput(
            f"exactly one size must have several values, and {said}; write for example --layers"
            " 1,2,4,8"
        )
    knob = several[0]
    sizes = found.pop(knob)
    if len(set(sizes)) < len(sizes):
        raise BadInput(f"{knob}={','.join(map(str, sizes))} holds a size twice; each is run once")
    if len(sizes) < 3:
        raise BadInput(
            f"{knob} has {len(sizes)} sizes, and no law can be told from fewer than 3; four or more"
            " are better"
        )
    return knob, sorted(sizes), {name: row[0] for name, row in found.items()}


def _check_knobs(request: Any, names: tuple[str, ...]) -> None:
    """A zoo model says what it takes; a factory is asked when it is called."""
    from reprokit.core.shared.errors import BadInput
    from reprokit.core.shared.zoo import ZOO

    if request.target.kind == "zoo":
        takes = [k for k, v in ZOO[request.target.name].knobs.items() if isinstance(v, int)]
        unknown = [name for name in names if name not in takes]
        if unknown:
            raise BadInput(
                f"{request.target.name} takes no {unknown[0]}; it takes {', '.join(takes)}"
            )
