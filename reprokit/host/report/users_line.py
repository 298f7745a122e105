"""Find the line of the user's own code that a failure is about."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path

from reprokit.core.judge.responsible import ownership
from reprokit.core.judge.stacks import evidence, python_traceback
from reprokit.core.judge.stacks import frames as fr
from reprokit.core.records.finding import Verdict
from reprokit.core.records.observation import Observation
from reprokit.core.records.verdict_kinds import kind_named
from reprokit.core.shared.contract.events import Progress
from reprokit.core.shared.tracebacks import name_of_function
from reprokit.host.run.observation_reader import Journals
from reprokit.host.system import files, host_log

_PLACE = re.compile(r"(?P<file>.+?):(?P<line>\d+)(?: in (?P<function>\S+))?")
MAX_SOURCE_CHARS = 100


def find_users_line(verdict: Verdict, seen: Observation) -> str:
    """Return the innermost line of the user's code that is involved, with its text.

    It is the line that is responsible, that the compiler works on, or that is on the stack. Empty
    if no line is known.
    """
    match = _find_place(verdict, seen)
    if match is None:
        return ""
    text = source_line(Path(match["file"]), int(match["line"]))[:MAX_SOURCE_CHARS]
    return f"{match[0]}: {text}" if text else match[0]


def find_text_of_line(verdict: Verdict, seen: Observation) -> str:
    """Return the whole text of the line that :func:`find_users_line` finds; empty if unknown."""
    match = _find_place(verdict, seen)
    return source_line(Path(match["file"]), int(match["line"])) if match is not None else ""


def _find_place(verdict: Verdict, seen: Observation) -> re.Match[str] | None:
    worker = _own_of_worker(seen)
    place = f"{worker.at} in {worker.function}" if worker else verdict.responsible_place
    if not place and (traced := ownership.traced_own(seen)) is not None:
        place = f"{traced.at} in {traced.function}"
    place = place or verdict.work.get("line", "")
    if not place:
        # a run that reached its deadline waits somewhere, like a hang
        like = dataclasses.replace(verdict, kind="hang") if verdict.kind == "unknown" else verdict
        stack = ownership.stack_of(like, seen)
        find = ownership.waiting_own if like.kind == "hang" else ownership.innermost_own
        own = find(stack)
        place = f"{own.at} in {own.function}" if own is not None else ""
    where, _, function = place.rpartition(" in ")
    return _PLACE.match(f"{where} in {name_of_function(function)}" if where else place)


def _own_of_worker(seen: Observation) -> ownership.CodePlace | None:
    """Return the innermost line of the user's in a worker process whose exception was raised
    again.
    """
    raised = evidence.blamed_exception(seen)
    inner = python_traceback.raised_in_worker(fr.root_cause(raised)) if raised is not None else None
    return ownership.innermost_own(inner.frames) if inner is not None else None


def find_compiled_function(journals: Journals, verdict: Verdict, seen: Observation) -> str:
    """Return the function of the user that Dynamo traced last, as ``NAME in FILE``; empty without
    one, and if a failure that ends no compile may be about a different one.

    Dynamo traces the user's code, so the stack of a failure after it has no frame of that code.
    """
    traced = [e.where for e in journals.events_of_type(Progress) if e.unit == "line"]
    frames = {graph.cid.partition("/")[0] for graph in seen.graphs if graph.level == "dynamo"}
    if kind_named(verdict.kind).is_silent and len(frames) > 1:
        return ""
    for where in reversed(traced):
        match = _PLACE.match(where)
        if match and match["function"] and ownership.is_own(match["file"]):
            return f"{match['function']} in {match['file']}"
    return ""


def source_line(file: Path, number: int) -> str:
    """Return a line of a file without its indentation; empty if it cannot be read."""
    with host_log.suppress(OSError):
        rows = files.read_text(file).splitlines()
        if 0 < number <= len(rows):
            return rows[number - 1].strip()
    return ""
