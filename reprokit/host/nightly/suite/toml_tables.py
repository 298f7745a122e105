"""Read tables of a TOML file, with errors that name the line and the key."""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from reprokit.core.shared.errors import BadInput
from reprokit.host.request import durations
from reprokit.host.system import host_log


class TomlLocations:
    """Finds the lines of keys, which TOML readers do not report."""

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

    def error_at(self, key: tuple[str, ...], why: str) -> BadInput:
        """Return the error for a key, with the file, the line and the name of the key."""
        line = next(
            (self._lines[key[:n]] for n in range(len(key), 0, -1) if key[:n] in self._lines), 1
        )
        words = ".".join(f"{part}" for part in key if not part.isdigit())
        return BadInput(f"{self._path}, line {line}, {words}: {why}")


@dataclass(frozen=True)
class TomlTable:
    """One table of the file, with checked access to its values."""

    where: TomlLocations
    path: tuple[str, ...]
    values: dict[str, Any]

    def error_at(self, key: str, why: str) -> BadInput:
        """Return the error for a key of the table."""
        return self.where.error_at((*self.path, key), why)

    def reject_unknown_keys(self, *keys: str) -> None:
        """Raise BadInput for a key that is not in ``keys``."""
        for key in self.values:
            if key not in keys:
                near = difflib.get_close_matches(key, keys, n=1)
                raise self.error_at(
                    key,
                    "there is no such key;"
                    f" {f'did you mean {near[0]}?' if near else 'the keys are ' + ', '.join(keys)}",
                )

    def take_value(
        self,
        key: str,
        kind: type | tuple[type, ...],
        words: str,
        default: Any,
        check: Callable[[Any], bool] = lambda v: True,
    ) -> Any:
        """Return a value of type ``kind`` that ``check`` accepts, or ``default``.

        ``words`` describes valid values in the BadInput for other values.
        """
        value = self.values.get(key, default)
        is_flag = isinstance(value, bool)
        wants_flag = kind is bool or (isinstance(kind, tuple) and bool in kind)
        if key in self.values and (
            not isinstance(value, kind) or (is_flag and not wants_flag) or not check(value)
        ):
            raise self.error_at(key, f"{value!r} is not {words}")
        return value

    def take_seconds(
        self, key: str, words: str, default: float, check: Callable[[float], bool]
    ) -> float:
        """Return seconds that ``check`` accepts, from a number or a duration such as ``10m``.

        ``words`` describes valid values in the BadInput for other values.
        """
        value = self.values.get(key, default)
        seconds = float("nan")
        if isinstance(value, str):
            with host_log.suppress(ValueError):
                seconds = durations.parse_duration(value)
        elif isinstance(value, (int, float)) and not isinstance(value, bool):
            seconds = value
        if not check(seconds):
            raise self.error_at(
                key, f"{value!r} is not {words}, nor a duration such as {durations.EXAMPLES}"
            )
        return seconds

    def take_texts(self, key: str, default: tuple[str, ...] = ()) -> tuple[str, ...]:
        """Return a text or a list of texts as a tuple; raises BadInput for other values."""
        value = self.values.get(key, list(default))
        value = [value] if isinstance(value, str) else value
        if not isinstance(value, list) or not all(isinstance(v, str) for v in value):
            raise self.error_at(key, f"{value!r} is not a string or a list of strings")
        return tuple(value)

    def subtable(self, key: str) -> TomlTable:
        """Return a table inside this one, empty where it is missing; raises BadInput."""
        value = self.values.get(key, {})
        if not isinstance(value, dict):
            raise self.error_at(
                key, f"{value!r} is not a table; write [{'.'.join((*self.path, key))}]"
            )
        return TomlTable(self.where, (*self.path, key), value)
