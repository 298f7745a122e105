"""Read what a run measured of its memory."""

from __future__ import annotations

import dataclasses
from pathlib import Path

from reprokit.core.memory.program_memory import GeneratedModule, program_memory
from reprokit.core.records.memory_use import MemoryUse
from reprokit.core.shared.contract import memory_record
from reprokit.core.shared.contract.memory_record import BufferFact, MemoryRecord
from reprokit.core.shared.contract.serialize import from_json
from reprokit.host.system import files, host_log, private_names


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
