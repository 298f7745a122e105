"""Read a suite file: targets, their matrix, and limits. Errors name the line and the key."""

from __future__ import annotations

import difflib
import itertools
import json
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from reprokit.core.records.verdict_kinds import KINDS
from reprokit.core.shared.errors import BadInput
from reprokit.host.environment import simulated_gpu
from reprokit.host.nightly.suite.cells import (
    JobLimits,
    SlurmSettings,
    Suite,
    SuiteCell,
    SuiteEnvironment,
)
from reprokit.host.nightly.suite.toml_tables import TomlLocations, TomlTable
from reprokit.host.report import template_files
from reprokit.host.request import interpreter
from reprokit.host.request.target import parse_command, parse_target

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

MATRIX_KEYS = ("mode", "backend", "dynamic", "fullgraph", "train", "gpu", "dtype", "environment")
"""The settings that a matrix may have, in the order in which cells are listed."""
COMMAND_KEYS = ("environment",)
"""The settings of a matrix that apply to commands."""


def read_suite(path: Path) -> Suite:
    """Read a suite; paths in it are relative to its folder.

    Raises:
        BadInput: the file cannot be read, or is not a valid suite.
    """
    try:
        text = path.read_text(encoding="utf-8")
        document = tomllib.loads(text)
    except OSError as problem:
        raise BadInput(
            f"cannot read the suite {path}: {problem.strerror}; reprokit nightly init writes one"
        ) from problem
    except UnicodeDecodeError as problem:
        raise BadInput(f"{path} is not UTF-8 text; a suite is a TOML file") from problem
    except tomllib.TOMLDecodeError as problem:
        raise BadInput(f"{path} is not TOML: {problem}") from problem
    where = TomlLocations(path, text)
    top = TomlTable(where, (), document)
    top.reject_unknown_keys("suite", "matrix", "environments", "targets", "keep", "slurm")
    suite, keep = top.subtable("suite"), top.subtable("keep")
    suite.reject_unknown_keys("name", *LIMIT_KEYS)
    keep.reject_unknown_keys("nights", "healthy_nights", "fixed_nights")
    name = suite.take_value(
        "name", str, "a name", path.stem, lambda v: bool(re.fullmatch(r"[\w.-]+", v))
    )
    limits = _limits(suite, JobLimits())
    environments = _environments(top.subtable("environments"), path.parent)
    matrix = _matrix(top.subtable("matrix"), environments)
    rows = document.get("targets", [])
    if not isinstance(rows, list) or not rows or not all(isinstance(r, dict) for r in rows):
        raise where.error_at(
            ("targets",),
            'there are no targets; write [[targets]] and target = "llama-tiny" below it',
        )
    cells: list[SuiteCell] = []
    seen: dict[str, int] = {}
    for number, row in enumerate(rows):
        table = TomlTable(where, ("targets", str(number)), row)
        for cell in _cells(table, matrix, environments, limits, path.parent):
            if cell.key in seen:
                raise table.error_at(
                    "target",
                    f"{cell.label()} is run twice, here and by target {seen[cell.key] + 1}",
                )
            seen[cell.key] = number
            cells.append(cell)
    is_count = lambda v: v >= 1  # noqa: E731
    return Suite(
        path,
        name,
        text,
        tuple(cells),
        environments,
        keep.take_value("nights", int, "a number of nights", 14, is_count),
        keep.take_value("healthy_nights", int, "a number of nights", 2, is_count),
        keep.take_value("fixed_nights", int, "a number of nights", 30, is_count),
        _slurm(top.subtable("slurm")),
    )


LIMIT_KEYS: dict[str, tuple[type | tuple[type, ...], str, Callable[[Any], bool]]] = {
    "timeout_s": ((int, float), "a number of seconds above 0", lambda v: 0 < v <= 1e7),
    "stall_s": ((int, float), "a number of seconds above 0", lambda v: 0 < v <= 1e7),
    "budget_s": ((int, float), "a number of seconds, 0 for none", lambda v: 0 <= v <= 1e7),
    "retries": (int, "a number from 0 to 20", lambda v: 0 <= v <= 20),
    "cores": (int, "a number from 1", lambda v: v >= 1),
    "memory_gb": ((int, float), "a number of gigabytes", lambda v: 0 <= v <= 1e6),
    "gpus": (int, "a number from 0", lambda v: v >= 0),
}


def _limits(table: TomlTable, usual: JobLimits) -> JobLimits:
    limits: dict[str, Any] = {
        name: table.take_seconds(name, words, getattr(usual, name), check)
        if name.endswith("_s")
        else table.take_value(name, kind, words, getattr(usual, name), check)
        for name, (kind, words, check) in LIMIT_KEYS.items()
    }
    return JobLimits(**limits)


def _environments(table: TomlTable, folder: Path) -> dict[str, SuiteEnvironment]:
    environments: dict[str, SuiteEnvironment] = {}
    for name in table.values:
        row = table.subtable(name)
        row.reject_unknown_keys("python", "torch", "packages", "index_url", "find_links")
        python, torch = (
            row.take_value("python", str, "a path", ""),
            row.take_value("torch", str, "a version", ""),
        )
        if bool(python) == bool(torch):
            raise table.error_at(
                name,
                "give it either python, an existing interpreter, or torch, a version to install",
            )
        if "/" in python:
            python = str(folder / Path(python).expanduser())
        index = row.take_value("index_url", str, "an address", "")
        links = tuple(
            link if "://" in link else str(folder / link) for link in row.take_texts("find_links")
        )
        environments[name] = SuiteEnvironment(
            name, python, torch, row.take_texts("packages"), index, links
        )
    return environments or {
        "default": SuiteEnvironment("default", interpreter.default_interpreter()[0])
    }


