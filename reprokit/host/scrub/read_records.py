"""Recognise files that torch wrote about a run: traces, graphs as programs, exported programs.

Each file is recognised by its content. All of them may come from a stranger: sizes, numbers and
depths are limited, links are not followed, and nothing is executed.
"""

from __future__ import annotations

import io
import os
import re
import shlex
import zipfile
import zlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from reprokit.core.reported import repro_programs, trace_records
from reprokit.core.reported.made_programs import MadeProgram
from reprokit.core.reported.trace_records import RunRecord
from reprokit.core.shared.errors import BadInput
from reprokit.host.system import files, host_log

MAX_DEPTH, MAX_FILES = 6, 20_000
MAX_TRACES = 64
MAX_TRACE_BYTES = 1 << 30
MAX_PROGRAM_BYTES = 4 << 20
MAX_EXPORTED_BYTES = 256 << 20
MAX_PROGRAMS = 8
HEAD_BYTES = 64 << 10
RAW_JSONL = "raw.jsonl"
EXPORTED_FILE = "exported.pt2"
EXPORTED = f"""\
import torch

exported = torch.export.load("{EXPORTED_FILE}")
args, kwargs = exported.example_inputs
torch.compile(exported.module())(*args, **kwargs)
"""
"""The program of an exported one, which is copied beside it."""
_RANK = re.compile(r"rank_?(\d{1,6})")
_LOWERED = (".ptx", ".cubin", ".llir", ".sass", ".amdgcn", ".hsaco")
_TRITON = (".ttgir", ".ttir", *_LOWERED)
_OF_TRITON = re.compile(r'"event_type": *"(compilation|launch)"|\btt\.func (?:public )?@')


@dataclass
class Records:
    """What files say about a run."""

    runs: list[RunRecord] = field(default_factory=list)
    """One for each process that wrote a trace."""
    traces: list[Path] = field(default_factory=list)
    """The file of each of ``runs``, in any order."""
    programs: list[MadeProgram] = field(default_factory=list)
    """Programs that were given as files."""
    exported: Path | None = None
    sources: list[str] = field(default_factory=list)
    """What was read, in words."""
    flight_records: list[Path] = field(default_factory=list)
    """Dumps of a flight recorder, which ``reprokit merge`` reads."""
    skipped: list[str] = field(default_factory=list)
    not_converted: str = ""
    """A program for ``run_repro`` that could not be used, and why."""


def may_be_records(path: Path) -> bool:
    """Return whether a path is one that ``read_records`` should look at: a folder, or a file that
    is no factory.
    """
    return path.is_dir() or (path.is_file() and path.suffix != ".ipynb")


def read_records(paths: Sequence[Path]) -> Records:
    """Return what files and folders say.

    Raises:
        BadInput: a path does not exist, or nothing below it is known.
    """
    found = Records()
    triton = ""
    below = list(_files_below(paths))
    of_tlparse = {path.parent for path in below if path.name == RAW_JSONL}
    for path in below:
        is_page = path.parent in of_tlparse or path.parent.parent in of_tlparse
        if is_page and path.name != RAW_JSONL:
            continue  # its text is in raw.jsonl
        try:
            head = _head(path)
            if path.name == RAW_JSONL and trace_records.is_trace(head.decode("utf-8", "replace")):
                _add_trace(found, path, f"tlparse of {path.parent.name}")
            elif head[:4] == b"PK\x03\x04":
                if found.exported is None and (exported := _exported(path)) is not None:
                    found.exported = exported
                    found.sources.append(path.name)
            elif _is_flight_record(path, head):
                found.flight_records.append(path)
            else:
                text = head.decode("utf-8", "replace")
                if trace_records.is_trace(text):
                    _add_trace(found, path, "TORCH_TRACE")
                elif path.suffix in (".py", ".txt") and "epro(" in text + _tail(path):
                    _add_program(found, path)
                elif path.suffix in _TRITON or _OF_TRITON.search(text):
                    is_whole = path.suffix not in _LOWERED
                    triton = triton if triton and not is_whole else str(path)
        except (OSError, EOFError, ValueError, zlib.error, zipfile.BadZipFile, BadInput) as problem:
            host_log.log_ignored(problem)
            found.skipped.append(f"{path.name}: {problem}")
    if not (found.runs or found.programs or found.exported or found.flight_records):
        names = ", ".join(map(str, paths))
        if found.not_converted:
            raise BadInput(f"cannot use {found.not_converted}")
        why = f" ({found.skipped[0]})" if found.skipped else ""
        if triton:
            raise BadInput(
                f"{triton} is a dump of Triton, which has kernels and no graph; run: reprokit"
                f" kernel {shlex.quote(triton)}"
            )
        raise BadInput(
            f"nothing in {names} is a record of torch that reprokit reads{why}: TORCH_TRACE, the"
            " output of tlparse, fx_graph_runnable, minifier_launcher.py, repro.py,"
            " TORCH_COMPILE_DEBUG, an exported .pt2, or dumps of a flight recorder"
        )
    found.runs.sort(key=lambda run: run.rank if run.rank is not None else -1)
    return found


