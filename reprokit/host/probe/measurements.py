"""Read what was measured of a candidate after its end."""

from __future__ import annotations

import dataclasses
from pathlib import Path

from reprokit.core.experiments import speedup
from reprokit.core.growth import growth_of_calls
from reprokit.core.records.memory_use import MIN_MORE_OF_REPRO_BYTES, MIN_RATIO, MemoryComparison
from reprokit.core.records.observation import Observation
from reprokit.core.records.speed import NOT_SLOWER
from reprokit.core.shared.contract import measured_kinds, memory_record
from reprokit.core.shared.contract.events import CallParts, CallsTimed
from reprokit.core.shared.contract.growth_events import CallsSampled
from reprokit.host.run.memory_reader import read_memory
from reprokit.host.run.observation_reader import Journals


def with_measurement(
    seen: Observation, run_path: Path, journals: Journals, kind: str, min_ratio: float
) -> Observation:
    """Return ``seen`` with what the run measured of a kind; unchanged if it measured nothing.

    ``min_ratio`` is the smallest ratio to eager that counts.
    """
    if kind == measured_kinds.PEAK_MEMORY:
        eager, compiled = read_memory(run_path / memory_record.EAGER_FOLDER), read_memory(run_path)
        if eager is not None and compiled is not None:
            memory = MemoryComparison(
                compiled=compiled,
                eager=eager,
                min_ratio=max(min_ratio, MIN_RATIO),
                min_more_bytes=MIN_MORE_OF_REPRO_BYTES,
            )
            return dataclasses.replace(seen, memory=memory)
    if kind == measured_kinds.MEMORY_GROWTH:
        sampled = journals.events_of_type(CallsSampled)
        if len(sampled) == len(("eager", "compiled")):
            growth = growth_of_calls.growth_of_calls(sampled[1], sampled[0])
            only_compiled = tuple(row for row in growth.growing if not row.is_in_eager)
            growth = dataclasses.replace(growth, growing=only_compiled)
            return dataclasses.replace(seen, call_growth=growth)
    if kind == measured_kinds.SLOWER:
        timed, parts = journals.events_of_type(CallsTimed), journals.events_of_type(CallParts)
        found = speedup.compare_speed(timed[-1:], (parts or [CallParts()])[-1])
        if found is not None and found.ratio.value < min_ratio:
            found = dataclasses.replace(found, answer=NOT_SLOWER)
        return dataclasses.replace(seen, speed=found)
    return seen
