"""Options of several commands, and the types of their values."""

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
            self.fail("must be a number of seconds above 0", param, ctx)
        return float(seconds)


SECONDS = _Seconds()
DEFAULT_PYTHON = "reprokit's own, or if that has no torch the one of VIRTUAL_ENV or .venv"
"""The default of ``--python``, for help texts."""


def _together(*options: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Return one decorator for several options, which the help lists in this order."""

    def add_options(command: Any) -> Any:
        for option in reversed(options):
            command = option(command)
        return command

    return add_options


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
"""Options that name the target."""

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
            "Compile for a simulated GPU: a100, h100, h200, b200, b300, l40s, rtx4090, rtx5090, or"
            " a file that reprokit env --gpu wrote. Nothing runs."
        ),
    ),
    click.option(
        "--weights",
        type=click.Choice(["auto", "real", "fake"]),
        default="auto",
        show_default=True,
        help=(
            "fake: use no memory, compile to the end of code generation, and run nothing. auto:"
            " fake if a zoo or hf: model does not fit in the free memory."
        ),
    ),
)
"""Options for how a model is built and compiled."""

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
            "What to do at a stall: report prints the stacks once and the program goes on; end ends"
            " the program. Default: end in the compiler, in compiled code and for a factory; report"
            " elsewhere."
        ),
    ),
    click.option(
        "--grace",
        type=click.FloatRange(min=0),
        default=10.0,
        show_default=True,
        help=(
            "Seconds that a program has to end after Ctrl-C, SIGTERM, a deadline or a stall; then"
            " it is killed."
        ),
    ),
)
"""Options for when a run ends."""

PROOFS = click.option(
    "--proofs",
    type=click.IntRange(1, 100),
    default=3,
    envvar="REPROKIT_PROOFS",
    show_envvar=True,
    show_default=True,
    help="Number of fresh processes that prove the repro; at least 8 for a flaky failure.",
)
REDUCING = _together(
    click.option(
        "--minimize/--no-minimize",
        default=True,
        envvar="REPROKIT_MINIMIZE",
        show_envvar=True,
        help="Search for the smallest program with the same failure; default: yes.",
    ),
    click.option(
        "--budget",
        type=SECONDS,
        default=300.0,
        show_default=True,
        help="Seconds for the minimization without its proof; the best result so far is kept.",
    ),
    PROOFS,
)
"""Options of the minimization."""

OUTPUT = _together(
    click.option(
        "--output-dir",
        type=click.Path(path_type=Path),
        help="Folder for the run directory and the pack; default reprokit-out/<target>-<time>.",
    ),
    click.option("--python", help=f"Interpreter for a factory target; default: {DEFAULT_PYTHON}."),
    click.option(
        "--json", "as_json", is_flag=True, help="Print one JSON object on stdout and nothing else."
    ),
)
"""Options for the interpreter and the output."""

PACK_OR_TARGET = _together(
    click.argument("pack_or_target", metavar="PACK|TARGET"),
    click.option("--python", help=f"Interpreter to use; default: {DEFAULT_PYTHON}."),
    click.option(
        "--timeout",
        type=SECONDS,
        default=600.0,
        show_default=True,
        help="Deadline in seconds of the first run.",
    ),
    click.option("--yes", is_flag=True, help="Run the program of a pack without asking."),
    click.option(
        "--output-dir",
        type=click.Path(path_type=Path),
        help="Folder for the output; default: a new folder in reprokit-out.",
    ),
    click.option(
        "--json", "as_json", is_flag=True, help="Print one JSON object on stdout and nothing else."
    ),
)
"""Options of commands that take a pack, or a target that they capture first."""


def interpreter_option(name: str | None) -> str:
    """Return the interpreter of ``--python``, or the default one.

    A default that is not reprokit's own interpreter is printed on stderr.
    """
    from reprokit.host.request import interpreter as interpreters

    if name is not None:
        return interpreters.check_interpreter(name)
    path, why = interpreters.default_interpreter()
    if why:
        out.print_line(why)
    return interpreters.check_interpreter(path)


def is_pack(name: str) -> bool:
    """Return True for a pack and False for a target; raises BadInput for a missing pack."""
    path = Path(name)
    if path.is_dir():
        raise BadInput(
            f"{name} is a folder; name the pack beside it, or a target such as model.py:make"
        )
    if path.is_file() and not name.endswith(".py"):
        return True
    if name.endswith(".gz") or ("/" in name and ":" not in name and not name.endswith(".py")):
        raise BadInput(f"there is no pack {name}")
    return False