def _add_trace(found: Records, path: Path, name: str) -> None:
    if len(found.runs) >= MAX_TRACES:
        raise ValueError(f"only {MAX_TRACES} traces are read")
    budget = [MAX_TRACE_BYTES]

    def read_payload(name: str) -> str:
        file = path.parent / name
        if Path(name).is_absolute() or ".." in Path(name).parts or files.has_symlink(file):
            return ""
        with host_log.suppress(OSError), files.open_regular_file(file) as payload:
            return files.read_at_most(payload, trace_records.MAX_PAYLOAD_CHARS).decode(
                "utf-8", "replace"
            )
        return ""

    with files.open_unpacked_file(path) as file:
        text = io.TextIOWrapper(file, "utf-8", "replace", newline="\n")
        run = trace_records.read_trace(_bounded_lines(text, budget), read_payload)
    if budget[0] <= 0:
        run.problems.append(f"only the first {MAX_TRACE_BYTES >> 20} MB were read")
    if run.rank is None and (rank := _RANK.search(path.name)):
        run.rank = int(rank[1])
    found.runs.append(run)
    found.traces.append(path)
    found.sources.append(name)


def _bounded_lines(text: io.TextIOBase, budget: list[int]) -> Iterator[str]:
    """Yield the lines of a file; a longer line comes in parts, and reading ends with the budget."""
    while budget[0] > 0 and (line := text.readline(trace_records.MAX_LINE_CHARS + 1)):
        budget[0] -= len(line)
        yield line


def _add_program(found: Records, path: Path) -> None:
    with files.open_regular_file(path) as file:
        data = files.read_at_most(file, MAX_PROGRAM_BYTES + 1)
    if len(data) > MAX_PROGRAM_BYTES:
        raise ValueError(f"it has more than {MAX_PROGRAM_BYTES >> 20} MB")
    text = data.decode("utf-8", "replace")
    if not repro_programs.is_repro_program(text):
        return
    try:
        program = repro_programs.program_of_repro(text)
    except (repro_programs.NotConverted, RecursionError) as problem:
        command = shlex.join(["reprokit", "capture", "--", "python", str(path)])
        is_python = not isinstance(problem, repro_programs.NotPython)
        how = f"; {command} runs it as it is" if is_python else ""
        found.not_converted = f"{path.name}: {problem}{how}"
        raise ValueError(str(problem)) from problem
    if len(found.programs) < MAX_PROGRAMS and program not in found.programs:
        found.programs.append(program)
        found.sources.append(path.name)


def _exported(path: Path) -> Path | None:
    """Return the path of an exported program; None for any other ZIP file."""
    if path.stat().st_size > MAX_EXPORTED_BYTES:
        raise ValueError(f"it has more than {MAX_EXPORTED_BYTES >> 20} MB")
    with zipfile.ZipFile(path) as archive:
        names = archive.namelist()[:MAX_FILES]
    is_exported = any("serialized_exported_program" in n or "/models/" in n for n in names)
    return path if is_exported else None


def _is_flight_record(path: Path, head: bytes) -> bool:
    is_pickle = head[:1] == b"\x80" and b"entries" in head and b"pg_config" in head
    return is_pickle or (head[:1] == b"{" and b'"entries"' in head and b"collective_seq_id" in head)


def _head(path: Path) -> bytes:
    with files.open_unpacked_file(path) as file:
        return files.read_at_most(file, HEAD_BYTES)


def _tail(path: Path) -> str:
    """Return the end of a file."""
    with files.open_regular_file(path) as file:
        file.seek(max(0, path.stat().st_size - HEAD_BYTES))
        return files.read_at_most(file, HEAD_BYTES).decode("utf-8", "replace")


def _files_below(paths: Iterable[Path]) -> Iterator[Path]:
    count = 0
    for given in {path.resolve(): path for path in paths}.values():
        if not given.exists():
            raise BadInput(f"there is no file or folder {given}")
        top = given.resolve()  # the user names it; links below it are not followed
        if top.is_file():
            yield top
            continue
        for folder, folders, names in os.walk(top):
            folders.sort()
            if len(Path(folder).relative_to(top).parts) >= MAX_DEPTH:
                folders.clear()
            for name in sorted(names):
                path = Path(folder, name)
                if path.is_file() and not path.is_symlink():
                    count += 1
                    if count > MAX_FILES:
                        raise BadInput(f"there are more than {MAX_FILES} files below {top}")
                    yield path
