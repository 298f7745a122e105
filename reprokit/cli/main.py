"""The command group. A command is imported when it is called, so that ``--help`` is fast."""

from __future__ import annotations

import importlib
import sys

import click

from reprokit import __version__
from reprokit.cli.shared import config_file, out
from reprokit.cli.shared.command_classes import CommandGroup, Option
from reprokit.host.system import inherited_settings, interrupts

COMMANDS = {
    "ablate": "Find the backends, modes and settings with which it fails.",
    "attach": "Find out why a running process does not advance, without stopping it.",
    "bisect": "Find the torch in which a failure started, or was fixed.",
    "capture": "Run a program or a model, record torch.compile and write a pack.",
    "check": "Report whether a program has the failure of a pack, for git bisect and reducers.",
    "conditions": "Find what a failure needs of the machine, the process and the settings.",
    "env": "Print what a pack contains about this machine and interpreter.",
    "hunt": "Look for failures of the compiler that nobody has reported.",
    "issue": "Show which text of a pack goes into which field of an issue; nothing is posted.",
    "kernel": "Compile a Triton kernel for several architectures, and try remedies.",
    "known": "Say whether a failure is known, and what avoids it.",
    "mcp": "Serve the commands to an agent, over the Model Context Protocol.",
    "merge": "Say which rank of a distributed program the others wait for.",
    "minimize": "Find the smallest program with the same failure.",
    "models": "List the models of the zoo or of transformers.",
    "nightly": "Run a suite every night and report what is new.",
    "pack": "Pack a run directory again, also one whose capture was killed.",
    "replay": "Run the repro of a pack again and report whether it fails in the same way.",
    "scale": "Measure how compile cost grows with a size, and predict the full size.",
    "schema": "Print the JSON Schema of the output of a command.",
    "scrub": "Say whether the failure of an issue still occurs, and draft a comment.",
    "show": "Verify a pack and print its contents.",
    "watch": "Watch a service for days, and write a pack when it locks up.",
    "workarounds": "Find what avoids a failure, and whether compile is worth it.",
}
STOPS_GIT = 128
"""``git bisect run`` takes a lower exit code as a result for the commit: 2 would mean bad."""


class _Lazy(CommandGroup):
    """A group that imports a command only to run it."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted(COMMANDS)

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        if name not in COMMANDS:
            return None
        command = getattr(importlib.import_module(f"reprokit.cli.commands.{name}"), name)
        assert isinstance(command, click.Command)
        return command

    def handle_bad_command_name(
        self, bad_name: str, valid_names: list[str], error: click.UsageError
    ) -> click.UsageError:
        return super().handle_bad_command_name(bad_name, [*COMMANDS], error)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(sorted(COMMANDS.items()))


def _isolate(ctx: click.Context, option: click.Parameter, is_wanted: bool) -> None:
    if is_wanted:
        ctx.meta[config_file.IS_ISOLATED] = True
        ctx.auto_envvar_prefix = None


@click.group(
    cls=_Lazy,
    context_settings={
        "help_option_names": ["-h", "--help"],
        "auto_envvar_prefix": config_file.PREFIX,
    },
    epilog=(
        "Exit codes: 0 no failure, 1 a failure was captured, 2 wrong usage, 3 unknown, 130"
        " interrupted."
    ),
)
@click.option(
    "--config",
    cls=Option,
    type=click.Path(),
    help=(
        "Read the options of this file; default: the nearest reprokit.toml, or pyproject.toml with"
        " [tool.reprokit]."
    ),
)
@click.option(
    "--isolated",
    cls=Option,
    is_flag=True,
    is_eager=True,
    expose_value=False,
    allow_from_autoenv=False,
    callback=_isolate,
    help="Read no configuration file, and only the environment variables in the help of a command.",
)
@click.version_option(__version__, prog_name="reprokit")
@click.pass_context
def cli(ctx: click.Context, config: str | None) -> None:
    """Turn a failing, hanging or crashing torch.compile run into a reproduction pack for its
    maintainers.

    \b
    reprokit capture --model llama40b
    reprokit capture model.py:make_model --mode max-autotune
    reprokit capture -- python train.py --steps 10
    """
    ctx.meta[config_file.NAMED_FILE] = config


def _keep_traceback() -> str:
    import tempfile
    import traceback

    try:
        with tempfile.NamedTemporaryFile(
            "w", prefix="reprokit-defect-", suffix=".txt", delete=False
        ) as file:
            traceback.print_exc(file=file)
        return file.name
    except OSError as problem:  # for example a full disk
        return (
            f"the last line, {traceback.format_exc().strip().splitlines()[-1]} ({problem.strerror})"
        )


def _stop(code: str, message: str) -> None:
    """Print one line on stderr. With ``--json``, print the error on stdout too."""
    out.print_line(message)
    if out.SETTINGS.is_json and not out.RESULTS.has_json:
        from reprokit.cli.documents.error_documents import error_document

        out.RESULTS.print_json(error_document(code, message))


def main() -> None:
    """Run the command line; wrong usage is one line on stderr and exit code 2."""
    from reprokit.core.judge import machine_limits
    from reprokit.core.shared.errors import BadInput

    inherited_settings.take_over_settings()
    signals_before = interrupts.count
    own_words = sys.argv[1 : sys.argv.index("--")] if "--" in sys.argv else sys.argv[1:]
    out.SETTINGS.is_json = "--json" in own_words
    try:
        status = cli.main(standalone_mode=False)
    except (click.exceptions.Abort, KeyboardInterrupt):
        status = 130
    except (click.UsageError, BadInput) as problem:
        # click 8.2 raises it; an older click prints the help itself
        if type(problem).__name__ == "NoArgsIsHelpError":
            out.PROGRESS.print_text(problem.format_message() + "\n")  # type: ignore[union-attr]
            sys.exit(2)
        if isinstance(problem, click.UsageError):
            _stop("usage", problem.format_message())
        else:
            _stop(problem.code, str(problem))
        status = 2
    except click.exceptions.Exit as left:
        status = left.exit_code
    except Exception as problem:
        status = 3
        if out.RESULTS.is_lost():  # click printed a help text
            pass
        elif spent := machine_limits.limit_in(problem):
            status = 2
            _stop("machine-limit", f"cannot go on: {spent}")
        else:  # a defect of reprokit: the traceback is written to a file
            where = _keep_traceback()
            _stop("defect", f"this is a defect of reprokit; please report it with {where}")
    if interrupts.count > signals_before:
        status = 130
    if status == 130 and out.SETTINGS.is_json and not out.RESULTS.has_json:
        from reprokit.cli.documents.error_documents import error_document

        out.RESULTS.print_json(error_document("interrupted", "it was interrupted"))
    if status in (2, 3) and "bisect" in own_words and "--git" in own_words:
        status = STOPS_GIT
    sys.exit(status if isinstance(status, int) else 0)
