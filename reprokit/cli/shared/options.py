"""Options of several commands, and the types of their values."""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from reprokit.cli.shared import out
from reprokit.cli.shared.command_classes import Command, CommandWithTarget, Option
from reprokit.cli.shared.option_types import (
    PLACE,
    SECONDS,
    DurationType,
    GpuType,
    TargetType,
    WholeNumber,
)
from reprokit.core.shared.errors import BadInput

option = functools.partial(click.option, cls=Option)
"""Decorator for an option that files and variables may set."""
command = functools.partial(click.command, cls=Command)
target_command = functools.partial(click.command, cls=CommandWithTarget)
"""Decorators for commands; the second is for those that take a command line after ``--``."""
DEFAULT_PYTHON = "reprokit's own, or if that has no torch the one of VIRTUAL_ENV or .venv"
"""The default of ``--python``, for help texts."""


def at_least(number: int) -> WholeNumber:
    """Return the type of a whole number that is not smaller."""
    return WholeNumber(number)


def _together(*options: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Return one decorator for several options, which the help lists in this order."""

    def add_options(command: Any) -> Any:
        for option in reversed(options):
            command = option(command)
        return command

    return add_options


MODEL, COMPILE, ENDS = "Model", "Compile", "End of a run"
FINDINGS, REPRO, EVIDENCE, OUTPUT_SECTION = "Findings", "Repro", "Evidence", "Output"
"""Sections of the help."""

JSON = option(
    "--json",
    "as_json",
    is_flag=True,
    section=OUTPUT_SECTION,
    help="Print one JSON object on stdout and nothing else; see reprokit schema.",
)
MATCH = option(
    "--match",
    "name",
    metavar="NAME",
    help="The process whose command line contains NAME.",
)
PORTS = option(
    "--port",
    "ports",
    type=WholeNumber(1, 65535),
    multiple=True,
    help="A TCP port on which it answers every request: while one is open, it is not idle.",
)
YES = option(
    "--yes",
    is_flag=True,
    section=OUTPUT_SECTION,
    help="Run the program of the pack without asking.",
)
CACHES = _together(
    option(
        "--caches",
        section=FINDINGS,
        is_flag=True,
        help=(
            "If nothing fails, run again with the caches of the first run: warm, loaded from saved"
            " artifacts, and after a setting changed. A command runs once more, unchanged."
        ),
    ),
    option(
        "--cache-change",
        section=FINDINGS,
        is_rare=True,
        multiple=True,
        metavar="NAME=VALUE",
        help=(
            "With --caches: what changes in the last stage, an environment variable or a setting"
            " such as torch._inductor.config.epilogue_fusion; default: that setting, for a factory."
        ),
    ),
    option(
        "--cache-python",
        section=FINDINGS,
        is_rare=True,
        metavar="PYTHON",
        help="With --caches: the interpreter of the last stage, for example with another torch.",
    ),
)
STALL = option(
    "--stall",
    type=SECONDS,
    default="60s",
    show_default=True,
    section=ENDS,
    help="No progress for this long is a hang.",
)

NAMING = _together(
    click.argument("target", required=False, type=TargetType()),
    click.argument("rest", nargs=-1),
    option(
        "--model",
        type=TargetType(),
        metavar="TARGET",
        section=MODEL,
        help=(
            "The same as TARGET: a zoo name (see reprokit models), hf:TYPE, file.py:factory or"
            " package.module:factory."
        ),
    ),
)
"""Options that name the target."""

SHAPING = _together(
    option(
        "--dtype",
        section=MODEL,
        type=click.Choice(["float64", "float32", "bfloat16", "float16"]),
        help="Element type of the weights.",
    ),
    option(
        "--mode",
        section=COMPILE,
        help="torch.compile(mode=...), such as reduce-overhead or max-autotune.",
    ),
    option("--backend", section=COMPILE, help="torch.compile(backend=...); default inductor."),
    option(
        "--dynamic/--no-dynamic",
        section=COMPILE,
        default=None,
        help="torch.compile(dynamic=True or False); default: as torch decides.",
    ),
    option(
        "--fullgraph",
        section=COMPILE,
        is_flag=True,
        help="torch.compile(fullgraph=True): a graph break is a failure.",
    ),
    option(
        "--train",
        section=MODEL,
        is_flag=True,
        help="Run backward too, on the mean square of the outputs.",
    ),
    option("--device", section=MODEL, help="Build and run on this device, such as cpu or cuda:0."),
    option(
        "--gpu",
        section=MODEL,
        type=GpuType(),
        metavar="NAME|FILE",
        help=(
            "Compile for a simulated GPU: a100, h100, h200, b200, b300, l40s, rtx4090, rtx5090, or"
            " a file that reprokit env --gpu wrote. Nothing runs."
        ),
    ),
    option(
        "--weights",
        section=MODEL,
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
    option(
        "--timeout",
        section=ENDS,
        type=SECONDS,
        envvar="TORCH_COMPILE_TIMEOUT",
        help="Deadline, such as 90s or 1h30m; default: 10m for a factory, none for a command.",
    ),
    option(
        "--stall",
        section=ENDS,
        type=SECONDS,
        default="60s",
        show_default=True,
        help="No progress for this long is a stall.",
    ),
    option(
        "--on-stall",
        section=ENDS,
        is_rare=True,
        type=click.Choice(["report", "end"]),
        help=(
            "What to do at a stall: report prints the stacks once and the program goes on; end ends"
            " the program. Default: end in the compiler, in compiled code and for a factory; report"
            " elsewhere."
        ),
    ),
    option(
        "--grace",
        section=ENDS,
        is_rare=True,
        type=DurationType(is_zero_fine=True),
        default="10s",
        show_default=True,
        help=(
            "Time that a program has to end after Ctrl-C, SIGTERM, a deadline or a stall; then"
            " it is killed."
        ),
    ),
)
"""Options for when a run ends."""

PROOFS = option(
    "--proofs",
    section=REPRO,
    is_rare=True,
    type=WholeNumber(1, 100),
    default=3,
    envvar="REPROKIT_PROOFS",
    show_default=True,
    help="Number of runs that prove the repro; at least 8 for a flaky failure.",
)
CORES = option(
    "--cores",
    section=REPRO,
    is_rare=True,
    type=WholeNumber(1, 4096),
    envvar="REPROKIT_CORES",
    help="Processes that may run at once after the target has ended; default: the usable cores.",
)
REDUCING = _together(
    option(
        "--minimize/--no-minimize",
        section=REPRO,
        default=True,
        envvar="REPROKIT_MINIMIZE",
        help="Search for the smallest program with the same failure; default: yes.",
    ),
    option(
        "--budget",
        section=REPRO,
        type=SECONDS,
        default="5m",
        show_default=True,
        help="Time for the minimization without its proof; the best result so far is kept. On a"
        " busy machine it is up to three times as long.",
    ),
    PROOFS,
    CORES,
)
"""Options of the minimization."""

OUTPUT_DIR = option(
    "--output-dir",
    section=OUTPUT_SECTION,
    type=click.Path(path_type=Path),
    help="Folder for the run directory and the pack; default reprokit-out/<target>-<time>.",
)
OUTPUT = _together(
    OUTPUT_DIR,
    option(
        "--python",
        section=MODEL,
        type=PLACE,
        help=f"Interpreter for a factory target; default: {DEFAULT_PYTHON}.",
    ),
    JSON,
)
"""Options for the interpreter and the output."""

_RUNNING = (
    option("--python", type=PLACE, help=f"Interpreter to use; default: {DEFAULT_PYTHON}."),
    option(
        "--timeout",
        type=SECONDS,
        default="10m",
        show_default=True,
        help="Deadline of the first run.",
    ),
    YES,
    option(
        "--output-dir",
        type=click.Path(path_type=Path),
        help="Folder for the output; default: a new folder in reprokit-out.",
    ),
    JSON,
)
PACK_OR_TARGET = _together(
    click.argument("pack_or_target", type=TargetType(takes_packs=True), metavar="PACK|TARGET"),
    *_RUNNING,
)
"""Options of commands that take a pack, or a target that they capture first."""
PACK_OR_COMMAND = _together(
    click.argument(
        "pack_or_target",
        required=False,
        type=TargetType(takes_packs=True),
        metavar="[PACK|TARGET|-- COMMAND]",
    ),
    *_RUNNING,
)
"""The same for a command that also takes a command line after ``--``."""


def interpreter_option(name: str | None) -> str:
    """Return the interpreter of ``--python``, or the default one.

    A default that is not reprokit's own interpreter is printed on stderr.
    """
    from reprokit.host.request import interpreter as interpreters

    if name is not None:
        return interpreters.check_interpreter(name)
    path, why = interpreters.default_interpreter()
    if why:
        out.print_note(why)
    return interpreters.check_interpreter(path)


def read_caches(options: dict[str, Any]) -> dict[str, Any]:
    """Return the fields of the request for ``--caches``; raises BadInput for other uses of its
    options.
    """
    change: dict[str, str] = {}
    for text in options["cache_change"]:
        name, sign, value = text.partition("=")
        if not sign or not all(word.isidentifier() for word in name.split(".")):
            raise BadInput(f"--cache-change {text!r} is not NAME=VALUE")
        change[name] = value
    if options["caches"] and options["gpu"] is not None:
        raise BadInput("--caches cannot be used with --gpu: nothing runs on a simulated GPU")
    python = options["cache_python"]
    if (change or python) and not options["caches"]:
        raise BadInput("--cache-change and --cache-python need --caches")
    return {
        "checks_caches": options["caches"],
        "cache_change": change,
        "cache_python": interpreter_option(python) if python else "",
    }


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
