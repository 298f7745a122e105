"""Copy the stdout and stderr of the target to a file each, and to the terminal if there is one."""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path
from typing import IO

from reprokit.host.system import deletion, host_log

HEAD_BYTES = 32 << 20
TAIL_CHUNK_BYTES = 8 << 20
"""A target may print gigabytes: the first 32 MB and the last 8 to 16 MB are kept."""


MAX_LINE_BYTES = 1 << 16
"""A longer line is cut at a space, comma, semicolon or quote."""


class OutputPump(threading.Thread):
    """Copies one stream until it ends, even if the disk is full or the terminal is closed."""

    def __init__(self, pipe: IO[bytes], path: Path, live: IO[bytes] | None) -> None:
        super().__init__(daemon=True, name=f"pump-{path.stem}")
        self._pipe, self._live = pipe, live
        self._keep = BoundedLog(path)
        self.last_output = 0.0
        """The time of the last byte, in seconds since the epoch; 0 before the first."""

    def run(self) -> None:
        """Copy until the end of the stream."""
        live = self._live
        with host_log.suppress(OSError, ValueError):
            while data := os.read(self._pipe.fileno(), 1 << 16):
                self.last_output = time.time()
                self._keep.write(data)
                live = _write(live, data)
        self._keep.close()


class BoundedLog:
    """A file of bounded size, with the start and the end of the output.

    The end is in two more files while the target runs, so that it is on disk if reprokit is killed.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._tails = [path.with_suffix(f".last-{n}.txt") for n in (1, 2)]
        self._size = 0
        self._file = _open(path)

    def write(self, data: bytes) -> None:
        """Write ``data``; if the tail is full, delete its oldest chunk first."""
        before, self._size = self._size, self._size + len(data)
        if self._size > HEAD_BYTES:
            chunk, last = ((size - HEAD_BYTES) // TAIL_CHUNK_BYTES for size in (self._size, before))
            if before <= HEAD_BYTES or chunk != last:
                self._close_file()
                tail = self._tails[chunk % 2]
                deletion.delete_path(tail, inside=tail.parent)
                self._file = _open(tail)
        self._file = _write(self._file, data)

    def close(self) -> None:
        """Append the tail to the head, with the number of bytes that were cut between them."""
        self._close_file()
        last = max(self._size - 1 - HEAD_BYTES, 0) // TAIL_CHUNK_BYTES
        with host_log.suppress(OSError):
            pieces = [
                p.read_bytes()
                for p in (self._tails[(last + 1) % 2], self._tails[last % 2])
                if p.exists()
            ]
            if pieces:
                gone = self._size - self._path.stat().st_size - sum(map(len, pieces))
                with self._path.open("r+b") as file:
                    size = file.seek(0, os.SEEK_END)
                    if gone:
                        file.seek(max(0, size - MAX_LINE_BYTES))
                        end = _part_of_line(file.read(), from_end=True)
                        start = _part_of_line(pieces[0][:MAX_LINE_BYTES], from_end=False)
                        file.truncate(file.seek(size - end))
                        pieces[0] = pieces[0][start:]
                        file.write(b"\n<<cut %d bytes>>\n" % (gone + end + start))
                    file.writelines(pieces)
                for path in self._tails:
                    deletion.delete_path(path, inside=path.parent)

    def _close_file(self) -> None:
        if self._file is not None:
            with host_log.suppress(OSError):
                self._file.close()


def _part_of_line(data: bytes, from_end: bool) -> int:
    """Return how many bytes next to a cut belong to an incomplete line, or an incomplete word of a
    very long line. They may be part of a secret.
    """
    for separators in (b"\n", b" \t,;\"'"):
        offsets = [
            offset
            for separator in separators
            if (offset := (data.rfind if from_end else data.find)(bytes([separator]))) >= 0
        ]
        if offsets:
            return len(data) - 1 - max(offsets) if from_end else min(offsets) + 1
    return len(data)


def _open(path: Path) -> IO[bytes] | None:
    with host_log.suppress(OSError):
        return path.open("ab", buffering=0)
    return None


def _write(stream: IO[bytes] | None, data: bytes) -> IO[bytes] | None:
    """Write ``data``. Return None for a stream that fails, so that it is not used again."""
    if stream is not None:
        try:
            stream.write(data)
            stream.flush()
        except (OSError, ValueError) as problem:
            host_log.log_ignored(problem)
            return None
    return stream


def pump_streams(
    pipes: tuple[IO[bytes], IO[bytes]],
    logs: Path,
    echo: tuple[IO[bytes] | None, IO[bytes] | None] | None,
) -> list[OutputPump]:
    """Start to copy the stdout and stderr of a program."""
    pumps = [
        OutputPump(pipe, logs / f"{name}.txt", echo[n] if echo else None)
        for n, (name, pipe) in enumerate(zip(("stdout", "stderr"), pipes, strict=True))
    ]
    for thread in pumps:
        thread.start()
    return pumps
