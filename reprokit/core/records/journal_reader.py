"""Read a journal: one JSON object per line.

A target can write anything into its own journal. So a field of the wrong type gets its default, and
an unknown event is ignored.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Mapping
from dataclasses import fields
from typing import Any, TypeVar, get_type_hints

from reprokit.core.records import bounded_json
from reprokit.core.shared.contract import (  # noqa: F401 - subclasses of Event
    cache_events,
    growth_events,
    result_events,
)
from reprokit.core.shared.contract.event_base import Event
from reprokit.core.shared.contract.events import Begin, End, RaisedEvent
from reprokit.core.shared.contract.journal_format import NOW_BYTES, SLOT_BYTES, Now
from reprokit.core.shared.contract.serialize import from_json


def decode_now(data: bytes) -> Now:
    """Read the record of a ``<pid>.now`` file; a damaged or empty one is ``Now()``."""
    head, _, rest = data.rstrip(b"\0").decode("utf-8", "replace").partition("\t")
    where, _, rest = rest.partition("\t")
    words = head.split(" ")
    try:
        return Now(float(words[0]), words[1], where, int(words[2]), rest.rstrip("\t"))
    except (ValueError, IndexError):
        return Now()


def decode_events(data: bytes) -> tuple[list[Event], int]:
    """Read all lines of ``data``; the second value counts the lines that are not events."""
    events: list[Event] = []
    bad = 0
    for line in data.split(b"\n"):
        if not line.strip():
            continue
        try:
            value = bounded_json.parse_json(line)
        except ValueError:
            bad += 1
            continue
        if not isinstance(value, dict) or not isinstance(value.get("ev"), str):
            bad += 1
        elif event := event_from_json(value):
            events.append(event)
    return events, bad


def split_slots(data: bytes) -> list[tuple[int, bytes]]:
    """Return the numbers and the lines in the memory of a prepared process, oldest first.

    A slot that is being overwritten is left out. The line that did not fit is empty.
    """
    rows = []
    for at in range(NOW_BYTES, len(data) - SLOT_BYTES + 1, SLOT_BYTES):
        number, space, line = data[at : at + SLOT_BYTES].rstrip(b"\n\0").partition(b" ")
        if number.isdigit() and space:
            rows.append((int(number), line))
    return sorted(rows)


def open_events(events: Iterable[Event]) -> list[Begin]:
    """Return the ``begin`` events without an ``end``, outermost first, of the thread that wrote
    last.

    Compile phases nest per thread. A phase that an exception left has no ``end``, so an ``end``
    also closes all phases inside its own.
    """
    stacks: dict[int, list[Begin]] = {}
    last = 0
    for event in events:
        if isinstance(event, Begin):
            stacks.setdefault(event.tid, []).append(event)
            last = event.tid
        elif isinstance(event, End):
            stack = stacks.setdefault(event.tid, [])
            for i in range(len(stack) - 1, -1, -1):
                if stack[i].name == event.name:
                    del stack[i:]
                    break
            if stack:
                last = event.tid
    if stacks.get(last):
        return stacks[last]
    return next((s for s in stacks.values() if s), [])


SomeEvent = TypeVar("SomeEvent", bound=Event)


MAX_NUMBER = 1 << 53
"""Larger numbers are not exact in every reader of JSON."""


EVENT_TYPES: dict[str, type[Event]] = {
    kind.ev: kind for base in (Event, RaisedEvent) for kind in base.__subclasses__() if kind.ev
}
"""The classes of events by their names in a journal."""


_DIGITS = frozenset({"rank", "world_size"})


def event_from_json(value: Mapping[str, Any]) -> Event | None:
    """Return the event of one line of a journal; None if its name is not known."""
    name = value.get("ev")
    if not isinstance(name, str) or name not in EVENT_TYPES:
        return None
    kept = {}
    for key, read in _readers(name):
        if key in value:
            try:
                kept[key] = read(value[key])
            except (ValueError, RecursionError):
                continue  # the field gets its default
    return EVENT_TYPES[name](**kept)


@functools.cache
def private_fields(name: str) -> tuple[str, ...]:
    """Return the fields of the event ``name`` that hold text of the target or of its exceptions."""
    return tuple(f.name for f in fields(EVENT_TYPES[name]) if f.metadata.get("is_private"))


@functools.cache
def _readers(name: str) -> tuple[tuple[str, Callable[[Any], Any]], ...]:
    types = get_type_hints(EVENT_TYPES[name])
    return tuple((f.name, _reader(f.name, types[f.name])) for f in fields(EVENT_TYPES[name]))


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
    if type(value) is int and abs(value) < MAX_NUMBER:
        return value
    raise ValueError


def _number(value: Any) -> float:
    if type(value) in (int, float) and abs(value) < MAX_NUMBER:
        return float(value)
    raise ValueError


def _digits(value: Any) -> str | None:
    text = _optional_text(value)
    if text is None or (text.isascii() and text.isdigit() and len(text) < 8):
        return text
    raise ValueError


def _bounded(kind: Any, value: Any) -> Any:
    result = from_json(kind, value)
    if type(result) is int and abs(result) >= MAX_NUMBER:
        raise ValueError
    return result
