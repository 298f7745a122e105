"""Who is responsible for a failure that needs a cache."""

from __future__ import annotations

import re

from reprokit.core.judge.responsible.parties import Responsible
from reprokit.core.records.finding import Verdict
from reprokit.core.records.observation import Observation

_OF_COMPILER = re.compile(r"TORCH|TRITON|torch\.|--python")
"""The settings of the compiler and of the interpreter, in contrast to variables of a program."""


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
