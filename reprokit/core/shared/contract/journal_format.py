"""The format of a journal: one JSON object per line, so a file that is cut at any byte loses at
most its last line.

The writer appends each line with a single ``write(2)`` on an ``O_APPEND`` descriptor. The reader
skips lines that do not parse, and counts them.
"""

from __future__ import annotations

import dataclasses
import json
import signal
from dataclasses import dataclass
from typing import Any

from .event_base import Event

MAX_LINE_BYTES = 1 << 20
"""The size of a line. A longer event is replaced by a stub, so that a reader needs bounded
memory.
"""

STACKS_SIGNAL = int(signal.SIGRTMAX) - 5
"""The signal that requests the stacks of a process. SIGUSR1 and SIGUSR2 stay free for programs that
save a checkpoint on them.
"""

DUMP_SIGNAL = int(signal.SIGRTMAX) - 7
"""The signal on which a process that called ``reprokit.watch(on_failure="record")`` writes what it
has of its last compiles.
"""

PROGRAM_SIGNAL = int(signal.SIGRTMAX) - 6
"""The signal on which a process that called ``reprokit.watch()`` runs the program that is named in
its memory.
"""

NOW_BYTES = 1024
"""Size of the file with the one ``Now`` record of a process, which is overwritten in place."""

MEMORY_JOURNAL, MEMORY_STACKS = "reprokit-journal-", "reprokit-stacks-"
MEMORY_PROGRAM = "reprokit-program-"
"""The names of the memory files (memfd_create(2)) of a process that called ``reprokit.watch()``;
its pid follows.

The first has the ``Now`` record, and then slots that are overwritten in turn: each has its number,
a space and one line. A slot that is being overwritten does not parse, like a line that was cut. The
second gets the stacks of the process after ``STACKS_SIGNAL``. The third has the path of the program
that runs on ``PROGRAM_SIGNAL``, and then a zero.
"""
PROGRAM_BYTES = 4096
SLOT_BYTES, SLOTS = 512, 2046
MEMORY_BYTES = NOW_BYTES + SLOT_BYTES * SLOTS
_DIGITS = 12


@dataclass(frozen=True)
class Now:
    """The current position of the compiler in a process: its last user line or graph node."""

    t: float = 0.0
    """Seconds of CLOCK_MONOTONIC, which does not jump when the clock is set."""
    unit: str = ""
    """``line`` or ``node``."""
    where: str = ""
    repeats: int = 0
    """How many times one user line was traced so far in the current frame or in one that called
    it.
    """
    repeated: str = ""
    """The line that was traced ``repeats`` times."""


def encode_now(now: Now) -> bytes:
    """Return the record for ``<pid>.now``, padded to ``NOW_BYTES``, so that it replaces a longer
    one completely.
    """
    where, repeated = (text.replace("\t", " ")[-220:] for text in (now.where, now.repeated))
    text = f"{now.t:.3f} {now.unit} {now.repeats}\t{where}\t{repeated}\t"
    return text.encode("utf-8", "replace")[:NOW_BYTES].ljust(NOW_BYTES, b"\0")


def encode_event(event: Event) -> bytes:
    """Return the line for ``event``; a value that is not JSON becomes its ``repr``."""
    values = {"t": event.t, "pid": event.pid, "tid": event.tid, "ev": event.ev, **vars(event)}
    for name in ("dropped", "cut_bytes"):
        if not values[name]:
            del values[name]
    # not escaped to ASCII, so that redaction finds a private name in the file
    text = json.dumps(values, default=_plain, ensure_ascii=False, separators=(",", ":"))
    line = text.encode("utf-8", "backslashreplace") + b"\n"
    if len(line) <= MAX_LINE_BYTES:
        return line
    kept = {k: values[k] for k in ("t", "pid", "tid", "ev")}
    return json.dumps({**kept, "cut_bytes": len(line)}).encode() + b"\n"


def encode_slot(number: int, line: bytes) -> bytes:
    """Return the slot for the line with this number; a line that is too long is left out."""
    head = b"%0*d " % (_DIGITS, number)
    text = line if len(head) + len(line) <= SLOT_BYTES else b""
    return (head + text).ljust(SLOT_BYTES, b"\n")


def _plain(value: Any) -> Any:
    return (
        vars(value)
        if dataclasses.is_dataclass(value) and not isinstance(value, type)
        else repr(value)
    )
