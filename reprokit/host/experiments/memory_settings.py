"""Find which settings and backends bring the peak of the memory down."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Sequence
from pathlib import Path

from reprokit.core.experiments.ablation import (
    BACKENDS,
    INDUCTOR,
    AblationStep,
    CompileVariant,
    ProgramAblation,
)
from reprokit.core.experiments.remedies.remedy_table import memory_settings
from reprokit.core.judge import same_failure
from reprokit.core.records.finding import Signature
from reprokit.core.records.memory_use import MemoryComparison, is_too_much, megabytes
from reprokit.core.records.process_state import describe_exit
from reprokit.core.shared.contract import run_names
from reprokit.host.experiments.run_ablation import Show
from reprokit.host.request.run_request import Request
from reprokit.host.run import run_directory, supervise
from reprokit.host.run.memory_reader import read_memory
from reprokit.host.system import deletion
from reprokit.host.system.progress import OperationStatus

FOLDER = "memory-settings"
PARTITIONERS: Sequence[CompileVariant] = BACKENDS[2:4]
"""``aot_eager`` has the default partitioner, and the other one that of Inductor."""


def ablate_memory(
    request: Request, wanted: Signature, memory: MemoryComparison, run_path: Path, show: Show
) -> ProgramAblation:
    """Run the target once with each setting, in a process of its own, and measure each peak."""
    is_trained = "backward" in memory.compiled.phases
    variants = (*memory_settings(is_trained), *PARTITIONERS)
    status = OperationStatus("measuring the memory with other settings", total=len(variants))
    steps = []
    if request.compile.get("backend", "inductor") == "inductor":
        found = f"{megabytes(memory.compiled.peak[1].peak_bytes)} at its peak"
        steps.append(
            AblationStep(INDUCTOR.name, INDUCTOR.group, same_failure.SAME, wanted.parts.kind, found)
        )
    for number, variant in enumerate(variants, 1):
        status.trying, status.done = variant.name, number
        show(status)
        folder = run_path / FOLDER / str(number)
        run_directory.make_folders(folder)
        overrides = {run_names.OVERRIDES_VARIABLE: json.dumps(dict(variant.overrides))}
        changed = dataclasses.replace(
            request, has_trace=False, variables={**request.variables, **overrides}
        )
        outcome = supervise.run_target_once(changed, folder)
        if outcome.is_interrupted:
            raise KeyboardInterrupt
        use = read_memory(folder)
        answer, found = same_failure.UNRESOLVED, describe_exit(outcome.exit_status)
        if use is not None:
            peak = use.peak[1].peak_bytes
            is_same = is_too_much(peak, memory.eager.peak[1].peak_bytes)
            answer = same_failure.SAME if is_same else same_failure.PASSES
            found = f"{megabytes(peak)} at its peak"
        kind = wanted.parts.kind if answer == same_failure.SAME else "ok"
        steps.append(
            AblationStep(
                variant.name,
                variant.group,
                answer,
                kind if use is not None else "unknown",
                found,
                round(outcome.seconds, 2),
                round(outcome.cpu_s, 2),
                variant.overrides,
            )
        )
        deletion.delete_path(folder, inside=run_path)
    return ProgramAblation(tuple(steps))
