"""The journal's format: one JSON object a line, so a file cut at any byte loses at most its last line.

A writer appends each line with a single ``write(2)`` on an ``O_APPEND`` descriptor; the reader skips
what does not parse and says how many lines that were.
"""

from __future__ import annotations

import json
import signal
from dataclasses import dataclass
from typing import Any

from . import bounded_json

Event = dict[str, Any]

MAX_LINE_BYTES = 1 << 20
"""Longer events are replaced by a stub: a reader must never be made to hold an endless line."""

STACKS_SIGNAL = int(signal.SIGRTMAX) - 5
"""Asks a process for its stacks. A program that saves a checkpoint on SIGUSR1 or SIGUSR2 keeps both for itself."""

NOW_BYTES = 1024
"""Size of the one record, overwritten in place, that says what a process is at: its last line or node."""


@dataclass(frozen=True)
class Now:
    """What a process is at: its last user line or graph node."""

    t: float = 0.0
    """Seconds of CLOCK_MONOTONIC, which no clock change moves."""
    unit: str = ""
    """``line`` or ``node``."""
    where: str = ""
    repeats: int = 0
    """How often one user line of one traced frame, this one or one that called it, has been traced so far."""
    repeated: str = ""
    """That line."""


def encode_now(now: Now) -> bytes:
    """Give the record for ``<pid>.now``: padded to one size, so that a shorter one leaves nothing behind."""
    where, repeated = (text.replace("\t", " ")[-220:] for text in (now.where, now.repeated))
    text = f"{now.t:.3f} {now.unit} {now.repeats}\t{where}\t{repeated}\t"
    return text.encode("utf-8", "replace")[:NOW_BYTES].ljust(NOW_BYTES, b"\0")


def decode_now(data: bytes) -> Now:
    """Read the record; an empty one when there is nothing to read."""
    head, _, rest = data.rstrip(b"\0").decode("utf-8", "replace").partition("\t")
    where, _, rest = rest.partition("\t")
    words = head.split(" ")
    try:
        return Now(float(words[0]), words[1], where, int(words[2]), rest.rstrip("\t"))
    except (ValueError, IndexError):
        return Now()


def encode_event(event: Event) -> bytes:
    """Give the line for ``event``; what JSON cannot say is said by ``repr``."""
    # not escaped to ASCII: a name that is to be redacted must read in a file as it reads anywhere
    text = json.dumps(event, default=repr, ensure_ascii=False, separators=(",", ":"))
    line = text.encode("utf-8", "backslashreplace") + b"\n"
    if len(line) <= MAX_LINE_BYTES:
        return line
    kept = {k: event[k] for k in ("t", "pid", "tid", "ev") if k in event}
    return json.dumps({**kept, "cut_bytes": len(line)}).encode() + b"\n"


def decode_events(data: bytes) -> tuple[list[Event], int]:
    """Read all whole lines of ``data``; the second value counts the lines that made no sense."""
    events: list[Event] = []
    bad = 0
    for line in data.split(b"\n"):
        if not line.strip():
            continue
        try:
            event = bounded_json.parse_json(line)
        except ValueError:
            bad += 1
            continue
        if isinstance(event, dict) and isinstance(event.get("ev"), str):
            events.append(_sound(event))
        else:
            bad += 1
    return events, bad


_INTEGERS = frozenset({"pid", "tid", "ppid", "n", "nodes", "count", "dropped"})
_NUMBERS = frozenset({"t", "cpu"})
_TEXTS = frozenset({"name", "where", "unit", "level", "cid", "hook", "problem", "message", "rank", "world_size"})
_LARGEST = 1 << 53


def _sound(event: Event) -> Event:
    """The same event without fields of the wrong type: a target can write anything into its own journal."""
    return {key: value for key, value in event.items() if _fits(key, value)}


def _fits(key: str, value: Any) -> bool:
    if key in _INTEGERS:
        return isinstance(value, int) and abs(value) < _LARGEST
    if key in _NUMBERS:
        return isinstance(value, (int, float)) and abs(value) < _LARGEST
    if key in ("rank", "world_size"):
        return value is None or (isinstance(value, str) and value.isascii() and value.isdigit() and len(value) < 8)
    if key in _TEXTS:
        return value is None or isinstance(value, str)
    if key == "chain":
        return isinstance(value, list) and all(map(_is_link, value))
    return True


def _is_link(link: Any) -> bool:
    frames = link.get("frames", []) if isinstance(link, dict) else None
    return isinstance(frames, list) and all(
        isinstance(f, list) and len(f) == 3 and isinstance(f[2], (int, type(None))) for f in frames
    )


def open_events(events: list[Event]) -> list[Event]:
    """The ``begin`` events that have no ``end``, outermost first, of the thread that wrote last.

    Compile phases nest per thread. An exception may leave phases open that are not at work any more:
    an ``end`` closes everything that was begun inside it.
    """
    stacks: dict[Any, list[Event]] = {}
    last: Any = None
    for event in events:
        kind = event["ev"]
        if kind not in ("begin", "end"):
            continue
        stack = stacks.setdefault(event.get("tid"), [])
        if kind == "begin":
            stack.append(event)
            last = event.get("tid")
            continue
        for i in range(len(stack) - 1, -1, -1):
            if stack[i].get("name") == event.get("name"):
                del stack[i:]
                break
        if stack:
            last = event.get("tid")
    if stacks.get(last):
        return stacks[last]
    return next((s for s in stacks.values() if s), [])
