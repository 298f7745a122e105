"""Options from ``reprokit.toml`` or ``[tool.reprokit]`` of ``pyproject.toml``.

Key insight: a file may be a stranger's, in a folder that was cloned. So it cannot give consent, and
a file in a folder that everybody may write to counts only if the user or root owns it.
"""

from __future__ import annotations

import dataclasses
import json
import os
import stat
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from reprokit.cli.shared import option_types
from reprokit.cli.shared.option_types import DurationType, PlaceType
from reprokit.core.shared.errors import BadInput
from reprokit.host.system import host_log

if TYPE_CHECKING:
    from reprokit.host.nightly.suite.toml_tables import TomlTable

PREFIX = "REPROKIT"
"""The beginning of the variables of options."""
OWN_FILE, PROJECT_FILE = "reprokit.toml", "pyproject.toml"
MAX_CONFIG_BYTES = 1 << 20
NAMED_FILE, IS_ISOLATED = "reprokit.config", "reprokit.is_isolated"
"""Keys of ``ctx.meta``: the file of ``--config``, and whether ``--isolated`` is given."""
_READ = "reprokit.config_table"


class BadConfiguration(BadInput):
    """A configuration file cannot be used."""

    code = "configuration"


@dataclass(frozen=True)
class ConfigFile:
    """A configuration file, and the table of reprokit in it."""

    path: Path
    table: TomlTable


def read_variable(name: str) -> str | None:
    """Return the value of an environment variable; None if it is not set."""
    return os.environ.get(name)


def path_of(ctx: click.Context) -> Path:
    """Return the path of the file that is in use."""
    found = ctx.meta[_READ]
    assert isinstance(found, ConfigFile)
    return found.path


OptionsOf = Callable[[click.Command], Mapping[str, click.Option]]
"""Returns the options of a command by the word that files use."""


def defaults_of_command(
    ctx: click.Context, common: Sequence[str], options_of: OptionsOf
) -> dict[str, Any]:
    """Return the values of the file for the options of a command, by the names of parameters.

    A table of a command comes before the options in ``common`` at the top level.

    Raises:
        BadConfiguration: the file cannot be read, or has an unknown key or a wrong type.
    """
    if ctx.meta.get(IS_ISOLATED):
        return {}
    if _READ not in ctx.meta:
        ctx.meta[_READ] = _find_file(ctx.meta.get(NAMED_FILE))
    found = ctx.meta[_READ]
    if found is None:
        return {}
    host_log.LOGGER.info("options are read from %s", found.path)
    try:
        return dict(_values(ctx, found, common, options_of))
    except BadConfiguration:
        raise
    except BadInput as problem:
        raise BadConfiguration(str(problem)) from problem


def _values(
    ctx: click.Context, found: ConfigFile, common: Sequence[str], options_of: OptionsOf
) -> Iterator[tuple[str, Any]]:
    lineage = [ctx]
    while lineage[0].parent is not None:
        lineage.insert(0, lineage[0].parent)
    own, table = options_of(ctx.command), found.table
    for depth, level in enumerate(lineage):
        command = level.command
        inside = command.list_commands(level) if isinstance(command, click.Group) else []
        known_options = set(common) if depth == 0 else set(options_of(command))
        if depth and isinstance(command, click.Group):
            for part in command.commands.values():
                known_options |= options_of(part).keys()
        known = {*inside, *known_options} - {"help-all"}
        spelled = {key.replace("_", "-"): key for key in table.values}
        if len(spelled) < len(table.values):
            twice = next(k for k in table.values if spelled[k.replace("_", "-")] != k)
            raise table.error_at(twice, "it is given twice, with - and with _")
        for word, key in spelled.items():
            if word not in known:
                _reject(table, key, known)
            if word in inside and word not in known_options:
                table.subtable(key)  # raises BadInput if it is no table
            is_table = isinstance(table.values[key], dict) and word in inside
            if word in own and not is_table:  # some options and commands have the same name
                yield str(own[word].name), _value(table, key, own[word], found.path.parent)
        if depth + 1 < len(lineage):
            name = str(lineage[depth + 1].info_name)
            is_option = name in known_options and not isinstance(table.values.get(name), dict)
            table = dataclasses.replace(table, values={}) if is_option else table.subtable(name)


