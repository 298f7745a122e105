"""Tables of a TOML file that know where they stand: what is wrong is told with its line and key."""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from reprokit.core.shared.errors import BadInput


class TomlPlace:
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
        place = next(
            (self._lines[key[:n]] for n in range(len(key), 0, -1) if key[:n] in self._lines), 1
        )
        words = ".".join(f"{part}" for part in key if not part.isdigit())
        return BadInput(f"{self._path}, line {place}, {words}: {why}")


@dataclass(frozen=True)
class TomlTable:
    """One table of the file, whose keys are taken out one by one; what is left over is unknown."""

    where: TomlPlace
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
                    "there is no such key;"
                    f" {f'did you mean {near[0]}' if near else 'known are ' + ', '.join(keys)}?",
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
        if key in self.values and (
            not isinstance(value, kind) or (is_flag and not wants_flag) or not check(value)
        ):
            raise self.bad(key, f"{value!r} is not {words}")
        return value

    def texts(self, key: str, default: tuple[str, ...] = ()) -> tuple[str, ...]:
        value = self.values.get(key, list(default))
        value = [value] if isinstance(value, str) else value
        if not isinstance(value, list) or not all(isinstance(v, str) for v in value):
            raise self.bad(key, f"{value!r} is not a text or a list of texts")
        return tuple(value)

    def table(self, key: str) -> TomlTable:
        value = self.values.get(key, {})
        if not isinstance(value, dict):
            raise self.bad(key, f"{value!r} is not a table; write [{'.'.join((*self.path, key))}]")
        return TomlTable(self.where, (*self.path, key), value)
