"""Time warm calls of the target, compiled and in eager, in processes of their own."""

from __future__ import annotations

import dataclasses
from pathlib import Path

from reprokit.core.experiments import speedup
from reprokit.core.records.observation import Missing, Observation
from reprokit.core.records.process_state import describe_exit
from reprokit.core.records.speed import SLOWER
from reprokit.core.shared.contract.events import CallParts, CallsTimed
from reprokit.host.request.run_request import Request
from reprokit.host.run import observation_reader, run_directory, supervise

MEASURE_S = 3.0
"""Seconds of measurement in a process."""
WITHOUT_CACHES = {"TORCHINDUCTOR_FX_GRAPH_CACHE": "0", "TORCHINDUCTOR_AUTOGRAD_CACHE": "0"}
"""A graph from a cache does not tell which lines its kernels are."""
MAX_PROCESSES = 2
"""The second process confirms that calls are slower: memory has a different layout there."""


def compare_speed(
    request: Request,
    seen: Observation,
    run_path: Path,
    missing: list[Missing],
    show: supervise.Show | None,
) -> Observation:
    """Return ``seen`` with the speed of warm calls, and add to ``missing`` why it is not known.

    Raises:
        KeyboardInterrupt: the user interrupted a run.
    """
    timings: list[CallsTimed] = []
    speed = None
    for number in range(1, MAX_PROCESSES + 1):
        folder = run_path / "speed" / str(number)
        run_directory.make_folders(folder)
        timed = dataclasses.replace(
            request,
            measure_s=MEASURE_S,
            measures_parts=True,
            has_trace=False,
            compares=False,
            compares_memory=False,
            variables={**request.variables, **WITHOUT_CACHES},
        )
        outcome = supervise.run_target_once(timed, folder, show)
        if outcome.is_interrupted:
            raise KeyboardInterrupt
        journals = observation_reader.read_journals(folder)
        timings += journals.events_of_type(CallsTimed)[-1:]
        parts = journals.last_event_of_type(CallParts)
        if len(timings) < number:
            how = describe_exit(outcome.exit_status)
            missing.append(Missing("comparison of speed", f"a process measured nothing: {how}"))
            break
        speed = speedup.compare_speed(timings, parts)
        if speed is None or speed.answer != SLOWER:
            break
    return dataclasses.replace(seen, speed=speed)
