"""The interpreter that ``--python``, or another option, names."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys

from ..core.records import BadInput


def check(name: str | None, option: str = "--python") -> str:
    """Check that the interpreter runs and is new enough, before anything is started with it."""
    if name is None:
        return sys.executable
    found = shutil.which(name)
    path = os.path.abspath(found) if found else None  # not resolved: a link in a virtual environment is the environment
    if path is None:
        raise BadInput(f"{option} {name}: there is no such program; give the path of an interpreter")
    said = ""
    with contextlib.suppress(OSError, subprocess.TimeoutExpired):
        done = subprocess.run(
            [path, "-I", "-c", "import sys; print('%d %d' % sys.version_info[:2])"],
            capture_output=True,
            text=True,
            timeout=30,
            check=False,
        )
        said = done.stdout.strip()
    try:
        version = tuple(int(n) for n in said.split())
    except ValueError:
        version = ()
    if len(version) != 2:
        raise BadInput(f"{option} {name}: it does not behave like a Python interpreter")
    if version < (3, 10):
        raise BadInput(f"{option} {name} is Python {version[0]}.{version[1]}; reprokit's agent needs 3.10 or newer")
    return path
