"""Find and check the Python interpreter of the target."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys

from reprokit.core.shared.errors import BadInput
from reprokit.host.system import host_log

HAS_TORCH = """
import importlib.util, sys
sys.path[:] = filter(None, sys.path)  # a folder torch/ in the current directory is not torch
sys.exit(importlib.util.find_spec("torch") is None)
"""


def default_interpreter() -> tuple[str, str]:
    """Return the interpreter that is used without ``--python``, and a message if it is not
    reprokit's own.

    An isolated install of reprokit has no torch, but the active environment of the user may have
    it.
    """
    if has_torch(sys.executable):
        return sys.executable, ""
    active = os.environ.get("VIRTUAL_ENV")
    folders = [(active, "the active VIRTUAL_ENV")] if active else []
    for folder, description in (*folders, (".venv", "the .venv here")):
        path = os.path.abspath(os.path.join(folder, "bin", "python"))
        if os.path.exists(path) and has_torch(path):
            return path, f"using {path}, {description}: reprokit's own interpreter has no torch"
    return sys.executable, ""


def has_torch(path: str) -> bool:
    """Return whether this interpreter finds torch, without importing it."""
    with host_log.suppress(OSError, subprocess.TimeoutExpired):
        return (
            subprocess.run(
                [path, "-c", HAS_TORCH], capture_output=True, timeout=30, check=False
            ).returncode
            == 0
        )
    return False


def check_interpreter(name: str | None, option: str = "--python") -> str:
    """Return the absolute path of the interpreter that ``option`` names.

    Raises BadInput if it does not run or is too old.
    """
    if name is None:
        return sys.executable
    program = shutil.which(name)
    if program is None:
        raise BadInput(
            f"{option} {name}: there is no such program; give the path of an interpreter"
        )
    # links are not resolved: the python of a virtual environment is a link
    path = os.path.abspath(program)
    output = ""
    with host_log.suppress(OSError, subprocess.TimeoutExpired):
        done = subprocess.run(
            [path, "-I", "-c", "import sys; print('%d %d' % sys.version_info[:2])"],
            capture_output=True,
            text=True,
            timeout=30,
            check=False,
        )
        output = done.stdout.strip()
    try:
        version = tuple(int(n) for n in output.split())
    except ValueError as problem:
        host_log.log_ignored(problem)
        version = ()
    if len(version) != 2:
        raise BadInput(f"{option} {name}: it does not behave like a Python interpreter")
    if version < (3, 10):
        raise BadInput(
            f"{option} {name} is Python {version[0]}.{version[1]}; reprokit needs 3.10 or newer"
        )
    return path
