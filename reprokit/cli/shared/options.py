"""Options, and kinds of their values, that several commands take."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from reprokit.cli.shared import out
from reprokit.core.shared.errors import BadInput


class _Seconds(click.types.FloatParamType):
    """A finite number above 0."""

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        seconds = super().convert(value, param, ctx)
        if not 0 < seconds < float("inf"):
            self.fail("give a number of seconds above 0", param, ctx)
        return float(seconds)


SECONDS = _Seconds()
USUAL = "reprokit's own, or where that has no torch the one of VIRTUAL_ENV or .venv"
"""The interpreter where ``--python`` names none."""


def _together(*options: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """One decorator for several options, in the order in which they are listed."""

    def add(command: Any) -> Any:
        for option in reversed(options):
            command = option(command)
        return command

    return add


NAMING = _together(
    click.argument("target", required=False),
    click.argument("rest", nargs=-1),
    click.option(
        "--model",
        metavar="TARGET",
        help=(
            "The same as TARGET: a zoo name (see reprokit models), hf:TYPE, file.py:factory or"
            " package.module:factory."
        ),
    ),
)
"""What is run."""

SHAPING = _together(
    click.option(
        "--dtype",
        type=click.Choice(["float64", "float32", "bfloat16", "float16"]),
        help="Element type of the weights.",
    ),
    click.option(
        "--mode", help="torch.compile(mode=...), such as reduce-overhead or max-autotune."
    ),
    click.option("--backend", help="torch.compile(backend=...); default inductor."),
    click.option(
        "--dynamic/--no-dynamic",
        default=None,
        help="torch.compile(dynamic=True or False); default: as torch decides.",
    ),
    click.option(
        "--fullgraph",
        is_flag=True,
        help="torch.compile(fullgraph=True): a graph break is a failure.",
    ),
    click.option(
        "--train", is_flag=True, help="Run backward too, on the mean square of the outputs."
    ),
    click.option("--device", help="Build and run on this device, such as cpu or cuda:0."),
    click.option(
        "--gpu",
        metavar="NAME|FILE",
        help=(
            "Compile for this GPU, which need not be there: a100, h100, h200, b200, b300, l40s,"
            " rtx4090, rtx5090, or a file that reprokit env --gpu wrote. Nothing runs."
        ),
    ),
    click.option(
        "--weights",
        type=click.Choice(["auto", "real", "fake"]),
        default="auto",
        show_default=True,
        help=(
            "fake: no memory, compile to the end of code generation, run nothing. auto: fake when a"
            " zoo or hf: model would not fit in free memory."
        ),
    ),
)
"""How a model is built and compiled."""

WATCHING = _together(
    click.option(
        "--timeout",
        type=SECONDS,
        envvar="TORCH_COMPILE_TIMEOUT",
        show_envvar=True,
        help="Deadline in seconds; default: 600 for a factory, none for a command.",
    ),
    click.option(
        "--stall",
        type=SECONDS,
        default=60.0,
        show_default=True,
        help="No progress for this many seconds is a stall.",
    ),
    click.option(
        "--on-stall",
        type=click.Choice(["report", "end"]),
        help=(
            "What a stall does: report prints the stacks once and lets the program go on, end ends"
            " it. Default: end in the compiler, in compiled code and for a factory; report"
            " elsewhere."
        ),
    ),
    click.option(
        "--grace",
        type=click.FloatRange(min=0),
        default=10.0,
        show_default=True,
        help=(
            "Seconds that a program has to end after Ctrl-C, SIGTERM, a deadline or a stall, before"
            " it is killed."
        ),
    ),
)
"""When a run is over."""

PROOFS = click.option(
    "--proofs",
    type=click.IntRange(1, 100),
    default=3,
    envvar="REPROKIT_PROOFS",
    show_envvar=True,
    show_default=True,
    help="How many fresh processes prove the repro; of a flaky failure at least 8.",
)
REDUCING = _together(
    click.option(
        "--minimize/--no-minimize",
        default=True,
        envvar="REPROKIT_MINIMIZE",
        show_envvar=True,
        help="Look for the smallest program that shows the same failure; default: yes.",
    ),
    click.option(
        "--budget",
        type=SECONDS,
        default=300.0,
        show_default=True,
        help="Seconds for the minimization without its proof; the best so far is kept.",
    ),
    PROOFS,
)
"""Whether a failure is made small."""

LEAVING = _together(
    click.option(
        "--output-dir",
        type=click.Path(path_type=Path),
        help="Where the run directory and the pack go; default reprokit-out/<target>-<time>.",
    ),
    click.option("--python", help=f"Interpreter for a factory target; default: {USUAL}."),
    click.option(
        "--json", "as_json", is_flag=True, help="Print one JSON object on stdout and nothing else."
    ),
)
"""Which interpreter runs it, and where what it leaves goes."""

ASKING = _together(
    click.argument("what", metavar="PACK|TARGET"),
    click.option("--python", help=f"Interpreter to ask; default: {USUAL}."),
    click.option(
        "--timeout",
        type=SECONDS,
        default=600.0,
        show_default=True,
        help="Deadline in seconds of the first run.",
    ),
    click.option("--yes", is_flag=True, help="Run what a pack holds without asking."),
    click.option(
        "--output-dir",
        type=click.Path(path_type=Path),
        help="Where to work; default below reprokit-out.",
    ),
    click.option(
        "--json", "as_json", is_flag=True, help="Print one JSON object on stdout and nothing else."
    ),
)
"""What is asked of a pack or of a target that is captured first."""


def interpreter_option(name: str | None) -> str:
    """The interpreter of ``--python``, or the usual one; says which, on stderr, where that is not
    reprokit's own.
    """
    from reprokit.host.request import interpreter as interpreters

    if name is not None:
        return interpreters.check_interpreter(name)
    path, why = interpreters.usual_interpreter()
    if why:
        out.print_line(why)
    return interpreters.check_interpreter(path)


def is_pack(what: str) -> bool:
    """True for a pack, False for what names a target; raises BadInput for a pack that is not
    there.
    """
    place = Path(what)
    if place.is_dir():
        raise BadInput(
            f"{what} is a folder; name the pack that stands beside it, or a target such as"
            " model.py:make"
        )
    if place.is_file() and not what.endswith(".py"):
        return True
    if what.endswith(".gz") or ("/" in what and ":" not in what and not what.endswith(".py")):
        raise BadInput(f"there is no pack {what}")
    return False
