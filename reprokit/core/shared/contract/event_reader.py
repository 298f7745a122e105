"""Make events from the lines of a journal.

A target can write anything into its own journal, so a field of the wrong type has its default, and
an event that is not known is left out.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import fields
from typing import Any, TypeVar, get_type_hints

from .events import Event, Raised
from .serialize import from_json

SomeEvent = TypeVar("SomeEvent", bound=Event)
LARGEST = 1 << 53
"""Greater numbers are not exact in every reader of JSON."""
EVENTS: dict[str, type[Event]] = {
    kind.ev: kind for base in (Event, Raised) for kind in base.__subclasses__() if kind.ev
}
"""By their names in a journal."""
_DIGITS = frozenset({"rank", "world_size"})


def event_from_json(value: dict[str, Any]) -> Event | None:
    """The event of one line of a journal; None where its name is not known."""
    name = value.get("ev")
    if not isinstance(name, str) or name not in EVENTS:
        return None
    kept = {}
    for key, read in _readers(name):
        if key in value:
            try:
                kept[key] = read(value[key])
            except (ValueError, RecursionError):
                continue  # it has its default
    return EVENTS[name](**kept)


@functools.cache
def private_fields(name: str) -> tuple[str, ...]:
    """Of the event called ``name``: the fields with text of the target or of its exceptions."""
    return tuple(f.name for f in fields(EVENTS[name]) if f.metadata.get("is_private"))


@functools.cache
def _readers(name: str) -> tuple[tuple[str, Callable[[Any], Any]], ...]:
    types = get_type_hints(EVENTS[name])
    return tuple((f.name, _reader(f.name, types[f.name])) for f in fields(EVENTS[name]))


def _reader(name: str, kind: Any) -> Callable[[Any], Any]:
    if name in _DIGITS:
        return _digits
    simple: dict[Any, Callable[[Any], Any]] = {
        str: _text,
        str | None: _optional_text,
        int: _integer,
        float: _number,
    }
    return simple.get(kind) or functools.partial(_bounded, kind)


def _text(value: Any) -> str:
    if type(value) is str:
        return value
    raise ValueError


def _optional_text(value: Any) -> str | None:
    return None if value is None else _text(value)


def _integer(value: Any) -> int:
    if type(value) is int and abs(value) < LARGEST:
        return value
    raise ValueError


def _number(value: Any) -> float:
    if type(value) in (int, float) and abs(value) < LARGEST:
        return float(value)
    raise ValueError


def _digits(value: Any) -> str | None:
    text = _optional_text(value)
    if text is None or (text.isascii() and text.isdigit() and len(text) < 8):
        return text
    raise ValueError


def _bounded(kind: Any, value: Any) -> Any:
    read = from_json(kind, value)
    if type(read) is int and abs(read) >= LARGEST:
        raise ValueError
    return read
