"""The target's stdout and stderr: to a file each, and live to the screen where one is given."""

from __future__ import annotations

import contextlib
import os
import threading
import time
from pathlib import Path
from typing import IO

from reprokit.host.system import deletion

HEAD_BYTES = 32 << 20
PIECE_BYTES = 8 << 20
"""A target may print gigabytes: its first 32 MB are kept, and of the rest the last 8 to 16 MB."""


LINE_BYTES = 1 << 16
"""A longer line is cut at white space."""


class OutputPump(threading.Thread):
    """Copies one stream until it ends; a full disk or a closed screen must not stop the target."""

    def __init__(self, pipe: IO[bytes], path: Path, live: IO[bytes] | None) -> None:
        super().__init__(daemon=True, name=f"pump-{path.stem}")
        self._pipe, self._live = pipe, live
        self._keep = BoundedLog(path)
        self.last_output = 0.0
        """When the last byte came, in seconds since the epoch; 0 before the first."""

    def run(self) -> None:
        """Copy until the end of the stream."""
        live = self._live
        with contextlib.suppress(OSError, ValueError):
            while data := os.read(self._pipe.fileno(), 1 << 16):
                self.last_output = time.time()
                self._keep.write(data)
                live = _write(live, data)
        self._keep.close()


class BoundedLog:
    """A file of bounded size: head, cut, tail. The tail lies in two more files until the end, so a
    kill loses nothing.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._tails = [path.with_suffix(f".last-{n}.txt") for n in (1, 2)]
        self._size = 0
        self._file = _open(path)

    def write(self, data: bytes) -> None:
        """Keep ``data``, or forget the oldest of the tail for it."""
        before, self._size = self._size, self._size + len(data)
        if self._size > HEAD_BYTES:
            piece, last = ((size - HEAD_BYTES) // PIECE_BYTES for size in (self._size, before))
            if before <= HEAD_BYTES or piece != last:
                self._close_file()
                place = self._tails[piece % 2]
                deletion.delete(place, inside=place.parent)
                self._file = _open(place)
        self._file = _write(self._file, data)

    def close(self) -> None:
        """Join head and tail, and say what was cut between them."""
        self._close_file()
        last = max(self._size - 1 - HEAD_BYTES, 0) // PIECE_BYTES
        with contextlib.suppress(OSError):
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
                        file.seek(max(0, size - LINE_BYTES))
                        end = _part_of_line(file.read(), from_end=True)
                        start = _part_of_line(pieces[0][:LINE_BYTES], from_end=False)
                        file.truncate(file.seek(size - end))
                        pieces[0] = pieces[0][start:]
                        file.write(b"\n<<cut %d bytes>>\n" % (gone + end + start))
                    file.writelines(pieces)
                for place in self._tails:
                    deletion.delete(place, inside=place.parent)

    def _close_file(self) -> None:
        if self._file is not None:
            with contextlib.suppress(OSError):
                self._file.close()


def _part_of_line(data: bytes, from_end: bool) -> int:
    """The bytes next to a cut in the same line, or in the same word of a very long line: maybe part
    of a secret.
    """
    for signs in (b"\n", b" \t,;\"'"):
        places = [
            place
            for sign in signs
            if (place := (data.rfind if from_end else data.find)(bytes([sign]))) >= 0
        ]
        if places:
            return len(data) - 1 - max(places) if from_end else min(places) + 1
    return len(data)


def _open(path: Path) -> IO[bytes] | None:
    with contextlib.suppress(OSError):
        return path.open("ab", buffering=0)
    return None


def _write(stream: IO[bytes] | None, data: bytes) -> IO[bytes] | None:
    """Write what can be written; a stream that fails once is given up."""
    if stream is not None:
        try:
            stream.write(data)
            stream.flush()
        except (OSError, ValueError):
            return None
    return stream


def pump_streams(
    pipes: tuple[IO[bytes], IO[bytes]],
    logs: Path,
    echo: tuple[IO[bytes] | None, IO[bytes] | None] | None,
) -> list[OutputPump]:
    """Start copying stdout and stderr of a program."""
    pumps = [
        OutputPump(pipe, logs / f"{name}.txt", echo[n] if echo else None)
        for n, (name, pipe) in enumerate(zip(("stdout", "stderr"), pipes, strict=True))
    ]
    for thread in pumps:
        thread.start()
    return pumps
