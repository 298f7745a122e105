"""Read a suite: targets, the matrix over them, limits. What is wrong in it is told with its line
and key.
"""

from __future__ import annotations

import difflib
import itertools
import json
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from reprokit.core.records.kinds import KINDS
from reprokit.core.shared.errors import BadInput
from reprokit.host.environment import simulated_gpu
from reprokit.host.nightly.suite.cells import (
    JobLimits,
    SlurmSettings,
    Suite,
    SuiteCell,
    SuiteEnvironment,
)
from reprokit.host.nightly.suite.toml_tables import TomlPlace, TomlTable
from reprokit.host.report import template_files
from reprokit.host.request import interpreter
from reprokit.host.request.target import parse_command, parse_target

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

MATRIX = ("mode", "backend", "dynamic", "fullgraph", "train", "gpu", "dtype", "environment")
"""What a suite may vary, in the order in which cells are listed."""
OF_COMMANDS = ("environment",)
"""What of it means something for a command, which runs as it is."""


def read_suite(path: Path) -> Suite:
    """Read a suite or raise BadInput; files that it names are found from where it lies."""
    try:
        text = path.read_text(encoding="utf-8")
        told = tomllib.loads(text)
    except OSError as problem:
        raise BadInput(
            f"cannot read the suite {path}: {problem.strerror}; reprokit nightly init writes one"
        ) from problem
    except UnicodeDecodeError as problem:
        raise BadInput(f"{path} is not UTF-8 text; a suite is a TOML file") from problem
    except tomllib.TOMLDecodeError as problem:
        raise BadInput(f"{path} is no TOML: {problem}") from problem
    where = TomlPlace(path, text)
    top = TomlTable(where, (), told)
    top.known("suite", "matrix", "environments", "targets", "keep", "slurm")
    suite, keep = top.table("suite"), top.table("keep")
    suite.known("name", *LIMITS)
    keep.known("nights", "healthy_nights", "fixed_nights")
    name = suite.take("name", str, "a name", path.stem, lambda v: bool(re.fullmatch(r"[\w.-]+", v)))
    limits = _limits(suite, JobLimits())
    environments = _environments(top.table("environments"), path.parent)
    matrix = _matrix(top.table("matrix"), environments)
    rows = told.get("targets", [])
    if not isinstance(rows, list) or not rows or not all(isinstance(r, dict) for r in rows):
        raise where.bad(
            ("targets",),
            'there are no targets; write [[targets]] and target = "llama-tiny" below it',
        )
    cells: list[SuiteCell] = []
    seen: dict[str, int] = {}
    for number, row in enumerate(rows):
        table = TomlTable(where, ("targets", str(number)), row)
        for cell in _cells(table, matrix, environments, limits, path.parent):
            if cell.key in seen:
                raise table.bad(
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
        keep.take("nights", int, "a number of nights", 14, is_count),
        keep.take("healthy_nights", int, "a number of nights", 2, is_count),
        keep.take("fixed_nights", int, "a number of nights", 30, is_count),
        _slurm(top.table("slurm")),
    )


LIMITS: dict[str, tuple[type | tuple[type, ...], str, Callable[[Any], bool]]] = {
    "timeout_s": ((int, float), "a number of seconds above 0", lambda v: 0 < v <= 1e7),
    "stall_s": ((int, float), "a number of seconds above 0", lambda v: 0 < v <= 1e7),
    "budget_s": ((int, float), "a number of seconds, 0 for none", lambda v: 0 <= v <= 1e7),
    "retries": (int, "a number from 0 to 20", lambda v: 0 <= v <= 20),
    "cores": (int, "a number from 1", lambda v: v >= 1),
    "memory_gb": ((int, float), "a number of gigabytes", lambda v: 0 <= v <= 1e6),
    "gpus": (int, "a number from 0", lambda v: v >= 0),
}


def _limits(table: TomlTable, usual: JobLimits) -> JobLimits:
    found = {
        name: table.take(name, kind, words, getattr(usual, name), check)
        for name, (kind, words, check) in LIMITS.items()
    }
    return JobLimits(**found)


def _environments(table: TomlTable, folder: Path) -> dict[str, SuiteEnvironment]:
    found: dict[str, SuiteEnvironment] = {}
    for name in table.values:
        row = table.table(name)
        row.known("python", "torch", "packages", "index_url", "find_links")
        python, torch = (
            row.take("python", str, "a path", ""),
            row.take("torch", str, "a version", ""),
        )
        if bool(python) == bool(torch):
            raise table.bad(
                name,
                "give it either python, an interpreter that is there, or torch, a version to"
                " install",
            )
        if "/" in python:
            python = str(folder / Path(python).expanduser())
        index = row.take("index_url", str, "an address", "")
        links = tuple(
            link if "://" in link else str(folder / link) for link in row.texts("find_links")
        )
        found[name] = SuiteEnvironment(name, python, torch, row.texts("packages"), index, links)
    return found or {"default": SuiteEnvironment("default", interpreter.usual_interpreter()[0])}


