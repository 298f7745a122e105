"""Read what the sources of a stack say: the lines of generated code in which fatal signals
occurred, and the qualified names of the user's functions.

The files of the generated code are deleted when the run ends, and the user's files may change. So
both are written to the run directory, and read from there by each later judgement.
"""

from __future__ import annotations

import dataclasses
import functools
from pathlib import Path

from reprokit.core.judge.stacks import frames as fr
from reprokit.core.judge.stacks import own_functions
from reprokit.core.records.dumps import Fault
from reprokit.core.records.observation import Observation
from reprokit.core.shared.contract import run_names
from reprokit.host.system import files, host_log
from reprokit.host.watch import hang_evidence

STDERR_BYTES = 128_000
"""The end of stderr that is read for reports of fatal signals."""
FILE = "generated_lines.json"
NAMES_FILE = "own_functions.json"
MAX_SOURCE_BYTES = 4 << 20


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


def name_own_functions(seen: Observation, run_path: Path) -> Observation:
    """Return the observation with qualified names of the user's functions in all stacks."""
    places = {own_functions.place_of(frame): frame for frame in own_functions.own_frames(seen)}
    if not places:
        return seen
    path = run_path / NAMES_FILE
    known = {str(key): str(name) for key, name in files.read_json_object(path).items()}
    new = {}
    for place, frame in places.items():
        source = Path(frame.file)
        if place not in known and source.is_absolute():
            with host_log.suppress(OSError, ValueError):  # a cell of a notebook has no file
                functions = _functions_of(source, source.stat().st_mtime_ns)
                if name := own_functions.find_name(frame, functions):
                    new[place] = name
    if new:
        with host_log.suppress(OSError):  # a full disk hides only the classes
            files.write_json(path, {**known, **new})
    return own_functions.with_names(seen, {**known, **new})


@functools.lru_cache(maxsize=64)
def _functions_of(path: Path, _mtime_ns: int) -> own_functions.Functions:
    return own_functions.functions_of(files.read_text(path, MAX_SOURCE_BYTES))


def _reported(run_path: Path, stderr_tail: str) -> list[Fault]:
    faults = []
    for path in sorted((run_path / run_names.STACKS_FOLDER).glob("faulthandler-*.txt")):
        pid = path.stem.removeprefix("faulthandler-")
        number = int(pid) if pid.isascii() and pid.isdigit() else 0
        if fault := fr.parse_fatal(files.read_text(path), number):
            faults.append(fault)
    fault = fr.parse_fatal(stderr_tail, 0)
    return [*faults, fault] if fault else faults
