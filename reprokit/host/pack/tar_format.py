"""Read and write the tarball of a pack, strictly in one format.

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

BLOCK_BYTES = 512
CHUNK_BYTES = 1 << 16
MAX_NAME_CHARS = 100
"""Maximum length of a name that reprokit writes, from the size of the field in a header."""
MAX_PAX_RECORD_BYTES = 1024
"""Maximum size of the pax record that names a file in a pack of an earlier version."""
MAX_NAME_PART_BYTES = 200
"""Bytes of one part of a name; file systems allow 255."""
MAX_NAME_PARTS = 16
MAX_PADDING_BYTES = 1 << 20
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
    """The stream is not a pack; the message has the reason, and only short quotes of the stream."""


class GzipMember:
    """A gzip member that is inflated in small chunks, with limits on both sizes."""

    def __init__(self, file: IO[bytes], max_packed_bytes: int, max_bytes: int) -> None:
        self._file, self._engine = file, zlib.decompressobj(wbits=31)
        self._left_packed, self._left = max_packed_bytes, max_bytes
        self._ready, self._at = b"", 0

    def chunks(self, size: int) -> Iterator[bytes]:
        """Yield the next ``size`` bytes in chunks. Raises EOFError if the stream ends before."""
        while size:
            if self._at == len(self._ready) and not self._inflate():
                raise EOFError("it ends in the middle of a file")
            chunk = self._ready[self._at : self._at + size]
            self._at += len(chunk)
            size -= len(chunk)
            yield chunk

    def read(self, size: int) -> bytes:
        """Return the next ``size`` bytes."""
        return b"".join(self.chunks(size))

    def require_end(self) -> None:
        """Raise TarRefused unless only a few zeros are left, and nothing after the gzip member."""
        left = MAX_PADDING_BYTES
        while self._at < len(self._ready) or self._inflate():
            rest = self._ready[self._at :]
            left -= len(rest)
            self._at = len(self._ready)
            if rest.strip(b"\0") or left < 0:
                raise TarRefused("it has data after the end of the archive")
        if self._engine.unused_data or self._file.read(1):
            raise TarRefused("it has data after the gzip member")

    def _inflate(self) -> bool:
        self._ready, self._at = b"", 0
        while not self._ready and not self._engine.eof:
            packed = self._engine.unconsumed_tail
            if not packed:
                packed = self._file.read(CHUNK_BYTES)
                self._left_packed -= len(packed)
                if self._left_packed < 0:
                    raise TarRefused("it grew while it was read")
            if not packed:
                raise EOFError("it was cut off")
            self._ready = self._engine.decompress(packed, CHUNK_BYTES)
        self._left -= len(self._ready)
        if self._left < 0:
            raise TarRefused("its unpacked size is over the limit of a pack")
        return bool(self._ready)


def read_members(stream: GzipMember) -> Iterator[tuple[str, int]]:
    """Yield the name and size of each file. The caller reads that many bytes of ``stream`` before
    the next file.
    """
    long_name = ""
    while True:
        head = stream.read(BLOCK_BYTES)
        if not head.strip(b"\0"):
            break
        name, size, kind = _header(head)
        if kind == b"x" and not long_name:
            long_name = _long_name(stream, size)
            continue
        if kind != b"0":
            raise TarRefused(
                f"it has {_quoted(name)}, which is {_KINDS.get(kind, 'not a regular file')}"
            )
        name, long_name = long_name or name, ""
        if not is_safe_name(name):
            raise TarRefused(f"it has the unsafe name {_quoted(name)}")
        yield name, size
        stream.read(-size % BLOCK_BYTES)
    if long_name:
        raise TarRefused("it names a file that is missing")
    stream.require_end()


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


def _long_name(stream: GzipMember, size: int) -> str:
    if size > MAX_PAX_RECORD_BYTES:
        raise TarRefused(f"it has an extended header of {size} bytes")
    record = stream.read(size)
    stream.read(-size % BLOCK_BYTES)
    match = _LONG_NAME.fullmatch(record)
    if match is None or int(match[1]) != size:
        raise TarRefused("it has an extended header that is not only a name")
    return match[2].decode("utf-8")


def is_safe_name(name: str) -> bool:
    """Return whether a name is a normalized relative path inside its folder, with only printable
    characters.
    """
    parts = name.split("/")
    return (
        name.isprintable()
        and len(parts) <= MAX_NAME_PARTS
        and "\\" not in name
        and not {"", ".", ".."} & set(parts)
        and all(len(part.encode()) <= MAX_NAME_PART_BYTES for part in parts)
    )


def canonical_name(name: str) -> str:
    """Return the name of a file in a pack: ``name`` if it fits into a header, and otherwise an
    ASCII name with a digest of it.
    """
    if len(name) <= MAX_NAME_CHARS and name.isascii() and is_safe_name(name):
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
    return f"{stem[: MAX_NAME_CHARS - len(suffix) - len(digest) - 1].rstrip('/')}-{digest}{suffix}"


def build_tar(files: Iterable[tuple[str, bytes]]) -> bytes:
    """Return the tarball of ``files``, whose names are canonical. The same files give the same
    bytes.
    """
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


def inflate_gzip(data: bytes, max_bytes: int) -> bytes:
    """Inflate a gzip file of a pack. Raises ValueError if it is invalid or has more than
    ``max_bytes`` bytes.
    """
    try:
        engine = zlib.decompressobj(wbits=31)
        text = engine.decompress(data, max_bytes)
    except zlib.error as problem:
        raise ValueError(str(problem)) from problem
    if not engine.eof:
        raise ValueError(f"it was cut off, or has more than {max_bytes} bytes")
    return text


def _quoted(name: str) -> str:
    return ascii(name) if len(name) <= MAX_NAME_CHARS else f"{name[:MAX_NAME_CHARS]!a}..."
