"""Files are written whole or not at all."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import re
import stat
from pathlib import Path
from typing import IO, Any

from reprokit.core.records import bounded_json
from reprokit.host.system import deletion

MOST_CHARS, MOST_VALUES = 64 << 20, 4_000_000
"""Bytes of one JSON file of a run directory, which may be longer than one of a pack."""


def write_whole(path: Path, data: str | bytes) -> Path:
    """Write under a temporary name and rename, so that no reader ever sees half a file."""
    draft = path.with_name(f".{path.name}.{os.getpid()}.draft")
    try:
        draft.write_bytes(
            data.encode("utf-8", "backslashreplace") if isinstance(data, str) else data
        )
        os.replace(draft, path)
    except BaseException:  # also an interrupt
        deletion.delete(draft, inside=path.parent)
        raise
    return path


def write_json(path: Path, value: Any) -> Path:
    """Write ``value`` as indented JSON with a stable order of keys."""
    return write_whole(
        path, json.dumps(value, indent=1, sort_keys=True, default=repr, ensure_ascii=False) + "\n"
    )


_RUN = re.compile(r"run-\d{3,}")
"""The name of a run directory."""


def is_linked(path: Path) -> bool:
    """Whether a part of ``path`` inside its run directory is a symbolic link, which a target may
    have made.
    """
    for place in (path, *path.parents):
        if _RUN.fullmatch(place.name):
            return any(
                p.is_symlink()
                for p in (path, *path.parents)
                if p != place and p.is_relative_to(place)
            )
    return path.is_symlink()


def open_plain(path: Path) -> IO[bytes]:
    """Open a plain file for reading; OSError for a device, a pipe that would block, or a link in
    its path.
    """
    if is_linked(path):
        raise OSError(errno.ELOOP, "a symbolic link, which is not followed", str(path))
    fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        os.close(fd)
        raise OSError(errno.EINVAL, "not a plain file", str(path))
    return os.fdopen(fd, "rb")


PIECE_BYTES = 1 << 20


def read_most(file: IO[bytes], most_bytes: int) -> bytes:
    """Read at most ``most_bytes``; ``read`` alone allocates that much memory for a file of any
    size.
    """
    pieces = []
    while most_bytes and (piece := file.read(min(most_bytes, PIECE_BYTES))):
        pieces.append(piece)
        most_bytes -= len(piece)
    return b"".join(pieces)


def read_text(path: Path, most_bytes: int = 64 << 20) -> str:
    """Read a file that a target may have written: any bytes, any size, perhaps none."""
    try:
        with open_plain(path) as file:
            return read_most(file, most_bytes).decode("utf-8", "replace")
    except OSError:
        return ""


def read_tail(path: Path, most_bytes: int) -> str:
    """Read the last ``most_bytes`` of a file."""
    try:
        with open_plain(path) as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(0, size - most_bytes))
            return file.read().decode("utf-8", "replace")
    except OSError:
        return ""


def parse_object(text: str) -> dict[str, Any]:
    """A JSON object; empty for anything else."""
    with contextlib.suppress(ValueError):
        value = bounded_json.parse_json(text, MOST_CHARS, MOST_VALUES)
        if isinstance(value, dict):
            return value
    return {}


def read_object(path: Path) -> dict[str, Any]:
    """The JSON object of a file; empty where there is none."""
    return parse_object(read_text(path))


def append_json(path: Path, value: Any) -> None:
    """Add a line to a file of JSON lines; half a line that a killed writer has left stays a line of
    its own.
    """
    is_torn = read_tail(path, 1) not in ("", "\n")
    with path.open("a", encoding="utf-8") as file:
        file.write("\n" * is_torn + json.dumps(value) + "\n")
        file.flush()
        os.fsync(file.fileno())
