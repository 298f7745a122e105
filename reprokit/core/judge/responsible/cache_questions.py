"""Who is responsible for a failure that needs a cache, and the type of every answer."""

from __future__ import annotations

import re
from dataclasses import dataclass

from reprokit.core.records.finding import Verdict
from reprokit.core.records.observation import Observation

PARTIES = ("user", "torch", "triton", "driver", "machine", "reprokit", "unknown")
"""Who can be responsible. ``user`` is any code of the program that is not torch's: its own code, or
a third-party package. ``machine`` is the operating system and its limits: disk, memory, a stopped
process.
"""
_OF_COMPILER = re.compile(r"TORCH|TRITON|torch\.|--python")
"""The settings of the compiler and of the interpreter, in contrast to variables of a program."""


@dataclass(frozen=True)
class Responsible:
    """Who is responsible, with the evidence."""

    party: str
    """One of ``PARTIES``; empty if nothing failed."""
    because: tuple[str, ...] = ()
    """One sentence for each piece of evidence."""
    place: str = ""
    """The ``FILE:LINE`` in the user's code, or the symbol, that is responsible; empty if it is not
    known.
    """


def damaged_file(verdict: Verdict, seen: Observation) -> Responsible | None:
    """Check for a file of a cache that was damaged after the compiler wrote it, or that a killed
    compiler did not complete.
    """
    failing = next((stage for stage in seen.stages if stage.name == verdict.stage), None)
    if failing is None or not failing.damaged:
        return None
    file = failing.damaged[0]
    why = f"The cache had a damaged file before the stage: {file.name}: {file.what}."
    return Responsible("machine", (why,), file.name)


def stale_key(verdict: Verdict, seen: Observation) -> Responsible | None:
    """Check for a pass of the program that depends on a variable of the program, which its key in
    the cache does not contain.
    """
    failing = next((stage for stage in seen.stages if stage.name == verdict.stage), None)
    if verdict.kind != "wrong-result" or failing is None or not seen.own_passes:
        return None
    names = [name for name in failing.settings if not _OF_COMPILER.match(name)]
    if not failing.settings or names != list(failing.settings):
        return None
    why = (
        f"A fresh compile depends on {', '.join(names)}, a variable of the program; the cache knows"
        " the program's own passes only by their uuid(), which did not change."
    )
    return Responsible("user", (why,), seen.own_passes[0])


def missed_entry(verdict: Verdict, seen: Observation) -> Responsible | None:
    """Check for a pass of the program whose key in the cache is different in each process."""
    if verdict.kind != "cache-miss":
        return None
    changed = [part for entry in seen.missed for part in entry.changed]
    if seen.own_passes and any("custom" in part for part in changed):
        why = f"The key changes with {', '.join(changed)}, which is the program's own pass."
        return Responsible("user", (why,), seen.own_passes[0])
    return Responsible(
        "unknown", ("Nothing shows whether the two processes ran the same program.",)
    )
