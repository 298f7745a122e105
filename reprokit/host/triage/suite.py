"""Read a suite: targets, the matrix over them, limits. What is wrong in it is told with its line and key."""

from __future__ import annotations

import difflib
import fnmatch
import itertools
import json
import re
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ...core.records import KINDS, BadInput
from .. import devices
from ..target import parse, parse_command

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

MATRIX = ("mode", "backend", "dynamic", "fullgraph", "train", "gpu", "dtype", "environment")
"""What a suite may vary, in the order in which cells are listed."""
OF_COMMANDS = ("environment",)
"""What of it means something for a command, which runs as it is."""


@dataclass(frozen=True)
class Limits:
    """How long, how often and with how much a target is run."""

    timeout_s: float = 600.0
    stall_s: float = 60.0
    budget_s: float = 300.0
    """For making a failure small that the ledger has no repro of."""
    retries: int = 1
    """A failure is run so often again: how reliably it shows is known then."""
    cores: int = 1
    memory_gb: float = 0.0
    """0: what the ledger says it took, or 2 GB."""
    gpus: int = 0


@dataclass(frozen=True)
class Environment:
    """An interpreter with a torch: one that is there, or one to be built."""

    name: str
    python: str = ""
    torch: str = ""
    """A version to be installed in an environment of its own; empty where ``python`` is given."""
    packages: tuple[str, ...] = ()
    """What else is installed there."""
    index_url: str = ""
    find_links: tuple[str, ...] = ()


@dataclass(frozen=True)
class Cell:
    """One target with one choice of each setting: what is run once a night."""

    target: str
    """As ``reprokit capture`` takes it; for a command its words."""
    command: tuple[str, ...] = ()
    settings: dict[str, Any] = field(default_factory=dict)
    knobs: dict[str, Any] = field(default_factory=dict)
    limits: Limits = field(default_factory=Limits)
    tags: tuple[str, ...] = ()
    expect: tuple[str, ...] = ("ok",)
    device: str = ""

    @property
    def key(self) -> str:
        """The identity of a cell from night to night."""
        return json.dumps([self.target, self.settings, self.knobs, self.device], sort_keys=True)

    def label(self, hidden: tuple[str, ...] = ()) -> str:
        """The target and what is unusual about the cell, for people."""
        words = settings_words({**self.settings, **self.knobs}, hidden)
        return " ".join([self.target, *words])


def settings_words(settings: dict[str, Any], hidden: tuple[str, ...] = ()) -> list[str]:
    """Settings as people write them: ``mode=max-autotune``, ``train``."""
    return [
        name if value is True else f"{name}={value}"
        for name, value in sorted(settings.items())
        if value not in (None, False) and name not in hidden
    ]


@dataclass(frozen=True)
class Slurm:
    """What a cluster is asked for."""

    partition: str = ""
    most_at_once: int = 256
    parameters: dict[str, Any] = field(default_factory=dict)
    """Any other option of sbatch, such as ``account``."""


@dataclass(frozen=True)
class Suite:
    """What is run every night."""

    path: Path
    name: str
    text: str
    cells: tuple[Cell, ...]
    environments: dict[str, Environment]
    keep_nights: int = 14
    """Run directories of failures are kept so long; packs of bugs that are not fixed always are."""
    keep_healthy_nights: int = 2
    fixed_nights: int = 30
    """Packs of fixed bugs are kept so long."""
    slurm: Slurm = field(default_factory=Slurm)

    def chosen(self, tags: tuple[str, ...], only: tuple[str, ...]) -> tuple[Cell, ...]:
        """The cells with one of ``tags`` whose target matches one of the patterns ``only``; empty means any."""
        found = [
            c
            for c in self.cells
            if (not tags or set(tags) & set(c.tags))
            and (not only or any(fnmatch.fnmatchcase(c.target, p) for p in only))
        ]
        if not found:
            raise BadInput(
                f"{self.path}: no target has {'the tags ' + ', '.join(tags) if tags else 'a name like ' + ', '.join(only)}"
            )
        return tuple(found)


class _Where:
    """Finds the line of a key, which TOML readers do not tell."""

    def __init__(self, path: Path, text: str) -> None:
        self._path = path
        self._lines: dict[tuple[str, ...], int] = {}
        prefix: tuple[str, ...] = ()
        counts: dict[str, int] = {}
        for number, line in enumerate(text.splitlines(), 1):
            if found := re.match(r"\s*\[\[\s*([\w.-]+)\s*\]\]", line):
                counts[found[1]] = counts.get(found[1], -1) + 1
                prefix = (found[1], str(counts[found[1]]))
            elif found := re.match(r"\s*\[\s*([^\[\]]+?)\s*\]", line):
                prefix = tuple(part.strip().strip("\"'") for part in found[1].split("."))
            elif found := re.match(r"\s*([\w-]+)\s*=", line):
                self._lines.setdefault((*prefix, found[1]), number)
                continue
            else:
                continue
            self._lines.setdefault(prefix, number)

    def bad(self, key: tuple[str, ...], why: str) -> BadInput:
        """The error for a key: the file, its line, its name, what is wrong."""
        place = next((self._lines[key[:n]] for n in range(len(key), 0, -1) if key[:n] in self._lines), 1)
        words = ".".join(f"{part}" for part in key if not part.isdigit())
        return BadInput(f"{self._path}, line {place}, {words}: {why}")


