"""Read the fatal signals of a run, with the lines of generated code in which they occurred.

The files of the generated code are deleted when the run ends. So its lines are written to the run
directory before, and read from there by each later judgement.
"""

from __future__ import annotations

import dataclasses
from pathlib import Path

from reprokit.core.judge.stacks import frames as fr
from reprokit.core.records.dumps import Fault
from reprokit.core.shared.contract import run_names
from reprokit.host.system import files, host_log
from reprokit.host.watch import hang_evidence

STDERR_BYTES = 128_000
"""The end of stderr that is read for reports of fatal signals."""
FILE = "generated_lines.json"


def keep_lines(run_path: Path) -> None:
    """Write the lines of generated code at which fatal signals occurred, if there are any."""
    stderr = run_path / run_names.LOGS_FOLDER / run_names.STDERR_FILE
    # neither a full disk nor a damaged report may hide how the run ended
    with host_log.suppress(OSError, ValueError):
        lines = {
            f"{frame.file}:{frame.line}": line
            for fault in _reported(run_path, files.read_tail(stderr, STDERR_BYTES))
            for frame in fault.frames
            if (line := hang_evidence.generated_line(frame))
        }
        if lines:
            files.write_json(run_path / FILE, lines)


def read_faults(run_path: Path, stderr_tail: str) -> list[Fault]:
    """Return the fatal signals that faulthandler, or the C++ runtime on stderr, reported."""
    lines = files.read_json_object(run_path / FILE)
    return [
        dataclasses.replace(
            fault,
            source=next(
                (str(lines[at]) for f in fault.frames if (at := f"{f.file}:{f.line}") in lines), ""
            ),
        )
        for fault in _reported(run_path, stderr_tail)
    ]


def _reported(run_path: Path, stderr_tail: str) -> list[Fault]:
    faults = []
    for path in sorted((run_path / run_names.STACKS_FOLDER).glob("faulthandler-*.txt")):
        pid = path.stem.removeprefix("faulthandler-")
        number = int(pid) if pid.isascii() and pid.isdigit() else 0
        if fault := fr.parse_fatal(files.read_text(path), number):
            faults.append(fault)
    fault = fr.parse_fatal(stderr_tail, 0)
    return [*faults, fault] if fault else faults
