"""Find the parts of a compile that are the program's own code: its backend and its graph passes."""

from __future__ import annotations

import functools
import inspect
import os
import re
import sys
import sysconfig
import types
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ...core.shared.contract import events
from . import journal

INDUCTOR = "torch._inductor.config"
_PASS = re.compile(r".*custom(_pre|_post)?_pass|custom_partitioner_fn")
"""Settings of Inductor whose value is a pass that the program supplies."""

_journaled: list[events.OwnCode] = []


@functools.cache
def library_folders() -> tuple[str, ...]:
    """Return the folders of Python, of installed packages and of reprokit, each with a separator at
    its end.
    """
    paths = sysconfig.get_paths()
    folders = [paths[name] for name in ("stdlib", "platstdlib", "purelib", "platlib")]
    own = os.path.abspath(os.path.join(__file__, *[os.pardir] * 3))
    return tuple(os.path.join(folder, "") for folder in (*folders, own))


def users_place(traced: Sequence[Any] = ()) -> str:
    """Return ``file:line`` of the user's line that Dynamo traces, or from which torch was called;
    empty if there is none.

    ``traced`` are the lines that Dynamo traced, the outermost first.
    """
    torchs = os.path.join(os.path.dirname(sys.modules["torch"].__file__ or ""), "")
    others = ("<", torchs, *library_folders())

    def is_users(file: str) -> bool:
        return not file.startswith(others)

    for row in reversed(traced):
        if is_users(row.filename):
            return f"{row.filename}:{row.lineno}"
    frame: types.FrameType | None = sys._getframe()
    while frame is not None:
        if is_users(frame.f_code.co_filename):
            return f"{frame.f_code.co_filename}:{frame.f_lineno}"
        frame = frame.f_back
    return ""


def is_pass(key: str) -> bool:
    """Whether the value of a setting or an option of Inductor is a pass of the program."""
    return _PASS.fullmatch(key) is not None


def note_own_code(backend: Any, options: Mapping[str, Any]) -> None:
    """Journal where the backend and each pass of a compile are defined.

    An event that this process has already journaled is not journaled again.
    """
    passes = {key: value for key, value in options.items() if is_pass(key)} | dict(_set_passes())
    event = events.OwnCode(
        backend=_definition_line(backend) if backend is not None else "",
        passes=sorted({line for value in passes.values() for line in _definition_lines(value)}),
    )
    if event not in _journaled:
        _journaled.append(event)
        journal.write_event(event)


def clear_passes() -> None:
    """Set each setting that takes a pass to torch's default."""
    config: Any = sys.modules.get(INDUCTOR)
    for key, _ in list(_set_passes()):
        setattr(config, key, getattr(config._config[key], "default", None))


def _set_passes() -> Iterator[tuple[str, Any]]:
    config: Any = sys.modules.get(INDUCTOR)
    for key in getattr(config, "_config", {}) if config is not None else ():
        if is_pass(key) and not config._is_default(key):
            yield key, getattr(config, key)


def _definition_lines(value: Any) -> list[str]:
    values = value if isinstance(value, (list, tuple)) else [value]
    return [line for item in values if item is not None and (line := _definition_line(item))]


def _definition_line(value: Any) -> str:
    """Return ``FILE:LINE`` of the code that a call of ``value`` runs, or an empty text."""
    while isinstance(value, functools.partial):
        value = value.func
    value = inspect.unwrap(value) if callable(value) else value
    if not (inspect.isfunction(value) or inspect.ismethod(value)):
        value = inspect.getattr_static(
            value if inspect.isclass(value) else type(value), "__call__", None
        )
    code = getattr(value, "__code__", None)
    return f"{code.co_filename}:{code.co_firstlineno}" if code is not None else ""