def example_suite() -> str:
    """A suite to begin with, for the usual interpreter; one that has no torch is left to be filled
    in.
    """
    python, _ = interpreter.usual_interpreter()
    line = f"python = {json.dumps(python)}"
    if not interpreter.has_torch(python):
        line = (
            '# python = "/path/to/python"   # fill in an interpreter that has torch: reprokit\'s'
            " own has none"
        )
    return template_files.read_template("suite.toml").replace('python = "python3"', line)


def _matrix(table: TomlTable, environments: dict[str, SuiteEnvironment]) -> dict[str, list[Any]]:
    """What is varied: key -> its values."""
    table.known(*MATRIX)
    found: dict[str, list[Any]] = {}
    for key, value in table.values.items():
        values = value if isinstance(value, list) else [value]
        if not values:
            raise table.bad(key, "an empty list leaves nothing to run")
        for one in values:
            _check(table, key, one, environments)
        found[key] = [
            None if one in ("default", "none") and key != "environment" else one for one in values
        ]
    return found


def _check(
    table: TomlTable, key: str, value: Any, environments: dict[str, SuiteEnvironment]
) -> None:
    if key in ("dynamic", "fullgraph", "train"):
        if not isinstance(value, bool) and not (key == "dynamic" and value == "default"):
            raise table.bad(
                key,
                f"{value!r} is neither true nor false{' nor default' if key == 'dynamic' else ''}",
            )
    elif not isinstance(value, str):
        raise table.bad(key, f"{value!r} is not a text")
    elif key == "environment" and value not in environments:
        raise table.bad(
            key, f"there is no [environments.{value}]; there is {', '.join(environments)}"
        )
    elif key == "gpu" and value != "none":
        try:
            simulated_gpu.find_gpu(value)
        except BadInput as problem:
            raise table.bad(key, str(problem)) from problem


def _cells(
    table: TomlTable,
    matrix: dict[str, list[Any]],
    environments: dict[str, SuiteEnvironment],
    limits: JobLimits,
    folder: Path,
) -> list[SuiteCell]:
    table.known("target", "command", "matrix", "set", "tags", "expect", "device", *LIMITS)
    own = _matrix(table.table("matrix"), environments)
    target, command = table.take("target", str, "a text", ""), table.texts("command")
    if bool(target) == bool(command):
        raise table.bad(
            "target", 'give it either target, such as "llama-tiny", or command, a list of words'
        )
    try:
        if command:
            if command[0] != "{python}":
                parse_command(
                    (str(folder / command[0]) if "/" in command[0] else command[0], *command[1:])
                )
            for key in own:
                if key not in OF_COMMANDS:
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
        raise table.bad("command" if command else "target", str(problem)) from problem
    varied = {**matrix, **own}
    varied.setdefault("environment", [*environments][:1])
    keys = [k for k in MATRIX if k in varied and (not command or k in OF_COMMANDS)]
    expect = table.texts("expect", ("ok",))
    for kind in expect:
        if kind not in KINDS:
            near = difflib.get_close_matches(kind, KINDS, n=1)
            raise table.bad(
                "expect",
                f"{kind!r} is no verdict;"
                f" {f'did you mean {near[0]}' if near else 'known are ' + ', '.join(KINDS)}?",
            )
    knobs = table.table("set").values
    for name, value in knobs.items():
        if not isinstance(value, (str, int, float, bool, list, dict)) or "datetime" in repr(value):
            raise table.bad("set", f"{name} = {value} is no number, text, list or table")
    device = table.take("device", str, "a device such as cuda", "")
    needs = _limits(table, limits)
    if device.startswith("cuda") and "gpus" not in table.values and not needs.gpus:
        needs = JobLimits(**{**needs.__dict__, "gpus": 1})
    made = []
    for values in itertools.product(*(varied[k] for k in keys)):
        settings = {k: v for k, v in zip(keys, values, strict=True) if v is not None}
        if device and settings.get("gpu"):
            raise table.bad(
                "device",
                "a target that runs on a device cannot be compiled for a simulated gpu; give it its"
                " own matrix",
            )
        made.append(
            SuiteCell(
                target or " ".join(command),
                command,
                settings,
                dict(knobs),
                needs,
                table.texts("tags"),
                expect,
                device,
            )
        )
    return made


def _check_target(words: str, folder: Path) -> None:
    """A file is found from where the suite lies: there the night runs it."""
    place, colon, name = words.rpartition(":")
    is_file = colon and (place.endswith(".py") or "/" in place) and not words.startswith("hf:")
    parse_target(f"{folder / Path(place).expanduser()}:{name}" if is_file else words)


def _slurm(table: TomlTable) -> SlurmSettings:
    table.known("partition", "most_at_once", "parameters")
    return SlurmSettings(
        table.take("partition", str, "a name", ""),
        table.take("most_at_once", int, "a number from 1", 256, lambda v: v >= 1),
        table.table("parameters").values,
    )
