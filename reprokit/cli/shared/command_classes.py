"""Commands and options: groups in the help, rare options, variables, files, and common options.

cloup draws the groups. It is the smaller of the two libraries that do: rich-click imports rich for
each ``--help``.
"""

from __future__ import annotations

from typing import Any

import click
import cloup
from click.core import ParameterSource

from reprokit.cli.shared import config_file, out

COMMON_OPTIONS = (
    "ablate",
    "budget",
    "catalogue",
    "color",
    "compare",
    "cores",
    "grace",
    "json",
    "minimize",
    "on-stall",
    "proofs",
    "python",
    "quiet",
    "stall",
    "verbose",
    "yes",
)
"""Options with one meaning in all commands that have them. They have a variable without the name of
a command, and are allowed at the top level of a file.
"""
MAX_UNGROUPED = 8
"""A command with at most this many options of its own has no sections in its help."""
SHOWS_ALL = "reprokit.shows_all"
"""Key of ``ctx.meta``: the help shows rare options and variables."""


class Option(cloup.Option):
    """An option of a command.

    ``section`` is its heading in the help. A rare option is only in the output of ``--help-all``.
    """

    def __init__(self, *words: Any, section: str = "", is_rare: bool = False, **more: Any) -> None:
        super().__init__(*words, **more)
        self.section = section
        self.is_rare = is_rare

    @property
    def word(self) -> str:
        """The name without dashes at its beginning, which is the key in files."""
        return max(self.opts, key=len).lstrip("-")

    def variables(self, ctx: click.Context) -> list[str]:
        """Return the environment variables of the option; the first that is set counts."""
        names = []
        if ctx.auto_envvar_prefix and self.allow_from_autoenv:
            word = self.word.replace("-", "_").upper()
            names.append(f"{ctx.auto_envvar_prefix}_{word}")
            if ctx.parent and ctx.parent.parent:  # for all commands of nightly
                names.append(f"{ctx.parent.auto_envvar_prefix}_{word}")
            if self.word in COMMON_OPTIONS:
                names.append(f"{config_file.PREFIX}_{word}")
        explicit = [self.envvar] if isinstance(self.envvar, str) else self.envvar or ()
        return list(dict.fromkeys((*names, *explicit)))

    def resolve_envvar_value(self, ctx: click.Context) -> str | None:
        """Return the text of the first variable that is set and not empty."""
        return next(filter(None, map(config_file.read_variable, self.variables(ctx))), None)

    def get_error_hint(self, ctx: click.Context | None) -> str:
        """Return the option for an error, and where its value is from."""
        hint = " / ".join(f"'{word}'" for word in self.opts)
        source = ctx.get_parameter_source(self.name or "") if ctx else None
        if ctx and source is ParameterSource.ENVIRONMENT:
            name = next(filter(config_file.read_variable, self.variables(ctx)), "")
            return f"{hint} (variable {name})"
        if ctx and source is ParameterSource.DEFAULT_MAP:
            return f"{hint} ({self.word} in {config_file.path_of(ctx)})"
        return hint

    def get_help_record(self, ctx: click.Context) -> tuple[str, str] | None:
        """Return the row for the help; None if it is rare."""
        shows_all = ctx.meta.get(SHOWS_ALL, False)
        record = super().get_help_record(ctx) if shows_all or not self.is_rare else None
        explicit = [self.envvar] if isinstance(self.envvar, str) else []
        names = self.variables(ctx) if shows_all else explicit
        if record and names:
            return record[0], f"{record[1]}  [env var: {', '.join(names)}]"
        return record


def _is_called(ctx: click.Context) -> bool:
    """Return False for a completion, and for a command whose defaults another command reads."""
    return ctx.parent is not None and not ctx.resilient_parsing


def _show_all(ctx: click.Context, option: click.Parameter, is_wanted: bool) -> None:
    if is_wanted and _is_called(ctx):
        ctx.meta[SHOWS_ALL] = True
        out.RESULTS.print_text(ctx.get_help() + "\n")
        ctx.exit()


