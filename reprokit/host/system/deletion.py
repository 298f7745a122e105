"""The only module that deletes. It deletes nothing outside the folder that the caller names,
whatever the path says.

Key insight: the parent folder is resolved and held open before anything is deleted. A link or
``..`` on the path is then already followed, a link that is put there later changes nothing, and the
last name is never followed.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import stat
from collections.abc import Iterator
from pathlib import Path

_HELD = Path("/proc/self/fd")
"""The folder in which Linux has a path for each open folder."""


class _Outside(Exception):
    """The path is not inside the folder that the caller names."""


def delete(path: Path, inside: Path) -> bool:
    """Delete a file, a symbolic link or a folder with its contents; False if something is left.

    If the path is a link, the link is deleted and not its target. Files outside ``inside``, and
    ``inside`` itself, stay. This raises nothing: a file that stays must not cost a pack.
    """
    with contextlib.suppress(OSError, _Outside), _held(path, inside) as place:
        try:
            is_folder = stat.S_ISDIR(place.lstat().st_mode)
        except FileNotFoundError:
            return True
        if is_folder:
            shutil.rmtree(place, ignore_errors=True)
        else:
            place.unlink(missing_ok=True)
        return not os.path.lexists(place)
    return False


def delete_empty(path: Path, inside: Path) -> bool:
    """Delete an empty folder; False if it is left."""
    with contextlib.suppress(OSError, _Outside), _held(path, inside) as place:
        place.rmdir()
        return True
    return False


@contextlib.contextmanager
def _held(path: Path, inside: Path) -> Iterator[Path]:
    """The path of the same file through its parent folder, which is held open; raises _Outside, or
    OSError.
    """
    name, root = path.name, Path(os.path.realpath(inside))
    if name in ("", ".", "..") or "\0" in str(path):
        raise _Outside
    parent = Path(os.path.realpath(path.parent))
    held = os.open(parent, getattr(os, "O_PATH", os.O_RDONLY) | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        if _HELD.is_dir():
            parent, place = Path(os.readlink(_HELD / str(held))), _HELD / str(held) / name
        else:
            place = parent / name
        if (parent != root and root not in parent.parents) or parent / name == root:
            raise _Outside
        yield place
    finally:
        os.close(held)
