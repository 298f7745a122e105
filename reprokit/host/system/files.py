"""Write files completely or not at all, and read files that a target may have written."""

from __future__ import annotations

import collections
import contextlib
import errno
import io
import json
import os
import re
import stat
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any, cast

from reprokit.core.records import bounded_json
from reprokit.host.system import deletion, host_log

MAX_JSON_CHARS, MAX_JSON_VALUES = 64 << 20, 4_000_000
"""Limits of one JSON file of a run directory; those of a file in a pack are lower."""


def write_atomically(path: Path, data: str | bytes) -> Path:
    """Write a temporary file and rename it, so that no reader sees an incomplete file."""
    draft = path.with_name(f".{path.name}.{os.getpid()}.draft")
    try:
        draft.write_bytes(
            data.encode("utf-8", "backslashreplace") if isinstance(data, str) else data
        )
        os.replace(draft, path)
    except BaseException:  # KeyboardInterrupt too
        deletion.delete_path(draft, inside=path.parent)
        raise
    return path


def write_json(path: Path, value: Any) -> Path:
    """Write ``value`` as indented JSON with sorted keys."""
    return write_atomically(
        path, json.dumps(value, indent=1, sort_keys=True, default=repr, ensure_ascii=False) + "\n"
    )


_RUN_NAME = re.compile(r"run-\d{3,}")


def has_symlink(path: Path) -> bool:
    """Return whether a component of ``path`` below its run directory is a symbolic link.

    A target may have created such a link.
    """
    for folder in (path, *path.parents):
        if _RUN_NAME.fullmatch(folder.name):
            return any(
                p.is_symlink()
                for p in (path, *path.parents)
                if p != folder and p.is_relative_to(folder)
            )
    return path.is_symlink()


def open_regular_file(path: Path) -> IO[bytes]:
    """Open a regular file for reading.

    Raises OSError for a device, for a pipe, which would block, and for a symbolic link in the path.
    """
    if has_symlink(path):
        raise OSError(errno.ELOOP, "a symbolic link, which is not followed", str(path))
    if not stat.S_ISREG(os.lstat(path).st_mode):  # opening a device may have effects
        raise OSError(errno.EINVAL, "not a regular file", str(path))
    fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        os.close(fd)
        raise OSError(errno.EINVAL, "not a regular file", str(path))
    return os.fdopen(fd, "rb")


CHUNK_BYTES = 1 << 20


class _Unpacked(io.RawIOBase):
    """Reads the members of a gzip file. The last one may be cut short: gzip.GzipFile raises
    EOFError before it returns the end of such a member.
    """

    def __init__(self, file: IO[bytes]) -> None:
        self._file, self._engine = file, zlib.decompressobj(31)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        """Read the next bytes; 0 at the end."""
        while True:
            packed = self._engine.unconsumed_tail or self._engine.unused_data
            packed = packed or self._file.read(CHUNK_BYTES)
            if self._engine.eof:
                packed = packed.lstrip(b"\0")  # the padding that gzip allows
                self._engine = zlib.decompressobj(31)
            try:
                data = self._engine.decompress(packed, len(buffer))
            except zlib.error as problem:
                raise OSError(errno.EINVAL, f"a damaged gzip file: {problem}") from problem
            buffer[: len(data)] = data
            if data or not packed:
                return len(data)


@contextlib.contextmanager
def open_unpacked_file(path: Path) -> Iterator[IO[bytes]]:
    """Open a regular file for reading, and unpack it if its content is that of gzip.

    A file that is cut short is read to its end. Raises the errors of ``open_regular_file``; reading
    a damaged file raises OSError.
    """
    with open_regular_file(path) as file:
        is_packed = file.read(2) == b"\x1f\x8b"
        file.seek(0)
        if is_packed:
            with io.BufferedReader(_Unpacked(file), CHUNK_BYTES) as unpacked:
                yield cast("IO[bytes]", unpacked)
        else:
            yield file


