"""What of a compile is the program's own: its backend and its passes over graphs, and where each is
defined.
"""

from __future__ import annotations

import functools
import inspect
import re
import sys
from collections.abc import Iterator, Mapping
from typing import Any

from ...core.shared.contract import events
from . import journal

INDUCTOR = "torch._inductor.config"
_PASS = re.compile(r".*custom(_pre|_post)?_pass|custom_partitioner_fn")
"""Settings of Inductor that take a pass of the program's own."""

_told: list[events.OwnCode] = []


def is_pass(key: str) -> bool:
    """Whether a setting or an option of Inductor takes a pass of the program's own."""
    return _PASS.fullmatch(key) is not None


def note_own_code(backend: Any, options: Mapping[str, Any]) -> None:
    """Journal where the backend that is called, and every pass that is set, is defined; once for
    each answer.
    """
    passes = {key: value for key, value in options.items() if is_pass(key)} | dict(_set_passes())
    found = events.OwnCode(
        backend=_place(backend) if backend is not None else "",
        passes=sorted({place for value in passes.values() for place in _places(value)}),
    )
    if found not in _told:
        _told.append(found)
        journal.write(found)


def clear_passes() -> None:
    """Give every setting that takes a pass torch's default again."""
    config: Any = sys.modules.get(INDUCTOR)
    for key, _ in list(_set_passes()):
        setattr(config, key, getattr(config._config[key], "default", None))


def _set_passes() -> Iterator[tuple[str, Any]]:
    config: Any = sys.modules.get(INDUCTOR)
    for key in getattr(config, "_config", {}) if config is not None else ():
        if is_pass(key) and not config._is_default(key):
            yield key, getattr(config, key)


def _places(value: Any) -> list[str]:
    several = value if isinstance(value, (list, tuple)) else [value]
    return [place for one in several if one is not None and (place := _place(one))]


def _place(thing: Any) -> str:
    """``FILE:LINE`` of the code that a function, a method or an object that is called runs; empty
    where none is known.
    """
    while isinstance(thing, functools.partial):
        thing = thing.func
    thing = inspect.unwrap(thing) if callable(thing) else thing
    if not (inspect.isfunction(thing) or inspect.ismethod(thing)):
        thing = inspect.getattr_static(
            thing if inspect.isclass(thing) else type(thing), "__call__", None
        )
    code = getattr(thing, "__code__", None)
    return f"{code.co_filename}:{code.co_firstlineno}" if code is not None else ""
