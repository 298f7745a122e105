"""Compare the peak of the memory of a compiled run with that of eager.

Each side runs in its own process, and leaves its record in the folder ``memory`` of its run
directory.
"""

from __future__ import annotations

import dataclasses
from pathlib import Path

from reprokit.core.records.memory_use import MemoryComparison
from reprokit.core.records.observation import Missing, Observation
from reprokit.core.records.process_state import describe_exit
from reprokit.core.shared.contract import memory_record
from reprokit.host.experiments import eager_vs_compiled
from reprokit.host.request.run_request import Request
from reprokit.host.run import run_directory, supervise
from reprokit.host.run.memory_reader import read_memory

WHAT = "comparison of memory"


def compare_memory(
    request: Request,
    seen: Observation,
    run_path: Path,
    missing: list[Missing],
    show: supervise.Show | None,
) -> Observation:
    """Return ``seen`` with the comparison, and add to ``missing`` what is not measured.

    The eager run of a comparison of results has its record too; there is a run of its own without
    one.
    """
    compiled = read_memory(run_path)
    if compiled is None:
        missing.append(Missing(WHAT, "the run left no record of its memory"))
        return seen
    eager = read_memory(eager_vs_compiled.eager_folder(run_path))
    if eager is None:
        folder = run_path / memory_record.EAGER_FOLDER
        run_directory.make_folders(folder)
        plain = dataclasses.replace(request, compile_it=False, has_trace=False)
        outcome = supervise.run_target_once(plain, folder, show)
        if outcome.is_interrupted:
            raise KeyboardInterrupt
        eager = read_memory(folder)
        if eager is None:
            how = describe_exit(outcome.exit_status)
            missing.append(Missing(WHAT, f"the run without torch.compile left no record: {how}"))
            return seen
    if compiled.problem:
        missing.append(Missing(WHAT, compiled.problem))
    comparison = MemoryComparison(compiled=compiled, eager=eager)
    return dataclasses.replace(seen, memory=comparison)