def example_suite() -> str:
    """Return an example suite for the default interpreter, if that one has torch."""
    python, _ = interpreter.default_interpreter()
    line = f"python = {json.dumps(python)}"
    if not interpreter.has_torch(python):
        line = (
            '# python = "/path/to/python"   # fill in an interpreter that has torch: reprokit\'s'
            " own has none"
        )
    return template_files.read_template("suite.toml").replace('python = "python3"', line)


def _matrix(table: TomlTable, environments: dict[str, SuiteEnvironment]) -> dict[str, list[Any]]:
    """Return the values of each key of a matrix."""
    table.reject_unknown_keys(*MATRIX_KEYS)
    matrix: dict[str, list[Any]] = {}
    for key, value in table.values.items():
        values = value if isinstance(value, list) else [value]
        if not values:
            raise table.error_at(key, "an empty list leaves nothing to run")
        for choice in values:
            _check_choice(table, key, choice, environments)
        matrix[key] = [
            None if choice in ("default", "none") and key != "environment" else choice
            for choice in values
        ]
    return matrix


def _check_choice(
    table: TomlTable, key: str, value: Any, environments: dict[str, SuiteEnvironment]
) -> None:
    if key in ("dynamic", "fullgraph", "train"):
        if not isinstance(value, bool) and not (key == "dynamic" and value == "default"):
            raise table.error_at(
                key,
                f"{value!r} is neither true nor false{' nor default' if key == 'dynamic' else ''}",
            )
    elif not isinstance(value, str):
        raise table.error_at(key, f"{value!r} is not a string")
    elif key == "environment" and value not in environments:
        raise table.error_at(
            key, f"there is no [environments.{value}]; there is {', '.join(environments)}"
        )
    elif key == "gpu" and value != "none":
        try:
            simulated_gpu.parse_gpu_option(value)
        except BadInput as problem:
            raise table.error_at(key, str(problem)) from problem


def _cells(
    table: TomlTable,
    matrix: dict[str, list[Any]],
    environments: dict[str, SuiteEnvironment],
    limits: JobLimits,
    folder: Path,
) -> list[SuiteCell]:
    table.reject_unknown_keys(
        "target", "command", "matrix", "set", "tags", "expect", "device", *LIMIT_KEYS
    )
    own = _matrix(table.subtable("matrix"), environments)
    target, command = table.take_value("target", str, "a string", ""), table.take_texts("command")
    if bool(target) == bool(command):
        raise table.error_at(
            "target", 'give it either target, such as "llama-tiny", or command, a list of words'
        )
    try:
        if command:
            if command[0] != "{python}":
                parse_command(
                    (str(folder / command[0]) if "/" in command[0] else command[0], *command[1:])
                )
            for key in own:
                if key not in COMMAND_KEYS:
                    raise BadInput(
                        f"{key} shapes a model, and a command runs as it is; put it into the"
                        " command"
                    )
            for key in ("set", "device"):
                if key in table.values:
                    raise BadInput(
                        f"{key} shapes a model, and a command runs as it is; put it into the"
                        " command"
                    )
        else:
            _check_target(target, folder)
    except BadInput as problem:
        raise table.error_at("command" if command else "target", str(problem)) from problem
    varied = {**matrix, **own}
    varied.setdefault("environment", [*environments][:1])
    keys = [k for k in MATRIX_KEYS if k in varied and (not command or k in COMMAND_KEYS)]
    expect = table.take_texts("expect", ("ok",))
    for kind in expect:
        if kind not in KINDS:
            near = difflib.get_close_matches(kind, KINDS, n=1)
            raise table.error_at(
                "expect",
                f"{kind!r} is not a verdict;"
                f" {f'did you mean {near[0]}?' if near else 'use one of ' + ', '.join(KINDS)}",
            )
    knobs = table.subtable("set").values
    for name, value in knobs.items():
        if not isinstance(value, (str, int, float, bool, list, dict)) or "datetime" in repr(value):
            raise table.error_at("set", f"{name} = {value} is not a number, text, list or table")
    device = table.take_value("device", str, "a device such as cuda", "")
    needs = _limits(table, limits)
    if device.startswith("cuda") and "gpus" not in table.values and not needs.gpus:
        needs = JobLimits(**{**needs.__dict__, "gpus": 1})
    cells = []
    for values in itertools.product(*(varied[k] for k in keys)):
        settings = {k: v for k, v in zip(keys, values, strict=True) if v is not None}
        if device and settings.get("gpu"):
            raise table.error_at(
                "device",
                "a target with a device cannot be compiled for a simulated gpu; give it its own"
                " matrix",
            )
        cells.append(
            SuiteCell(
                target or " ".join(command),
                command,
                settings,
                dict(knobs),
                needs,
                table.take_texts("tags"),
                expect,
                device,
            )
        )
    return cells


def _check_target(words: str, folder: Path) -> None:
    """Check a target; the path of a file is relative to ``folder``, where the jobs run it."""
    file, colon, name = words.rpartition(":")
    is_file = colon and (file.endswith(".py") or "/" in file) and not words.startswith("hf:")
    parse_target(f"{folder / Path(file).expanduser()}:{name}" if is_file else words)


def _slurm(table: TomlTable) -> SlurmSettings:
    table.reject_unknown_keys("partition", "most_at_once", "parameters")
    return SlurmSettings(
        table.take_value("partition", str, "a name", ""),
        table.take_value("most_at_once", int, "a number from 1", 256, lambda v: v >= 1),
        table.subtable("parameters").values,
    )
