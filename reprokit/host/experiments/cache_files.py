"""Read the files of an Inductor cache: which entries it has, and which files are damaged.

Torch writes an entry under a digest of its contents, so a changed entry is known by its name. A
shared library is damaged if its file is shorter than its header says.
"""

from __future__ import annotations

import base64
import hashlib
import struct
from pathlib import Path

from reprokit.core.records.caches.cache_stages import DamagedFile
from reprokit.host.system import host_log

FOLDERS = {"fx-graph": ("fxgraph", 2), "aot-autograd": ("aotautograd", 1)}
"""The folder of each cache, and the number of folders from it to the folder of a key."""
DIGEST_CHARS = 51
MAX_DAMAGED = 8
_ELF, _ELF_HEADER_BYTES = b"\x7fELF", 64


def stored_keys(cache: Path) -> dict[str, set[str]]:
    """Return the keys of the entries of a cache folder, by cache."""
    return {
        name: {path.name for path in (cache / folder).glob("/".join("*" * depth))}
        for name, (folder, depth) in FOLDERS.items()
    }


def damaged_files(cache: Path) -> tuple[DamagedFile, ...]:
    """Return the files of a cache folder that are not as the compiler wrote them."""
    found = []
    entries = tuple(folder for folder, _ in FOLDERS.values())
    for path in sorted(cache.rglob("*")):
        with host_log.suppress(OSError):
            name = path.relative_to(cache)
            if not path.is_file() or name.parts[0] == "locks" or path.suffix in (".lock", ".tmp"):
                continue
            size = path.stat().st_size
            what = ""
            if not size and path.suffix in (".so", ".py", ".cpp"):
                what = "the file is empty"
            elif path.suffix == ".so":
                what = _damage_of_library(path, size)
            elif name.parts[0] in entries and _has_other_digest(path):
                what = "its contents do not match the digest in its name"
            if what:
                found.append(DamagedFile(str(name), what, size))
        if len(found) == MAX_DAMAGED:
            break
    return tuple(found)


def _has_other_digest(path: Path) -> bool:
    """Return True for an entry whose name is the digest of other contents."""
    return len(path.name) == DIGEST_CHARS and path.name != _digest(path.read_bytes())


def _digest(content: bytes) -> str:
    """Return the name that torch 2.9 to 2.15 gives to an entry with these contents."""
    return base64.b32encode(hashlib.sha256(content).digest())[:DIGEST_CHARS].decode().lower()


def _damage_of_library(path: Path, size: int) -> str:
    with path.open("rb") as file:
        head = file.read(_ELF_HEADER_BYTES)
    if not head.startswith(_ELF):
        return "it is not a shared library"
    if len(head) < _ELF_HEADER_BYTES:
        return "it is truncated"
    (offset,) = struct.unpack_from("<Q", head, 40)
    entry_bytes, count = struct.unpack_from("<HH", head, 58)
    return "it is truncated" if offset + entry_bytes * count > size else ""