@dataclass(frozen=True)
class _Table:
    """One table of the file, whose keys are taken out one by one; what is left over is unknown."""

    where: _Where
    path: tuple[str, ...]
    values: dict[str, Any]

    def bad(self, key: str, why: str) -> BadInput:
        return self.where.bad((*self.path, key), why)

    def known(self, *keys: str) -> None:
        for key in self.values:
            if key not in keys:
                near = difflib.get_close_matches(key, keys, n=1)
                raise self.bad(
                    key,
                    f"there is no such key; {f'did you mean {near[0]}' if near else 'known are ' + ', '.join(keys)}?",
                )

    def take(
        self,
        key: str,
        kind: type | tuple[type, ...],
        words: str,
        default: Any,
        check: Callable[[Any], bool] = lambda v: True,
    ) -> Any:
        value = self.values.get(key, default)
        is_flag = isinstance(value, bool)
        wants_flag = kind is bool or (isinstance(kind, tuple) and bool in kind)
        if key in self.values and (not isinstance(value, kind) or (is_flag and not wants_flag) or not check(value)):
            raise self.bad(key, f"{value!r} is not {words}")
        return value

    def texts(self, key: str, default: tuple[str, ...] = ()) -> tuple[str, ...]:
        value = self.values.get(key, list(default))
        value = [value] if isinstance(value, str) else value
        if not isinstance(value, list) or not all(isinstance(v, str) for v in value):
            raise self.bad(key, f"{value!r} is not a text or a list of texts")
        return tuple(value)

    def table(self, key: str) -> _Table:
        value = self.values.get(key, {})
        if not isinstance(value, dict):
            raise self.bad(key, f"{value!r} is not a table; write [{'.'.join((*self.path, key))}]")
        return _Table(self.where, (*self.path, key), value)


def read(path: Path) -> Suite:
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
    where = _Where(path, text)
    top = _Table(where, (), told)
    top.known("suite", "matrix", "environments", "targets", "keep", "slurm")
    suite, keep = top.table("suite"), top.table("keep")
    suite.known("name", *_LIMITS)
    keep.known("nights", "healthy_nights", "fixed_nights")
    name = suite.take("name", str, "a name", path.stem, lambda v: bool(re.fullmatch(r"[\w.-]+", v)))
    limits = _limits(suite, Limits())
    environments = _environments(top.table("environments"), path.parent)
    matrix = _matrix(top.table("matrix"), environments)
    rows = told.get("targets", [])
    if not isinstance(rows, list) or not rows or not all(isinstance(r, dict) for r in rows):
        raise where.bad(("targets",), 'there are no targets; write [[targets]] and target = "llama-tiny" below it')
    cells: list[Cell] = []
    seen: dict[str, int] = {}
    for number, row in enumerate(rows):
        table = _Table(where, ("targets", str(number)), row)
        for cell in _cells(table, matrix, environments, limits, path.parent):
            if cell.key in seen:
                raise table.bad("target", f"{cell.label()} is run twice, here and by target {seen[cell.key] + 1}")
            seen[cell.key] = number
            cells.append(cell)
    is_count = lambda v: v >= 1  # noqa: E731
    return Suite(
        path, name, text, tuple(cells), environments,
        keep.take("nights", int, "a number of nights", 14, is_count),
        keep.take("healthy_nights", int, "a number of nights", 2, is_count),
        keep.take("fixed_nights", int, "a number of nights", 30, is_count),
        _slurm(top.table("slurm")),
    )  # fmt: skip


_LIMITS: dict[str, tuple[type | tuple[type, ...], str, Callable[[Any], bool]]] = {
    "timeout_s": ((int, float), "a number of seconds above 0", lambda v: 0 < v < float("inf")),
    "stall_s": ((int, float), "a number of seconds above 0", lambda v: 0 < v < float("inf")),
    "budget_s": ((int, float), "a number of seconds, 0 for none", lambda v: 0 <= v < float("inf")),
    "retries": (int, "a number from 0 to 20", lambda v: 0 <= v <= 20),
    "cores": (int, "a number from 1", lambda v: v >= 1),
    "memory_gb": ((int, float), "a number of gigabytes", lambda v: v >= 0),
    "gpus": (int, "a number from 0", lambda v: v >= 0),
}


