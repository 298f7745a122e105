"""Inductor caches that processes may share: results of the C++ compiler, never a compiled graph.

A probe that is killed during a write must not damage the cache of the next probe. So each probe has
its own cache folder, and files that a probe wrote are never shared. The cache that is kept between
runs is copied into each of these folders, so that no program can write to the kept cache.

Torch has one folder of precompiled C++ headers for all programs of a user, whatever their cache
folder is. If a program is killed while g++ writes a header there, the header is incomplete. Torch
does not check that, and g++ ignores an incomplete header without a warning. From then on every C++
build on the machine takes four times as long (2.2 s instead of 0.6 s, torch 2.13 with g++ 12).
"""

from __future__ import annotations

import atexit
import fcntl
import getpass
import hashlib
import os
import re
import shutil
import tempfile
import uuid
from collections.abc import Callable, Iterable
from pathlib import Path

import platformdirs

from reprokit.host.system import deletion, guardian_client, host_log

UNSHARED_FOLDERS = frozenset({"locks", "fxgraph", "aotautograd"})
"""Folders with compiled graphs or locks, which are not shared."""
GCH_MAGIC = b"gpch"
"""The first bytes of a complete precompiled header: g++ writes them last."""

QUOTED_CHARACTERS = re.compile(r"[^\w./+-]", re.ASCII)
"""Characters that a shell, a linker or a language may read in its own way."""
FOLDERS_OF_LINKS = ("/tmp", "/var/tmp", "/dev/shm")  # noqa: S108 - mkdtemp makes a private one

_links: dict[tuple[int, Path], Path] = {}
"""Links to folders, by the process that made them."""


def plain_path(folder: Path) -> Path:
    """Return a path of ``folder`` that every compiler can use.

    Torch 2.13 does not quote the paths in the commands that it builds, so a cache in a folder with
    a space in its name makes each C++ build fail. In place of the part of the path with such
    characters, the path has a link in a temporary folder, which is deleted when this process ends
    or is killed. The path is ``folder`` itself if it is plain already, or if no plain folder can be
    written.
    """
    parts = Path(os.path.abspath(folder)).parts
    special = [n for n, part in enumerate(parts) if n and QUOTED_CHARACTERS.search(part)]
    if not special:
        return folder
    named, rest = Path(*parts[: special[-1] + 1]), parts[special[-1] + 1 :]
    link = _links.get((os.getpid(), named)) or _make_link(named)
    return Path(link, *rest) if link else folder


def _make_link(named: Path) -> Path | None:
    for place in (tempfile.gettempdir(), *FOLDERS_OF_LINKS):
        if not QUOTED_CHARACTERS.search(place.replace("/", "")):
            with host_log.suppress(OSError):
                home = Path(tempfile.mkdtemp(prefix="reprokit-link-", dir=place))
                guarded = guardian_client.watch_run_id(uuid.uuid4().hex, [home])
                atexit.register(_delete_link, os.getpid(), home, guarded)
                link = _links[os.getpid(), named] = home / "folder"
                link.symlink_to(named)
                return link
    return None


def _delete_link(pid: int, home: Path, guarded: guardian_client.GuardedProcess | None) -> None:
    if os.getpid() == pid:  # and not a forked process
        deletion.delete_path(home, inside=home.parent)
        if guarded is not None:
            guarded.dismiss()


def copy_cache(source: Path, folder: Path) -> None:
    """Copy the shareable files of the cache ``source`` into ``folder``."""
    _transfer_files(source, folder, shutil.copy2)


def link_cache(source: Path, folder: Path) -> None:
    """Make hard links to the shareable files of ``source`` in ``folder``.

    Use it only for a cache that the current run made itself: a program could write to it.
    """
    _transfer_files(source, folder, os.link)


def _transfer_files(source: Path, folder: Path, transfer: Callable[[Path, Path], object]) -> None:
    for path, name in _shareable_files(source):
        with host_log.suppress(OSError):
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            transfer(path, folder / name)
    folder.mkdir(parents=True, exist_ok=True)


def _shareable_files(source: Path) -> list[tuple[Path, Path]]:
    """Return the inputs and outputs of the C++ compiler, each with its path below ``source``."""
    shareable = []
    with host_log.suppress(OSError):
        for path in source.rglob("*"):
            name = path.relative_to(source)
            is_graph = path.suffix == ".py" or ".main." in path.name
            if name.parts[0] in UNSHARED_FOLDERS or is_graph:
                continue
            if path.is_file() and path.stat().st_size:
                shareable.append((path, name))
    return shareable


def kept_cache_folder(python: str) -> Path:
    """Return the folder of the cache that is kept between runs for this interpreter and torch."""
    return (
        Path(platformdirs.user_cache_dir("reprokit"))
        / "inductor"
        / interpreter_digest(python, "torch/version.py")
    )


def guard_folder() -> Path:
    """Return the folder of the device guards of simulated GPUs; their names contain the version of
    torch.
    """
    return Path(platformdirs.user_cache_dir("reprokit")) / "guards"


def interpreter_digest(python: str, file: str = "", more: Iterable[str] = ()) -> str:
    """Return a digest of the interpreter's path, ``more``, and the modification time of ``file`` in
    its site-packages. It changes when packages are installed.
    """
    homes = {Path(python).parent.parent, Path(python).resolve().parent.parent}
    paths = sorted(p for home in homes for p in home.glob(f"lib*/python3*/site-packages/{file}"))
    parts = [python, *(f"{p}:{p.stat().st_mtime_ns}" for p in paths), *more]
    return hashlib.sha256("\n".join(parts).encode("utf-8", "surrogateescape")).hexdigest()[:16]


def keep_cache(warm: Path, kept: Path) -> None:
    """Copy the cache of a finished warm-up to ``kept``, completely or not at all."""
    draft = kept.with_name(f"{kept.name}.{os.getpid()}")
    with host_log.suppress(OSError):
        if not kept.exists() and any(path.suffix == ".so" for path, _ in _shareable_files(warm)):
            copy_cache(warm, draft)
            draft.rename(kept)
    deletion.delete_path(draft, inside=kept.parent)


def headers_folder() -> Path | None:
    """Return torch's folder of precompiled headers; None for a user without a name."""
    try:
        name = f"torchinductor_{getpass.getuser()}"
    except (OSError, KeyError) as problem:
        host_log.log_ignored(problem)
        return None
    return Path(tempfile.gettempdir()) / name / "precompiled_headers"


def delete_partial_headers() -> int:
    """Delete the incomplete precompiled headers that killed compilers left, and return how many.

    Torch compiles a missing header again.
    """
    count, folder = 0, headers_folder()
    if folder is None:
        return 0
    with host_log.suppress(OSError):
        for path in folder.glob("*.gch"):
            with host_log.suppress(OSError):
                if not _is_complete(path):
                    count += _remove_unless_locked(
                        path, folder / "locks" / f"{path.name.partition('.')[0]}.lock"
                    )
    return count


def _is_complete(path: Path) -> bool:
    with path.open("rb") as file:
        return file.read(len(GCH_MAGIC)) == GCH_MAGIC


def _remove_unless_locked(path: Path, lock: Path) -> bool:
    """Delete a header; torch holds the lock while it compiles the header."""
    lock.parent.mkdir(exist_ok=True)
    with lock.open("a") as file:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if _is_complete(path):
            return False
        return deletion.delete_path(path, inside=path.parent)
