"""A strict reader and a writer of the one kind of tarball that a pack is.

Key insight: a general tar reader follows extended headers, whose sizes and number a stranger
chooses, before its caller sees a member. A pack needs none of them: one gzip member, ustar headers,
plain files, short ASCII names. Packs of earlier versions may name a file in one pax record. That
record is bounded, and no other pax or GNU header is read.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import re
import tarfile
import zlib
from collections.abc import Iterable, Iterator
from pathlib import PurePosixPath
from typing import IO

BLOCK = 512
PIECE = 1 << 16
MOST_NAME = 100
"""Maximum length of a name that reprokit writes, from the size of the field in a header."""
MOST_LONG_NAME = 1024
"""Bytes of the pax record that names a file of an earlier version."""
MOST_PART = 200
"""Bytes of one part of a name; file systems allow 255."""
MOST_PARTS = 16
MOST_PADDING = 1 << 20
_KINDS = {
    b"1": "a link",
    b"2": "a link",
    b"3": "a device",
    b"4": "a device",
    b"5": "a folder",
    b"6": "a pipe",
}
_SIZE = re.compile(rb"[0-7]{11}[\0 ]")
_CHECKSUM = re.compile(rb"[0-7]{6}\0 ")
_LONG_NAME = re.compile(rb"([1-9]\d{0,3}) path=([^\n\0]+)\n")


class TarRefused(ValueError):
    """The stream is not a pack; the message has the reason and quotes little of it."""


class Inflated:
    """One gzip member, inflated in small pieces and counted, whatever sizes it claims."""

    def __init__(self, file: IO[bytes], most_packed: int, most: int) -> None:
        self._file, self._engine = file, zlib.decompressobj(wbits=31)
        self._left_packed, self._left = most_packed, most
        self._ready, self._at = b"", 0

    def pieces(self, size: int) -> Iterator[bytes]:
        """The next ``size`` bytes in pieces; EOFError if the stream ends before."""
        while size:
            if self._at == len(self._ready) and not self._inflate():
                raise EOFError("it ends in the middle of a file")
            piece = self._ready[self._at : self._at + size]
            self._at += len(piece)
            size -= len(piece)
            yield piece

    def read(self, size: int) -> bytes:
        """The next ``size`` bytes at once."""
        return b"".join(self.pieces(size))

    def finish(self) -> None:
        """Require that only a few zeros are left, and nothing after the gzip member."""
        left = MOST_PADDING
        while self._at < len(self._ready) or self._inflate():
            rest = self._ready[self._at :]
            left -= len(rest)
            self._at = len(self._ready)
            if rest.strip(b"\0") or left < 0:
                raise TarRefused("it goes on after the end of its archive")
        if self._engine.unused_data or self._file.read(1):
            raise TarRefused("something follows its gzip member")

    def _inflate(self) -> bool:
        self._ready, self._at = b"", 0
        while not self._ready and not self._engine.eof:
            packed = self._engine.unconsumed_tail
            if not packed:
                packed = self._file.read(PIECE)
                self._left_packed -= len(packed)
                if self._left_packed < 0:
                    raise TarRefused("it grows while it is read")
            if not packed:
                raise EOFError("it was cut off")
            self._ready = self._engine.decompress(packed, PIECE)
        self._left -= len(self._ready)
        if self._left < 0:
            raise TarRefused("it unpacks to more than a pack may hold")
        return bool(self._ready)


def read_members(stream: Inflated) -> Iterator[tuple[str, int]]:
    """Name and size of each file; the caller reads that many bytes of ``stream`` before the next
    one.
    """
    long_name = ""
    while True:
        head = stream.read(BLOCK)
        if not head.strip(b"\0"):
            break
        name, size, kind = _header(head)
        if kind == b"x" and not long_name:
            long_name = _long_name(stream, size)
            continue
        if kind != b"0":
            raise TarRefused(
                f"it holds {_quoted(name)}, which is {_KINDS.get(kind, 'no plain file')}"
            )
        name, long_name = long_name or name, ""
        if not is_safe(name):
            raise TarRefused(f"it holds the unsafe name {_quoted(name)}")
        yield name, size
        stream.read(-size % BLOCK)
    if long_name:
        raise TarRefused("it names a file that is not there")
    stream.finish()


def _header(head: bytes) -> tuple[str, int, bytes]:
    if head[257:265] != b"ustar\x0000" or not _CHECKSUM.fullmatch(head[148:156]):
        raise TarRefused("it has a header that is not one of a pack")
    if int(head[148:154], 8) != sum(head) - sum(head[148:156]) + 8 * ord(" "):
        raise TarRefused("it has a damaged header")
    size, kind = head[124:136], head[156:157]
    name, _, rest = head[:100].partition(b"\0")
    if (
        not _SIZE.fullmatch(size)
        or rest.strip(b"\0")
        or head[345:].strip(b"\0")
        or not name.isascii()
    ):
        raise TarRefused("it has a header that is not one of a pack")
    return name.decode("ascii"), int(size[:11], 8), kind


def _long_name(stream: Inflated, size: int) -> str:
    if size > MOST_LONG_NAME:
        raise TarRefused(f"it has an extended header of {size} bytes")
    record = stream.read(size)
    stream.read(-size % BLOCK)
    found = _LONG_NAME.fullmatch(record)
    if found is None or int(found[1]) != size:
        raise TarRefused("it has an extended header that is more than a name")
    return found[2].decode("utf-8")


def is_safe(name: str) -> bool:
    """True for a relative path in normal form that stays in its folder and has only printable
    characters.
    """
    parts = name.split("/")
    return (
        name.isprintable()
        and len(parts) <= MOST_PARTS
        and "\\" not in name
        and not {"", ".", ".."} & set(parts)
        and all(len(part.encode()) <= MOST_PART for part in parts)
    )


def canonical_header(name: str) -> str:
    """A name for a pack: ``name`` itself if it fits into a header, else a plain name with a digest
    of the real one.
    """
    if len(name) <= MOST_NAME and name.isascii() and is_safe(name):
        return name
    digest = hashlib.sha256(name.encode("utf-8", "surrogatepass")).hexdigest()[:8]
    parts = [
        re.sub(r"[^A-Za-z0-9._+=@-]", "_", part)
        for part in name.split("/")
        if part not in ("", ".", "..")
    ]
    plain = PurePosixPath("/".join(parts) or "file")
    suffix = plain.suffix[:12]
    stem = str(plain)[: len(str(plain)) - len(plain.suffix)]
    return f"{stem[: MOST_NAME - len(suffix) - len(digest) - 1].rstrip('/')}-{digest}{suffix}"


def build_tar(files: Iterable[tuple[str, bytes]]) -> bytes:
    """The tarball of ``files``, whose names are canonical: the same bytes every time."""
    raw = io.BytesIO()
    with (
        gzip.GzipFile(filename="", mode="wb", fileobj=raw, compresslevel=9, mtime=0) as packed,
        tarfile.open(fileobj=packed, mode="w", format=tarfile.USTAR_FORMAT) as tar,
    ):
        for name, data in files:
            info = tarfile.TarInfo(name)
            info.size, info.mode, info.mtime = len(data), 0o644, 0
            tar.addfile(info, io.BytesIO(data))
    return raw.getvalue()


def gunzip(data: bytes, most: int) -> bytes:
    """Inflate a gzip file inside a pack; raises ValueError if it is invalid or has more than
    ``most`` bytes.
    """
    try:
        engine = zlib.decompressobj(wbits=31)
        text = engine.decompress(data, most)
    except zlib.error as problem:
        raise ValueError(str(problem)) from problem
    if not engine.eof:
        raise ValueError(f"it was cut off, or holds more than {most} bytes")
    return text


def _quoted(name: str) -> str:
    return ascii(name) if len(name) <= MOST_NAME else f"{name[:MOST_NAME]!a}..."
