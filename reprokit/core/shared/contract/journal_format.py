"""The journal's format: one JSON object a line, so a file cut at any byte loses at most its last
line.

A writer appends each line with a single ``write(2)`` on an ``O_APPEND`` descriptor; the reader
skips what does not parse and says how many lines that were.
"""

from __future__ import annotations

import dataclasses
import json
import signal
from dataclasses import dataclass
from typing import Any

from .events import Event

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