def open_memory_file(path: Path, uid: int) -> IO[bytes]:
    """Open a file of memfd_create(2) of this user for reading, through ``/proc/PID/fd/N``.

    The name of a file is no proof, because a process may give any file this name. Opening a device
    may have effects, so the file is examined before it is opened.

    Raises OSError if the process has closed it, or uses the number for a different file.
    """
    own = os.memfd_create("reprokit")
    try:
        expected = os.fstat(own)
    finally:
        os.close(own)
    seen = os.stat(path)
    is_memory = (
        stat.S_ISREG(seen.st_mode)
        and seen.st_dev == expected.st_dev
        and seen.st_nlink == 0
        and seen.st_uid == uid
    )
    fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC) if is_memory else -1
    if fd < 0 or not os.path.samestat(os.fstat(fd), seen):
        if fd >= 0:
            os.close(fd)
        raise OSError(errno.EINVAL, "not a memory file", str(path))
    return os.fdopen(fd, "rb")


def read_at_most(file: IO[bytes], max_bytes: int) -> bytes:
    """Read at most ``max_bytes``, in chunks.

    ``file.read(max_bytes)`` allocates that much memory even for a small file.
    """
    chunks = []
    while max_bytes and (chunk := file.read(min(max_bytes, CHUNK_BYTES))):
        chunks.append(chunk)
        max_bytes -= len(chunk)
    return b"".join(chunks)


def read_ends(file: IO[bytes], max_bytes: int) -> tuple[bytes, bytes, int]:
    """Return the start and the end of a file, and the number of bytes that are left out between
    them so that both together have at most ``max_bytes``.
    """
    head = read_at_most(file, max_bytes // 2)
    wanted = max_bytes - len(head)
    tail: collections.deque[bytes] = collections.deque()
    kept = skipped = 0
    if file.seekable():
        size = file.seek(0, os.SEEK_END)
        skipped = file.seek(max(len(head), size - wanted)) - len(head)
    while chunk := file.read(CHUNK_BYTES):
        tail.append(chunk)
        kept += len(chunk)
        while kept - len(tail[0]) >= wanted:
            kept -= len(tail[0])
            skipped += len(tail.popleft())
    end = b"".join(tail)
    extra = max(0, kept - wanted)
    return head, end[extra:], skipped + extra


def read_text(path: Path, max_bytes: int = 64 << 20) -> str:
    """Read the start of a file that a target may have written; return "" if it cannot be read."""
    try:
        with open_regular_file(path) as file:
            return read_at_most(file, max_bytes).decode("utf-8", "replace")
    except OSError as problem:
        host_log.log_ignored(problem)
        return ""


def read_tail(path: Path, max_bytes: int) -> str:
    """Read the last ``max_bytes`` of a file; return "" if it cannot be read."""
    try:
        with open_regular_file(path) as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(0, size - max_bytes))
            return file.read().decode("utf-8", "replace")
    except OSError as problem:
        host_log.log_ignored(problem)
        return ""


def parse_json_object(text: str) -> dict[str, Any]:
    """Parse a JSON object; return an empty one for any other text."""
    with host_log.suppress(ValueError):
        value = bounded_json.parse_json(text, MAX_JSON_CHARS, MAX_JSON_VALUES)
        if isinstance(value, dict):
            return value
    return {}


def read_json_object(path: Path) -> dict[str, Any]:
    """Read the JSON object of a file; return an empty one if there is none."""
    return parse_json_object(read_text(path))


def append_json(path: Path, value: Any) -> None:
    """Append a line to a file of JSON lines.

    If a killed writer has left an incomplete last line, start a new line first.
    """
    is_torn = read_tail(path, 1) not in ("", "\n")
    with path.open("a", encoding="utf-8") as file:
        file.write("\n" * is_torn + json.dumps(value) + "\n")
        file.flush()
        os.fsync(file.fileno())
