"""Read a pack from a stranger: every name, type and size is checked before a byte is believed, nothing is run.

Nothing is extracted to disk. A tarball may lie about everything: absolute names, ``..``, links, devices,
names twice, a gigabyte of zeros in a kilobyte.
"""

from __future__ import annotations

import contextlib
import gzip
import hashlib
import json
import tarfile
import zlib
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import IO, Any, cast

from ..core.records import SCHEMA, BadInput

MOST_PACKED_BYTES = 64 << 20
MOST_UNPACKED_BYTES = 512 << 20
MOST_FILES = 20_000


@dataclass(frozen=True)
class Pack:
    """A pack whose every file agrees with its manifest."""

    path: Path
    files: dict[str, bytes]
    manifest: dict[str, Any]

    def json(self, name: str) -> dict[str, Any]:
        """One of the pack's JSON files; empty when it is absent or no object."""
        try:
            value = json.loads(self.files.get(name, b"{}"))
        except (ValueError, RecursionError):
            return {}
        return value if isinstance(value, dict) else {}


def locate(path: Path) -> Path:
    """The pack that ``path`` names: itself, or the one beside a run directory that was made of it."""
    if not (path / "run.json").is_file():
        return path
    try:
        run = (path / "pack" / "run.json").read_bytes()
        packs = sorted(path.resolve().parent.glob("*.tar.gz"), key=lambda p: p.stat().st_mtime, reverse=True)
    except OSError:
        run, packs = b"", []
    for pack in packs:
        with contextlib.suppress(BadInput):
            if read(pack).files.get("run.json") == run:
                return pack
    raise BadInput(f"{path} is a run directory without its pack; make it: reprokit pack {path}")


def read(path: Path) -> Pack:
    """Read and verify a pack into memory; raises BadInput that says what is wrong with it."""
    if not path.exists():
        raise BadInput(f"there is no pack {path}")
    if not path.is_file():
        raise BadInput(f"{path} is no file; a pack is a .tar.gz that reprokit capture wrote")
    if path.stat().st_size > MOST_PACKED_BYTES:
        raise BadInput(f"{path} is {path.stat().st_size} bytes long; a pack is at most {MOST_PACKED_BYTES}")
    try:
        found = _read_members(path)
    except (tarfile.TarError, gzip.BadGzipFile, zlib.error, EOFError, OSError, ValueError) as problem:
        raise BadInput(f"{path} is not a readable .tar.gz: {problem}") from problem
    return _verify(path, found)


def _read_members(path: Path) -> dict[str, bytes]:
    found: dict[str, bytes] = {}
    total = 0
    with gzip.open(path) as packed, tarfile.open(fileobj=cast(IO[bytes], _Limited(packed)), mode="r|") as tar:
        for member in tar:
            name = member.name
            if not member.isreg():
                kind = (
                    "a link"
                    if member.issym() or member.islnk()
                    else "a device"
                    if member.isdev()
                    else "a folder"
                    if member.isdir()
                    else "no plain file"
                )
                raise BadInput(
                    f"{path} holds {name!r}, which is {kind}; a pack holds plain files only, so it was refused"
                )
            if (
                name.startswith("/")
                or "\\" in name
                or "\0" in name
                or ".." in PurePosixPath(name).parts
                or not name
                or any(ord(c) < 32 for c in name)
            ):
                raise BadInput(f"{path} holds the unsafe name {name!r}, so it was refused")
            if name in found:
                raise BadInput(f"{path} holds {name!r} twice, so it was refused")
            total += member.size
            if total > MOST_UNPACKED_BYTES or len(found) >= MOST_FILES:
                raise BadInput(
                    f"{path} unpacks to more than {MOST_UNPACKED_BYTES >> 20} MB or {MOST_FILES} files, so it was refused"
                )
            file = tar.extractfile(member)
            found[name] = file.read() if file else b""
    return found


class _Limited:
    """A stream that stops a decompression bomb, whatever sizes the headers claim."""

    def __init__(self, stream: gzip.GzipFile) -> None:
        self._stream, self._left = stream, MOST_UNPACKED_BYTES + (MOST_FILES + 2) * 1024

    def read(self, size: int = -1) -> bytes:
        data = self._stream.read(size if size >= 0 else self._left + 1)
        self._left -= len(data)
        if self._left < 0:
            raise BadInput("the archive unpacks to more than a pack may hold, so it was refused")
        return data


def _verify(path: Path, found: dict[str, bytes]) -> Pack:
    if "manifest.json" not in found:
        raise BadInput(f"{path} has no manifest.json; it is not a pack of reprokit")
    try:
        manifest = json.loads(found["manifest.json"])
        rows = manifest["files"]
        if not all(isinstance(row, str) for row in manifest.setdefault("trimmed", [])):
            raise ValueError("trimmed is no list of texts")
        claims = {str(n): (int(r["size"]), str(r["sha256"])) for n, r in rows.items()}
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError) as problem:
        raise BadInput(f"{path} has a manifest.json that cannot be read: {problem}") from problem
    if manifest.get("schema") != SCHEMA:
        raise BadInput(f"{path} has schema {manifest.get('schema')!r}; this reprokit reads {SCHEMA}")
    actual = {n: (len(d), hashlib.sha256(d).hexdigest()) for n, d in found.items() if n != "manifest.json"}
    wrong = sorted(n for n in claims.keys() | actual.keys() if claims.get(n) != actual.get(n))
    if wrong:
        raise BadInput(
            f"{path} does not agree with its manifest in {', '.join(repr(n) for n in wrong[:5])}; it was changed or cut, so it was refused"
        )
    return Pack(path, found, manifest)
