"""List the parts of the evidence that a run could not record."""

from __future__ import annotations

import itertools
import re
from pathlib import Path

from reprokit.core.judge.stacks.location import plural
from reprokit.core.records.observation import Missing
from reprokit.core.shared import cuts
from reprokit.core.shared.contract import run_names
from reprokit.core.shared.contract.events import (
    AgentProblem,
    KernelWritten,
    ModelSplit,
    SimulationGapMet,
    TraceDropped,
)
from reprokit.host.request.run_request import Request
from reprokit.host.run.observation_reader import Journals
from reprokit.host.system import files

_HIDES = re.compile(r"-[a-zA-Z]*[IES][a-zA-Z]*")
"""Options of Python with which it does not load the instrumentation."""

MAX_NAMED = 20
"""Compiles that a message names; the journal has the others."""


def find_missing(journals: Journals, run_path: Path, request: Request) -> list[Missing]:
    """Return the parts of the evidence that the instrumentation could not record."""
    missing = [
        Missing(e.records or f"hook {e.hook}", e.problem)
        for e in journals.events_of_type(AgentProblem)
    ]
    missing += [
        Missing(f"kernel {e.name}", f"its program could not be written: {e.problem}")
        for e in journals.events_of_type(KernelWritten)
        if e.problem
    ]
    missing += [
        Missing(
            f"simulation of {symbol}",
            "it calls the CUDA driver, which reprokit does not simulate, so it raised an exception",
        )
        for symbol in dict.fromkeys(e.symbol for e in journals.events_of_type(SimulationGapMet))
    ]
    missing += _dropped_traces(journals)
    split = journals.last_event_of_type(ModelSplit)
    if split.left_out:
        missing.append(
            Missing(
                "tensor parallel",
                f"not split, because there is no rule: {', '.join(split.left_out[:8])}",
            )
        )
    if split.is_split is False:
        why = "nothing was split: the model has no tp_plan, and none of its parameters is a DTensor"
        missing.append(Missing("tensor parallel", why))
    if journals.bad_lines:
        missing.append(
            Missing(
                "journal",
                f"the record of the run has {plural(journals.bad_lines, 'damaged line')}, which"
                " reprokit skipped",
            )
        )
    dropped = sum(e.dropped for events in journals.by_pid.values() for e in events)
    if dropped:
        missing.append(
            Missing(
                "journal",
                f"the record of the run lacks {plural(dropped, 'event')}, which reprokit could not"
                " write (disk full?)",
            )
        )
    if text := files.read_text(run_path / run_names.AGENT_PROBLEMS_FILE).strip():
        missing.append(Missing("record of the run", cuts.cut_head(text, 500)))
    if request.attached_pid:
        what = "graphs" if journals.by_pid else "graphs and phases"
        why = f"reprokit did not start the process, so it could not record its {what}"
        missing.append(Missing("journal", why))
    elif not journals.by_pid:
        why = "torch was not seen"
        if request.target.kind == "command":
            why += f"; {_what_hides(request.target.command)}"
        missing.append(Missing("journal", why))
    return missing


def _dropped_traces(journals: Journals) -> list[Missing]:
    """Name the compiles that are not in the traces, because those reached their limit."""
    events = journals.events_of_type(TraceDropped)
    parts = []
    if cids := [cid for event in events for cid in event.cids]:
        more = f", and {len(cids) - MAX_NAMED} more" * (len(cids) > MAX_NAMED)
        parts.append(f"without the oldest compiles ({', '.join(cids[:MAX_NAMED])}{more})")
    if cut := list(dict.fromkeys(event.cut for event in events if event.cut)):
        parts.append(f"without the end of the compile {', '.join(cut[:MAX_NAMED])}")
    limit = f"--trace-limit {events[0].limit / 1e6:g}MB" if events else ""
    return [Missing("TORCH_TRACE", f"{part}, because of {limit}") for part in parts]


def _what_hides(command: tuple[str, ...]) -> str:
    """Return what keeps reprokit out of the Python of a command, as far as its words show."""
    for word, after in itertools.pairwise(command):
        name = word.rpartition("/")[2]
        if name == "env" and after in ("-i", "-", "--ignore-environment"):
            return f"leave out `{after}` of env, which keeps reprokit out of Python"
        if name.startswith(("python", "pypy")) and _HIDES.fullmatch(after):
            return f"leave out `{after}`, which keeps reprokit out of Python"
    return "python -I, -E or -S and a cleared environment hide it"
