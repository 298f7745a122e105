"""Call the target many times in a process of its own, and find what grows with each call.

A second process makes the same calls without torch.compile if something grows.
"""

from __future__ import annotations

import dataclasses
import os
from pathlib import Path

from reprokit.core.growth import growth_of_calls
from reprokit.core.judge.verdict import judge_run
from reprokit.core.records.observation import Missing, Observation
from reprokit.core.shared import without_compile
from reprokit.core.shared.contract import run_names
from reprokit.core.shared.contract.growth_events import CallsSampled
from reprokit.host.request.run_request import Request
from reprokit.host.run import observation_reader, run_directory, supervise

COMPILED, EAGER = "compiled", "eager"
TUNABLES, NO_CACHE = "GLIBC_TUNABLES", "glibc.malloc.tcache_count=0"
"""Without its caches of freed memory, malloc says exactly how many bytes are in use."""
WHAT = "memory over many calls"
"""The name of the step in ``missing``."""


def sample_calls(
    request: Request,
    seen: Observation,
    run_path: Path,
    missing: list[Missing],
    show: supervise.Show | None,
) -> Observation:
    """Return ``seen`` with what grows, and add to ``missing`` what was not measured.

    Raises:
        KeyboardInterrupt: the user interrupted a run.
    """
    compiled = _run(COMPILED, request, run_path, missing, show)
    if compiled is None:
        return seen
    eager = None
    if growth_of_calls.may_grow(compiled):
        eager = _run(EAGER, request, run_path, missing, show)
    return dataclasses.replace(seen, call_growth=growth_of_calls.growth_of_calls(compiled, eager))


def _run(
    name: str,
    request: Request,
    run_path: Path,
    missing: list[Missing],
    show: supervise.Show | None,
) -> CallsSampled | None:
    """Run the target; return its samples, or None if it did not make all calls."""
    folder = run_path / run_names.CALLS_FOLDER / name
    run_directory.make_folders(folder)
    is_compiled = name == COMPILED
    plain = {} if is_compiled else without_compile.VARIABLES
    tunables = os.environ.get(TUNABLES, "")
    changed = dataclasses.replace(
        request,
        compile_it=is_compiled,
        samples_calls=True,
        has_trace=False,
        variables={**request.variables, **plain, TUNABLES: f"{tunables}:{NO_CACHE}".strip(":")},
    )
    outcome = supervise.run_target_once(changed, folder, show)
    if outcome.is_interrupted:
        raise KeyboardInterrupt
    journals = observation_reader.read_journals(folder)
    sampled = journals.last_event_of_type(CallsSampled)
    if sampled.calls:
        return sampled
    ended = judge_run(observation_reader.read_observation(changed, outcome, folder, journals))
    why = f"the run of {request.calls} calls ({name}) did not end well: {ended.reason}"
    missing.append(Missing(WHAT, why))
    return None
