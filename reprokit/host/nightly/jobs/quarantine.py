"""Keep refused files for inspection, in a folder of bounded size inside the output folder."""

from __future__ import annotations

import os
import re
from pathlib import Path

from reprokit.host.system import deletion, files, host_log

FOLDER = "quarantine"
MAX_FILES, MAX_BYTES = 100, 64 << 20
"""Older files are deleted."""
MAX_WALKED_FILES = 2_000
"""Maximum number of files of a folder; a folder with more is too large."""


def quarantine_file(path: Path, output: Path) -> str:
    """Move a file, a link or a folder to the quarantine.

    Return its new path, relative to ``output``. If it is too large, it is deleted. Afterwards
    ``path`` does not exist, unless the file system refuses that.
    """
    folder = _quarantine_folder(output)
    if folder is not None:
        name = f"{_safe_name(path.parent.name)}-{_safe_name(path.name)}"
        kept = folder / f"{_next_number(folder):06d}-{name}"
        with host_log.suppress(OSError):
            os.rename(path, kept)
            _delete_oldest(folder)
            return f"{FOLDER}/{kept.name}"
    deletion.delete_path(path, inside=output)
    return f"{FOLDER} could not be written"


def quarantine_text(lines: list[str], output: Path, name: str) -> str:
    """Write refused lines to one file, and return its path, relative to ``output``."""
    folder = _quarantine_folder(output)
    if folder is not None:
        kept = folder / f"{_next_number(folder):06d}-{_safe_name(name)}"
        with host_log.suppress(OSError):
            files.write_atomically(kept, "".join(line + "\n" for line in lines))
            _delete_oldest(folder)
            return f"{FOLDER}/{kept.name}"
    return f"{FOLDER} could not be written"


def _quarantine_folder(output: Path) -> Path | None:
    folder = output / FOLDER
    if folder.is_symlink() or (folder.exists() and not folder.is_dir()):  # a target may write there
        deletion.delete_path(folder, inside=output)
    try:
        folder.mkdir(exist_ok=True)
    except OSError as problem:
        host_log.log_ignored(problem)
        return None
    return folder


def _entries(folder: Path) -> list[Path]:
    with host_log.suppress(OSError):
        return sorted(p for p in folder.iterdir() if re.match(r"\d{6}-", p.name))
    return []


def _next_number(folder: Path) -> int:
    entries = _entries(folder)
    return 1 + int(entries[-1].name[:6]) if entries else 1


def _delete_oldest(folder: Path) -> None:
    """Delete the oldest files until the rest is within the limits."""
    size = 0
    for number, entry in enumerate(reversed(_entries(folder)), 1):
        size += _size(entry)
        if number > MAX_FILES or size > MAX_BYTES:
            deletion.delete_path(entry, inside=folder)


def _size(entry: Path) -> int:
    if entry.is_symlink() or not entry.is_dir():
        return entry.lstat().st_size
    total = count = 0
    for folder, folders, names in os.walk(entry):
        count += len(folders) + len(names)
        if count > MAX_WALKED_FILES:
            return MAX_BYTES + 1
        for name in names:
            with host_log.suppress(OSError):
                total += os.lstat(os.path.join(folder, name)).st_size
    return total


def _safe_name(name: str) -> str:
    return re.sub(r"[^A-Za-z0-9._]+", "-", name)[:60]
