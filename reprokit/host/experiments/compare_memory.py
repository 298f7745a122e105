"""Compare the peak of the memory of a compiled run with that of eager.

Each side runs in its own process, and leaves its record in the folder ``memory`` of its run
directory.
"""

from __future__ import annotations

import dataclasses
from pathlib import Path

from reprokit.core.memory.program_memory import GeneratedModule, program_memory
from reprokit.core.records.memory_use import MemoryComparison, MemoryUse
from reprokit.core.records.observation import Missing, Observation
from reprokit.core.records.process_state import describe_exit
from reprokit.core.shared.contract import memory_record
from reprokit.core.shared.contract.memory_record import BufferFact, MemoryRecord
from reprokit.core.shared.contract.serialize import from_json
from reprokit.host.experiments import eager_vs_compiled
from reprokit.host.request.run_request import Request
from reprokit.host.run import run_directory, supervise
from reprokit.host.system import files, host_log, private_names

WHAT = "comparison of memory"
EAGER_FOLDER = "memory-eager"


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
        folder = run_path / EAGER_FOLDER
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


def read_memory(run_path: Path) -> MemoryUse | None:
    """Return the peaks of a run; None if it left no record."""
    record = read_record(run_path)
    if record is None or not record.peaks:
        return None
    return program_memory(record, read_modules(run_path, record))


def read_record(run_path: Path) -> MemoryRecord | None:
    """Return the record of a run; None if there is none."""
    document = files.read_json_object(run_path / memory_record.FOLDER / memory_record.RECORD_FILE)
    with host_log.suppress(ValueError, RecursionError):
        record: MemoryRecord = from_json(MemoryRecord, document)
        return record
    return None


def read_modules(run_path: Path, record: MemoryRecord) -> dict[int, GeneratedModule]:
    """Return the generated modules of a run, by their numbers."""
    folder = run_path / memory_record.FOLDER
    modules, redact = {}, private_names.get_redactor().redact_text
    for number in {call.module for call in record.calls}:
        text = files.read_text(folder / memory_record.module_file(number))
        facts = files.read_json_object(folder / memory_record.buffers_file(number))
        with host_log.suppress(ValueError, RecursionError):
            buffers = {
                name: dataclasses.replace(fact, line=redact(fact.line))
                for name, fact in from_json(dict[str, BufferFact], facts).items()
            }
            modules[number] = GeneratedModule(text, buffers)
    return modules
