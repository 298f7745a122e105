"""What is warm and may be shared: the C++ compiler's answers to Inductor's questions, never a
compiled graph.

A probe that is killed in the middle of a write must not spoil what the next one reads. So each gets
a cache folder of its own, and nothing that a probe wrote is ever shared. What is kept between runs
is copied into each, so that a program cannot write into what later ones read.

Torch's folder of precompiled C++ headers is shared by all of a user's programs, wherever their
caches are. A program that is killed while g++ writes there leaves half a header, which torch takes
for a whole one and g++ passes over without a word: from then on every C++ build on the machine
costs four times as much (0.6 s and 2.2 s, torch 2.13 with g++ 12).
"""

from __future__ import annotations

import contextlib
import fcntl
import getpass
import hashlib
import os
import shutil
import tempfile
from collections.abc import Callable, Iterable
from pathlib import Path

import platformdirs

from reprokit.host.system import deletion

NOT_SHARED = frozenset({"locks", "fxgraph", "aotautograd"})
"""Results and locks."""
WHOLE = b"gpch"
"""What g++ writes at the head of a precompiled header when all the rest is there."""


def copy_cache(source: Path, place: Path) -> None:
    """Give ``place`` the files of a warm cache as its own."""
    _put(source, place, shutil.copy2)


def link_cache(source: Path, place: Path) -> None:
    """The same as hard links: reading them costs nothing. For what one run made for itself only."""
    _put(source, place, os.link)


def _put(source: Path, place: Path, put: Callable[[Path, Path], object]) -> None:
    for path, name in _files(source):
        with contextlib.suppress(OSError):
            (place / name).parent.mkdir(parents=True, exist_ok=True)
            put(path, place / name)
    place.mkdir(parents=True, exist_ok=True)


def _files(source: Path) -> list[tuple[Path, Path]]:
    """What the C++ compiler was asked and built; not the graphs of the warm-up, and no locks."""
    found = []
    with contextlib.suppress(OSError):
        for path in source.rglob("*"):
            name = path.relative_to(source)
            is_result = name.parts[0] in NOT_SHARED or path.suffix == ".py" or ".main." in path.name
            if path.is_file() and not is_result and path.stat().st_size:
                found.append((path, name))
    return found


def kept_cache(python: str) -> Path:
    """Where they are kept between runs, by interpreter and torch."""
    return (
        Path(platformdirs.user_cache_dir("reprokit"))
        / "inductor"
        / interpreter_state(python, "torch/version.py")
    )


def guard_folder() -> Path:
    """Where the device guards of simulated GPUs are kept; each is named for the torch that it was
    built for.
    """
    return Path(platformdirs.user_cache_dir("reprokit")) / "guards"


def interpreter_state(python: str, file: str = "", more: Iterable[str] = ()) -> str:
    """A name for an interpreter with the times of ``file`` in its site-packages; it changes with
    what is installed.
    """
    homes = {Path(python).parent.parent, Path(python).resolve().parent.parent}
    found = sorted(p for home in homes for p in home.glob(f"lib*/python3*/site-packages/{file}"))
    told = [python, *(f"{p}:{p.stat().st_mtime_ns}" for p in found), *more]
    return hashlib.sha256("\n".join(told).encode("utf-8", "surrogateescape")).hexdigest()[:16]


def keep_cache(warm: Path, place: Path) -> None:
    """Keep what a finished warm-up has built; whole or not at all."""
    draft = place.with_name(f"{place.name}.{os.getpid()}")
    with contextlib.suppress(OSError):
        if not place.exists() and any(path.suffix == ".so" for path, _ in _files(warm)):
            copy_cache(warm, draft)
            draft.rename(place)
    deletion.delete(draft, inside=place.parent)


def fix_headers() -> int:
    """Remove the halves of precompiled headers that killed compilers left, and say how many; torch
    makes them anew.
    """
    count = 0
    with contextlib.suppress(OSError, KeyError):
        folder = (
            Path(tempfile.gettempdir())
            / f"torchinductor_{getpass.getuser()}"
            / "precompiled_headers"
        )
        for path in folder.glob("*.gch"):
            with contextlib.suppress(OSError):
                if not _is_whole(path):
                    count += _remove_unless_locked(
                        path, folder / "locks" / f"{path.name.partition('.')[0]}.lock"
                    )
    return count


def _is_whole(path: Path) -> bool:
    with path.open("rb") as file:
        return file.read(len(WHOLE)) == WHOLE


def _remove_unless_locked(path: Path, lock: Path) -> bool:
    """torch holds the lock for as long as it has the header compiled."""
    lock.parent.mkdir(exist_ok=True)
    with lock.open("a") as file:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if _is_whole(path):
            return False
        return deletion.delete(path, inside=path.parent)
