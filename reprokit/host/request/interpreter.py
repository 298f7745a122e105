"""The interpreter that ``--python``, or another option, names."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys

from reprokit.core.shared.errors import BadInput

HAS_TORCH = """
import importlib.util, sys
sys.path[:] = filter(None, sys.path)  # a folder torch/ here is not torch
sys.exit(importlib.util.find_spec("torch") is None)
"""


def usual_interpreter() -> tuple[str, str]:
    """The interpreter that is used where none is named, and why it is not reprokit's own; empty
    where it is.

    An isolated install of reprokit has no torch; the environment that the user works in may have
    it.
    """
    if has_torch(sys.executable):
        return sys.executable, ""
    active = os.environ.get("VIRTUAL_ENV")
    places = [(active, "the active VIRTUAL_ENV")] if active else []
    for folder, what in (*places, (".venv", "the .venv here")):
        path = os.path.abspath(os.path.join(folder, "bin", "python"))
        if os.path.exists(path) and has_torch(path):
            return path, f"using {path}, {what}: reprokit's own interpreter has no torch"
    return sys.executable, ""


def has_torch(path: str) -> bool:
    """Whether this interpreter finds torch; it is not imported."""
    with contextlib.suppress(OSError, subprocess.TimeoutExpired):
        return (
            subprocess.run(
                [path, "-c", HAS_TORCH], capture_output=True, timeout=30, check=False
            ).returncode
            == 0
        )
    return False


def check_interpreter(name: str | None, option: str = "--python") -> str:
    """Check that the interpreter runs and is new enough, before anything is started with it."""
    if name is None:
        return sys.executable
    found = shutil.which(name)
    path = (
        os.path.abspath(found) if found else None
    )  # not resolved: a link in a virtual environment is the environment
    if path is None:
        raise BadInput(
            f"{option} {name}: there is no such program; give the path of an interpreter"
        )
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
        raise BadInput(
            f"{option} {name} is Python {version[0]}.{version[1]}; reprokit's agent needs 3.10 or"
            " newer"
        )
    return path