def _reject(table: TomlTable, key: str, known: set[str]) -> None:
    """Raise BadInput with a suggestion; a table of a command is checked when the command runs."""
    import difflib

    near = difflib.get_close_matches(key.replace("_", "-"), sorted(known), n=1)
    section = ".".join((*table.path, "capture"))
    hint = (
        f"did you mean {near[0]}?"
        if near
        else f"use one of {', '.join(sorted(known))}"
        if "capture" not in known
        else f"an option that only some commands have is below their names, such as [{section}]"
    )
    raise table.error_at(key, f"there is no such option or command here; {hint}")


def _value(table: TomlTable, key: str, option: click.Option, folder: Path) -> Any:
    """Return a value of the file; raises BadInput for a value of a wrong type."""
    if key in ("yes", "without_isolation"):
        option_name = key.replace("_", "-")
        raise table.error_at(key, f"a file cannot give consent; add --{option_name} to the command")
    kind, value = option.type, table.values[key]
    wanted: tuple[tuple[type, ...], str] = (str,), "a string"
    if option.is_flag:
        wanted = (bool,), "true or false"
    elif isinstance(kind, DurationType):
        wanted = (int, float, str), 'a duration, such as 90, "90s" or "10m"'
    elif isinstance(kind, click.types.IntParamType):
        wanted = (int,), "a whole number"
    values = value if option.multiple and isinstance(value, list) else [value]
    for one in values:
        if not isinstance(one, wanted[0]) or (isinstance(one, bool) and bool not in wanted[0]):
            raise table.error_at(key, f"{json.dumps(one, default=str)} is not {wanted[1]}")
    if isinstance(kind, (click.Path, PlaceType)):
        is_path = isinstance(kind, click.Path)
        values = [option_types.path_beside(one, folder, is_path) for one in values]
    return values if option.multiple else values[0]


def _find_file(named: str | None) -> ConfigFile | None:
    """Return the file of ``--config``, or the nearest file upward from the working directory."""
    if named is not None:
        path = Path(named)
        found = _read_file(path, path.name == PROJECT_FILE)
        if found is None:
            raise BadConfiguration(f"{path} has no table [tool.reprokit]")
        return found
    try:
        start = Path.cwd()
    except OSError as problem:  # the working directory was deleted
        host_log.log_ignored(problem)
        return None
    for folder in (start, *start.parents):
        for name in (OWN_FILE, PROJECT_FILE):
            path, is_there = folder / name, False
            with host_log.suppress(OSError):  # the folder may not be searched
                is_there = path.is_file() and _is_trusted(path)
            if is_there:
                found = _read_file(path, name == PROJECT_FILE)
                if found is not None:
                    return found
    return None


def _is_trusted(path: Path) -> bool:
    """Return False for a file of another user in a folder that everybody may write to."""
    is_open = bool(path.parent.stat().st_mode & stat.S_IWOTH)
    if is_open and path.stat().st_uid not in (os.getuid(), 0):
        host_log.LOGGER.info("%s is not used: another user wrote it", path)
        return False
    return True


def _read_file(path: Path, is_project: bool) -> ConfigFile | None:
    """Return a file; None for a ``pyproject.toml`` without a table of reprokit."""
    try:
        with path.open("rb") as file:
            data = file.read(MAX_CONFIG_BYTES + 1)
        text = data.decode()
    except OSError as problem:
        raise BadConfiguration(f"cannot read {path}: {problem.strerror}") from problem
    except UnicodeDecodeError as problem:
        raise BadConfiguration(f"{path} is not UTF-8 text") from problem
    if is_project and "reprokit" not in text:
        return None
    if len(data) > MAX_CONFIG_BYTES:
        raise BadConfiguration(f"{path} has more than {MAX_CONFIG_BYTES} bytes")
    from reprokit.host.nightly.suite.toml_tables import TomlLocations, TomlTable

    if sys.version_info >= (3, 11):
        import tomllib
    else:
        import tomli as tomllib
    try:
        document = tomllib.loads(text)
    except tomllib.TOMLDecodeError as problem:
        raise BadConfiguration(f"{path} is not TOML: {problem}") from problem
    table = TomlTable(TomlLocations(path, text), (), document)
    if not is_project:
        return ConfigFile(path, table)
    tool = document.get("tool")
    if not isinstance(tool, dict) or "reprokit" not in tool:
        return None
    return ConfigFile(path, table.subtable("tool").subtable("reprokit"))
