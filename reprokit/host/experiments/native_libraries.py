"""The shared libraries of a native stack, with the build ids by which their symbols are found."""

from __future__ import annotations

import struct
from pathlib import Path

from reprokit.core.judge.stacks.sanitizer_reports import SanitizerReport
from reprokit.core.records.crash_sites import NativeLibrary
from reprokit.host.system import host_log

PT_NOTE, NT_GNU_BUILD_ID = 4, 3
MAX_NOTE_BYTES = 1 << 16
_HEADER = struct.Struct("<4sBB10x2x2x4x8xQ8x4x2xHH")
_SEGMENT = struct.Struct("<I4xQ8x8xQ8x8x")
_NOTE = struct.Struct("<III")


def libraries_of(report: SanitizerReport) -> tuple[NativeLibrary, ...]:
    """Return the libraries of the innermost frames that are not generated code, innermost first."""
    frames = [f for f in report.outside_python if not f.is_generated]
    paths = dict.fromkeys(f.library for f in frames if f.library.startswith("/"))
    return tuple(NativeLibrary(Path(path).name, build_id(Path(path))) for path in paths)


def build_id(path: Path) -> str:
    """Return the GNU build id of a 64-bit little-endian ELF file; empty if it has none."""
    with host_log.suppress(OSError, struct.error), path.open("rb") as file:
        magic, width, order, start, size, count = _HEADER.unpack(file.read(_HEADER.size))
        if (magic, width, order) != (b"\x7fELF", 2, 1):
            return ""
        for number in range(count):
            file.seek(start + number * size)
            kind, offset, length = _SEGMENT.unpack(file.read(_SEGMENT.size))
            if kind == PT_NOTE:
                file.seek(offset)
                if found := _of_notes(file.read(min(length, MAX_NOTE_BYTES))):
                    return found
    return ""


def _of_notes(notes: bytes) -> str:
    place = 0
    while place + _NOTE.size <= len(notes):
        name_size, size, kind = _NOTE.unpack_from(notes, place)
        name = place + _NOTE.size
        value = name + (name_size + 3) // 4 * 4
        if kind == NT_GNU_BUILD_ID and notes[name : name + 4] == b"GNU\0":
            return notes[value : value + size].hex()
        place = value + (size + 3) // 4 * 4
    return ""
