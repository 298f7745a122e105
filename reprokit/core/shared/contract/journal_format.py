"""The journal's format: one JSON object a line, so a file cut at any byte loses at most its last
line.

A writer appends each line with a single ``write(2)`` on an ``O_APPEND`` descriptor; the reader
skips what does not parse and says how many lines that were.
"""

from __future__ import annotations

import dataclasses
import json
import signal
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from . import bounded_json
from .event_reader import event_from_json
from .events import Begin, End, Event

MAX_LINE_BYTES = 1 << 20
"""Longer events are replaced by a stub: a reader must never be made to hold an endless line."""

STACKS_SIGNAL = int(signal.SIGRTMAX) - 5
"""Asks a process for its stacks. A program that saves a checkpoint on SIGUSR1 or SIGUSR2 keeps both
for itself.
"""

NOW_BYTES = 1024
"""Size of the one record, overwritten in place, that says what a process is at: its last line or
node.
"""


@dataclass(frozen=True)
class Now:
    """What a process is at: its last user line or graph node."""

    t: float = 0.0
    """Seconds of CLOCK_MONOTONIC, which no clock change moves."""
    unit: str = ""
    """``line`` or ``node``."""
    where: str = ""
    repeats: int = 0
    """How often one user line of one traced frame, this one or one that called it, has been traced
    so far.
    """
    repeated: str = ""
    """That line."""


def encode_now(now: Now) -> bytes:
    """Give the record for ``<pid>.now``: padded to one size, so that a shorter one leaves nothing
    behind.
    """
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
    values = {"t": event.t, "pid": event.pid, "tid": event.tid, "ev": event.ev, **vars(event)}
    for name in ("dropped", "cut_bytes"):
        if not values[name]:
            del values[name]
    # not escaped to ASCII: a name that is to be redacted must read in a file as it reads anywhere
    text = json.dumps(values, default=_plain, ensure_ascii=False, separators=(",", ":"))
    line = text.encode("utf-8", "backslashreplace") + b"\n"
    if len(line) <= MAX_LINE_BYTES:
        return line
    kept = {k: values[k] for k in ("t", "pid", "tid", "ev")}
    return json.dumps({**kept, "cut_bytes": len(line)}).encode() + b"\n"


def _plain(value: Any) -> Any:
    return (
        vars(value)
        if dataclasses.is_dataclass(value) and not isinstance(value, type)
        else repr(value)
    )


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
