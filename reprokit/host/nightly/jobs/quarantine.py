"""Keep refused files for a person to look at, in a folder of bounded size inside the output
folder.
"""

from __future__ import annotations

import contextlib
import os
import re
from pathlib import Path

from reprokit.host.system import deletion, files

FOLDER = "quarantine"
MOST_FILES, MOST_BYTES = 100, 64 << 20
"""Older files are deleted."""
MOST_WALKED = 2_000
"""Maximum number of files of a folder; a folder with more is too large."""


def quarantine_file(path: Path, output: Path) -> str:
    """Move a file, a link or a folder to the quarantine; gives its new path, relative to
    ``output``.

    It is deleted if it is too large. After this nothing is at ``path``, unless the file system
    refuses.
    """
    place = _place(output)
    if place is not None:
        kept = place / f"{_next(place):06d}-{_plain(path.parent.name)}-{_plain(path.name)}"
        with contextlib.suppress(OSError):
            os.rename(path, kept)
            _bound(place)
            return f"{FOLDER}/{kept.name}"
    deletion.delete(path, inside=output)
    return f"{FOLDER} has no room for it"


def quarantine_text(lines: list[str], output: Path, name: str) -> str:
    """Keep refused lines as one file; gives its path, relative to ``output``."""
    place = _place(output)
    if place is not None:
        kept = place / f"{_next(place):06d}-{_plain(name)}"
        with contextlib.suppress(OSError):
            files.write_whole(kept, "".join(line + "\n" for line in lines))
            _bound(place)
            return f"{FOLDER}/{kept.name}"
    return f"{FOLDER} has no room for them"


def _place(output: Path) -> Path | None:
    place = output / FOLDER
    if place.is_symlink() or (place.exists() and not place.is_dir()):  # a target may write there
        deletion.delete(place, inside=output)
    try:
        place.mkdir(exist_ok=True)
    except OSError:
        return None
    return place


def _entries(place: Path) -> list[Path]:
    with contextlib.suppress(OSError):
        return sorted(p for p in place.iterdir() if re.match(r"\d{6}-", p.name))
    return []


def _next(place: Path) -> int:
    found = _entries(place)
    return 1 + int(found[-1].name[:6]) if found else 1


def _bound(place: Path) -> None:
    """Delete the oldest files until the rest is within the limits."""
    size = 0
    for number, entry in enumerate(reversed(_entries(place)), 1):
        size += _size(entry)
        if number > MOST_FILES or size > MOST_BYTES:
            deletion.delete(entry, inside=place)


def _size(entry: Path) -> int:
    if entry.is_symlink() or not entry.is_dir():
        return entry.lstat().st_size
    total = count = 0
    for folder, folders, names in os.walk(entry):
        count += len(folders) + len(names)
        if count > MOST_WALKED:
            return MOST_BYTES + 1
        for name in names:
            with contextlib.suppress(OSError):
                total += os.lstat(os.path.join(folder, name)).st_size
    return total


def _plain(name: str) -> str:
    return re.sub(r"[^A-Za-z0-9._]+", "-", name)[:60]
