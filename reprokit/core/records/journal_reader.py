"""Read a journal: one JSON object a line, so a file cut at any byte loses at most its last line.

A target can write anything into its own journal, so a field of the wrong type has its default, and
an event that is not known is left out.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from dataclasses import fields
from typing import Any, TypeVar, get_type_hints

from reprokit.core.records import bounded_json
from reprokit.core.shared.contract.events import Begin, End, Event, RaisedEvent
from reprokit.core.shared.contract.journal_format import Now
from reprokit.core.shared.contract.serialize import from_json


def decode_now(data: bytes) -> Now:
    """Read the record; an empty one when there is nothing to read."""
    head, _, rest = data.rstrip(b"\0").decode("utf-8", "replace").partition("\t")
    where, _, rest = rest.partition("\t")
    words = head.split(" ")
    try:
        return Now(float(words[0]), words[1], where, int(words[2]), rest.rstrip("\t"))
    except (ValueError, IndexError):
        return Now()


def decode_events(data: bytes) -> tuple[list[Event], int]:
    """Read all whole lines of ``data``; the second value counts the lines that made no sense."""
    found: list[Event] = []
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
            found.append(event)
    return found, bad


def open_events(told: Iterable[Event]) -> list[Begin]:
    """The ``begin`` events that have no ``end``, outermost first, of the thread that wrote last.

    Compile phases nest per thread. An exception may leave phases open that are not at work any
    more: an ``end`` closes everything that was begun inside it.
    """
    stacks: dict[int, list[Begin]] = {}
    last = 0
    for event in told:
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


LARGEST = 1 << 53
"""Greater numbers are not exact in every reader of JSON."""


EVENTS: dict[str, type[Event]] = {
    kind.ev: kind for base in (Event, RaisedEvent) for kind in base.__subclasses__() if kind.ev
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
