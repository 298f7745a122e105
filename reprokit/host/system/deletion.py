"""Delete files and folders, but nothing outside the folder that the caller names. No other module
deletes.

Key insight: the parent folder is resolved and held open before anything is deleted. So links and
``..`` in the path are already resolved, a link that is created later has no effect, and a link in
the last component is never followed.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import stat
from collections.abc import Iterator
from pathlib import Path

from reprokit.host.system import host_log

_DESCRIPTORS = Path("/proc/self/fd")
"""Linux has a path for each open descriptor in this folder."""


class _Outside(Exception):
    """The path is not inside the folder that the caller names."""


def delete_path(path: Path, inside: Path) -> bool:
    """Delete a file, a symbolic link or a folder with its contents. Return False if something is
    left.

    If the path is a link, delete the link and not its target. Files outside ``inside``, and
    ``inside`` itself, are not deleted. Raises nothing: a file that cannot be deleted must not
    prevent a pack.
    """
    with host_log.suppress(OSError, _Outside), _held_path(path, inside) as held:
        try:
            is_folder = stat.S_ISDIR(held.lstat().st_mode)
        except FileNotFoundError:
            return True
        if is_folder:
            shutil.rmtree(held, ignore_errors=True)
        else:
            held.unlink(missing_ok=True)
        return not os.path.lexists(held)
    return False


def delete_empty_folder(path: Path, inside: Path) -> bool:
    """Delete an empty folder. Return False if it is left."""
    with host_log.suppress(OSError, _Outside), _held_path(path, inside) as held:
        held.rmdir()
        return True
    return False


@contextlib.contextmanager
def _held_path(path: Path, inside: Path) -> Iterator[Path]:
    """Hold the parent folder open and yield the path of the file through that descriptor.

    Raises _Outside or OSError.
    """
    name, root = path.name, Path(os.path.realpath(inside))
    if name in ("", ".", "..") or "\0" in str(path):
        raise _Outside
    parent = Path(os.path.realpath(path.parent))
    fd = os.open(parent, getattr(os, "O_PATH", os.O_RDONLY) | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        if _DESCRIPTORS.is_dir():
            parent, held = Path(os.readlink(_DESCRIPTORS / str(fd))), _DESCRIPTORS / str(fd) / name
        else:
            held = parent / name
        if (parent != root and root not in parent.parents) or parent / name == root:
            raise _Outside
        yield held
    finally:
        os.close(fd)
