"""Write parts of pages from the code: the commands with their options, and tables.

MkDocs calls :func:`on_page_markdown` for each page. A line ``<!-- command: NAME -->`` becomes the
reference of the command, made from the objects of click: its options by the groups of its help,
each with its default, its environment variable and its values. mkdocs-click has neither groups nor
variables, and shows no default with click 8.3. A line ``<!-- generated: NAME -->`` becomes a table.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from typing import Any

import click

MARK = re.compile(r"^<!-- (?P<what>command|generated): (?P<name>[a-z ]+) -->$", re.MULTILINE)
COMMON_OPTIONS = frozenset({"--verbose", "--quiet", "--color", "--help", "--help-all"})
"""The options that every command has. The page has them once."""
MAX_TABLE_ROWS = 8
"""A command with at most this many options has one table."""


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Replace each mark of a page with the reference of its command, or its table."""

    def generate(match: re.Match[str]) -> str:
        if match["what"] == "command":
            return command_reference(match["name"])
        return TABLES[match["name"]]()

    return MARK.sub(generate, markdown)


def command_reference(name: str) -> str:
    """Return the Markdown of a command such as ``capture`` or ``nightly run``; of a group, that of
    the group and of each of its commands below a heading of its own.
    """
    from reprokit.cli.main import cli

    context: click.Context = click.Context(cli, info_name="reprokit")
    command: click.Command = cli
    for word in name.split():
        assert isinstance(command, click.Group)
        below = command.get_command(context, word)
        assert below is not None, f"there is no command {name!r}"
        context, command = click.Context(below, info_name=word, parent=context), below
    return "\n".join(_lines(context, command))


def _lines(context: click.Context, command: click.Command) -> Iterator[str]:
    about, examples = split_help(command.help or "")
    yield from (about, "")
    if not isinstance(command, click.Group):
        pieces = " ".join(command.collect_usage_pieces(context))
        yield from ('```text title="Usage"', f"{context.command_path} {pieces}", "```", "")
    if examples:
        yield from ('```console title="Examples"', *(f"$ {line}" for line in examples), "```", "")
    for title, options in option_groups(context, command):
        yield from (f"| {title} | |", "| :--- | :--- |")
        yield from (option_row(option) for option in options)
        yield ""
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            below = command.get_command(context, name)
            assert below is not None
            yield from (f"### `{context.command_path} {name}`", "")
            yield from _lines(click.Context(below, info_name=name, parent=context), below)


def split_help(text: str) -> tuple[str, list[str]]:
    """Return the paragraphs of a help text, and the command lines of its examples."""
    paragraphs = inspect.cleandoc(text.split("\f")[0]).split("\n\n")
    about: list[str] = []
    examples: list[str] = []
    for paragraph in paragraphs:
        lines = [line.strip() for line in paragraph.splitlines() if line.strip(" \b")]
        calls = [line[line.index("reprokit ") :] for line in lines if "reprokit " in line]
        if "\b" in paragraph and calls:
            gits = [line for line in lines if line.startswith("git ")]
            examples += [line for line in lines if line in gits] + [
                call for call in calls if not any(call in line for line in gits)
            ]
        elif lines:
            about.append(escape_text(" ".join(lines)))
    return "\n\n".join(about), examples


def option_groups(
    context: click.Context, command: click.Command
) -> Iterator[tuple[str, list[click.Option]]]:
    """Yield the own options of a command below the headings of its help; the rare ones, which only
    ``--help-all`` shows, last in each group.
    """
    options = [option for option in _options(context, command) if not is_common(option)]
    groups: dict[str, list[click.Option]] = {}
    for option in options:
        title = getattr(option, "section", "") if len(options) > MAX_TABLE_ROWS else ""
        groups.setdefault(title or "Options", []).append(option)
    for title, rows in groups.items():
        yield title, sorted(rows, key=_is_rare)


def is_common(option: click.Option) -> bool:
    """Return whether every command has the option."""
    return not COMMON_OPTIONS.isdisjoint(option.opts)


def _options(context: click.Context, command: click.Command) -> list[click.Option]:
    return [p for p in command.get_params(context) if isinstance(p, click.Option)]


def _is_rare(option: click.Option) -> bool:
    return bool(getattr(option, "is_rare", False))


def option_row(option: click.Option) -> str:
    """Return the row of an option: its spellings and value, and its help."""
    names = ", ".join(f"`{name}`" for name in (*option.opts, *option.secondary_opts))
    return f"| {names}{_value(option)} | {escape_text(option.help or '')}{_facts(option)} |"


def _value(option: click.Option) -> str:
    if option.is_flag or option.count:
        return ""
    if isinstance(option.type, click.Choice) and option.metavar is None:
        return " " + " \\| ".join(f"`{choice}`" for choice in option.type.choices)
    name = option.metavar or {
        "path": "PATH",
        "text": "TEXT",
        "number": "N",
        "integer range": "N",
        "integer": "N",
    }.get(option.type.name, "SECONDS" if "float" in option.type.name else option.type.name.upper())
    return f" `{name}`"


def _facts(option: click.Option) -> str:
    facts = ["rare"] if _is_rare(option) else []
    if option.required:
        facts.append("required")
    if option.multiple and "repeated" not in (option.help or ""):
        facts.append("may be given several times")
    if option.show_default and isinstance(option.default, (str, int, float)) and not option.is_flag:
        facts.append(f"default: `{option.default}`")
    if isinstance(option.type, (click.IntRange, click.FloatRange)):
        ends = (option.type.min, option.type.max)
        words = [
            f"{word} {end:g}"
            for word, end in zip(("at least", "at most"), ends, strict=True)
            if end is not None
        ]
        facts.append(" and ".join(words))
    if option.envvar:
        names = [option.envvar] if isinstance(option.envvar, str) else option.envvar
        facts.append("environment variable " + ", ".join(f"`{name}`" for name in names))
    return f"<br>*{'; '.join(facts)}*".replace("|", "\\|") if facts else ""


def escape_text(text: str) -> str:
    """Return a plain text that Markdown shows as it is, also in a table."""
    marked = re.sub(r"([\\`*_{}\[\]<>#|])", r"\\\1", " ".join(text.split()))
    return re.sub(r"(?<!\S)(--?[a-zA-Z][\w-]*)", r"`\1`", marked.replace("\\_", "_"))


def _common_options() -> str:
    from reprokit.cli.main import cli

    context = click.Context(cli, info_name="reprokit")
    command = cli.get_command(context, "show")
    assert command is not None
    below = click.Context(command, info_name="show", parent=context)
    options = [option for option in _options(below, command) if is_common(option)]
    rows = ("| Option | |", "| :--- | :--- |", *map(option_row, options))
    return "\n".join(rows)


def _pack_files() -> str:
    from reprokit.host.pack.writer import FILE_DESCRIPTIONS

    own = (
        ("README.md", "a short introduction for the person who gets the pack"),
        ("manifest.json", "size and SHA-256 of each file, what was cut, and how much was hidden"),
    )
    rows = (f"| `{name}` | {escape_text(about)} |" for name, about in (*FILE_DESCRIPTIONS, *own))
    return "\n".join(("| file | content |", "| --- | --- |", *rows))


def _hang_causes() -> str:
    from reprokit.core.judge.hangs.hang_causes import EXPLAIN

    rows = (f"| `{cause}` | {escape_text(about)} |" for cause, about in EXPLAIN.items())
    return "\n".join(("| cause | meaning |", "| --- | --- |", *rows))


TABLES = {
    "common options": _common_options,
    "hang causes": _hang_causes,
    "pack files": _pack_files,
}
"""The tables by the names in their marks."""
