"""Read a pack from a stranger. Check all names, types and sizes before using a byte, and run
nothing.

Nothing is extracted to disk, and files that a command does not need are only hashed. Any part of a
tarball may be hostile: absolute names, ``..``, links, devices, duplicate names, a file that is also
a folder, a gigabyte of zeros in a kilobyte.
"""

from __future__ import annotations

import hashlib
import shlex
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from reprokit.core.records import bounded_json
from reprokit.core.shared.contract import run_names
from reprokit.core.shared.contract.serialize import SCHEMA
from reprokit.core.shared.errors import BadInput
from reprokit.host.pack import tar_format
from reprokit.host.system import files, host_log

MAX_PACKED_BYTES = 64 << 20
MAX_UNPACKED_BYTES = 192 << 20
MAX_FILES = 20_000
MAX_PACKS = 20
"""Maximum number of packs beside a run directory that are searched."""
MAX_TRIMMED = 1_000


@dataclass(frozen=True)
class PackFiles:
    """A pack whose files all agree with its manifest."""

    path: Path
    files: dict[str, bytes]
    """The requested files."""
    sizes: dict[str, int]
    """The sizes of all its files."""
    manifest: dict[str, Any]

    def read_json(self, name: str, max_chars: int = bounded_json.MAX_CHARS) -> dict[str, Any]:
        """Return the JSON object of a file; empty if the pack has no such file.

        Raises BadInput if it is not an object.
        """
        if name not in self.files:
            return {}
        try:
            value = bounded_json.parse_json(self.files[name], max_chars)
        except ValueError as problem:
            raise BadInput(f"{self.path} has a {name} that cannot be read: {problem}") from problem
        if not isinstance(value, dict):
            raise BadInput(f"{self.path} has a {name} that cannot be read: it is not an object")
        return value


def locate_pack(path: Path) -> Path:
    """Return the pack that ``path`` names: ``path`` itself, or the pack of a run directory, which
    is next to it.
    """
    try:
        if not (path / run_names.RUN_FILE).is_file():
            return path
    except (OSError, ValueError) as problem:  # a name that is not possible for a file
        host_log.log_ignored(problem)
        return path
    try:
        with files.open_regular_file(path / run_names.PACK_FOLDER / run_names.RUN_FILE) as file:
            run = hashlib.sha256(file.read(MAX_UNPACKED_BYTES)).hexdigest()
        packs = sorted(
            path.resolve().parent.glob("*.tar.gz"), key=lambda p: p.stat().st_mtime, reverse=True
        )
    except OSError as problem:
        host_log.log_ignored(problem)
        run, packs = "", []
    for pack in packs[:MAX_PACKS]:
        with host_log.suppress(BadInput):
            if (
                read_pack(pack, lambda name: False)
                .manifest["files"]
                .get(run_names.RUN_FILE, {})
                .get("sha256")
                == run
            ):
                return pack
    raise BadInput(
        f"{path} is a run directory without its pack; create the pack: reprokit pack"
        f" {shlex.quote(str(path))}"
    )


def read_pack(path: Path, keeps: Callable[[str], bool] = lambda name: True) -> PackFiles:
    """Read and verify a pack, and keep the contents of files that ``keeps`` selects.

    Raises BadInput with the reason.
    """
    try:
        if not path.exists():
            raise BadInput(f"there is no pack {path}")
        if not path.is_file():
            raise BadInput(f"{path} is not a file; a pack is a .tar.gz that reprokit capture wrote")
        if path.stat().st_size > MAX_PACKED_BYTES:
            raise BadInput(
                f"{path} is {path.stat().st_size} bytes long; a pack is at most {MAX_PACKED_BYTES}"
            )
        return _read(path, keeps)
    except tar_format.TarRefused as problem:
        raise BadInput(f"{path} was refused: {problem}") from problem
    except (zlib.error, EOFError, OSError, ValueError) as problem:
        raise BadInput(f"{path} is not a readable .tar.gz: {_words(problem)}") from problem


def _words(problem: Exception) -> str:
    return (
        (problem.strerror if isinstance(problem, OSError) else "")
        or str(problem)
        or type(problem).__name__
    )


def _read(path: Path, keeps: Callable[[str], bool]) -> PackFiles:
    kept: dict[str, bytes] = {}
    actual: dict[str, tuple[int, str]] = {}
    folders: set[str] = set()
    with path.open("rb", buffering=0) as file:
        stream = tar_format.GzipMember(
            file,
            MAX_PACKED_BYTES,
            MAX_UNPACKED_BYTES + (MAX_FILES + 2) * 2 * tar_format.BLOCK_BYTES,
        )
        for name, size in tar_format.read_members(stream):
            parents = ["/".join(name.split("/")[: n + 1]) for n in range(name.count("/"))]
            if name in actual or name in folders or not actual.keys().isdisjoint(parents):
                raise tar_format.TarRefused(f"it has {name!a} twice")
            if len(actual) >= MAX_FILES:
                raise tar_format.TarRefused(f"it has more than {MAX_FILES} files")
            folders.update(parents)
            is_kept = name == run_names.MANIFEST_FILE or keeps(name)
            digest, chunks = hashlib.sha256(), []
            for chunk in stream.chunks(size):
                digest.update(chunk)
                if is_kept:
                    chunks.append(chunk)
            actual[name] = (size, digest.hexdigest())
            if is_kept:
                kept[name] = b"".join(chunks)
    sizes = {n: size for n, (size, _) in actual.items()}
    return PackFiles(path, kept, sizes, _verified_manifest(path, kept, actual))


def _verified_manifest(
    path: Path, kept: dict[str, bytes], actual: dict[str, tuple[int, str]]
) -> dict[str, Any]:
    """Return the manifest. Raises BadInput unless it matches the contents of the pack."""
    if run_names.MANIFEST_FILE not in kept:
        raise BadInput(f"{path} has no manifest.json; it is not a pack of reprokit")
    try:
        manifest = bounded_json.parse_json(kept[run_names.MANIFEST_FILE])
        trimmed = manifest.setdefault("trimmed", [])
        if len(trimmed) > MAX_TRIMMED or not all(isinstance(row, str) for row in trimmed):
            raise ValueError("trimmed is not a list of texts")
        claims = {str(n): (int(r["size"]), str(r["sha256"])) for n, r in manifest["files"].items()}
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError) as problem:
        raise BadInput(
            f"{path} has a manifest.json that cannot be read: {problem!s:.200}"
        ) from problem
    if manifest.get("schema") != SCHEMA:
        raise BadInput(
            f"{path} has schema {manifest.get('schema')!r:.50}; this reprokit reads {SCHEMA}"
        )
    del actual[run_names.MANIFEST_FILE]  # the manifest does not list itself
    wrong = sorted(n for n in claims.keys() | actual.keys() if claims.get(n) != actual.get(n))
    if wrong:
        raise BadInput(
            f"{path} does not agree with its manifest in"
            f" {', '.join(ascii(n[:100]) for n in wrong[:5])}; it was changed or cut, so it was"
            " refused"
        )
    return dict(manifest)