def _show_log(ctx: click.Context, option: click.Parameter, is_wanted: bool) -> None:
    if is_wanted and _is_called(ctx):
        from reprokit.host.system import host_log

        out.SETTINGS.is_verbose = True
        host_log.show_log(out.print_line)


def _hide_progress(ctx: click.Context, option: click.Parameter, is_wanted: bool) -> None:
    if _is_called(ctx):
        out.SETTINGS.is_quiet = is_wanted


def _set_color(ctx: click.Context, option: click.Parameter, color: str) -> None:
    if _is_called(ctx):
        out.SETTINGS.color = color


def _common_options(rare: int) -> list[Option]:
    """Return new objects of the options that every command has."""
    more = f"Also show {rare} rare options and the variable" if rare else "Also show the variable"
    common: dict[str, Any] = {"is_eager": True, "expose_value": False}
    return [
        Option(
            ["-v", "--verbose"],
            is_flag=True,
            callback=_show_log,
            help=(
                "Show on stderr the log of the run directory (reprokit.log), and print all that"
                " a capture found."
            ),
            **common,
        ),
        Option(
            ["-q", "--quiet"],
            is_flag=True,
            callback=_hide_progress,
            help="Print no progress, only the result and errors.",
            **common,
        ),
        Option(
            ["--color"],
            type=click.Choice(["auto", "always", "never"]),
            default="auto",
            show_default=True,
            callback=_set_color,
            help="Use colours; auto: on a terminal, if NO_COLOR is not set.",
            **common,
        ),
        Option(
            ["--help-all"],
            is_flag=True,
            allow_from_autoenv=False,
            callback=_show_all,
            help=f"{more} of each option, and exit.",
            **common,
        ),
    ]


class Command(cloup.Command):
    """A command that reads files and variables, and has the common options."""

    def __init__(self, *words: Any, params: list[click.Parameter] | None = None, **more: Any):
        params = list(params or ())
        sections: dict[str, cloup.OptionGroup] = {}
        has_sections = sum(isinstance(option, Option) for option in params) > MAX_UNGROUPED
        for option in params:
            if isinstance(option, Option) and option.section and has_sections:
                title = option.section
                option.group = sections.setdefault(title, cloup.OptionGroup(title))
        params += _common_options(sum(getattr(option, "is_rare", False) for option in params))
        super().__init__(*words, params=params, **more)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Read the options, after those of the file are known as defaults."""
        if _is_called(ctx):
            out.SETTINGS.is_json = "--json" in args  # also a wrong option is an error in JSON
            ctx.default_map = config_file.defaults_of_command(ctx, COMMON_OPTIONS, words_of_options)
            for option in self.params:
                if option.name == "as_json":
                    value, _ = option.consume_value(ctx, {})
                    out.SETTINGS.is_json |= bool(option.process_value(ctx, value))
        return super().parse_args(ctx, args)

    def format_params(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the options by section, without sections that have only rare options."""
        for group in self.option_groups:
            group.hidden = False
            group.hidden = not group.get_help_records(ctx)
        super().format_params(ctx, formatter)


class CommandWithTarget(Command):
    """A command that keeps the words after ``--`` unchanged, as the target's command line."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Read the options before ``--``."""
        if "--" in args:
            position = args.index("--")
            ctx.meta["command"] = tuple(args[position + 1 :])
            args = args[:position]
        return super().parse_args(ctx, args)


class CommandGroup(cloup.Group):
    """A group of commands."""

    command_class = Command


def is_given(ctx: click.Context, name: str) -> bool:
    """Return whether the user wrote this option on the command line."""
    return ctx.get_parameter_source(name) is ParameterSource.COMMANDLINE


def words_of_options(command: click.Command) -> dict[str, Option]:
    """Return the options of a command by the word that files use."""
    return {option.word: option for option in command.params if isinstance(option, Option)}