def _limits(table: _Table, usual: Limits) -> Limits:
    found = {
        name: table.take(name, kind, words, getattr(usual, name), check)
        for name, (kind, words, check) in _LIMITS.items()
    }
    return Limits(**found)


def _environments(table: _Table, folder: Path) -> dict[str, Environment]:
    found: dict[str, Environment] = {}
    for name in table.values:
        row = table.table(name)
        row.known("python", "torch", "packages", "index_url", "find_links")
        python, torch = row.take("python", str, "a path", ""), row.take("torch", str, "a version", "")
        if bool(python) == bool(torch):
            raise table.bad(name, "give it either python, an interpreter that is there, or torch, a version to install")
        if "/" in python:
            python = str(folder / Path(python).expanduser())
        index = row.take("index_url", str, "an address", "")
        found[name] = Environment(name, python, torch, row.texts("packages"), index, row.texts("find_links"))
    return found or {"default": Environment("default", sys.executable)}


def _matrix(table: _Table, environments: dict[str, Environment]) -> dict[str, list[Any]]:
    """What is varied: key -> its values."""
    table.known(*MATRIX)
    found: dict[str, list[Any]] = {}
    for key, value in table.values.items():
        values = value if isinstance(value, list) else [value]
        if not values:
            raise table.bad(key, "an empty list leaves nothing to run")
        for one in values:
            _check(table, key, one, environments)
        found[key] = [None if one in ("default", "none") and key != "environment" else one for one in values]
    return found


def _check(table: _Table, key: str, value: Any, environments: dict[str, Environment]) -> None:
    if key in ("dynamic", "fullgraph", "train"):
        if not isinstance(value, bool) and not (key == "dynamic" and value == "default"):
            raise table.bad(key, f"{value!r} is neither true nor false{' nor default' if key == 'dynamic' else ''}")
    elif not isinstance(value, str):
        raise table.bad(key, f"{value!r} is not a text")
    elif key == "environment" and value not in environments:
        raise table.bad(key, f"there is no [environments.{value}]; there is {', '.join(environments)}")
    elif key == "gpu" and value != "none":
        try:
            devices.find(value)
        except BadInput as problem:
            raise table.bad(key, str(problem)) from problem


def _cells(
    table: _Table, matrix: dict[str, list[Any]], environments: dict[str, Environment], limits: Limits, folder: Path
) -> list[Cell]:
    table.known("target", "command", "matrix", "set", "tags", "expect", "device", *_LIMITS)
    own = _matrix(table.table("matrix"), environments)
    target, command = table.take("target", str, "a text", ""), table.texts("command")
    if bool(target) == bool(command):
        raise table.bad("target", 'give it either target, such as "llama-tiny", or command, a list of words')
    try:
        if command:
            if command[0] != "{python}":
                parse_command(command)
            for key in own:
                if key not in OF_COMMANDS:
                    raise BadInput(f"{key} shapes a model, and a command runs as it is; put it into the command")
            for key in ("set", "device"):
                if key in table.values:
                    raise BadInput(f"{key} shapes a model, and a command runs as it is; put it into the command")
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
                f"{kind!r} is no verdict; {f'did you mean {near[0]}' if near else 'known are ' + ', '.join(KINDS)}?",
            )
    knobs = table.table("set").values
    device = table.take("device", str, "a device such as cuda", "")
    needs = _limits(table, limits)
    if device.startswith("cuda") and "gpus" not in table.values and not needs.gpus:
        needs = Limits(**{**needs.__dict__, "gpus": 1})
    made = []
    for values in itertools.product(*(varied[k] for k in keys)):
        settings = {k: v for k, v in zip(keys, values, strict=True) if v is not None}
        if device and settings.get("gpu"):
            raise table.bad(
                "device",
                "a target that runs on a device cannot be compiled for a simulated gpu; give it its own matrix",
            )
        made.append(
            Cell(
                target or " ".join(command), command, settings, dict(knobs), needs, table.texts("tags"), expect, device
            )
        )
    return made


def _check_target(words: str, folder: Path) -> None:
    """A file is found from where the suite lies: there the night runs it."""
    place, colon, name = words.rpartition(":")
    is_file = colon and (place.endswith(".py") or "/" in place) and not words.startswith("hf:")
    parse(f"{folder / Path(place).expanduser()}:{name}" if is_file else words)


def _slurm(table: _Table) -> Slurm:
    table.known("partition", "most_at_once", "parameters")
    return Slurm(
        table.take("partition", str, "a name", ""),
        table.take("most_at_once", int, "a number from 1", 256, lambda v: v >= 1),
        table.table("parameters").values,
    )
