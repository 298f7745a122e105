"""What is warm and may be shared: the C++ compiler's answers to Inductor's questions, never a compiled graph.

A probe that is killed in the middle of a write must not spoil what the next one reads. So each gets a cache folder of
its own, in which what is shared stands as hard links, and nothing that a probe wrote is ever shared.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
from pathlib import Path

import platformdirs

NOT_SHARED = frozenset({"locks", "fxgraph", "aotautograd"})
"""Results and locks."""


def share(source: Path, copy: Path) -> None:
    """Give ``copy`` the files of a warm cache: reading them costs nothing, and writers replace names, not contents."""
    copy.mkdir(parents=True, exist_ok=True)
    for path in source.rglob("*") if source.is_dir() else ():
        relative = path.relative_to(source)
        with contextlib.suppress(OSError):
            if not path.is_file() or relative.parts[0] in NOT_SHARED or not path.stat().st_size:
                continue
            place = copy / relative
            place.parent.mkdir(parents=True, exist_ok=True)
            try:
                os.link(path, place)
            except OSError:
                shutil.copy2(path, place)


def kept(python: str) -> Path:
    """Where they are kept between runs, by interpreter and torch."""
    homes = {Path(python).parent.parent, Path(python).resolve().parent.parent}
    found = sorted(p for home in homes for p in home.glob("lib*/python3*/site-packages/torch/version.py"))
    told = [f"{p}:{p.stat().st_mtime_ns}" for p in found]
    name = hashlib.sha256("\n".join([python, *told]).encode()).hexdigest()[:16]
    return Path(platformdirs.user_cache_dir("reprokit")) / "inductor" / name


def keep(warm: Path, place: Path) -> None:
    """Keep what a finished warm-up has built; whole or not at all."""
    if place.exists() or not any(warm.rglob("*.so")):
        return
    draft = place.with_name(f"{place.name}.{os.getpid()}")
    with contextlib.suppress(OSError):
        share(warm, draft)
        draft.rename(place)
    shutil.rmtree(draft, ignore_errors=True)
